"""What people say, by the patterns of language.toml, and what the demo model says about itself."""

import re
import tomllib
from importlib.resources import files

from handrail_reference.demo.view import Outcome, Step, View

_TABLES = [files(__package__).joinpath(name).read_text("utf-8") for name in ("language.toml", "questions.toml")]
LANGUAGE = tomllib.loads(_TABLES[0]) | tomllib.loads(_TABLES[1])
REPLY: dict[str, str] = LANGUAGE["sentences"]


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", lambda part: str(LANGUAGE["parts"][part[1]]), pattern), re.I | re.X)


SAYS = {name: _compiled(pattern) for name, pattern in LANGUAGE["patterns"].items()}
FILLERS = frozenset(LANGUAGE["fillers"].split())
_SMALL_TALK = {answer: _compiled(pattern) for answer, pattern in LANGUAGE["small_talk"].items()}
_WORDS = {answer: frozenset(words.split()) for answer, words in LANGUAGE["languages"].items()}


def small_talk(text: str) -> str | None:
    """The answer to a greeting, thanks, an apology or a goodbye, and to what is not English."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    count = {answer: sum(word in known for word in words) for answer, known in _WORDS.items()}
    other = max(count, key=lambda answer: (count[answer], answer == ""))
    foreign = sum(letter.isalpha() and not letter.isascii() for letter in text) > len(text) / 2
    if foreign or (other and (count[other] > 1 or len(words) <= 2)):
        return f"In the demo I understand only English. {other}".strip()
    return next((say for say, said in _SMALL_TALK.items() if said.fullmatch(text.strip(" .,!?\n"))), None)


def suggestions(view: View) -> list[str]:
    """What the user may say next; nothing about somebody whom they have just named, whom they may not want to meet."""
    offered, named = LANGUAGE["journeys"].items(), SAYS["email"].findall(view.turn.text)
    return [say for tool, (_, say) in offered if tool in view.tools and not any(one in say for one in named)]


def declined(view: View, why: str = "") -> Step:
    """That this takes a language model, what works without one, and how to connect one."""
    if view.voice:
        return Step(f"{why} No language model is connected, so I cannot help with that.".strip())
    can = ", ".join(words for tool, (words, _) in LANGUAGE["journeys"].items() if tool in view.tools)
    lines = [why, f"No language model is connected.{f' What I can do without one: {can}.' if can else ''}"]
    if own := ", ".join(f"`{name}`" for name in sorted(view.tools.difference(LANGUAGE["reference_tools"]))[:8]):
        lines.append(REPLY["own_tools"].format(own))
    if not any(LANGUAGE["connect"] in turn.answer for turn in view.turns[-4:]):
        lines.append(LANGUAGE["connect"])
    return Step("\n\n".join(filter(None, lines)), (), suggestions(view))


def failure(outcome: Outcome, voice: bool) -> str:
    """Why a call did not do what was wanted, for the person who wanted it."""
    error, message = outcome.error, " ".join(str(outcome.error.get("message", "")).split())
    if outcome.held:
        return "That needs your word." if voice else REPLY["held"]
    if error.get("type") == "DECLINED":
        return "You declined that, so I left it."
    if error.get("partialSideEffects"):
        known = "" if "not known whether" in message else "It is not known whether that happened. "
        return f"{known}{message} Please have somebody look before it is tried again."
    return f"That did not work: {message}{' Please try again in a moment.' if error.get('retryable') else ''}"
