"""Claims and finishes that wait together, carried out together: a few statements for all of them instead of several for
each. Only what nothing stands against goes this way, which is nearly everything; the rest is done one by one, by the
functions that say what each request means. Requests that wait at the same time have no order, but whatever else waits
between them keeps its place."""

# ruff: noqa: S608 - what is put into SQL are our own columns, and question marks

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, Generic, TypeVar

from handrail.contract.store import Claim, ClaimResult, ClaimVerdict, Finish, LedgerRow, LedgerState
from handrail.stores.statements.claim import claim, mine
from handrail.stores.statements.ledger import SETTLED, finish
from handrail.stores.statements.transaction import LEDGER_COLUMNS, Transaction, ledger_row, to_json

Request = Callable[[Transaction], Any]
T = TypeVar("T", Claim, Finish)
_SIZES = (64, 32, 16, 8, 4)
"""Statements are made for so many rows at once, and kept. Fewer are done one by one, which costs less then."""


class _Waiting(Generic[T]):
    """Requests of one kind, and where their outcomes go."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.items: list[T] = []

    def add(self, place: int, item: T) -> None:
        self.places.append(place)
        self.items.append(item)


def carry_out(begin: Callable[[], Transaction], requests: Sequence[Request]) -> list[Any]:
    """The outcomes of `requests`. What one of them raises is raised, and nothing is known of the others."""
    if len(requests) < _SIZES[-1]:
        return [request(begin()) for request in requests]
    outcomes: list[Any] = [None] * len(requests)
    claims, finishes, met = _Waiting[Claim](), _Waiting[Finish](), set[Hashable]()

    def carry_out_waiting() -> None:
        nonlocal claims, finishes
        # Finishes first: a claim then meets what is known at this moment.
        for place, row in zip(finishes.places, _finish_all(begin(), finishes.items), strict=True):
            outcomes[place] = row
        for place, result in zip(claims.places, _claim_all(begin(), claims.items), strict=True):
            outcomes[place] = result
        claims, finishes = _Waiting[Claim](), _Waiting[Finish]()
        met.clear()

    for place, request in enumerate(requests):
        asked = _plain(request)
        names = () if asked is None else _names(asked)
        if asked is None or not met.isdisjoint(names):
            carry_out_waiting()
        if asked is None:
            outcomes[place] = request(begin())
            continue
        met.update(names)
        if isinstance(asked, Claim):
            claims.add(place, asked)
        else:
            finishes.add(place, asked)
    carry_out_waiting()
    return outcomes


def _plain(request: Request) -> Claim | Finish | None:
    """What is asked for, if it may be done together with others."""
    if type(request) is not partial:
        return None
    if request.func is claim:
        wish: Claim = request.keywords["claim"]
        return wish if wish.hold_id is None and wish.rate is None and wish.check_connection else None
    if request.func is finish:
        outcome: Finish = request.keywords["finish"]
        simple = outcome.block is None and outcome.session_state is None
        return outcome if simple and outcome.state is not LedgerState.RUNNING else None
    return None


def _names(asked: Claim | Finish) -> tuple[Hashable, ...]:
    """What no two requests that are done together may have in common, because one could then stand against the other."""
    if isinstance(asked, Finish):
        return (asked.key,)
    like = (asked.session_id, asked.turn, asked.tool, asked.args_digest)
    return (asked.key, like) if asked.alias is None else (asked.key, like, (asked.session_id, asked.alias.call_id))


def _claim_all(tx: Transaction, claims: Sequence[Claim]) -> list[ClaimResult]:
    outcomes: list[ClaimResult] = []
    for some in _portions(claims):
        together = len(some) > 1 and _nothing_against(tx, some)
        outcomes += _claimed(tx, some) if together else [claim(tx, one) for one in some]
    return outcomes


def _nothing_against(tx: Transaction, claims: Sequence[Claim]) -> bool:
    """Whether all may go ahead: key, id and call unknown, session active, its connection current, no block, no switch."""
    values = [
        (
            *(one.key, one.session_id, one.alias.call_id if one.alias else None, one.turn, one.tool, one.args_digest),
            *(one.tenant, one.user, one.connection),
        )
        for one in claims
    ]
    found = tx.db.execute(_looks(len(claims)), [*chain.from_iterable(values), tx.now]).fetchone()
    return found is None


@cache
def _looks(rows: int) -> str:
    return f"""WITH wish (key, session_id, call_id, turn, tool, digest, tenant, user, connection) AS ({_values(rows, 9)})
        SELECT 1 FROM wish LEFT JOIN session USING (session_id)
        WHERE session.active IS NOT 1 OR session.connection <> wish.connection
           OR EXISTS (SELECT 1 FROM ledger WHERE ledger.key = wish.key)
           OR EXISTS (SELECT 1 FROM alias WHERE alias.session_id = wish.session_id AND alias.call_id = wish.call_id)
           OR EXISTS (SELECT 1 FROM ledger AS alike WHERE alike.session_id = wish.session_id AND alike.turn = wish.turn
                      AND alike.tool = wish.tool AND alike.args_digest = wish.digest
                      AND alike.state IN ('running', 'unknown'))
           OR EXISTS (SELECT 1 FROM switch WHERE switch.tool = wish.tool)
           OR EXISTS (SELECT 1 FROM block
                      WHERE block.tenant = wish.tenant AND block.user = wish.user AND block.until > ?)
        LIMIT 1"""


def _claimed(tx: Transaction, claims: Sequence[Claim]) -> list[ClaimResult]:
    now = tx.now
    values = [
        (
            *(one.key, one.tenant, one.session_id, one.user, one.turn, one.ordinal, one.tool, one.tool_hash),
            *(one.registry_version, one.args_digest, one.args, one.effects, one.owner, one.claim_id),
            *(now + one.lease_ms, now),
        )
        for one in claims
    ]
    tx.db.execute(_inserts(len(claims)), [*chain.from_iterable(values)])
    ids = [
        (one.session_id, one.alias.call_id, one.alias.tool, one.alias.raw_digest, one.key, one.alias.hold_id)
        for one in claims
        if one.alias is not None
    ]
    for some in _portions(ids):
        tx.db.execute(f"INSERT INTO alias {_values(len(some), 6)}", [*chain.from_iterable(some)])
    # The newest of a session's counters are those of its last claim.
    counters = {one.session_id: one.counters for one in claims if one.counters is not None}
    pairs = [(session_id, to_json(values, '"counters" of a claim')) for session_id, values in counters.items()]
    for few in _portions(pairs):
        tx.db.execute(_counts(len(few)), [*chain.from_iterable(few)])
    return [mine(tx, one, ClaimVerdict.CLAIMED, 1, now) for one in claims]


@cache
def _inserts(rows: int) -> str:
    return f"""INSERT INTO ledger (key, tenant, session_id, user, turn, ordinal, tool, tool_hash, registry_version,
        args_digest, args, effects, owner, claim_id, lease_until, created_at, state, fence)
        {_values(rows, 16, ", 'running', 1")}"""


@cache
def _counts(rows: int) -> str:
    return f"""WITH newest (id, body) AS ({_values(rows, 2)})
        UPDATE session SET counters = newest.body FROM newest WHERE session_id = newest.id"""


def _finish_all(tx: Transaction, finishes: Sequence[Finish]) -> list[LedgerRow]:
    changed: dict[str, LedgerRow] = {}
    for some in _portions(finishes):
        if len(some) == 1:
            continue
        values = [
            (one.key, one.fence, one.state, one.envelope, tx.now if one.state in SETTLED else None) for one in some
        ]
        rows = tx.db.execute(_outcomes(len(some)), [*chain.from_iterable(values)]).fetchall()
        changed.update((row.key, row) for row in map(ledger_row, rows))
    # What was not changed was fenced out, is settled already, or is not there: the function for one says which.
    return [changed[one.key] if one.key in changed else finish(tx, one) for one in finishes]


@cache
def _outcomes(rows: int) -> str:
    return f"""WITH done (id, claimed, became, body, at) AS ({_values(rows, 5)})
        UPDATE ledger SET state = done.became, envelope = done.body, finished_at = done.at
        FROM done WHERE key = done.id AND fence = done.claimed AND state IN ('running', 'unknown')
        RETURNING {LEDGER_COLUMNS}"""


@cache
def _values(rows: int, columns: int, more: str = "") -> str:
    return "VALUES " + ", ".join([f"({', '.join('?' * columns)}{more})"] * rows)


V = TypeVar("V")


def _portions(items: Sequence[V]) -> Iterator[Sequence[V]]:
    start = 0
    while start < len(items):
        size = next((size for size in _SIZES if size <= len(items) - start), 1)
        yield items[start : start + size]
        start += size
