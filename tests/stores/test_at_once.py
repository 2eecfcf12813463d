"""Requests that wait together are carried out together; each is told what it would be told alone."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores.values import LEASE, START, StillClock, alias, claim, crash, done, session

from handrail.contract.errors import UsageError
from handrail.contract.store import (
    Block,
    Claim,
    ClaimVerdict,
    Finish,
    LedgerRow,
    LedgerState,
    RateCharge,
    Store,
    TurnStart,
)
from handrail.stores import SqliteStore
from handrail.stores.base import grouped
from handrail.stores.statements.ledger import ClaimRequest, FinishRequest
from handrail.stores.statements.sessions import TURNS_LEFT, TurnRequest


def many(count: int, **changes: Any) -> list[Claim]:
    return [claim(f"n{n}", args_digest=f"n{n}", alias=alias(f"provider:n{n}"), **changes) for n in range(count)]


async def verdicts(store: Store, claims: list[Claim]) -> list[ClaimVerdict]:
    return [result.verdict for result in await asyncio.gather(*map(store.claim, claims))]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("count", [1, 3, 4, 7, 64, 141, 600])
async def test_all_of_many_are_claimed_finished_and_found(store: Store, count: int, known: bool) -> None:
    claims = [*many(count - 1), claim("bare", args_digest="bare")]
    results = await asyncio.gather(*map(store.claim, claims))
    assert {result.verdict for result in results} == {ClaimVerdict.CLAIMED}
    for asked, result in zip(claims, results, strict=True):
        assert result.row == await store.ledger_row(asked.key)
        assert result.row is not None
        assert (result.row.args_digest, result.row.lease_until) == (asked.args_digest, START + LEASE)
    assert {(found.call_id, found.ledger_key) for found in await store.aliases("s1")} == {
        (f"provider:n{n}", f"n{n}") for n in range(count - 1)
    }
    outcomes = [
        done(result.row.key, envelope=f'"{result.row.key}"', claimed=result.row if known else None)
        for result in results
        if result.row is not None
    ]
    rows = await asyncio.gather(*map(store.finish, outcomes))
    for asked, row in zip(claims, rows, strict=True):
        assert (row.key, row.state, row.envelope, row.finished_at) == (
            asked.key,
            LedgerState.SUCCEEDED,
            f'"{asked.key}"',
            START,
        )
        assert row == await store.ledger_row(asked.key)


async def _blocked(store: Store) -> Claim:
    await store.block(Block(tenant="t", user="bad", until=START + 9))
    return claim("odd", args_digest="odd", user="bad")


async def _switched_off(store: Store) -> Claim:
    await store.switch("other", "broken")
    return claim("odd", args_digest="odd", tool="other")


async def _ended(store: Store) -> Claim:
    await store.create_session(session("s2", active=False))
    return claim("odd", args_digest="odd", session_id="s2")


async def _nowhere(store: Store) -> Claim:
    return claim("odd", args_digest="odd", session_id="nobody")


async def _stale(store: Store) -> Claim:
    await store.create_session(session("s2"))
    await store.connect("s2", registry_version="r1", owner="o1")
    return claim("odd", args_digest="odd", session_id="s2")


async def _running(store: Store) -> Claim:
    await store.claim(claim("odd", args_digest="odd"))
    return claim("odd", args_digest="odd")


async def _settled(store: Store) -> Claim:
    await store.claim(claim("odd", args_digest="odd"))
    await store.finish(done("odd"))
    return claim("odd", args_digest="odd")


async def _unknown(store: Store) -> Claim:
    await store.claim(claim("first", args_digest="odd"))
    await store.finish(done("first", state=LedgerState.UNKNOWN))
    return claim("odd", args_digest="odd", ordinal=2)


async def _used_id(store: Store) -> Claim:
    await store.claim(claim("first", args_digest="first", alias=alias("provider:odd")))
    return claim("odd", args_digest="odd", alias=alias("provider:odd", raw_digest="raw2"))


async def _limited(store: Store) -> Claim:
    return claim("odd", args_digest="odd", rate=RateCharge(scope="x", limit=0, window_ms=1000))


async def _ungranted(store: Store) -> Claim:
    return claim("odd", args_digest="odd", hold_id="nothing")


@pytest.mark.parametrize(
    ("prepare", "verdict"),
    [
        (_blocked, ClaimVerdict.BLOCKED),
        (_switched_off, ClaimVerdict.SWITCHED_OFF),
        (_ended, ClaimVerdict.INACTIVE),
        (_nowhere, ClaimVerdict.INACTIVE),
        (_stale, ClaimVerdict.STALE_CONNECTION),
        (_running, ClaimVerdict.RUNNING),
        (_settled, ClaimVerdict.SETTLED),
        (_unknown, ClaimVerdict.UNKNOWN),
        (_used_id, ClaimVerdict.MISMATCH),
        (_limited, ClaimVerdict.RATE_LIMITED),
        (_ungranted, ClaimVerdict.NO_GRANT),
    ],
)
async def test_one_that_is_refused_among_many_is_the_only_one(
    store: Store, prepare: Callable[[Store], Any], verdict: ClaimVerdict
) -> None:
    odd, others = await prepare(store), many(15)
    told = await verdicts(store, [*others[:9], odd, *others[9:]])
    assert told == [ClaimVerdict.CLAIMED] * 9 + [verdict] + [ClaimVerdict.CLAIMED] * 6
    assert await verdicts(store, [odd]) == [verdict], "alone too"


async def test_one_after_an_ordinal_whose_owner_died_is_unknown_among_many(store: Store, clock: StillClock) -> None:
    await store.register_owner("o2")
    await store.claim(claim("first", args_digest="odd"))
    await crash(store, clock)
    odd, others = claim("odd", args_digest="odd", ordinal=2, owner="o2"), many(15, owner="o2")
    told = await verdicts(store, [*others[:9], odd, *others[9:]])
    assert told == [ClaimVerdict.CLAIMED] * 9 + [ClaimVerdict.UNKNOWN] + [ClaimVerdict.CLAIMED] * 6


async def test_of_the_same_call_asked_for_many_times_at_once_one_is_claimed(store: Store) -> None:
    told = await verdicts(store, [*many(6), *[claim(claim_id=f"c{n}") for n in range(6)]])
    assert told[6:] == [ClaimVerdict.CLAIMED] + [ClaimVerdict.RUNNING] * 5


async def test_of_one_id_used_many_times_at_once_only_the_first_is_claimed(store: Store) -> None:
    claims = [claim(f"k{n}", args_digest=f"k{n}", alias=alias(raw_digest=f"raw{n}")) for n in range(6)]
    assert await verdicts(store, claims) == [ClaimVerdict.CLAIMED] + [ClaimVerdict.MISMATCH] * 5


async def test_of_counters_that_come_together_the_last_are_kept(store: Store) -> None:
    claims = [claim(f"k{n}", args_digest=f"k{n}", counters={"total": n}) for n in range(9)]
    await asyncio.gather(*map(store.claim, claims))
    found = await store.load_session("s1")
    assert found is not None
    assert found.counters == {"total": 8}


async def test_a_block_that_waits_between_claims_keeps_its_place(store: Store) -> None:
    claims = many(8)
    told = await asyncio.gather(
        *map(store.claim, claims[:4]),
        store.block(Block(tenant="t", user="u", until=START + 9)),
        *map(store.claim, claims[4:]),
    )
    assert [told[place].verdict for place in (*range(4), *range(5, 9))] == [ClaimVerdict.CLAIMED] * 4 + [
        ClaimVerdict.BLOCKED
    ] * 4


@pytest.mark.parametrize("known", [True, False])
async def test_an_outcome_that_was_fenced_out_changes_nothing_among_many(store: Store, known: bool) -> None:
    results = await asyncio.gather(*map(store.claim, many(8)))
    claimed = [result.row if known else None for result in results]
    first = await store.finish(done("n3", envelope='"first"', claimed=claimed[3]))
    fences = [2 if n == 5 else 1 for n in range(8)]
    rows = await asyncio.gather(
        *(store.finish(done(f"n{n}", fence=fences[n], claimed=claimed[n])) for n in range(8)),
    )
    assert rows[3] == first
    assert rows[5].state is LedgerState.RUNNING
    assert {row.state for n, row in enumerate(rows) if n != 5} == {LedgerState.SUCCEEDED}


async def test_outcomes_and_claims_that_wait_together_are_all_carried_out(store: Store) -> None:
    results = await asyncio.gather(*map(store.claim, many(8)))
    outcomes = [done(result.row.key, claimed=result.row) for result in results if result.row is not None]
    later = [claim(f"later{n}", args_digest=f"later{n}") for n in range(8)]
    told = await asyncio.gather(
        *map(store.finish, outcomes[:4]), *map(store.claim, later), *map(store.finish, outcomes[4:])
    )
    assert [one.verdict for one in told[4:12]] == [ClaimVerdict.CLAIMED] * 8
    assert {row.state for row in (*told[:4], *told[12:])} == {LedgerState.SUCCEEDED}
    for asked in outcomes:
        row = await store.ledger_row(asked.key)
        assert row is not None
        assert row.state is LedgerState.SUCCEEDED


async def test_turns_that_wait_together_begin_as_each_would_alone(store: Store) -> None:
    for name in ("s2", "s3"):
        await store.create_session(session(name))
    await store.connect("s3", registry_version="r1", owner="o1")

    def begin(session_id: str, input_id: str | None, **options: Any) -> Any:
        return store.begin_turn(session_id, connection=1, input_id=input_id, **options)

    told = await asyncio.gather(
        begin("s1", "m1"),
        begin("s2", None),
        store.claim(claim(counters={"total": 1})),
        begin("s1", "m2", left=(1, {"total": 2})),
        begin("s1", "m1"),
        begin("s3", "m1"),
        store.save_sessions([("s2", 1, {"counters": {"total": 3}})]),
        begin("s2", "m1"),
        begin("nobody", "m1"),
        return_exceptions=True,
    )
    result = told.pop(2)
    assert result.verdict is ClaimVerdict.CLAIMED
    assert told[:3] == [TurnStart(turn=1, known=False), TurnStart(turn=1, known=False), TurnStart(turn=2, known=False)]
    assert told[3] == TurnStart(turn=1, known=True, counters={"total": 2})
    assert told[4] == TurnStart(turn=0, known=False), "the connection is not its own any more"
    assert told[6] == TurnStart(turn=2, known=False)
    assert isinstance(told[7], UsageError)
    first, second, third = [await store.load_session(name) for name in ("s1", "s2", "s3")]
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.turn, first.current_turn, first.counters) == (2, 1, {"total": 2})
    assert (second.turn, second.current_turn, second.counters) == (2, 2, {})
    assert third.turn == 0


async def test_a_session_keeps_the_counters_of_its_last_turns_only(store: Store) -> None:
    for turn in range(1, TURNS_LEFT + 3):
        begun = await store.begin_turn("s1", connection=1, input_id=f"m{turn}", left=(turn - 1, {"total": turn - 1}))
        assert begun.turn == turn
    again = [await store.begin_turn("s1", connection=1, input_id=f"m{turn}") for turn in (1, 2, 3)]
    assert [turn.counters for turn in again] == [{}, {"total": 2}, {"total": 3}]


async def test_an_outcome_of_a_claim_that_was_taken_over_is_not_stored_however_it_is_told(
    store: Store, clock: StillClock
) -> None:
    await store.register_owner("o2")
    first = await store.claim(claim(effects="idempotent", owner="gone"))
    clock.now += LEASE + 1
    second = await store.claim(claim(effects="idempotent", owner="o2"))
    assert second.verdict is ClaimVerdict.TAKEN_OVER
    told = await store.finish(done(fence=1, envelope='"zombie"', claimed=first.row))
    assert (told.state, told.fence, told.envelope) == (LedgerState.RUNNING, 2, None)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13])
async def test_nothing_is_looked_at_one_by_one_where_nothing_is_refused(tmp_path: Path, number: int) -> None:
    store = SqliteStore(tmp_path / "s.db", clock=StillClock())
    await store.open()
    try:
        await store.register_owner("o1")
        await store.create_session(session())
        statements: list[str] = []
        await store._write(lambda tx: tx.db.set_trace_callback(statements.append))
        claims = [
            claim(
                f"k{n}",
                args_digest=f"k{n}",
                counters={"total": n} if n % 2 else None,
                alias=alias(f"provider:c{n}") if n % 3 else None,
            )
            for n in range(number)
        ]
        results = await asyncio.gather(*map(store.claim, claims))
        assert [result.verdict for result in results] == [ClaimVerdict.CLAIMED] * number
        rows = await asyncio.gather(*(store.finish(done(one.row.key, claimed=one.row)) for one in results if one.row))
        assert [row.state for row in rows] == [LedgerState.SUCCEEDED] * number
        mixed = [await store.claim(claim(f"m{n}", args_digest=f"m{n}")) for n in range(number)]
        together = [
            work
            for n, one in enumerate(mixed)
            for work in (store.finish(done(f"m{n}", claimed=one.row)), store.claim(claim(f"l{n}", args_digest=f"l{n}")))
        ]
        told = await asyncio.gather(*together)
        assert [row.state for row in told[::2]] == [LedgerState.SUCCEEDED] * number
        assert [result.verdict for result in told[1::2]] == [ClaimVerdict.CLAIMED] * number
        await store._write(lambda tx: tx.db.set_trace_callback(None))
        assert any("INSERT INTO wish" in line for line in statements), "all claims that wait, in one statement"
        assert not any("SELECT EXISTS" in line for line in statements), "no claim by itself"
        assert any("AS done" in line for line in statements), "all outcomes that wait, in one statement"
        assert not any("RETURNING" in line for line in statements), "no outcome by itself"
        for row in rows:
            assert await store.ledger_row(row.key) == row
    finally:
        await store.close()


def running(key: str, **changes: Any) -> LedgerRow:
    """The row of a call as its claim gave it."""
    wish = claim(key, args_digest=key)
    row = LedgerRow(
        **{name: getattr(wish, name) for name in LedgerRow._fields if hasattr(wish, name)},
        state=LedgerState.RUNNING,
        fence=1,
        lease_until=START + LEASE,
        created_at=START,
        finished_at=None,
        envelope=None,
        evicted=False,
    )
    return row._replace(**changes)


def known(key: str, **changes: Any) -> Finish:
    return done(key, **{"claimed": running(key), **changes})


def turn(session_id: str = "s2") -> TurnRequest:
    return TurnRequest(session_id, 1, "m1", None)


def sizes(asked: list[Claim | Finish | TurnRequest | None], largest: int = 64) -> list[int]:
    """How many requests each group has; None is one of another kind."""
    requests: list[Any] = []
    for each in asked:
        if isinstance(each, Claim):
            requests.append(ClaimRequest(each))
        elif isinstance(each, Finish):
            requests.append(FinishRequest(each))
        else:
            requests.append(each or (lambda tx: None))
    groups = grouped(requests, largest)
    assert [request for group in groups for request in group.requests] == requests, "in their order"
    for group in groups:
        together = [*group.claims, *group.finishes, *group.turns]
        assert len(together) in (0, len(group.requests))
        assert len(together) > 0 or len(group.requests) == 1, "what cannot be together is alone"
    return [len(group.requests) for group in groups]


@pytest.mark.parametrize("largest", [1, 2, 3, 64])
def test_groups_are_as_large_as_they_may_be(largest: int) -> None:
    asked: list[Claim | Finish | TurnRequest | None] = [*many(3), known("k1"), turn()]
    assert sizes(asked, largest) == {1: [1] * 5, 2: [2, 2, 1], 3: [3, 2], 64: [5]}[largest]


@pytest.mark.parametrize(
    "alone",
    [
        None,
        claim("odd", args_digest="odd", hold_id="h1"),
        claim("odd", args_digest="odd", rate=RateCharge(scope="x", limit=1, window_ms=1000)),
        claim("odd", args_digest="odd", left=(1, {})),
        claim("odd", args_digest="odd", check_connection=False),
        done("odd"),
        known("odd", fence=2),
        known("odd", state=LedgerState.RUNNING),
        known("odd", block=Block(tenant="t", user="u", until=START)),
        known("odd", session_state={}),
    ],
)
def test_a_request_that_reads_more_than_its_row_is_carried_out_alone(alone: Claim | Finish | None) -> None:
    assert sizes([alone]) == [1]
    assert sizes([*many(2), alone, known("k1"), known("k2")]) == [2, 1, 2]
    assert sizes([alone, alone]) == [1, 1]


def test_what_could_refuse_one_another_is_in_different_groups() -> None:
    first = claim("a", args_digest="a", alias=alias("provider:a"))
    others = {
        "the same key": claim("a", args_digest="b"),
        "the same call": claim("b", args_digest="a", ordinal=2),
        "the same id": claim("b", args_digest="b", alias=alias("provider:a")),
        "its own outcome": known("a"),
    }
    assert {why: sizes([first, other]) for why, other in others.items()} == {why: [1, 1] for why in others}
    apart = [
        claim("b", args_digest="a", turn=2),
        claim("c", args_digest="a", tool="other"),
        claim("d", args_digest="a", session_id="s2"),
        claim("e", args_digest="e", session_id="s2", alias=alias("provider:a")),
    ]
    assert sizes([first, *apart]) == [5]
    assert sizes([turn("s1"), turn("s2"), known("b")]) == [3]
    assert sizes([turn("s1"), turn("s1")]) == [1, 1]
    assert sizes([first, turn("s1")]) == sizes([turn("s1"), first]) == [1, 1], "both write the counters"
    assert sizes([first, claim("a", args_digest="b"), claim("c", args_digest="a")]) == [1, 2], "a new group is empty"
