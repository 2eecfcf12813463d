"""Whether a tool does what somebody wants done. A wrong search costs a moment, a wrong deed cannot be taken back: so the thing
that is to be dealt with has to be one that the tool names, or the verb one that says it all, such as "draw" for an image."""

from __future__ import annotations

import re

from handrail.agents.offline.arguments import Filled
from handrail.agents.offline.numbers import WORDS
from handrail.agents.offline.view import SeenTool
from handrail.agents.offline.vocabulary import CHANGING, DOING, LOOKING, PREPOSITIONS, words
from handrail.agents.offline.whens import kind_of_time, takes_addresses, takes_time
from handrail.agents.offline.wording import without_politeness
from handrail.picking.words import ASKING, COMMON, split_words, stem

_ANYTHING = words(
    """add arrange begin book build change compose create do draft edit generate get give have make move open organise
    organize plan prepare produce put request reserve run schedule send set share start stop submit switch take turn
    update write"""
)
"""Verbs that are said of so many things that they alone point at no tool."""
_MONEY = ["money", "payment"]
_MAKING = words("add build compose create draft generate make produce set write")
# Everyday words for the same thing.
_THINGS = (
    "meeting appointment event calendar",
    "picture image photo drawing illustration",
    "voice phone",
    "mail email",
    "bill invoice",
    "ticket issue bug",
    "payment money",
)
_DEEDS = (
    "draw paint sketch illustrate picture image photo drawing illustration",
    "email mail",
    "phone ring",
    "pay payment",
    "meet invite meeting appointment event calendar",
    "buy purchase order",
    "book schedule arrange reserve plan",
    "delete remove cancel",
)
_SENDING = words("email forward mail message post publish send share")
"""What is made is not sent."""
_LAYING_DOWN = words("add arrange book create enter fix organise organize plan put reserve schedule set take")
"""Verbs by which something is put into a calendar, a list, a plan."""
_PARTICLES = words("up in on off out down me us him her them it that this these those one ones another new both")
_NO_THING = (
    COMMON | ASKING | _PARTICLES | frozenset(WORDS) | words("user users time times something anything thing things")
)
_STOPS = PREPOSITIONS | words("and or but so that which who because if when then than please saying now again")
_WISHED = re.compile(
    r"^\W*(?:(?:hi|hello|hey|good\s+\w+)\W*)?(?:i(?:['’]d|\s+would)\s+like|i\s+(?:want|need)|(?:can|could|may)\s+i\s+(?:please\s+)?(?:have|get|make))\s+"
    r"(?:to\s+(?:have|get|make)\s+)?(?:an?|the|some|another)\s+(?P<thing>(?:\w+\s+){0,2}?\w+)",
    re.IGNORECASE,
)
"""A thing that is wished for: it is to be done if something here does such things."""
_GATHERING = words(
    """breakfast brunch briefing catchup chat coffee conference debrief demo dinner drink drinks handover interview kickoff
    lunch onboarding review session standup sync talk tea training walkthrough workshop"""
)
"""What people come together for: with somebody, it is an event, whatever it is called."""
_WITH_SOMEBODY = re.compile(r"\bwith\s+(?!it\b|that\b|this\b|the\b|an?\b|no\b)[\w@]")


def is_wished_for(text: str, acting: frozenset[str]) -> bool:
    """Whether a thing is wished for that a tool deals with; `acting` are the words of the names of those that do something."""
    wished = _WISHED.match(text)
    things = _stems(split_words(wished["thing"])) if wished is not None else frozenset()
    return bool(things & acting) or any(things & group and acting & group for group in map(_group, _THINGS))


def verb_of(text: str) -> str:
    """The verb that a command begins with; none where a thing is wished for."""
    return "" if _WISHED.match(text) else next(iter(split_words(without_politeness(text))), "")


def object_of(text: str) -> frozenset[str]:
    """The thing that a command deals with, as far as one is named: nouns, without people and numbers. `text` is without times."""
    wished = _WISHED.match(text)
    line = text[wished.start("thing") :] if wished is not None else without_politeness(text)
    found: list[str] = []
    for place, word in enumerate(re.findall(r"[$€£][\d.,]+|[^\s,;:.!?()\"“”]+|[,;:.!?()\"“”]", line)):
        if place == 0 and wished is None:
            continue
        small = word.lower()
        if word[0] in "$€£":
            found += _MONEY
            continue
        if not word[:1].isalnum() or (small in _STOPS and small not in _PARTICLES):
            break
        if "@" in word or (place > 0 and word[:1].isupper()) or any(sign.isdigit() for sign in word):
            continue
        found += [part for part in split_words(word) if part not in _NO_THING]
    return _stems(found)


