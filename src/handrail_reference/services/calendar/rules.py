"""Recurrence rules: checked when they come in, and followed by dateutil within a window, in wall time.

Two things that dateutil leaves to its caller are done here. A series that began long ago is not walked from its start:
whole periods are skipped. And a rule that matches nothing (30 February) is given up at the end of the window, where
dateutil alone would look on until the year 9999.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo
from itertools import count
from math import gcd
from typing import Any

from dateutil.rrule import DAILY, HOURLY, MONTHLY, WEEKLY, YEARLY, rrule, weekdays  # type: ignore[import-untyped]

from handrail_reference.services.calendar.failures import BadComponent
from handrail_reference.services.calendar.moments import FIRST_YEAR, LAST_YEAR, Moment, midnight, wall_at

MAX_COUNT = 10_000
MAX_PER_DAY = 96
MAX_INTERVAL = 10_000
_FREQUENCIES = {"YEARLY": YEARLY, "MONTHLY": MONTHLY, "WEEKLY": WEEKLY, "DAILY": DAILY, "HOURLY": HOURLY}
_TOO_OFTEN = ("SECONDLY", "MINUTELY")
_DAYS = {name: weekdays[number] for number, name in enumerate(("MO", "TU", "WE", "TH", "FR", "SA", "SU"))}
_NUMBERS = {
    # part: (dateutil's name, largest, whether negative ones count from the end, smallest)
    "BYMONTH": ("bymonth", 12, False, 1),
    "BYMONTHDAY": ("bymonthday", 31, True, 1),
    "BYYEARDAY": ("byyearday", 366, True, 1),
    "BYWEEKNO": ("byweekno", 53, True, 1),
    "BYSETPOS": ("bysetpos", 366, True, 1),
    "BYHOUR": ("byhour", 23, False, 0),
    "BYMINUTE": ("byminute", 59, False, 0),
    "BYSECOND": ("bysecond", 59, False, 0),
}
_KNOWN = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS}
_DAYS_BEFORE_SKIPPING = 400
_COUNTED_YEARS = 100


@dataclass(frozen=True, slots=True)
class RecurrenceRule:
    """One RRULE. `until` is a wall time of the series' zone, inclusive; a COUNT was turned into it."""

    frequency: int
    interval: int
    parts: tuple[tuple[str, Any], ...]
    until: datetime | None

    def walls(self, start: datetime, after: datetime, before: datetime) -> Iterator[datetime]:
        """Wall times of the rule from `after` on, before `before`; the series starts at `start`."""
        last = before if self.until is None else min(before, self.until + timedelta(seconds=1))
        if last <= after:
            return
        skipped = self._skipped(start, after)
        for wall in self._weekly(skipped) or self._follow(skipped, last):
            if wall >= last:
                return
            if wall >= after:
                yield wall

    def _weekly(self, start: datetime) -> Iterator[datetime] | None:
        """Most rules name weekdays and nothing else, and need no engine; None for the others. Without an end."""
        parts = dict(self.parts)
        if self.frequency != WEEKLY or not set(parts) <= {"byweekday", "wkst"}:
            return None
        first = parts["wkst"].weekday if "wkst" in parts else 0
        since = (start.weekday() - first) % 7
        chosen = sorted({(day.weekday - first) % 7 for day in parts.get("byweekday", ())}) or [since]
        week = timedelta(days=7 * self.interval)
        begun = (start - timedelta(days=since) + week * number for number in count())
        return (wall for one in begun for day in chosen if (wall := one + timedelta(days=day)) >= start)

    def _follow(self, start: datetime, last: datetime) -> Iterator[datetime]:
        # A little beyond `last`: dateutil counts months, and so do we.
        months = (last.year - start.year) * 12 + last.month - start.month + 2
        each = {YEARLY: 12 * self.interval, MONTHLY: self.interval}.get(self.frequency, 1)
        bounded = _Bounded(
            months // each + 3, self.frequency, dtstart=start, interval=self.interval, **dict(self.parts)
        )
        try:
            yield from bounded
        except _BeyondWindow:
            return

    def _skipped(self, start: datetime, after: datetime) -> datetime:
        """A later start that gives the same times from `after` on: whole periods are left out."""
        if (after - start).days <= _DAYS_BEFORE_SKIPPING:
            return start
        if self.frequency in (MONTHLY, YEARLY):
            return self._skipped_months(start, after)
        days = {
            WEEKLY: 7 * self.interval,
            DAILY: self.interval,
            HOURLY: self.interval // gcd(self.interval, 24),
        }[self.frequency]
        # Two periods early, because a week does not begin on the day on which its series does.
        periods = (after - start).days // days - 2
        return start + timedelta(days=periods * days) if periods > 0 else start

    def _skipped_months(self, start: datetime, after: datetime) -> datetime:
        """The same for months and years: the first of a month or year, for the day does not come from here any more."""
        each = self.interval * (12 if self.frequency == YEARLY else 1)
        periods = ((after.year - start.year) * 12 + after.month - start.month) // each - 2
        if periods <= 0:
            return start
        first = 0 if self.frequency == YEARLY else start.month - 1
        years, month = divmod(first + periods * each, 12)
        return start.replace(year=start.year + years, month=month + 1, day=1)


