"""Whole texts in an answer that may only be so long: each record gets a share, and what was cut is marked."""

from __future__ import annotations

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


def with_short_snippets(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results with snippets that share the room that is left beside everything else; a cut one ends in an ellipsis."""
    over = _size(results) - MAX_SHOWN
    snippets = [result.get("snippet", "") for result in results]
    if over <= 0 or not any(snippets):
        return list(results)
    room = sum(map(len, snippets)) - over
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
