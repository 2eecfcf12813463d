"""A file cut into components, before anything is believed: unfolded lines, bounded sizes, broken parts set aside.

Each VEVENT is later parsed on its own, so that one bad event never takes its neighbours with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from handrail_reference.services.calendar.failures import BadFile

MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_COMPONENT_BYTES = 1024 * 1024
_MAX_DEPTH = 8
_BOUNDARY = re.compile(r"(BEGIN|END):\s*([A-Za-z0-9-]+)\s*", re.IGNORECASE)
_IDENTITY = re.compile(r'(UID|RECURRENCE-ID)(?:;(?:[^":]|"[^"]*")*)?:(.*)', re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(slots=True)
class ComponentLines:
    """One component of a calendar: its lines without folds, and what is wrong with its form, if anything is.

    `uid`, and whether it is an `exception` to a repeated event, are known of a broken one too, if it says so in a whole line.
    """

    kind: str
    line: int
    lines: list[str] = field(default_factory=list)
    size: int = 0
    problem: str | None = None
    uid: str = ""
    exception: bool = False

    def identify(self, text: str) -> None:
        found = _IDENTITY.fullmatch(text)
        if found is None:
            return
        if found[1].upper() == "UID":
            self.uid = self.uid or found[2].strip()
        else:
            self.exception = True

    def add(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_COMPONENT_BYTES:
            self.lines.clear()
            self.problem = self.problem or "It is larger than 1 MiB."
        elif self.problem is None:
            self.lines.append(text)


@dataclass(slots=True)
class Sheet:
    """One VCALENDAR: its events, the zones that it defines, its method, and what else it holds (counted)."""

    events: list[ComponentLines] = field(default_factory=list)
    zones: list[ComponentLines] = field(default_factory=list)
    method: str = ""
    ignored: int = 0


def read_sheets(data: bytes) -> list[Sheet]:
    """Every VCALENDAR in a file; `BadFile` with one sentence if there is none."""
    if len(data) > MAX_FILE_BYTES:
        raise BadFile(f"The file is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB; split it.")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadFile("The file is UTF-16 text; save it as UTF-8.")
    cutter = _Cutter()
    for number, raw in _unfolded(data.removeprefix(b"\xef\xbb\xbf")):
        cutter.take(number, raw)
    cutter.finish()
    if not cutter.sheets:
        raise BadFile("The file has no BEGIN:VCALENDAR, so it is not an iCalendar file.")
    return cutter.sheets


def _unfolded(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Logical lines with the number of their first line. As bytes, because a fold may cut a letter in two."""
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    parts: list[bytes] = []
    began = 1
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if line[:1] in (b" ", b"\t") and parts:
            parts.append(line[1:])
            continue
        if parts:
            yield began, b"".join(parts)
        parts, began = [line], number
    yield began, b"".join(parts)


class _Cutter:
    """Follows BEGIN and END. A component that is not closed where it should be is set aside, and the next one begins."""

    def __init__(self) -> None:
        self.sheets: list[Sheet] = []
        self._sheet: Sheet | None = None
        self._block: ComponentLines | None = None
        self._inner: list[str] = []

    def take(self, number: int, raw: bytes) -> None:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self._spoil(f"Line {number} is not UTF-8 text.")
            return
        if not text.strip():
            return
        boundary = _BOUNDARY.fullmatch(text)
        if boundary is None:
            self._property(number, text)
        elif boundary[1].upper() == "BEGIN":
            self._begin(number, boundary[2].upper(), text)
        else:
            self._end(boundary[2].upper(), text)

    def finish(self) -> None:
        if self._block is not None:
            self._close("It is cut off: the file ends before its END.")

    def _begin(self, number: int, name: str, text: str) -> None:
        if name == "VCALENDAR":
            self.finish_block()
            self._sheet = Sheet()
            self.sheets.append(self._sheet)
        elif self._sheet is None:
            return
        elif self._block is None or name == "VEVENT":
            self.finish_block()
            self._block = ComponentLines(name, number)
            self._block.add(f"BEGIN:{name}")
        else:
            self._inner.append(name)
            if len(self._inner) > _MAX_DEPTH:
                self._spoil(f"Components are nested deeper than {_MAX_DEPTH}.")
            self._block.add(text)

    def _end(self, name: str, text: str) -> None:
        if self._block is None:
            if name == "VCALENDAR":
                self._sheet = None
        elif self._inner and self._inner[-1] == name:
            self._inner.pop()
            self._block.add(text)
        elif name == self._block.kind:
            self._block.add(f"END:{name}")
            self._close("A component inside it is not closed." if self._inner else None)
        elif name == "VCALENDAR":
            self.finish_block()
            self._sheet = None
        else:
            self._spoil(f"END:{name} closes nothing.")

    def _property(self, number: int, text: str) -> None:
        if self._block is not None:
            if not self._inner:
                self._block.identify(text)
            if _CONTROL.search(text):
                self._spoil(f"Line {number} has control characters.")
            self._block.add(text)
        elif self._sheet is not None and text.upper().startswith("METHOD:"):
            self._sheet.method = text[7:].strip().upper()

    def finish_block(self) -> None:
        if self._block is not None:
            self._close("It is not closed by an END of its own.")

    def _close(self, problem: str | None) -> None:
        block, self._block, self._inner = self._block, None, []
        assert block is not None
        assert self._sheet is not None
        block.problem = block.problem or problem
        if block.kind == "VEVENT":
            self._sheet.events.append(block)
        elif block.kind == "VTIMEZONE":
            self._sheet.zones.append(block)
        else:
            self._sheet.ignored += 1

    def _spoil(self, problem: str) -> None:
        if self._block is not None:
            self._block.problem = self._block.problem or problem