class _BeyondWindow(Exception):
    """dateutil has passed the end of the window without finding anything more."""


class _Bounded(rrule):  # type: ignore[misc]
    """A dateutil rule that gives up after a number of steps of its calendar (months, or the rule's years).

    dateutil looks at `_byeaster`, which no RRULE has, each time it moves on to another month or year: there we count.
    """

    def __init__(self, steps: int, *args: Any, **options: Any) -> None:
        self._steps = steps
        super().__init__(*args, **options)

    @property
    def _byeaster(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _BeyondWindow

    @_byeaster.setter
    def _byeaster(self, value: None) -> None:
        """Set by dateutil to None, always."""


def read_rule(written: Mapping[str, Any], start: Moment, home: tzinfo) -> RecurrenceRule:
    """A checked rule from what icalendar parsed; `BadComponent` says what is wrong with it, or too much for us."""
    values = {name.upper(): list(value) if isinstance(value, list) else [value] for name, value in written.items()}
    unknown = sorted(set(values) - _KNOWN)
    if unknown:
        raise BadComponent(f"Its RRULE has {unknown[0]}, which is not supported.")
    frequency = _frequency(values)
    interval = _number(values, "INTERVAL", 1, MAX_INTERVAL)
    parts: dict[str, Any] = {}
    for name, (key, largest, signed, smallest) in _NUMBERS.items():
        if name in values:
            parts[key] = _numbers(name, values[name], smallest, largest, signed)
    if "BYDAY" in values:
        parts["byweekday"] = [_weekday(item, frequency) for item in values["BYDAY"]]
    elif frequency == YEARLY and "byweekno" in parts and not {"bymonthday", "byyearday"} & set(parts):
        parts["byweekday"] = [weekdays[start.wall.weekday()]]  # the day of the week comes from the start
    if "WKST" in values:
        parts["wkst"] = _weekday(values["WKST"][0], DAILY)
    _check_density(frequency, parts)
    parts |= _from_start(frequency, parts, start.wall)
    if "COUNT" in values and "UNTIL" in values:
        raise BadComponent("Its RRULE has both COUNT and UNTIL; only one of them may say where it ends.")
    until = _until(values["UNTIL"][0], start, home) if "UNTIL" in values else None
    rule = RecurrenceRule(frequency, interval, tuple(parts.items()), until)
    return _counted(rule, start.wall, _number(values, "COUNT", 1, MAX_COUNT)) if "COUNT" in values else rule


def _from_start(frequency: int, parts: Mapping[str, Any], start: datetime) -> dict[str, Any]:
    """What a rule by the month or year takes from its start, said out loud, so that it may be joined at any later date."""
    if frequency not in (MONTHLY, YEARLY) or {"byweekno", "byyearday", "bymonthday", "byweekday"} & set(parts):
        return {}
    found: dict[str, Any] = {"bymonthday": [start.day]}
    if frequency == YEARLY and "bymonth" not in parts:
        found["bymonth"] = [start.month]
    return found


def _frequency(values: Mapping[str, list[Any]]) -> int:
    name = str(values.get("FREQ", [""])[0]).upper()
    if name in _TOO_OFTEN:
        raise BadComponent(f"Its RRULE repeats {name}; HOURLY is the most often that is supported.")
    if name not in _FREQUENCIES or len(values["FREQ"]) != 1:
        raise BadComponent("Its RRULE has no FREQ that is known.")
    return int(_FREQUENCIES[name])


def _number(values: Mapping[str, list[Any]], name: str, smallest: int, largest: int) -> int:
    given = values.get(name, [smallest])
    if len(given) != 1 or not isinstance(given[0], int) or not smallest <= given[0] <= largest:
        raise BadComponent(f"{name} in its RRULE must be one number from {smallest} to {largest}.")
    return int(given[0])


def _numbers(name: str, given: list[Any], smallest: int, largest: int, signed: bool) -> list[int]:
    good = all(
        isinstance(item, int) and smallest <= (abs(item) if signed else item) <= largest and (item or not smallest)
        for item in given
    )
    if not good or not 1 <= len(given) <= 2 * largest + 2:
        raise BadComponent(f"{name} in its RRULE must be numbers from {smallest} to {largest}.")
    return sorted({int(item) for item in given})


def _weekday(item: Any, frequency: int) -> Any:
    text = str(item).upper()
    day, number = _DAYS.get(text[-2:]), text[:-2]
    if day is None or (number and not number.removeprefix("+").removeprefix("-").isdecimal()) or len(number) > 3:
        raise BadComponent(f'BYDAY in its RRULE has "{text[:20]}", which is no weekday.')
    if not number:
        return day
    if frequency not in (MONTHLY, YEARLY) or not 1 <= abs(int(number)) <= 53:
        raise BadComponent(f'BYDAY in its RRULE has "{text[:20]}"; a number stands there only by the month or year.')
    return day(int(number))


def _check_density(frequency: int, parts: Mapping[str, Any]) -> None:
    times = len(parts.get("byminute", [0])) * len(parts.get("bysecond", [0]))
    a_day = times * (24 if frequency == HOURLY else len(parts.get("byhour", [0])))
    if a_day > MAX_PER_DAY:
        raise BadComponent(f"Its RRULE repeats {a_day} times a day; {MAX_PER_DAY} is the most that is supported.")
    if "bysetpos" in parts and len(parts) == 1:
        raise BadComponent("BYSETPOS in its RRULE needs another BY part to choose from.")


def _until(given: Any, start: Moment, home: tzinfo) -> datetime | None:
    """The last wall time. Files disagree with the standard about its type, so every type is understood."""
    if not isinstance(given, date):
        raise BadComponent("UNTIL in its RRULE is no date.")
    if given.year >= LAST_YEAR:
        return None  # a way to say "for ever"
    if given.year < FIRST_YEAR:
        return midnight(date(FIRST_YEAR, 1, 1))
    if not isinstance(given, datetime):
        return midnight(given) if start.all_day else midnight(given) + timedelta(days=1, seconds=-1)
    if start.all_day:
        return midnight(given.date())
    return given if given.tzinfo is None else wall_at(given, start.zone or home)


def _counted(rule: RecurrenceRule, start: datetime, count: int) -> RecurrenceRule:
    """The same rule with its end as a date: found once here, instead of counted at each look."""
    rare = rule.frequency in (YEARLY, MONTHLY)
    horizon = midnight(date(LAST_YEAR if rare else min(start.year + _COUNTED_YEARS, LAST_YEAR), 1, 1))
    last = start
    found = 0
    for wall in rule.walls(start, start, horizon):
        last, found = wall, found + 1
        if found == count:
            return replace(rule, until=last)
    if not rare:
        raise BadComponent(f"Its RRULE does not reach its COUNT within {_COUNTED_YEARS} years.")
    return rule
