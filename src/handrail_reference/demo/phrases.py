"""What people say around the journeys, and what the demo model says about itself. The patterns stand in language.toml."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

from handrail_reference.demo.view import Outcome, Step, View

LANGUAGE = tomllib.loads(files(__package__).joinpath("language.toml").read_text("utf-8"))


def _compiled(pattern: str) -> re.Pattern[str]:
    whole = re.sub(r"(?<!\?P)<(\w+)>", lambda part: str(LANGUAGE["parts"][part[1]]), pattern)
    return re.compile(whole, re.IGNORECASE | re.VERBOSE)


SAYS = {name: _compiled(pattern) for name, pattern in LANGUAGE["patterns"].items()}
_SMALL_TALK = {answer: _compiled(pattern) for answer, pattern in LANGUAGE["small_talk"].items()}
_WORDS = {name: frozenset(words.split()) for name, words in LANGUAGE["languages"].items()}
WARNING = "I would like to help you, but not in this tone. If it goes on like this, I will pause our conversation."
_CONNECT = (
    "To connect a language model: start Ollama on this machine; or set a key such as OPENAI_API_KEY and "
    '`model = "openai:…"` under `[agent]` in handrail.toml; or name a local file with `model = "local:….gguf"`.'
)


def small_talk(text: str) -> str | None:
    """The answer to a greeting, thanks, an apology or a goodbye."""
    return next((say for say, said in _SMALL_TALK.items() if said.fullmatch(text.strip(" .,!?\n"))), None)


def other_language(text: str) -> str | None:
    """The answer to a sentence that is not English."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    count = {answer: sum(word in known for word in words) for answer, known in _WORDS.items()}
    answer = max(count, key=lambda name: (count[name], name == "english"))
    if answer != "english" and (count[answer] > 1 or len(words) <= 2):
        return f"In the demo I understand only English. {answer}"
    foreign = sum(letter.isalpha() and not letter.isascii() for letter in text)
    return "In the demo I understand only English." if 2 * foreign > sum(map(str.isalpha, text)) else None


def suggestions(view: View) -> list[str]:
    """What the user may say next."""
    return [say for tool, (_, say) in LANGUAGE["journeys"].items() if tool in view.tools]


def declined(view: View, why: str = "") -> Step:
    """That this takes a language model, what works without one, and how to connect one."""
    if view.voice:
        return Step(f"{why} No language model is connected, so I cannot help with that.".strip())
    can = [words for tool, (words, _) in LANGUAGE["journeys"].items() if tool in view.tools]
    scenes = f"No language model is connected. What I can do without one: {', '.join(can) or 'nothing'}."
    if own := sorted(view.tools.difference(LANGUAGE["reference_tools"]))[:8]:
        scenes += f" Your own tools need one: {', '.join(f'`{name}`' for name in own)}."
    told = any(_CONNECT in turn.answer for turn in view.turns[-4:])
    return Step("\n\n".join(filter(None, [why, scenes, "" if told else _CONNECT])), (), suggestions(view))


def failure(outcome: Outcome, voice: bool) -> str:
    """Why a call did not do what was wanted, for the person who wanted it."""
    error = outcome.error
    kind, message = error.get("type"), " ".join(str(error.get("message", "")).split())
    if kind == "CONFIRMATION_REQUIRED":
        preview = error.get("confirmation_request", {}).get("preview", "").strip()
        waits = f"This waits for your approval:\n\n{preview}\n\nPlease approve or decline it; I cannot do that for you."
        return "That needs your word." if voice else waits
    if kind == "DECLINED":
        return "You declined that, so I left it."
    if error.get("partialSideEffects"):
        return f"It is not known whether that happened. {message} Please have somebody look before it is tried again."
    return f"That did not work: {message}{' Please try again in a moment.' if error.get('retryable') else ''}"
