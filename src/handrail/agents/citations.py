"""Citations: the records in a tool's data that an answer can point at, and those that it did point at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAX_CITATIONS = 50
_LISTS = ("results", "records", "items", "matches", "documents", "hits")
_WEB = re.compile(r"https?://[^\s\x00-\x1f]+", re.IGNORECASE)


def citations_in(data: Any) -> list[dict[str, Any]]:
    """The records that `data` holds in a list of the usual name: each with `id`, `title`, and `url` where it has one.

    An address is only passed on if it is a web address: whoever shows it makes a link of it.
    """
    if not isinstance(data, Mapping):
        return []
    found: dict[str, dict[str, Any]] = {}
    for name in _LISTS:
        members = data.get(name)
        if isinstance(members, Sequence) and not isinstance(members, str):
            for record in members:
                cited = _citation(record)
                if cited is not None:
                    found.setdefault(cited["id"], cited)
    return list(found.values())[:MAX_CITATIONS]


def _citation(record: Any) -> dict[str, Any] | None:
    if not isinstance(record, Mapping):
        return None
    name, title, url = record.get("id"), record.get("title"), record.get("url")
    if not isinstance(name, str) or not name or not (isinstance(title, str) or isinstance(url, str)):
        return None
    cited: dict[str, Any] = {"id": name, "title": title if isinstance(title, str) and title else name}
    if isinstance(url, str) and _WEB.fullmatch(url):
        cited["url"] = url
    return cited


def cited_by(text: str, evidence: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The evidence that an answer names by its id or address, with the number under which it does so, in that order."""
    cited = []
    for order, record in enumerate(evidence):
        line = _line_naming(text, record)
        if line is not None:
            number = re.search(r"\[(\d{1,3})\]", line)
            cited.append((int(number[1]) if number else 1000 + order, dict(record)))
    cited.sort(key=lambda pair: pair[0])
    return [{"number": number if number < 1000 else None, **record} for number, record in cited]


def _line_naming(text: str, record: Mapping[str, Any]) -> str | None:
    for name in (record["id"], record.get("url")):
        if isinstance(name, str) and name in text:
            standing = re.compile(rf"(?<![\w:/-]){re.escape(name)}(?![\w/-])")
            for line in text.splitlines():
                if standing.search(line):
                    return line
    return None
