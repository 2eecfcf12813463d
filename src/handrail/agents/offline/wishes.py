"""Wishes: the request as it is meant, from what is said now and from what it completes, corrects or points back to."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Literal

from handrail.agents.offline import manners
from handrail.agents.offline.answering import slots_in, telling
from handrail.agents.offline.asking import ANYWAY, NEED, WHICH
from handrail.agents.offline.earlier import (
    Earlier,
    corrected_time,
    earlier_time,
    in_the_same_week,
    points_at_it,
    revised,
    taken_up,
)
from handrail.agents.offline.goals import Wish, kind_of
from handrail.agents.offline.moments import Times, read_times
from handrail.agents.offline.numbers import ORDINALS
from handrail.agents.offline.pieces import Pieces
from handrail.agents.offline.suiting import object_of
from handrail.agents.offline.view import Turn, View
from handrail.agents.offline.vocabulary import POINTING
from handrail.agents.offline.wording import cleaned, day_asked_for
from handrail.agents.offline.zones import converted_times, times_of_a_place
from handrail.picking.words import split_words

_DUMMY = re.compile(
    r"\b(?:time|date|day|year|month|late|early|hot|cold|warm|far|long|weather|like)\s+(?:is|was|will)\s+it\b|\bit\s+(?:is|was)\b(?=\s+\w)|"
    r"\b(?:is|was|will|does|did)\s+it\s+(?:be\s+)?(?:rain|snow|true|possible|safe|legal|ok|okay|worth|late|early|cold|hot|warm|dark|sunny|time|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday|christmas|easter|hurt|matter|make\s+sense)\w*\b|\bit['’]s\b",
    re.IGNORECASE,
)
_OPEN = (NEED, WHICH, ANYWAY)
_MOST_CHAINED = 6


def is_open(turn: Turn) -> bool:
    return any(mark in turn.answer for mark in _OPEN)


def wish_of(view: View) -> Wish:
    """The request: what is said now, and what it completes, corrects or points back to."""
    here = len(view.turns) - 1
    correction = revised(view)
    if correction is not None:
        revises: Literal["settled", "declined", "held"] = (
            "settled" if correction.settled else "declined" if correction.declined else "held"
        )
        said = in_the_same_week(corrected_time(view, here), correction, view.turn.text, view.now.date())
        return Wish(_texts(view, here), taken_up(said, correction), revises)
    looked = _gone_on_from(view, here)
    if looked is not None:
        said = read_times(view.turn.text, view.now, bare=True)
        before = replace(looked.times, minutes=None, start=None) if said.part else looked.times
        return Wish(_texts(view, here), said.over(before))
    turns = _chain(view, here)
    texts = [turn.text for turn in turns]
    times = Times()
    for place, text in enumerate(texts):
        times = read_times(text, view.now, bare=place > 0).over(times)
    chosen = _chosen_slot(turns) if len(turns) > 1 else None
    if chosen is not None:
        times = Times(exact=chosen, minutes=times.minutes, rest=times.rest)
    day = earlier_time(view, here - len(turns) + 1) if not times.has_day else None
    if day is not None and _takes_up(view, texts[0], times, day):
        times = taken_up(times, day)
    elif len(texts) == 1 and (there := _elsewhere(view, texts[0])) is not None:
        times = there
    elif len(texts) == 1 and (date := _date_asked_for(view, texts[0])) is not None:
        texts, times = [date], read_times(date, view.now)
    elif len(texts) == 1:
        texts = [_with_what_was_meant(view, texts[0])]
        times = read_times(texts[0], view.now)
    return Wish(texts, times)


def _texts(view: View, place: int) -> list[str]:
    """All that was said for the request of a turn, the first words first."""
    before = revised(view, place) or _gone_on_from(view, place)
    if before is not None:
        return [*_texts(view, before.place), view.turns[place].text]
    turns = _chain(view, place)
    first = place - len(turns) + 1
    if len(turns) > 1 and revised(view, first) is not None:
        return [*_texts(view, first), *(turn.text for turn in turns[1:])]
    return [turn.text for turn in turns]


def _elsewhere(view: View, text: str) -> Times | None:
    """What a text says about when, where it says it of the clock of another place."""
    return converted_times(text, view.now) or times_of_a_place(text, view.now)


def _date_asked_for(view: View, text: str) -> str | None:
    """A question for the name of a day, as one for its date: "what day is tomorrow?" wants no calendar."""
    when = day_asked_for(text)
    said = read_times(when, view.now) if when is not None else None
    if said is None or not said.is_single_day or re.search(r"\w", re.sub(r"\b(?:on|the)\b", "", said.rest)):
        return None
    return f"what is the date {when}?"


def _gone_on_from(view: View, place: int) -> Earlier | None:
    """The look at a calendar that a fragment goes on from: "and at four?", "what about Thursday?"."""
    text = view.turns[place].text
    said = read_times(text, view.now, bare=True)
    if not (said.has_day or said.has_clock or said.part) or not _is_fragment(view, text):
        return None
    before = earlier_time(view, place)
    return before if before is not None and not before.acted else None


def _chain(view: View, place: int) -> list[Turn]:
    """A turn, and those before it whose open question it answers."""
    turns = [view.turns[place]]
    for before in reversed(view.turns[:place]):
        if not is_open(before) or len(turns) >= _MOST_CHAINED or not before.text or _is_new(view, turns[0].text):
            break
        turns.insert(0, before)
    return turns


def _takes_up(view: View, text: str, times: Times, before: Earlier) -> bool:
    """Whether a command means the time that was talked about: it points at it, or says an hour and no day."""
    if kind_of(text, view.tools) != "command":
        return False
    return points_at_it(text) or (not before.acted and (times.has_clock or not times.part))


def _is_new(view: View, text: str) -> bool:
    """Whether a text is a request of its own rather than an answer to ours."""
    kind = kind_of(text, view.tools)
    if kind in ("command", "lookup"):
        own = len(text.split()) > 3 or bool(object_of(read_times(text, view.now).rest))
        return own and not manners.says_yes(text)
    return kind == "question" and len(telling(text)) > 0 and text.rstrip().endswith("?")


def _chosen_slot(turns: list[Turn]) -> tuple[datetime, datetime] | None:
    """ "The second one", of the times that we proposed."""
    words = split_words(turns[-1].text)
    bare = re.fullmatch(r"\W*(?:option|number|no\.?|#)?\s*([1-5])\W*", turns[-1].text.strip(), re.IGNORECASE)
    place = int(bare[1]) if bare else next((ORDINALS[word] for word in words if word in ORDINALS), None)
    for turn in reversed(turns[:-1]):
        slots = next((found for done in reversed(turn.done) if (found := slots_in(done.data)) is not None), None)
        if slots is not None and place is not None:
            shown = re.findall(r"^\d\. |\bthe (?:first|second|third), ", turn.answer, re.M)  # written, or spoken
            proposed = slots.proposals(_proposed_minutes(turn))
            return proposed[place - 1] if place <= min(len(proposed), len(shown)) else None
    return None


def _proposed_minutes(turn: Turn) -> int:
    match = re.search(r"for (\d+) minutes", turn.answer)
    return int(match[1]) if match else 60


def _with_what_was_meant(view: View, text: str) -> str:
    """A question that only points back ("and who wrote it?") is asked together with the one before."""
    words = split_words(text)
    points = _points_back(text) or _is_fragment(view, text)
    if not points or len(words) > 9:
        return text
    # What points back itself is passed over: "who pays for it?" and then "how long does it take?" are about the same.
    before = next((t.text for t in reversed(view.turns[:-1]) if _is_own(t.text)), "")
    return f"{text.rstrip()} ({cleaned(before)[:200]})" if before else text


def _is_own(text: str) -> bool:
    return bool(text) and manners.small_talk(text) is None and not _points_back(text)


def _points_back(text: str) -> bool:
    """Whether a sentence says "it" or "they" of something, and has hardly a noun of its own. The "it" of "what time is it" or
    "is it raining" stands for nothing."""
    if not set(split_words(text)) & POINTING or len(telling(text) - {"wrote"}) > 2:
        return False
    plain = _DUMMY.sub(" ", text)
    return bool(set(split_words(plain)) & POINTING) and not Pieces(plain).names


def _is_fragment(view: View, text: str) -> bool:
    """ "And in Split?" is a part of what was asked before; "And what is the capital?" is a question of its own."""
    begun = re.match(r"^\W*(and|what about|how about)\b\s*", text, re.IGNORECASE)
    if begun is None:
        return False
    rest = text[begun.end() :].rstrip(" ?!.")
    return begun[1].lower() != "and" or kind_of(rest, view.tools) == "statement"
