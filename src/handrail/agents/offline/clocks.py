"""A moment that a tool wrote for people, as the answer to a question for it: "It is 4:27 PM in Tokyo."."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from handrail.agents.offline.moments import moment_of
from handrail.agents.offline.view import Done, View

_WRITTEN = ("text", "iso", "time_zone", "utc_offset")


def moment_told(done: Done, view: View) -> str | None:
    """Only what was written for people, with the place where the clock is another one; None where a result is no moment."""
    data = done.data
    if not isinstance(data, Mapping) or not all(isinstance(data.get(name), str) for name in _WRITTEN):
        return None
    moment = moment_of(data["iso"])
    if moment is None or not str(data.get("locale", "en")).startswith("en"):
        return f"{data['text']}."
    where = "" if data["time_zone"] == getattr(view.now.tzinfo, "key", "") else f" in {_place(data['time_zone'])}"
    lead = "It is" if _is_now(moment, data["text"], view.now) else "That is"
    return f"{lead} {data['text']}{where}{_other_day(done, moment, data)}."


def _is_now(moment: datetime, text: str, now: datetime) -> bool:
    """Whether a moment is this one: to the minute, or to the day where no clock is told."""
    there = now.astimezone(moment.tzinfo)
    return abs(moment - there) < timedelta(minutes=1) or (":" not in text and moment.date() == there.date())


def _other_day(done: Done, moment: datetime, data: Mapping[str, Any]) -> str:
    """The day, where a clock alone is told and it is another day there than where it was asked from."""
    given = next((found for value in done.args.values() if (found := moment_of(value)) is not None), None)
    if given is None or given.date() == moment.date() or any(name in data["text"] for name in _names(moment)):
        return ""
    return f" on {moment:%A} {moment.day} {moment:%B}"


def _names(moment: datetime) -> tuple[str, ...]:
    return str(moment.year), f"{moment:%b}", f"{moment:%y},"


def _place(zone: str) -> str:
    return zone.rsplit("/", 1)[-1].replace("_", " ")
