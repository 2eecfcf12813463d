"""Moments: what an iCalendar value says (a wall time, maybe a zone, maybe a whole day) and which instant that is.

Daylight saving is decided here and nowhere else. A wall time that a clock jumps over counts with the offset before the
jump; one that a clock shows twice is the first of the two (RFC 5545, 3.3.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

FIRST_YEAR, LAST_YEAR = 1800, 2300
"""Events outside of these years are refused: no calendar means them, and rules would have to be followed for ages."""

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Moment:
    """A value as it was written. Without a zone it floats: it is meant in the zone of the calendar that holds it."""

    wall: datetime
    zone: tzinfo | None = None
    all_day: bool = False

    def instant(self, home: tzinfo) -> datetime:
        return instant_of(self.wall, self.zone or home)


@dataclass(frozen=True, slots=True)
class Span:
    """How long an event lasts: `wall` by the clock on the wall (a day may have 23 hours), `exact` by a stopwatch."""

    wall: timedelta = timedelta(0)
    exact: timedelta = timedelta(0)

    @property
    def longest(self) -> timedelta:
        """No event with this span lasts longer, whatever clocks do meanwhile."""
        return self.wall + self.exact + 2 * _DAY

    def end_of(self, start: datetime, zone: tzinfo) -> datetime:
        """The instant at which an event ends that starts at this wall time."""
        return max(instant_of(start + self.wall, zone) + self.exact, instant_of(start, zone))


def instant_of(wall: datetime, zone: tzinfo) -> datetime:
    """The instant, in UTC, at which clocks of the zone show this time."""
    if zone is UTC:
        return wall.replace(tzinfo=UTC)
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    if isinstance(zone, ZoneInfo) or found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    # Zones that a file defines itself do not agree on what a skipped time means.
    offset = (wall - _DAY).replace(tzinfo=zone).utcoffset() or timedelta(0)
    return (wall - offset).replace(tzinfo=UTC)


def wall_at(instant: datetime, zone: tzinfo) -> datetime:
    """What clocks of the zone show at this instant."""
    return instant.astimezone(zone).replace(tzinfo=None)


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)  # noqa: DTZ001 - a wall time; its zone stands beside it


def in_range(wall: datetime) -> bool:
    return FIRST_YEAR <= wall.year < LAST_YEAR
