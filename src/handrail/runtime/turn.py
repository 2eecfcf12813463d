"""A turn's counters: what was spent, what was called, what came back empty. They belong to the turn, never to a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Turn:
    """One turn of a session."""

    __slots__ = (
        "declined",
        "empties",
        "identical",
        "number",
        "ordinals",
        "refusals",
        "retrieval_used",
        "started",
        "total_used",
        "unknown",
    )

    def __init__(self, number: int, started: float) -> None:
        self.number = number
        self.started = started
        self.retrieval_used = 0
        self.total_used = 0
        self.refusals = 0
        self.identical: dict[tuple[str, bytes], int] = {}
        self.empties: dict[str, int] = {}
        self.ordinals: dict[tuple[str, str], int] = {}
        """Identical writing calls with an id of their own on this connection, by tool and digest."""
        self.declined: set[tuple[str, str]] = set()
        self.unknown: set[tuple[str, str]] = set()

    def counters(self) -> dict[str, Any]:
        """What survives a restart. The history of identical calls goes as digests, which is all that is compared."""
        return {
            "turn": self.number,
            "retrieval": self.retrieval_used,
            "total": self.total_used,
            "refusals": self.refusals,
            "empties": self.empties,
            "declined": [list(pair) for pair in self.declined],
        }

    def restore(self, counters: Mapping[str, Any]) -> None:
        if counters.get("turn") != self.number:
            return
        self.retrieval_used = int(counters.get("retrieval", 0))
        self.total_used = int(counters.get("total", 0))
        self.refusals = int(counters.get("refusals", 0))
        self.empties = dict(counters.get("empties", {}))
        self.declined = {(pair[0], pair[1]) for pair in counters.get("declined", ())}
