"""A turn's counters: what was spent, what was called, what came back empty. They belong to the turn, never to a message."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from typing import Any

from handrail.contract.store import LedgerRow

Pair = tuple[str, str]
"""A tool and the digest of its arguments."""
MessageId = tuple[str | None, str]
"""The provider's id of a model message, where it gives one, and of a call in it."""
Ordinals = dict[int, "MessageId | None"]
"""Which are taken, and by which id if that counts for one message: under it the same call may come again."""
_MAX_DIGESTS = 64


class TurnRecord:
    """One turn of a session."""

    __slots__ = (
        "declined",
        "digests",
        "earlier",
        "empties",
        "ended",
        "from_before",
        "history",
        "identical",
        "input_id",
        "kept",
        "kept_total",
        "number",
        "ordinals",
        "refusals",
        "remembered",
        "replayed",
        "retrieval_used",
        "started",
        "stored",
        "total_used",
        "uneven",
        "unknown",
    )

    def __init__(self, number: int, started: float) -> None:
        self.number = number
        self.started = started
        self.ended = False
        self.stored = True
        """False while the store has not been told of it, because it was away."""
        self.input_id: str | None = None
        self.from_before = False
        """It began on another connection, or is gone through again: the store may know calls of it that we do not."""
        self.retrieval_used = 0
        self.total_used = 0
        self.kept = False
        """The store has what was counted in it, as a turn that was left. What calls that were under way then still count is
        noted by `Session.counted`; calls that end without waiting are seen by `kept_total`."""
        self.kept_total = 0
        self.refusals = 0
        self.identical: dict[tuple[str, bytes], int] = {}
        """Identical calls on this connection, replays without an id among them."""
        self.digests: list[str] = []
        """Of identical calls, in their order, each worked out once: every claim carries them to the store."""
        self.history: dict[str, int] = {}
        """The newest of `digests`, once each: what the store is told while no call was made twice."""
        self.uneven = False
        """Some call was counted other than once."""
        self.replayed: dict[tuple[str, bytes], int] = {}
        """Those among them that were replays."""
        self.earlier: dict[str, int] = {}
        """Identical calls on earlier connections, by digest, the newest last."""
        self.empties: dict[str, int] = {}
        self.ordinals: dict[Pair, Ordinals] = {}
        """Ordinals of writing calls with an id of their own that are taken on this connection."""
        self.remembered: dict[Pair, Ordinals] = {}
        """Those among them that the model brought along when this connection began."""
        self.declined: set[Pair] = set()
        self.unknown: dict[Pair, str] = {}
        """Calls whose outcome is not known, and the ledger key that will know it."""

    def begin_again(self) -> None:
        """A new connection, or the same input sent again: the model may not remember what it called in this turn."""
        self.earlier = self._digests()
        self.identical, self.replayed, self.digests, self.history, self.uneven = {}, {}, [], {}, False
        self.ordinals = {pair: dict(taken) for pair, taken in self.remembered.items()}
        self.from_before = True

    def go_on(self, before: TurnRecord) -> None:
        """This turn was begun anew while the store was away; now it is known to be `before`, gone through again."""
        self.from_before = True
        self.retrieval_used += before.retrieval_used
        self.total_used += before.total_used
        self.refusals += before.refusals
        self.empties = _added(before.empties, self.empties)
        self.earlier = _newest(_added(before._digests(), self.earlier))
        self.declined |= before.declined
        self.unknown = {**before.unknown, **self.unknown}
        self.remembered = before.remembered
        for pair, taken in self.remembered.items():
            self.ordinals.setdefault(pair, {}).update(taken)

    def take(self, row: LedgerRow) -> None:
        """A call of this turn that the model still knows under its own id: the next identical one is another."""
        if row.turn == self.number:
            self.ordinals.setdefault((row.tool, row.args_digest), {}).setdefault(row.ordinal, None)

    def counters(self) -> dict[str, Any]:
        """What survives a restart. The history of identical calls goes as digests, which is all that is compared."""
        return {
            "turn": self.number,
            "retrieval": self.retrieval_used,
            "total": self.total_used,
            "refusals": self.refusals,
            "empties": self.empties.copy(),
            "declined": [list(pair) for pair in self.declined],
            "unknown": [[*pair, key] for pair, key in self.unknown.items()],
            "identical": self._digests(),
        }

    def is_kept(self) -> None:
        """The store is about to be told: what is counted from now on is not among it."""
        self.kept, self.kept_total = True, self.total_used

    def restore(self, counters: Mapping[str, Any]) -> None:
        self.from_before = True
        if counters.get("turn") != self.number:
            return
        # This process may know of more than it has stored.
        self.retrieval_used = max(self.retrieval_used, int(counters.get("retrieval", 0)))
        self.total_used = max(self.total_used, int(counters.get("total", 0)))
        self.refusals = int(counters.get("refusals", 0))
        self.empties = dict(counters.get("empties", {}))
        self.declined = {(pair[0], pair[1]) for pair in counters.get("declined", ())}
        self.unknown = {(item[0], item[1]): item[2] for item in counters.get("unknown", ())}
        self.earlier = dict(counters.get("identical", {}))

    def _digests(self) -> dict[str, int]:
        """How often each call was made. Every claim carries it to the store, so it is only added to where that will do."""
        known, identical = self.digests, self.identical
        if len(known) < len(identical):
            # Nothing is ever taken out of `identical`, so that what is not known yet stands at its end.
            newest = list(islice(reversed(identical), len(identical) - len(known)))
            added = [digest_of(*key) for key in reversed(newest)]
            known += added
            self.history.update(dict.fromkeys(added, 1))
            while len(self.history) > _MAX_DIGESTS:
                del self.history[next(iter(self.history))]
        if not (self.uneven or self.replayed or self.earlier):
            return self.history.copy()
        counted = list(islice(zip(reversed(known), reversed(identical.values()), strict=True), _MAX_DIGESTS))
        digests = dict(reversed(counted))
        if self.replayed:
            for key, times in self.replayed.items():
                digest = digest_of(*key)
                if digest in digests:
                    digests[digest] -= times
        return _newest(_added(self.earlier, digests)) if self.earlier else digests


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Both together; what the other has comes last, as the newest."""
    both = dict(one)
    for name, times in other.items():
        both[name] = both.pop(name, 0) + times
    return both


def _newest(digests: Mapping[str, int]) -> dict[str, int]:
    return dict(islice(digests.items(), max(0, len(digests) - _MAX_DIGESTS), None))


def digest_of(tool: str, loop_key: bytes) -> str:
    """A call as the history of identical calls keeps it beyond its connection."""
    return sha256(tool.encode() + b"\0" + loop_key).hexdigest()[:16]
