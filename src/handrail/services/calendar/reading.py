"""iCalendar files in: every event that can be used, and every one that cannot, with its place and the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo

from handrail.services.calendar.components import Component, read_component
from handrail.services.calendar.failures import BadComponent, BadFile
from handrail.services.calendar.lines import Block, Sheet, read_sheets
from handrail.services.calendar.zones import ZoneBook

MAX_PROBLEMS = 1_000


@dataclass(frozen=True, slots=True)
class Problem:
    """An event that was left out."""

    file: str
    line: int
    uid: str
    message: str


@dataclass(slots=True)
class Reading:
    """What a file holds. `ignored` counts its tasks, journals and other parts that are no events."""

    components: list[Component] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ignored: int = 0


def read_file(name: str, data: bytes, home: tzinfo, progress: Callable[[int, int], None] | None = None) -> Reading:
    """Read one file; `BadFile` if it is no iCalendar file at all. `progress` is told of events done and events in all."""
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


def _read_event(name: str, block: Block, sheet: Sheet, book: ZoneBook, home: tzinfo, reading: Reading) -> None:
    try:
        if block.problem is not None:
            raise BadComponent(block.problem)
        lines, zones = book.rewrite(_cancelled(block.lines) if sheet.method == "CANCEL" else block.lines)
        reading.components.append(read_component(lines, zones, home))
    except BadComponent as error:
        reading.problems.append(Problem(name, block.line, _uid_of(block), str(error)))
        if len(reading.problems) > MAX_PROBLEMS:
            raise BadFile(f"More than {MAX_PROBLEMS} of its events cannot be used; the last: {error}") from None


def _cancelled(lines: list[str]) -> list[str]:
    """A message with METHOD:CANCEL calls its events off, whether or not they say so themselves."""
    kept = [line for line in lines if not line.upper().startswith(("STATUS:", "STATUS;"))]
    return [kept[0], "STATUS:CANCELLED", *kept[1:]]


def _uid_of(block: Block) -> str:
    for line in block.lines:
        if line[:4].upper() == "UID:":
            return line[4:84].strip()
    return ""
