"""What was said before about when: a day that was looked at, a booking that waits. Words of now may point at it or correct it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from handrail.agents.offline import manners
from handrail.agents.offline.moments import Times, read_times
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
    rf"(?:make|change|move|shift|push|set|put|do|reschedule|say|take|have|start|shorten|extend)\s+{_IT}\b|(?:better|rather|instead)\b|[^?]*\binstead\W*$)"
    rf"|^\W*(?:no|actually|sorry|wait|i\s+mean(?:t)?)\b",
    re.IGNORECASE,
)
_ADDS = re.compile(rf"^\W*{_LEAD}(?:also\s+)?(?:add|invite|include)\s+\S+@\S+", re.IGNORECASE)
_CHANGING = words("change edit modify move reschedule update")


@dataclass(frozen=True, slots=True)
class Earlier:
    """A turn before this one that was about a time: what it was, and whether something was done or only looked at."""

    place: int
    times: Times
    acted: bool
    settled: bool


def earlier_time(view: View, here: int) -> Earlier | None:
    """The turn before the one at `here`, if it was about a time; thanks and the like do not count."""
    for place in range(here - 1, -1, -1):
        turn = view.turns[place]
        for done in reversed(turn.done):
            times = _times_of(view, turn, done)
            if times is not None:
                acted = view.tools[done.call.name].category == "action"
                return Earlier(place, times, acted, done.ok or turn.settled)
        if turn.done or (turn.text and manners.small_talk(turn.text) is None and not manners.says_yes(turn.text)):
            return None
    return None


def revised(view: View, here: int | None = None) -> Earlier | None:
    """The booking that words of now correct: "actually make it 3pm", "no, Friday instead", "add bob@example.com"."""
    here = len(view.turns) - 1 if here is None else here
    text = view.turns[here].text
    if view.mode == "voice" or len(text) > 120:
        return None
    said = corrected_time(view, here)
    adds = bool(_ADDS.match(text))
    has_time = said.has_day or said.has_clock or said.part or said.minutes
    if not adds and ("@" in text or not has_time or not _REVISES.match(text)):
        return None
    before = earlier_time(view, here)
    if before is None or not before.acted or any(_CHANGING & set(tool.words) for tool in view.tools.values()):
        return None
    return before


def corrected_time(view: View, here: int) -> Times:
    """What a correction says about when: behind "sorry, I meant" an hour needs no "at"."""
    text = view.turns[here].text
    lead = re.match(rf"^\W*{_LEAD}", text, re.IGNORECASE)
    length = lead.end() if lead is not None else 0
    return read_times(" " * length + text[length:], view.now, bare=length > 0)


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
            begin = _moment(value)
        elif set(last) & ENDING:
            end = _moment(value)
    if begin is None or end is None or end <= begin:
        return None
    begin, end = begin.astimezone(view.now.tzinfo), end.astimezone(view.now.tzinfo)
    if tool.category == "action" or end - begin <= _SHORT:
        minutes = round((end - begin).total_seconds() / 60)
        return Times(day=begin.date(), last_day=begin.date(), start=begin.time(), minutes=minutes)
    last_day = (end - timedelta(minutes=1)).date()
    return Times(day=begin.date(), last_day=last_day, part=read_times(turn.text, view.now).part)


def _moment(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def points_at_it(text: str) -> bool:
    """Whether a command means what was talked about: "book it", "take that one"."""
    return bool(set(split_words(text)[:5]) & words("it that this then there"))
