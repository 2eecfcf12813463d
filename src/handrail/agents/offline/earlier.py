"""What was said before about when: a day that was looked at, a booking that waits. Words of now may point at it or correct it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date, timedelta

from handrail.agents.offline import manners
from handrail.agents.offline.asking import ANYWAY, NEED, WHICH
from handrail.agents.offline.moments import Times, moment_of, read_times
from handrail.agents.offline.view import Done, Turn, View
from handrail.agents.offline.vocabulary import BEGINNING, ENDING, words
from handrail.agents.offline.whens import kind_of_time
from handrail.agents.offline.wording import parts_of
from handrail.picking.words import split_words

_SHORT = timedelta(hours=4)
"""A look at a longer stretch was a look for a time, not at one."""
_LEAD = r"(?:(?:no|nope|sorry|wait|actually|hmm+|oh|ok(?:ay)?|well|but|please|and|on\s+second\s+thoughts?|i\s+mean(?:t)?)\b\W*)*"
_IT = r"(?:it|that|this|the\s+(?:meeting|event|appointment|time|start|call|booking|length|date|day))"
_REVISES = re.compile(
    rf"^\W*{_LEAD}(?:(?:let['’]?s\s+|(?:can|could)\s+(?:we|you)\s+(?:please\s+)?|please\s+|i['’]d\s+(?:rather|prefer)\s+(?:to\s+)?)?"
    rf"(?:make|change|move|shift|push|set|put|do|reschedule|say|take|have|start|shorten|extend)\s+{_IT}\b|let['’]?s\s+(?:do|make|say|take)\b|(?:how|what)\s+about\b|(?:better|rather|instead)\b|[^?]*\binstead\W*$)"
    rf"|^\W*(?:no|actually|sorry|wait|i\s+mean(?:t)?)\b",
    re.IGNORECASE,
)
_MAKE = (
    rf"(?:(?:let['’]?s\s+|(?:can|could)\s+(?:we|you)\s+(?:please\s+)?|please\s+|i['’]d\s+(?:rather|prefer)\s+(?:to\s+)?)?"
    rf"(?:make|change|move|shift|push|set|put|do|reschedule|say|take|have|start|book)\s+{_IT}|let['’]?s\s+(?:do|make|say|take)|(?:how|what)\s+about)"
)
_TITLES = re.compile(
    rf"^\W*{_LEAD}(?:(?:call|name|title)\s+{_IT}\s+\S|(?:change|set|make)\s+(?:the|its)\s+(?:title|name|subject)\s+(?:to\b|:)\s*\S)",
    re.IGNORECASE,
)
_SWITCHES = re.compile(
    rf"^\W*{_LEAD}(?:with|without|no|skip|drop|omit|leave\s+out|add|include|don['’]?t\s+\w+)\b", re.IGNORECASE
)
_FILLING = words(
    "a an and also at but day for i in is it let lets let's long make me ok okay on please same so that the then time to want"
)
_OPEN = (ANYWAY, NEED, WHICH)
_MOST_BETWEEN = 8
_ADDS = re.compile(rf"^\W*{_LEAD}(?:also\s+)?(?:add|invite|include)\s+\S+@\S+", re.IGNORECASE)
_CHANGING = words("change edit modify move reschedule update")


@dataclass(frozen=True, slots=True)
class Earlier:
    """A turn before this one that was about a time: what it was, and whether something was done or only looked at."""

    place: int
    times: Times
    acted: bool
    settled: bool
    declined: bool = False
    """Whether a person said no to it: then it is not in the way of another."""


def earlier_time(view: View, here: int) -> Earlier | None:
    """The turn before the one at `here`, if it was about a time; thanks and the like do not count."""
    for place in range(here - 1, -1, -1):
        turn = view.turns[place]
        for done in reversed(turn.done):
            times = _times_of(view, turn, done)
            if times is not None:
                acted = view.tools[done.call.name].category == "action"
                return Earlier(place, times, acted, done.ok or (turn.settled and not turn.declined), turn.declined)
        if turn.done or (turn.text and manners.small_talk(turn.text) is None and not manners.says_yes(turn.text)):
            return None
    return None


def revised(view: View, here: int | None = None) -> Earlier | None:
    """The booking that words of now correct: "actually make it 3pm", "no, Friday instead", "add bob@example.com"."""
    here = len(view.turns) - 1 if here is None else here
    text = view.turns[here].text
    if view.mode == "voice" or len(text) > 120 or any(mark in view.turns[here - 1].answer for mark in _OPEN):
        return None
    said = corrected_time(view, here)
    has_time = bool(said.has_day or said.has_clock or said.part or said.minutes)
    near = earlier_time(view, here)
    before = near if near is not None and near.acted else None
    if _ADDS.match(text) or (has_time and "@" not in text and _REVISES.match(text)):
        before = before or _waiting(view, here)
    elif "@" in text or not (_TITLES.match(text) or (has_time and _is_bare(said)) or _is_option(view, before, text)):
        return None
    if before is None or any(_CHANGING & set(tool.words) for tool in view.tools.values()):
        return None
    return before


def _waiting(view: View, here: int) -> Earlier | None:
    """The newest request that was held, whatever was asked in between."""
    for place in range(here - 1, max(here - _MOST_BETWEEN, 0), -1):
        turn = view.turns[place]
        times = _times_of(view, turn, turn.done[-1]) if turn.waits else None
        if times is not None and view.tools[turn.done[-1].call.name].category == "action":
            return Earlier(place, times, True, turn.settled and not turn.declined, turn.declined)
    return None


def _is_bare(said: Times) -> bool:
    """Whether nothing but a time was said: "and 45 minutes long please", "same time on Friday"."""
    return not set(split_words(said.rest)) - _FILLING


def _is_option(view: View, before: Earlier | None, text: str) -> bool:
    """Whether words switch something of a booking on or off: "without a meeting link please"."""
    tool = view.tools.get(view.turns[before.place].done[-1].call.name) if before is not None else None
    if tool is None or not _SWITCHES.match(text) or len(text) > 60:
        return False
    named = {
        word for name, schema in tool.properties.items() if schema.get("type") == "boolean" for word in parts_of(name)
    }
    return bool((named - _FILLING - {"include"}) & set(split_words(text)))


def corrected_time(view: View, here: int) -> Times:
    """What a correction says about when: behind "sorry, I meant" or "make it" an hour needs no "at"."""
    text = view.turns[here].text
    lead = re.match(rf"^\W*{_LEAD}(?:{_MAKE}\b\W*(?:(?:to|for|at)\b\W*)?)?", text, re.IGNORECASE)
    length = lead.end() if lead is not None else 0
    bare = " " * length + re.sub(
        r"\b(?:instead|rather|then)\b", lambda m: " " * len(m[0]), text[length:], flags=re.IGNORECASE
    )
    return read_times(bare, view.now, bare=length > 0)


def in_the_same_week(said: Times, before: Earlier, text: str, today: date) -> Times:
    """ "No, Wednesday" after a day of another week is the one of that week."""
    named = re.search(r"(\b\w+\s+)?\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", text, re.IGNORECASE)
    old = before.times.day
    if (
        named is None
        or old is None
        or said.day is None
        or (named[1] or "").strip().lower() in ("next", "this", "last", "coming")
    ):
        return said
    day = old - timedelta(days=old.weekday() - said.day.weekday())
    return replace(said, day=day, last_day=day) if day >= today else said


def taken_up(said: Times, before: Earlier) -> Times:
    """What is said now about when, and the rest from before: the day, and where no time is said, time and length too."""
    times = before.times
    if said.has_clock and not before.acted:
        times = Times(day=times.day, last_day=times.last_day)
    return said.over(times)


def _times_of(view: View, turn: Turn, done: Done) -> Times | None:
    """When a call was about, by its arguments."""
    tool = view.tools.get(done.call.name)
    if tool is None:
        return None
    begin = end = None
    for name, value in done.args.items():
        if kind_of_time(name, tool.properties.get(name, {})) != "date-time":
            continue
        last = parts_of(name)
        if set(last) & BEGINNING:
            begin = moment_of(value)
        elif set(last) & ENDING:
            end = moment_of(value)
    if begin is None or end is None or end <= begin:
        return None
    begin, end = begin.astimezone(view.now.tzinfo), end.astimezone(view.now.tzinfo)
    if tool.category == "action" or end - begin <= _SHORT:
        minutes = round((end - begin).total_seconds() / 60)
        return Times(day=begin.date(), last_day=begin.date(), start=begin.time(), minutes=minutes)
    last_day = (end - timedelta(minutes=1)).date()
    return Times(day=begin.date(), last_day=last_day, part=read_times(turn.text, view.now).part)


def points_at_it(text: str) -> bool:
    """Whether a command means what was talked about: "book it", "take that one"."""
    return bool(set(split_words(text)[:5]) & words("it that this then there"))
