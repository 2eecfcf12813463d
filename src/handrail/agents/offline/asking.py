"""What is asked back, and what is offered: in a person's words, never in those of a schema."""

from __future__ import annotations

import re

from handrail.agents.offline import manners
from handrail.agents.offline.goals import NO_TOOL, Choice
from handrail.agents.offline.view import SeenTool, View
from handrail.agents.offline.whens import kind_of_time, takes_addresses
from handrail.agents.offline.wording import first_sentence, listed, named, one_line

NEED = "I still need"
WHICH = "Which one suits you?"
ANYWAY = "Shall I take that time anyway?"
_WHEN = {
    "date-time": "When? A day and a time, such as tomorrow at three",
    "date": "Which day?",
    "time": "At what time?",
}
_FOR_MODELS = re.compile(r"\b(?:ISO|RFC|BCP|offset|verbatim|E\.164|IANA)\b|\w_\w|`")


def need_of(choice: Choice, view: View) -> str:
    """What is missing, asked for."""
    missing = choice.filled.missing
    if view.mode == "voice":
        return f"For that {NEED} the {listed([named(name) for name in missing])}."
    times = [name for name in missing if kind_of_time(name, choice.tool.properties.get(name, {})) == "date-time"]
    if list(missing) == times:
        return f"When? For that {NEED} a day and a time, such as tomorrow at three."
    lines = [f"- {_WHEN['date-time']}"] if times else []
    lines += [_line(name, choice.tool) for name in missing if name not in times]
    return f"For that {NEED} the following:\n" + "\n".join(lines)


def beyond(choice: Choice) -> str:
    """Which limit was passed: what does not fit is neither cut nor dropped in silence."""
    return f"That is more than is possible here: {listed(list(choice.filled.passed))}. For that {NEED} other values."


def when_besides(choice: Choice) -> str:
    """The question for when, behind another one; empty where that is known."""
    kinds = (kind_of_time(name, choice.tool.properties.get(name, {})) for name in choice.filled.missing)
    return f" {_WHEN['date-time']}." if "date-time" in kinds else ""


def needed_besides(names: list[str], tool: SeenTool) -> str:
    """The rest of what is missing, in one sentence."""
    told = [
        "who takes part, by e-mail address" if takes_addresses(tool.properties.get(n, {})) else named(n) for n in names
    ]
    return f" And {NEED} {listed(told)}." if told else ""


def _line(name: str, tool: SeenTool) -> str:
    schema = tool.properties.get(name, {})
    options = [str(value) for value in schema.get("enum", ())][:8]
    kind = kind_of_time(name, schema)
    if options:
        about = f"one of {', '.join(options)}"
    elif kind is not None:
        about = _WHEN[kind]
    elif takes_addresses(schema):
        about = "Who? Their e-mail addresses"
    else:
        about = first_sentence(str(schema.get("description", ""))).strip().rstrip(".")
        about = "" if _FOR_MODELS.search(about) else about
    return f"- {named(name)}" + (f": {one_line(about, 160)}" if about else "")


# ---------------------------------------------------------------------------------------------------------- offers
def abilities(view: View) -> str:
    lines = [f"- {first_sentence(tool.summary or tool.description)}" for tool in _offered(view)]
    if not lines:
        return "I have no tools in this conversation, so there is little that I can do."
    most = 3 if view.mode == "voice" else 12
    shown = lines[:most] + ([f"- and {len(lines) - most} more"] if len(lines) > most else [])
    return "\n".join(["This is what I can do:", "", *shown])


def unable(view: View, why: str = "") -> str:
    """That nothing here does what is wanted. What there is instead is listed the first time; later a few words do."""
    if not view.tools:
        return "I have no tools in this conversation, and without one I know nothing about that."
    said = why or f"{NO_TOOL}."
    if view.mode == "voice" or not any(NO_TOOL in turn.answer for turn in view.turns[:-1]):
        return f"{said} {abilities(view)}"
    deeds = [deed for tool in _offered(view) if tool.category != "utility" and (deed := _deed(tool))]
    if not deeds:
        return f"{said} {abilities(view)}"
    return f"{said} What I can do is {listed(deeds[:4])}; ask me what I can do for the rest."


def _offered(view: View) -> list[SeenTool]:
    return [tool for tool in view.tools.values() if tool.name != manners.BLOCKING]


def _deed(tool: SeenTool) -> str:
    """ "Puts an event into the calendar, with …" is "put an event into the calendar"."""
    clause = re.split(r"[.;:,]\s|[.;:,]$|\s+and\s+(?=\w+s\b)", (tool.summary or tool.description).strip(), maxsplit=1)[
        0
    ]
    verb, _, rest = clause.partition(" ")
    if not rest or not verb.endswith("s") or _FOR_MODELS.search(clause):
        return ""
    plain = re.sub(r"(?<=ss|sh|ch|.x)es$|s$", "", re.sub(r"ies$", "ys", verb.lower()))
    return f"{plain} {rest}"
