"""Counters of turns that were left, for when their input comes again, and the turn that a session is in."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.values import START, StillClock, claim, done, session, session_in_an_old_file

from handrail.contract.errors import UsageError
from handrail.contract.store import ClaimVerdict, Store, TurnStart
from handrail.stores import SqliteStore
from handrail.stores.migrations import MIGRATIONS, migrate


async def begin(store: Store, input_id: str | None, **left: object) -> TurnStart:
    return await store.begin_turn("s1", connection=1, input_id=input_id, **left)  # type: ignore[arg-type]


async def test_a_turn_comes_again_with_the_counters_that_it_was_left_with(store: Store) -> None:
    await begin(store, "m1")
    await begin(store, "m2", left=(1, {"turn": 1, "total": 3}))
    assert await begin(store, "m1", left=(2, {"turn": 2, "total": 5})) == TurnStart(
        turn=1, known=True, counters={"turn": 1, "total": 3}
    )
    assert await begin(store, "m2", left=(1, {"turn": 1, "total": 4})) == TurnStart(
        turn=2, known=True, counters={"turn": 2, "total": 5}
    )
    assert (await begin(store, "m1")).counters == {"turn": 1, "total": 4}


async def test_a_session_is_in_the_turn_that_came_again_and_has_its_counters(store: Store) -> None:
    await begin(store, "m1")
    await begin(store, "m2", left=(1, {"turn": 1, "total": 3}))
    await begin(store, "m1", left=(2, {"turn": 2, "total": 5}))
    found = await store.load_session("s1")
    assert found is not None
    assert (found.turn, found.current_turn, found.counters) == (2, 1, {"turn": 1, "total": 3})
    assert await begin(store, None) == TurnStart(turn=3, known=False)
    found = await store.load_session("s1")
    assert found is not None
    assert (found.turn, found.current_turn) == (3, 3)


async def test_a_turn_that_was_left_can_be_told_more_of(store: Store) -> None:
    await begin(store, "m1")
    await begin(store, "m2", left=(1, {"total": 3}))
    await store.save_sessions([("s1", 1, {"counters": {"total": 1}, "left": {1: {"total": 4}}})])
    assert (await begin(store, "m1")).counters == {"total": 4}


async def test_a_claim_brings_what_its_own_turn_has_counted_wherever_the_session_is_by_then(store: Store) -> None:
    async def counters(session_id: str) -> object:
        found = await store.load_session(session_id)
        assert found is not None
        return found.counters

    await store.create_session(session("s2", counters={"total": 7}))
    await begin(store, "m1")
    assert (await store.claim(claim("k1", left=(1, {"total": 1})))).verdict is ClaimVerdict.CLAIMED
    assert await counters("s1") == {"total": 1}, "should the next turn not begin any more"
    await begin(store, "m2", left=(1, {"total": 1}))
    await store.save_sessions([("s1", 1, {"counters": {"total": 5}})])
    later = claim("k2", args_digest="d2", left=(1, {"total": 2}))
    assert (await store.claim(later)).verdict is ClaimVerdict.CLAIMED
    assert (await counters("s1"), await counters("s2")) == ({"total": 5}, {"total": 7})
    assert (await begin(store, "m1")).counters == {"total": 2}


async def test_a_stale_connection_changes_no_turn_that_was_left(store: Store) -> None:
    await begin(store, "m1")
    await begin(store, "m2", left=(1, {"total": 3}))
    await store.connect("s1", registry_version="r", owner="o")
    assert (await begin(store, "m3", left=(1, {"total": 0}))).turn == 0
    await store.save_sessions([("s1", 1, {"left": {1: {"total": 0}}})])
    again = await store.begin_turn("s1", connection=2, input_id="m1")
    assert again.counters == {"total": 3}


async def test_a_session_is_in_the_turn_that_was_saved_with_its_counters(store: Store) -> None:
    await begin(store, "m1")
    await begin(store, "m2")
    await store.save_sessions([("s1", 1, {"counters": {"turn": 1}, "current_turn": 1})])
    record = await store.load_session("s1")
    assert record is not None
    assert (record.current_turn, record.turn, record.counters) == (1, 2, {"turn": 1})
    await store.save_sessions([("s1", 9, {"current_turn": 2})])
    record = await store.load_session("s1")
    assert record is not None
    assert record.current_turn == 1, "another connection has it"


async def test_counters_that_are_no_json_begin_no_turn(store: Store) -> None:
    with pytest.raises(UsageError, match="cannot be stored as JSON"):
        await begin(store, "m1", left=(1, {"x": object()}))
    assert await begin(store, "m1") == TurnStart(turn=1, known=False)


async def test_turns_that_were_left_long_ago_are_let_go(store: Store) -> None:
    await begin(store, "m1")
    for number in range(1, 202):
        await begin(store, f"m{number + 1}", left=(number, {"turn": number}))
    assert (await begin(store, "m1")).counters == {}
    assert (await begin(store, "m2")).counters == {"turn": 2}


@pytest.mark.parametrize("ending", ["forgotten", "evicted"])
async def test_turns_that_were_left_go_with_their_session(tmp_path: Path, clock: StillClock, ending: str) -> None:
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    await store.open()
    await store.create_session(session())
    await begin(store, "m1")
    await begin(store, "m2", left=(1, {"total": 3}))
    await store.claim(claim())
    await store.finish(done())
    assert await store.evict(bodies_before=0, rows_before=START + 1) == (0, 0, None)
    assert _turns_left(store) == 1
    if ending == "forgotten":
        await store.forget_user("t", "u")
    else:
        await store.save_sessions([("s1", 1, {"active": False})])
        assert await store.evict(bodies_before=0, rows_before=START + 1) == (0, 1, None)
    assert _turns_left(store) == 0
    await store.close()


async def test_turns_of_a_session_that_only_read_go_when_it_was_closed_long_ago_and_it_stays_closed(
    store: Store, clock: StillClock
) -> None:
    await begin(store, "m1")
    await begin(store, "m2", left=(1, {"total": 3}))
    clock.pass_ms(10)
    await store.evict(bodies_before=0, rows_before=START + 5)
    assert await begin(store, "m1") == TurnStart(turn=1, known=True, counters={"total": 3}), "it is open"
    await store.save_sessions([("s1", 1, {"active": False})])
    await store.evict(bodies_before=0, rows_before=START + 10)
    assert await begin(store, "m1") == TurnStart(turn=1, known=True, counters={"total": 3}), "it was closed just now"
    await store.evict(bodies_before=0, rows_before=START + 11)
    assert not (await begin(store, "m1")).known
    await store.save_sessions([("s1", 1, {"active": True})])
    assert (await store.claim(claim())).verdict is ClaimVerdict.INACTIVE, "what it has forgotten cannot run again"


async def test_a_closed_session_of_an_older_file_is_as_old_as_the_file_is_new(
    tmp_path: Path, clock: StillClock
) -> None:
    db = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    migrate(db, "s.db", START, MIGRATIONS[:6])
    session_in_an_old_file(db, turn=1)
    db.execute("INSERT INTO turn_input VALUES ('s1', 'm1', 1)")
    db.execute("UPDATE session SET active = 0")
    db.close()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    await store.open()
    yesterday = int(time.time() - 86_400) * 1000
    await store.evict(bodies_before=0, rows_before=yesterday)
    assert (await begin(store, "m1")).known
    await store.evict(bodies_before=0, rows_before=yesterday + 2 * 86_400_000)
    assert not (await begin(store, "m1")).known
    await store.close()


def _turns_left(store: SqliteStore) -> int:
    with closing(sqlite3.connect(store.path)) as db:
        return int(db.execute("SELECT count(*) FROM turn_left").fetchone()[0])


async def test_a_session_of_an_older_file_is_in_its_newest_turn_with_its_counters(
    tmp_path: Path, clock: StillClock
) -> None:
    db = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    migrate(db, "s.db", START, MIGRATIONS[:5])
    session_in_an_old_file(db, turn=3, counters='{"turn":3,"total":2}')
    db.close()
    store = SqliteStore(tmp_path / "s.db", clock=clock)
    await store.open()
    assert await store.load_session("s1") == session(turn=3, current_turn=3, counters={"turn": 3, "total": 2})
    await store.close()
