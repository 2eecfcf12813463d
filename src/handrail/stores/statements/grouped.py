"""Claims and finishes that wait together, each kind in one statement: what a claim changes in several tables is done by a
trigger of a view. Where only one kind waits, that statement is the whole transaction, and SQLite is gone to once for all of
them, commit included.

Only what nothing stands against goes this way, which is nearly everything. Whatever else comes, each request is carried
out by the function that says what it means. Requests that wait at the same time have no order, but whatever else waits
between them keeps its place."""

# ruff: noqa: S608 - what is put into SQL are our own columns, and question marks

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from handrail.contract.store import Claim, ClaimResult, ClaimVerdict, Finish, LedgerRow, LedgerState
from handrail.stores.statements.ledger import OUTCOME, SETTLED, ClaimRequest, FinishRequest, finish
from handrail.stores.statements.transaction import Transaction, claimed, to_json

Request = Callable[[Transaction], Any]
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Statements are made for these numbers of rows, and kept; rows that are left over are empty, and nothing comes of them."""
_LEDGER = (
    *("key", "tenant", "session_id", "user", "turn", "ordinal", "tool", "tool_hash", "registry_version"),
    *("args_digest", "args", "effects", "owner", "claim_id", "lease_until", "created_at"),
)
_ALIAS = ("call_id", "call_tool", "raw_digest", "hold_id")
_WISH = (*_LEDGER, "connection", "counters", *_ALIAS)
_TRIGGER = f"""
    CREATE TEMP TRIGGER claimed INSTEAD OF INSERT ON wish WHEN NEW.key IS NOT NULL BEGIN
        SELECT RAISE(ABORT, 'a precondition failed')
        WHERE NOT EXISTS (SELECT 1 FROM session WHERE session_id = NEW.session_id AND active
                          AND connection = NEW.connection)
           OR EXISTS (SELECT 1 FROM ledger WHERE session_id = NEW.session_id AND turn = NEW.turn AND tool = NEW.tool
                      AND args_digest = NEW.args_digest AND state IN ('running', 'unknown'))
           OR EXISTS (SELECT 1 FROM switch WHERE tool = NEW.tool)
           OR EXISTS (SELECT 1 FROM block WHERE tenant = NEW.tenant AND user = NEW.user AND until > NEW.created_at);
        INSERT INTO ledger ({", ".join(_LEDGER)}, state, fence)
        VALUES ({", ".join(f"NEW.{name}" for name in _LEDGER)}, 'running', 1);
        INSERT INTO alias SELECT NEW.session_id, NEW.call_id, NEW.call_tool, NEW.raw_digest, NEW.key, NEW.hold_id
        WHERE NEW.call_id IS NOT NULL;
        UPDATE session SET counters = NEW.counters WHERE session_id = NEW.session_id AND NEW.counters IS NOT NULL;
    END"""


def prepare(db: sqlite3.Connection) -> None:
    """Make the view and its trigger, which belong to this connection and are nowhere in the file."""
    db.execute(f"CREATE TEMP VIEW wish AS SELECT {', '.join(f'NULL AS {name}' for name in _WISH)}")
    db.execute(_TRIGGER)


def in_one_statement(tx: Transaction, requests: Sequence[Request]) -> list[Any] | None:
    """The outcomes of `requests`, committed; None, and no claim made, if they cannot go this way. Outside of a transaction.

    `sqlite3.OperationalError`: the store cannot be written, whichever way is taken."""
    if len(requests) > _SIZES[-1]:
        return None
    waiting = _Waiting()
    if not all(waiting.take(place, request) for place, request in enumerate(requests)):
        return None
    if waiting.claims and waiting.finishes:
        return None
    outcomes: list[Any] = [None] * len(requests)
    try:
        waiting.carry_out(tx, outcomes)
    except sqlite3.OperationalError:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, it comes again where each is looked at
        return None
    return outcomes


def carry_out(begin: Callable[[], Transaction], requests: Sequence[Request]) -> list[Any]:
    """The outcomes of `requests`, in a transaction that was begun. What one raises is raised, and the transaction is good
    for nothing more."""
    outcomes: list[Any] = [None] * len(requests)
    waiting = _Waiting()
    for place, request in enumerate(requests):
        if waiting.take(place, request):
            continue
        waiting.carry_out(begin(), outcomes)
        waiting = _Waiting()
        if not waiting.take(place, request):
            outcomes[place] = request(begin())
    waiting.carry_out(begin(), outcomes)
    return outcomes


@dataclass(slots=True)
class _Waiting:
    """Claims and finishes that may be carried out together, by the places of their outcomes."""

    claims: dict[int, Claim] = field(default_factory=dict)
    finishes: dict[int, Finish] = field(default_factory=dict)
    _met: set[Hashable] = field(default_factory=set)

    def take(self, place: int, request: Request) -> bool:
        """Whether this request may be one of them, and now is."""
        asked = _groupable(request)
        if asked is None:
            return False
        names = _names(asked)
        if not self._met.isdisjoint(names):
            return False
        self._met.update(names)
        if isinstance(asked, Claim):
            self.claims[place] = asked
        else:
            self.finishes[place] = asked
        return True

    def carry_out(self, tx: Transaction, outcomes: list[Any]) -> None:
        # Finishes first: a claim then meets what is known at this moment.
        for some in _portions(self.finishes):
            for place, row in zip(some, _finish_all(tx, [*some.values()]), strict=True):
                outcomes[place] = row
        for few in _portions(self.claims):
            for place, result in zip(few, _claim_all(tx, [*few.values()]), strict=True):
                outcomes[place] = result


def _groupable(request: Request) -> Claim | Finish | None:
    """What is asked for, if it may be done together with others."""
    if isinstance(request, ClaimRequest):
        wish = request.claim
        return wish if wish.hold_id is None and wish.rate is None and wish.check_connection else None
    if isinstance(request, FinishRequest):
        outcome = request.finish
        known = outcome.claimed is not None and outcome.claimed.fence == outcome.fence
        simple = known and outcome.block is None and outcome.session_state is None
        return outcome if simple and outcome.state is not LedgerState.RUNNING else None
    return None


def _names(asked: Claim | Finish) -> tuple[Hashable, ...]:
    """What no two requests that are done together may have in common, because one could then stand against the other."""
    if isinstance(asked, Finish):
        return (asked.key,)
    like = (asked.session_id, asked.turn, asked.tool, asked.args_digest)
    return (asked.key, like) if asked.alias is None else (asked.key, like, (asked.session_id, asked.alias.call_id))


def _claim_all(tx: Transaction, claims: Sequence[Claim]) -> list[ClaimResult]:
    now, values = tx.now, list[Any]()
    for one in claims:
        values += (one.key, one.tenant, one.session_id, one.user, one.turn, one.ordinal, one.tool, one.tool_hash)
        values += (one.registry_version, one.args_digest, one.args, one.effects, one.owner, one.claim_id)
        counters = None if one.counters is None else to_json(one.counters, '"counters" of a claim')
        values += (now + one.lease_ms, now, one.connection, counters)
        alias = one.alias
        values += (None,) * 4 if alias is None else (alias.call_id, alias.tool, alias.raw_digest, alias.hold_id)
    size = _SIZES[bisect_left(_SIZES, len(claims))]
    values += (None,) * (len(_WISH) * (size - len(claims)))
    tx.db.execute(_wishes(size), values)
    return [claimed(one, now, ClaimVerdict.CLAIMED, 1, now) for one in claims]


@cache
def _wishes(rows: int) -> str:
    return f"INSERT INTO wish {_values(rows, len(_WISH))}"


def _finish_all(tx: Transaction, finishes: Sequence[Finish]) -> list[LedgerRow]:
    now, values = tx.now, list[Any]()
    for one in finishes:
        values += (one.key, one.fence, one.state, one.envelope, now if one.state in SETTLED else None)
    size = _SIZES[bisect_left(_SIZES, len(finishes))]
    values += (None,) * (5 * (size - len(finishes)))
    if tx.db.execute(_outcomes(size), values).rowcount < len(finishes):
        # Some were fenced out, are settled already, or are not there: the function for one says which. To those that were
        # stored just now, it tells just that.
        return [finish(tx, one) for one in finishes]
    return [
        one.claimed._replace(state=one.state, envelope=one.envelope, finished_at=now if one.state in SETTLED else None)
        for one in finishes
        if one.claimed is not None
    ]


@cache
def _outcomes(rows: int) -> str:
    # Not as WITH: then Python would not tell how many rows were changed.
    return f"""UPDATE ledger SET state = done.column3, {OUTCOME.format("done.column4")}, finished_at = done.column5
        FROM ({_values(rows, 5)}) AS done
        WHERE key = done.column1 AND fence = done.column2 AND state IN ('running', 'unknown')"""


@cache
def _values(rows: int, columns: int) -> str:
    return "VALUES " + ", ".join([f"({', '.join('?' * columns)})"] * rows)


T = TypeVar("T")


def _portions(waiting: dict[int, T]) -> Iterator[dict[int, T]]:
    for start in range(0, len(waiting), _SIZES[-1]):
        yield dict(islice(waiting.items(), start, start + _SIZES[-1]))
