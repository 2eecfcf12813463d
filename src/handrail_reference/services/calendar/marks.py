"""What calls leave in the events that they make and change, by which a repeated call finds its own work: a mark, and whom it
uninvited, so that they are informed although the first start ended before that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from urllib.parse import quote, unquote

MAX_MARKS = 8
"""The first, of whoever made the event, and those of the newest calls; a call whose mark fell out was settled long ago."""
MAX_UNINVITED = 100

Uninvited = tuple[tuple[str, str], ...]
"""The mark of a call, and an address that it took out."""


def mark_of(key: str) -> str:
    """A hash, because the key of a call is nobody's business outside."""
    return sha256(b"calendar:" + key.encode()).hexdigest()[:32]


def with_mark(marks: Sequence[str], key: str) -> tuple[str, ...]:
    made = [*(one for one in marks if one != mark_of(key)), mark_of(key)]
    return (*made[:1], *made[1:][1 - MAX_MARKS :])


def with_uninvited(known: Uninvited, key: str, addresses: Iterable[str]) -> Uninvited:
    return (*known, *((mark_of(key), address) for address in addresses))[-MAX_UNINVITED:]


def uninvited_text(known: Uninvited) -> str:
    return " ".join(f"{mark}:{quote(address, safe='@+')}" for mark, address in known)


def read_uninvited(text: str) -> Uninvited:
    pairs = (one.partition(":") for one in text.split())
    return tuple((mark, unquote(address)) for mark, _, address in pairs if address)
