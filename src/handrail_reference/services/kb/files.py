"""Records in files: JSON lines, CSV, Markdown pages with front matter, and folders of pages.

Each entry comes with its place, `file:line`, and is either a record or the problems with it. Nothing read here is trusted:
lines and files have a largest size, links are not followed, and what is not UTF-8 is said so.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from handrail.errors import UsageError
from handrail_reference.services.kb.front_matter import FrontMatterError, split_page
from handrail_reference.services.kb.record import BadRecord, KnowledgeRecord, make_record

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_PAGE_BYTES = 8 * 1024 * 1024
LINES = (".jsonl", ".ndjson")
PAGES = (".md", ".markdown")
_TABLE = ".csv"
_METADATA = "metadata."
_NOT_SLUG = re.compile(r"[^\w./-]+")
_LIST_MARK = re.compile(r"[;|]")
_TITLE = re.compile(r"^# +(.+?)\s*#*$", re.M)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One record of a file, or why it cannot be one. `done` is how many bytes of the file were read so far."""

    place: str
    record: KnowledgeRecord | None
    problems: tuple[str, ...] = ()
    done: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read: where it is, and how it is called in messages and in the records."""

    path: Path
    name: str
    size: int
    page_root: Path | None = None


def find_sources(paths: Iterable[Path]) -> tuple[list[Source], list[FileEntry]]:
    """The files behind the named paths, and what was passed over in folders. `UsageError` if a path cannot be imported."""
    sources: list[Source] = []
    passed: list[FileEntry] = []
    for path in paths:
        if path.is_dir():
            sources += _folder(path, passed)
        elif not path.is_file():
            raise UsageError(f'"{path}" is not there, or is no file or folder; name what is to be imported.')
        elif path.suffix.lower() not in (*LINES, _TABLE, *PAGES):
            kinds = ", ".join((*LINES, _TABLE, *PAGES))
            raise UsageError(f'"{path}" is of no kind that can be imported; known are {kinds}, and folders of pages.')
        else:
            sources.append(Source(path, path.name, path.stat().st_size, path.parent))
    return sources, passed


def read_source(source: Source, defaults: Mapping[str, str]) -> Iterator[FileEntry]:
    """Every entry of a file, in its order."""
    kind = source.path.suffix.lower()
    defaults = {"source": source.name, **defaults}
    if kind in PAGES:
        yield _page(source, defaults)
    elif kind == _TABLE:
        yield from _table(source, defaults)
    else:
        yield from _lines(source, defaults)


def _folder(folder: Path, passed: list[FileEntry]) -> Iterator[Source]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if any(part.startswith(".") for part in inside.parts) or path.suffix.lower() not in PAGES:
            continue
        name = f"{folder.name}/{inside.as_posix()}" if folder.name else inside.as_posix()
        if path.is_symlink() or any((folder / parent).is_symlink() for parent in inside.parents):
            passed.append(FileEntry(name, None, ("A link; links in folders are not followed.",)))
        elif path.is_file():
            yield Source(path, name, path.stat().st_size, folder)


def _lines(source: Source, defaults: Mapping[str, str]) -> Iterator[FileEntry]:
    with source.path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place, done = f"{source.name}:{number}", file.tell()
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES)
                yield FileEntry(place, None, (f"The line is longer than {MAX_LINE_BYTES} bytes.",), file.tell())
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                raw = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield FileEntry(place, None, (_unreadable(line, error),), done)
                continue
            yield _entry(place, raw, defaults, done)


def _unreadable(line: bytes, error: orjson.JSONDecodeError) -> str:
    """What is wrong with a line. The reader's own words for what a JSON text may hold, but no record, would mislead."""
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        return f"The line is not UTF-8 text (byte {broken.start})."
    if "infinity" in error.msg:
        return f"The number at column {error.colno} is too large to be stored; write it as text."
    if "surrogate" in error.msg:
        return f"The text at column {error.colno} has half of a surrogate pair, which is no character; remove it."
    return f"The line is not JSON: {error.msg} (column {error.colno})."


