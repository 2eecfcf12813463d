"""Records in an answer that may only be so long: whole texts get a share each and are marked where they were cut; of short
answers, snippets are cut first, then metadata, sources and addresses are left out, and the answer says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

MAX_BYTES = 500_000
"""A little less than what the tools may give (`maxOutputBytes`)."""


def with_texts(results: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    """The results with their `full_text`; one that had to be cut says `truncated`. Short texts leave room for the long."""
    left = MAX_BYTES - _size(results)
    given: list[Mapping[str, Any]] = [{}] * len(texts)
    for done, place in enumerate(sorted(range(len(texts)), key=lambda place: len(texts[place]))):
        text = _cut(texts[place], max(0, left) // (len(texts) - done))
        left -= _size(text)
        given[place] = {"full_text": text} | ({"truncated": True} if len(text) < len(texts[place]) else {})
    return [{**result, **more} for result, more in zip(results, given, strict=True)]


MAX_SHOWN = 1_400
"""Characters of results without whole texts. Responses beyond 1,500 crowd a model's context, and a warning says so."""
_SHORTEST_SNIPPET = 60
_SAID = 110
"""Characters for saying what was left out."""
_LEFT_OUT = ("metadata", "sources", "url")
"""In this order, the last record first."""


def within_room(results: Sequence[dict[str, Any]], room: int = MAX_SHOWN) -> tuple[list[dict[str, Any]], str]:
    """The results in `room` characters, and a sentence about what was left out. A record alone is given with all that it has."""
    if len(results) < 2 or (size := _size(_with_snippets(results, 0))) <= room:
        return with_short_snippets(results, room), ""
    shown = [dict(result) for result in results]
    left_out: Counter[str] = Counter()
    for name in _LEFT_OUT:
        for one in reversed(shown):
            if size > room - _SAID and one.get(name):
                del one[name]
                left_out[name] += 1
                size = _size(_with_snippets(shown, 0))
    parts = " and ".join(f"{name} of {number}" for name, number in left_out.items())
    said = (
        f"To keep this short, {parts} records were left out; kb_get with one id gives all of a record." if parts else ""
    )
    return with_short_snippets(shown, room - _SAID), said


def with_short_snippets(results: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The results with snippets that share the room that is left beside everything else; a cut one ends in an ellipsis."""
    over = _size(results) - room
    snippets = [result.get("snippet", "") for result in results]
    if over <= 0 or not any(snippets):
        return list(results)
    return _with_snippets(results, sum(map(len, snippets)) - over)


def _with_snippets(results: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The results with snippets of `room` characters in all, or the shortest."""
    snippets = [result.get("snippet", "") for result in results]
    given: dict[int, str] = {}
    for done, place in enumerate(sorted(range(len(snippets)), key=lambda place: len(snippets[place]))):
        share = max(_SHORTEST_SNIPPET, room // (len(snippets) - done))
        given[place] = _shortened(snippets[place], share)
        room -= len(given[place])
    return [
        {**result, "snippet": given[place]} if "snippet" in result else result for place, result in enumerate(results)
    ]


def _shortened(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    cut = text[: length - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[length // 2 :] else cut).rstrip("… ") + "…"


def _cut(text: str, max_bytes: int) -> str:
    """The beginning of a text that takes at most `max_bytes` bytes as JSON."""
    cut = text[:max_bytes]
    while cut and (size := _size(cut)) > max_bytes:
        cut = cut[: min(len(cut) - 1, len(cut) * max_bytes // size)]
    return cut


def _size(value: object) -> int:
    return len(orjson.dumps(value))
