"""An event with all its repetitions and exceptions, and when it happens within a window.

The rules give wall times in the zone of the event; RDATE adds, EXDATE takes away, a component with a RECURRENCE-ID
replaces one occurrence, or with RANGE=THISANDFUTURE that one and all later ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from handrail_reference.services.calendar.components import Component
from handrail_reference.services.calendar.moments import Moment, Span, instant_of, wall_at

_SLACK = timedelta(days=2)
"""Zones differ by less than this, so a window in wall time that is so much wider misses nothing."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time at which an event happens, in UTC, and the component that says what it then is."""

    start: datetime
    end: datetime
    of: Component


class Series:
    """The components of one UID. `home` is the zone of what floats: whole days, and times without a zone."""

    def __init__(self, components: Sequence[Component], home: tzinfo) -> None:
        self._home = home
        self.master = next((part for part in components if part.recurrence_id is None), None)
        self._zone = (self.master.start.zone if self.master else None) or home
        self._replaced: dict[object, Component] = {}
        self._future: list[tuple[datetime, Component]] = []
        self._excluded: set[object] = set()
        for part in components:
            if part.recurrence_id is not None:
                self._replaced[self._identity(part.recurrence_id)] = part
                if part.and_future:
                    self._future.append((self._wall(part.recurrence_id), part))
        self._future.sort(key=lambda change: change[0])
        if self.master is not None:
            self._excluded = {self._identity(moment) for moment in self.master.excluded}

    def between(self, start: datetime, end: datetime) -> list[Occurrence]:
        """What happens within the window: starts before its end and ends after its start. In no order."""
        found = [*self._regular(start, end), *self._exceptions()]
        return [one for one in found if one.start < end and one.end > start]

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """No occurrence begins before the first or ends after the second; None where nobody knows."""
        starts = [self._of(part).start for part in self._replaced.values()]
        ends = [self._of(part).end for part in self._replaced.values()]
        if self._future:
            return None, None
        if self.master is not None:
            walls = [self._wall(moment) for moment, _ in self.master.extra] + [self.master.start.wall]
            starts.append(instant_of(min(walls), self._zone))
            longest = max([self.master.span.longest, *(s.longest for _, s in self.master.extra if s is not None)])
            untils = [rule.until for rule in self.master.rules]
            if None in untils:
                return min(starts), None
            last = max([*walls, *(until for until in untils if until is not None)])
            ends.append(instant_of(last, self._zone) + longest)
        return min(starts), max(ends)

    def _regular(self, start: datetime, end: datetime) -> Iterator[Occurrence]:
        if self.master is None:
            return
        shifts = [part.start.wall - at for at, part in self._future]
        longest = max([self.master.span.longest, *(part.span.longest for _, part in self._future)])
        after = wall_at(start, self._zone) - longest - max([*shifts, timedelta(0)]) - _SLACK
        before = wall_at(end, self._zone) - min([*shifts, timedelta(0)]) + _SLACK
        seen: set[datetime] = set()
        for wall, span in self._walls(self.master, after, before):
            at = instant_of(wall, self._zone)
            if at in seen or self._is_excluded(at, wall):
                continue
            seen.add(at)
            if at not in self._replaced and wall.date() not in self._replaced:
                yield self._at(wall, span)

    def _walls(self, master: Component, after: datetime, before: datetime) -> Iterator[tuple[datetime, Span | None]]:
        # Periods first: an occurrence that is named twice has the length that was said for it.
        for moment, span in sorted(master.extra, key=lambda item: item[1] is None):
            wall = self._wall(moment)
            if after <= wall < before or span is not None:
                yield wall, span
        if after <= master.start.wall < before:
            yield master.start.wall, None
        for rule in master.rules:
            for wall in rule.walls(master.start.wall, after, before):
                yield wall, None

    def _at(self, wall: datetime, span: Span | None) -> Occurrence:
        """An occurrence that was not replaced by itself; a change of all future ones may have moved it."""
        assert self.master is not None
        of, moved = self.master, timedelta(0)
        for at, part in self._future:
            if at <= wall:
                of, moved = part, part.start.wall - at
        zone = of.start.zone or self._home
        begun = wall + moved
        return Occurrence(instant_of(begun, zone), (span or of.span).end_of(begun, zone), of)

    def _exceptions(self) -> Iterator[Occurrence]:
        for identity, part in self._replaced.items():
            if identity not in self._excluded:
                yield self._of(part)

    def _of(self, part: Component) -> Occurrence:
        zone = part.start.zone or self._home
        return Occurrence(instant_of(part.start.wall, zone), part.span.end_of(part.start.wall, zone), part)

    def _is_excluded(self, at: datetime, wall: datetime) -> bool:
        return at in self._excluded or wall.date() in self._excluded

    def _identity(self, moment: Moment) -> object:
        """What an occurrence is known by: its instant, or its day where only a day was written."""
        whole_days = moment.all_day or (self.master is not None and self.master.start.all_day)
        return moment.wall.date() if whole_days else moment.instant(self._zone)

    def _wall(self, moment: Moment) -> datetime:
        """A moment as a wall time in the zone of the series."""
        return moment.wall if moment.zone is None else wall_at(moment.instant(self._home), self._zone)