def does(tool: SeenTool, filled: Filled, text: str) -> bool:
    """Whether a tool that changes something does what is asked for."""
    verb, things = verb_of(text), object_of(text)
    name, about = _stems(tool.words), _about(tool)
    if verb in _SENDING and not _stems(sorted(_SENDING)) & about:
        return False
    if things & about or any(things & group and name & group for group in map(_group, _THINGS)):
        return True
    if not things:
        told = filled.signs > 0 or verb not in _ANYTHING
        return verb == "" or (told and bool(_meant(verb) & about)) or (_puts_down(verb, tool) and takes_time(tool))
    if verb not in _ANYTHING and any(stem(verb) in group and name & group - {stem(verb)} for group in _deeds()):
        return True
    if verb not in _ANYTHING and stem(verb) in name and not _does_otherwise(verb, tool):
        return filled.complete
    return _lays_down(verb, tool, filled, text)


def gives(tool: SeenTool, text: str) -> bool:
    """Whether a tool that only looks or works something out can be the answer to a command. Where something is to be changed a
    look is none: it would pass for having done it."""
    verb = verb_of(text)
    if verb not in CHANGING:
        return True
    known = bool(_meant(verb) & tool.vocabulary())
    if verb not in _ANYTHING:
        return known
    things = object_of(text)
    if tool.category != "utility" or (things and not things & _about(tool)):
        return False
    if things & _stems(_MONEY):
        return True
    return known or (verb in _MAKING and bool(things) and not set(tool.words) & LOOKING)


def names_it_better(tool: SeenTool, action: SeenTool, text: str) -> bool:
    """Whether what is asked for is in the name of the one tool and not of the other: "draft a prompt for an image"."""
    return bool((_stems(tool.words) - _stems(action.words)) & _stems(split_words(text)))


def _lays_down(verb: str, tool: SeenTool, filled: Filled, text: str) -> bool:
    """ "Schedule lunch with Ana tomorrow at noon": no calendar names lunch, but when and with whom is all that one wants."""
    if not _puts_down(verb, tool):
        return False
    if not _WITH_SOMEBODY.search(text):
        return filled.signs >= 2 and filled.complete
    times = [name for name in filled.missing if kind_of_time(name, tool.properties.get(name, {})) is not None]
    people = [name for name in filled.missing if takes_addresses(tool.properties.get(name, {}))]
    if object_of(text) & _stems(sorted(_GATHERING)) and len(times) + len(people) == len(filled.missing):
        return True  # what is missing is asked for
    return (filled.signs >= 2 and len(filled.missing) <= 1) or (filled.signs > 0 and len(times) == len(filled.missing))


def _puts_down(verb: str, tool: SeenTool) -> bool:
    return verb in _LAYING_DOWN and bool(_stems(sorted(_LAYING_DOWN)) & _about(tool))


def _does_otherwise(verb: str, tool: SeenTool) -> bool:
    """Whether the tool's name has a verb of its own: `order_cancel` takes no orders."""
    others = set(tool.words) & DOING - _ANYTHING - {verb}
    return any(stem(other) not in _meant(verb) for other in others)


def _meant(verb: str) -> frozenset[str]:
    return frozenset({stem(verb)}).union(*(group for group in _deeds() if stem(verb) in group))


def _about(tool: SeenTool) -> frozenset[str]:
    """What a tool says it is about: its name, and the beginning of its description."""
    clauses = (re.split(r"[.;:,]\s", text, maxsplit=1)[0] for text in (tool.description, tool.summary))
    told = [word for clause in clauses for word in split_words(clause) if word not in _NO_THING]
    return _stems([*tool.words, *told])


def _deeds() -> list[frozenset[str]]:
    return [_group(group) for group in _DEEDS]


def _group(text: str) -> frozenset[str]:
    return _stems(text.split())


def _stems(found: list[str]) -> frozenset[str]:
    return frozenset(map(stem, found))
