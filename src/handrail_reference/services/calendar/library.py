"""The owner's side of the embedded calendar: import, export, list and delete. Tools never reach it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from handrail.errors import UsageError
from handrail_reference.services.calendar.components import Component
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.file_export import to_file
from handrail_reference.services.calendar.file_import import FileProblem, Reading, whole_events
from handrail_reference.services.calendar.items import (
    calendar_id,
    made_calendar,
    put,
    readable_components,
    touch_series,
)

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an import did. An event counts once, however many exceptions it has."""

    added: int
    updated: int
    unchanged: int
    ignored: int
    problems: tuple[FileProblem, ...]

    @property
    def taken(self) -> int:
        """Events of the files that are in the calendar now, whether they were there before or not."""
        return self.added + self.updated + self.unchanged


class CalendarLibrary:
    """Files in and out of the calendars of one tenant."""

    def __init__(self, calendar: EmbeddedCalendar, tenant: str = "") -> None:
        self._calendar = calendar
        self._tenant = tenant

    async def take_in(self, readings: Sequence[Reading], name: str, progress: Progress | None = None) -> Report:
        """Put the events of files into a calendar: all of them in one transaction, or none.

        An event that cannot be used takes its exceptions along, whichever file they are in; what was stored of it stays."""
        self._calendar.checked_name(name)
        by_uid, problems = whole_events(readings)

        def work(db: sqlite3.Connection) -> list[str]:
            calendar = (made_calendar(db, self._tenant, name), self._tenant, name)
            done = []
            for number, (uid, parts) in enumerate(by_uid.items(), 1):
                done.append(self._merge(db, calendar, uid, parts))
                if progress is not None:
                    progress(number, len(by_uid))
            if "added" in done or "updated" in done:
                touch_series(db, calendar[0])
            return done

        done = await self._calendar.database.write(work)
        return Report(
            added=done.count("added"),
            updated=done.count("updated"),
            unchanged=done.count("unchanged"),
            ignored=sum(reading.ignored for reading in readings),
            problems=problems,
        )

    async def give_out(self, name: str) -> bytes:
        """A calendar as one iCalendar file."""
        self._calendar.checked_name(name)
        rows = await self._rows(name, "SELECT lines, zones FROM item WHERE calendar_id = ? ORDER BY uid")
        return to_file(name, ((json.loads(lines), json.loads(zones)) for lines, zones in rows))

    async def counts(self) -> dict[str, int]:
        """How many events each calendar has."""
        found = {}
        for name in self._calendar.names:
            rows = await self._rows(name, "SELECT count(*) FROM item WHERE calendar_id = ?")
            found[name] = int(rows[0][0]) if rows else 0
        return found

    async def lines_of(self, name: str, uid: str) -> list[list[str]]:
        """The components of one event as iCalendar lines; `UsageError` if there is none."""
        self._calendar.checked_name(name)
        rows = await self._rows(name, "SELECT lines FROM item WHERE calendar_id = ? AND uid = ?", uid)
        if not rows:
            raise UsageError(f'The calendar "{name}" has no event with the UID "{uid}".')
        parts: list[list[str]] = json.loads(rows[0][0])
        return parts

    async def delete(self, name: str, uid: str) -> bool:
        """Take an event out, with all its repetitions; whether it was there."""
        self._calendar.checked_name(name)

        def work(db: sqlite3.Connection) -> bool:
            number = calendar_id(db, self._tenant, name)
            gone = db.execute("DELETE FROM item WHERE calendar_id = ? AND uid = ?", (number, uid)).rowcount > 0
            if gone and number is not None:
                touch_series(db, number)
            return gone

        return await self._calendar.database.write(work)

    async def _rows(self, name: str, statement: str, *more: str) -> list[Any]:
        def work(db: sqlite3.Connection) -> list[Any]:
            number = calendar_id(db, self._tenant, name)
            return [] if number is None else db.execute(statement, (number, *more)).fetchall()

        return await self._calendar.database.read(work)

    def _merge(
        self, db: sqlite3.Connection, calendar: tuple[int, str, str], uid: str, parts: Iterable[Component]
    ) -> str:
        home = self._calendar.zone
        row = db.execute(
            "SELECT lines, zones FROM item WHERE calendar_id = ? AND uid = ?", (calendar[0], uid)
        ).fetchone()
        kept = {part.key: part for part in readable_components(uid, row[0], row[1], home)} if row else {}
        before = {key: part.lines for key, part in kept.items()}
        for part in parts:
            there = kept.get(part.key)
            if there is None or part.age >= there.age:
                kept[part.key] = part
        if {key: part.lines for key, part in kept.items()} == before:
            return "unchanged"
        put(db, calendar, list(kept.values()), home, now=int(self._calendar.now().timestamp()))
        return "updated" if row else "added"
