"""What `handrail kb` prints: results and records for people and programs, statistics, and the lines of an export."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from handrail.commands import print_json
from handrail.errors import UsageError
from handrail.text import escaped

if TYPE_CHECKING:
    from handrail_reference.services.kb.port import Evidence
    from handrail_reference.services.kb.record import KnowledgeRecord

_MEGABYTE = 1_000_000


def show_evidence(found: Sequence[Evidence], *, as_json: bool) -> None:
    if as_json:
        results = [
            {
                "id": one.record.id,
                "namespace": one.record.namespace,
                "title": one.title,
                "score": one.score,
                "snippet": one.snippet,
                "url": one.record.url or None,
                "source": one.record.source,
            }
            for one in found
        ]
        print_json({"results": results})
        return
    for one in found:
        print(f"{one.score:.2f}  {one_line(one.record.id)}  {one_line(one.title)}\n      {one_line(one.snippet)}")
    if not found:
        print("Nothing was found.")


def show_record(record: KnowledgeRecord) -> None:
    for name, value in record.to_dict().items():
        if name != "text":
            print(f"{name:<13} {one_line(', '.join(value) if isinstance(value, tuple) else str(value))}")
    print("\n" + "\n".join(one_line(line) for line in record.text.split("\n")) + "\n")


def one_line(text: str) -> str:
    """Text from outside as one line for a terminal: characters that would steer it are shown as escapes."""
    return escaped(text, "\t")


def show_stats(numbers: Mapping[str, Any]) -> None:
    pieces = "1 piece" if numbers["pieces"] == 1 else f"{numbers['pieces']} pieces"
    print(f"records      {numbers['records']}, in {pieces}, {numbers['bytes'] / _MEGABYTE:.1f} MB")
    for name in ("namespaces", "types", "sources", "vectors"):
        shown = ", ".join(f"{one_line(key) or '-'} {count}" for key, count in numbers[name].items())
        print(f"{name:<12} {shown or 'none'}")
    if numbers["embeddings"] is None:
        print("search       by keywords alone; `handrail models install` adds embeddings")
    elif numbers["withoutVectors"]:
        count = numbers["withoutVectors"]
        missing = "1 piece lacks a vector" if count == 1 else f"{count} pieces lack vectors"
        print(f"search       by keywords and {numbers['embeddings']}; {missing}: `handrail kb embed`")
    else:
        print(f"search       by keywords and {numbers['embeddings']}")


def write_lines(records: Iterable[KnowledgeRecord], output: str | None) -> int:
    """One JSON object a line, keys sorted: the same records give the same bytes. A file is replaced when it is whole."""
    if output is None:
        sys.stdout.flush()
        written = _lines(records, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return written
    path = Path(output)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f'"{output}" cannot be written: it is a folder, or its folder is not there.')
    try:
        handle, side = tempfile.mkstemp(dir=path.parent, prefix=".export-")
    except OSError as error:
        raise UsageError(f'"{output}" cannot be written ({error.strerror}).') from None
    try:
        with os.fdopen(handle, "wb") as file:
            written = _lines(records, file)
        Path(side).replace(path)
    except BaseException:
        Path(side).unlink(missing_ok=True)
        raise
    return written


def _lines(records: Iterable[KnowledgeRecord], file: BinaryIO) -> int:
    written = 0
    for record in records:
        file.write(orjson.dumps(record.to_dict(), option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
        written += 1
    return written
