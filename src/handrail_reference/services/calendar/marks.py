"""Marks that calls leave in the events that they make and change, by which a repeated call finds its own work."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

MAX_MARKS = 8
"""Of the newest calls; a call whose mark fell out was settled long ago."""


def mark_of(key: str) -> str:
    """A hash, because the key of a call is nobody's business outside."""
    return sha256(b"calendar:" + key.encode()).hexdigest()[:32]


def with_mark(marks: Sequence[str], key: str) -> tuple[str, ...]:
    return tuple([one for one in marks if one != mark_of(key)] + [mark_of(key)])[-MAX_MARKS:]