def _table(source: Source, defaults: Mapping[str, str]) -> Iterator[FileEntry]:
    if source.size > MAX_LINE_BYTES * 64:
        yield FileEntry(source.name, None, ("The table is too large; split it, or use JSON lines.",), source.size)
        return
    try:
        text = source.path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield FileEntry(source.name, None, (f"The table is not UTF-8 text (byte {error.start}).",), source.size)
        return
    limit = csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        yield from _rows(source, rows, defaults)
    except csv.Error as error:
        yield FileEntry(f"{source.name}:{rows.line_num}", None, (f"The table cannot be read: {error}.",), source.size)
    finally:
        csv.field_size_limit(limit)


def _rows(source: Source, rows: Any, defaults: Mapping[str, str]) -> Iterator[FileEntry]:
    header = [name.strip() for name in next(rows, [])]
    if "id" not in header or len(set(header)) != len(header):
        problem = 'The first line must name the columns, each once, with "id" among them.'
        yield FileEntry(f"{source.name}:1", None, (problem,), source.size)
        return
    first = rows.line_num + 1
    for row in rows:
        place, first = f"{source.name}:{first}", rows.line_num + 1
        if not any(row):
            continue
        if len(row) != len(header):
            yield FileEntry(place, None, (f"The row has {len(row)} fields; the header names {len(header)}.",), 0)
            continue
        yield _entry(place, _from_row(dict(zip(header, row, strict=True))), defaults, 0)


def _from_row(row: Mapping[str, str]) -> dict[str, Any]:
    """A row as a record: empty fields are left out, tags split at semicolons, `metadata.x` collected."""
    raw: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for name, value in row.items():
        if not value.strip():
            continue
        if name == "tags":
            raw["tags"] = [tag.strip() for tag in _LIST_MARK.split(value) if tag.strip()]
        elif name == "metadata":
            try:
                raw["metadata"] = orjson.loads(value)
            except orjson.JSONDecodeError:
                raw["metadata"] = value  # named as a problem where records are checked
        elif name.startswith(_METADATA):
            metadata[name.removeprefix(_METADATA)] = value
        else:
            raw[name] = value
    if metadata and isinstance(raw.get("metadata", {}), dict):
        raw["metadata"] = {**raw.get("metadata", {}), **metadata}
    return raw


def _page(source: Source, defaults: Mapping[str, str]) -> FileEntry:
    if source.size > MAX_PAGE_BYTES:
        return FileEntry(source.name, None, (f"The page is larger than {MAX_PAGE_BYTES} bytes.",), source.size)
    try:
        page = source.path.read_bytes().decode()
        values, text = split_page(page)
    except UnicodeDecodeError as error:
        return FileEntry(source.name, None, (f"The page is not UTF-8 text (byte {error.start}).",), source.size)
    except FrontMatterError as error:
        return FileEntry(f"{source.name}:{error.line}", None, (str(error),), source.size)
    heading = _TITLE.search(text)
    raw: dict[str, Any] = {"text": text.strip(), **values}
    if "title" not in raw and heading is not None:
        raw["title"] = heading[1]
    if "id" not in raw:
        inside = source.path.relative_to(source.page_root or source.path.parent).with_suffix("").as_posix()
        raw["id"] = f"{raw.get('type', 'doc')}:{_NOT_SLUG.sub('_', inside).lower()}"
    if isinstance(raw.get("tags"), str):
        raw["tags"] = [raw["tags"]]
    return _entry(f"{source.name}:1", raw, defaults, source.size)


def _entry(place: str, raw: object, defaults: Mapping[str, str], done: int) -> FileEntry:
    try:
        return FileEntry(place, make_record(raw, defaults=defaults), (), done)
    except BadRecord as error:
        return FileEntry(place, None, error.problems, done)
