"""iCalendar files in: every event that can be used, and every one that cannot, with its place and the reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from handrail_reference.services.calendar.components import Component, read_component
from handrail_reference.services.calendar.failures import BadComponent, BadFile
from handrail_reference.services.calendar.lines import ComponentLines, Sheet, read_sheets
from handrail_reference.services.calendar.zones import ZoneBook

MAX_PROBLEMS = 1_000
_SHOWN_UID = 80
_ESCAPE = re.compile(r"\\([\\;,nN])")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """An event that was left out. `series` is its whole UID, unless it is only an exception to another event."""

    file: str
    line: int
    uid: str
    message: str
    series: str = ""


@dataclass(slots=True)
class Reading:
    """What a file holds. `ignored` counts its tasks, journals and other parts that are no events."""

    components: list[Component] = field(default_factory=list)
    problems: list[FileProblem] = field(default_factory=list)
    ignored: int = 0


def read_file(name: str, data: bytes, home: tzinfo, progress: Callable[[int, int], None] | None = None) -> Reading:
    """Read one file; `BadFile` if it is no iCalendar file at all. `progress` gets the events done and the events in all."""
    reading = Reading()
    sheets = read_sheets(data)
    total = sum(len(sheet.events) for sheet in sheets)
    done = 0
    zones: set[str] = set()
    for sheet in sheets:
        book = ZoneBook(sheet.zones, zones)
        reading.ignored += sheet.ignored
        for block in sheet.events:
            _read_event(name, block, sheet, book, home, reading)
            done += 1
            if progress is not None:
                progress(done, total)
    return reading


def whole_events(readings: Sequence[Reading]) -> tuple[dict[str, list[Component]], tuple[FileProblem, ...]]:
    """The components that go into a calendar, by their UID, and the problems with the others.

    The exceptions of an event that was left out go with it: on their own they would stand in the calendar as events.
    """
    parts = [part for reading in readings for part in reading.components]
    problems = [problem for reading in readings for problem in reading.problems]
    there = {part.uid for part in parts if part.recurrence_id is None}
    lost = {problem.series for problem in problems if problem.series} - there
    by_uid: dict[str, list[Component]] = {}
    gone: Counter[str] = Counter()
    for part in parts:
        if part.uid in lost:
            gone[part.uid] += 1
        else:
            by_uid.setdefault(part.uid, []).append(part)
    return by_uid, tuple(_with_exceptions(problem, gone.pop(problem.series, 0)) for problem in problems)


def _with_exceptions(problem: FileProblem, number: int) -> FileProblem:
    if not number:
        return problem
    theirs = "Its exception was" if number == 1 else f"Its {number} exceptions were"
    return replace(problem, message=f"{problem.message} {theirs} left out with it.")


def _read_event(name: str, block: ComponentLines, sheet: Sheet, book: ZoneBook, home: tzinfo, reading: Reading) -> None:
    try:
        if block.problem is not None:
            raise BadComponent(block.problem)
        lines, zones = book.rewrite(_cancelled(block.lines) if sheet.method == "CANCEL" else block.lines)
        reading.components.append(read_component(lines, zones, home))
    except BadComponent as error:
        series = "" if block.exception else _ESCAPE.sub(_unescaped, block.uid).strip()
        reading.problems.append(FileProblem(name, block.line, block.uid[:_SHOWN_UID], str(error), series))
        if len(reading.problems) > MAX_PROBLEMS:
            raise BadFile(f"More than {MAX_PROBLEMS} of its events cannot be used; the last: {error}") from None


def _cancelled(lines: list[str]) -> list[str]:
    """A message with METHOD:CANCEL calls its events off, whether or not they say so themselves."""
    kept = [line for line in lines if not line.upper().startswith(("STATUS:", "STATUS;"))]
    return [kept[0], "STATUS:CANCELLED", *kept[1:]]


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] in "nN" else escape[1]
