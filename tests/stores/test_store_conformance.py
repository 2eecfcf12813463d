"""What every store must do, run over each of them: sessions and turns, the ledger, operating, and what happens in races."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from tests.stores.values import LEASE, START, StillClock, alias, claim, crash, done, held, session

from handrail.contract.errors import UsageError
from handrail.contract.store import (
    Block,
    ClaimVerdict,
    HoldState,
    LedgerState,
    RateCharge,
    Store,
    StoreUnavailable,
    TurnStart,
)

# Sessions, connections, turns


async def test_a_session_is_loaded_as_it_was_created(store: Store) -> None:
    made = session("s2", user=None, counters={"turn": 3}, state={"mode": "voice"}, owner="o1", turn=4)
    await store.create_session(made)
    assert await store.load_session("s2") == made


async def test_a_session_that_is_not_there_is_none(store: Store) -> None:
    assert await store.load_session("nobody") is None


async def test_a_session_id_is_given_once(store: Store) -> None:
    with pytest.raises(UsageError, match='session "s1" already'):
        await store.create_session(session())


async def test_what_is_no_json_cannot_be_stored_in_a_session(store: Store) -> None:
    with pytest.raises(UsageError, match="cannot be stored as JSON"):
        await store.create_session(session("s2", state={"x": object()}))
    assert await store.load_session("s2") is None


async def test_each_connection_gets_the_next_number(store: Store) -> None:
    assert await store.connect("s1", registry_version="r2", owner="o9") == 2
    assert await store.connect("s1", registry_version="r2", owner="o9") == 3
    found = await store.load_session("s1")
    assert found is not None
    assert (found.connection, found.registry_version, found.owner) == (3, "r2", "o9")


async def test_racing_connections_never_share_a_number(store: Store) -> None:
    numbers = await asyncio.gather(*(store.connect("s1", registry_version="r", owner="o") for _ in range(50)))
    assert sorted(numbers) == list(range(2, 52))


async def test_a_session_that_is_not_there_cannot_be_connected_or_given_a_turn(store: Store) -> None:
    with pytest.raises(UsageError, match='no session "nobody"'):
        await store.connect("nobody", registry_version="r", owner="o")
    with pytest.raises(UsageError, match='no session "nobody"'):
        await store.begin_turn("nobody", connection=1, input_id=None)


async def test_turns_are_counted_up(store: Store) -> None:
    assert await store.begin_turn("s1", connection=1, input_id=None) == TurnStart(turn=1, known=False)
    assert await store.begin_turn("s1", connection=1, input_id="m1") == TurnStart(turn=2, known=False)


async def test_a_resent_input_keeps_its_turn_though_others_began_since(store: Store) -> None:
    await store.begin_turn("s1", connection=1, input_id="m1")
    await store.begin_turn("s1", connection=1, input_id="m2")
    assert await store.begin_turn("s1", connection=1, input_id="m1") == TurnStart(turn=1, known=True)
    found = await store.load_session("s1")
    assert found is not None
    assert found.turn == 2


async def test_an_input_sent_many_times_at_once_begins_one_turn(store: Store) -> None:
    starts = await asyncio.gather(*(store.begin_turn("s1", connection=1, input_id="m1") for _ in range(40)))
    assert Counter((start.turn, start.known) for start in starts) == {(1, False): 1, (1, True): 39}


async def test_input_ids_belong_to_their_session(store: Store) -> None:
    await store.create_session(session("s2"))
    await store.begin_turn("s1", connection=1, input_id="m1")
    assert await store.begin_turn("s2", connection=1, input_id="m1") == TurnStart(turn=1, known=False)


async def test_a_stale_connection_begins_no_turn(store: Store) -> None:
    await store.connect("s1", registry_version="r", owner="o")
    assert (await store.begin_turn("s1", connection=1, input_id="m1")).turn == 0
    assert await store.begin_turn("s1", connection=2, input_id="m1") == TurnStart(turn=1, known=False)


async def test_only_the_given_fields_of_a_session_are_saved(store: Store) -> None:
    await store.save_sessions([("s1", 1, {"mode": "voice", "counters": {"n": 1}}), ("s1", 1, {})])
    assert await store.load_session("s1") == session(mode="voice", counters={"n": 1})
    await store.save_sessions([("s1", 1, {"state": {"a": 1}, "active": False, "attributes": {}})])
    assert await store.load_session("s1") == session(
        mode="voice", counters={"n": 1}, state={"a": 1}, active=False, attributes={}
    )


async def test_saves_of_a_stale_connection_are_ignored_and_the_others_kept(store: Store) -> None:
    await store.create_session(session("s2"))
    await store.connect("s1", registry_version="r1", owner="")
    await store.save_sessions(
        [("s1", 1, {"mode": "voice"}), ("s2", 1, {"mode": "voice"}), ("nobody", 1, {"mode": "x"})]
    )
    assert await store.load_session("s1") == session(connection=2)
    assert await store.load_session("s2") == session("s2", mode="voice")


async def test_a_field_that_cannot_be_saved_is_named_and_nothing_is_saved(store: Store) -> None:
    with pytest.raises(UsageError, match="tenant"):
        await store.save_sessions([("s1", 1, {"mode": "voice"}), ("s1", 1, {"tenant": "other"})])
    assert await store.load_session("s1") == session()


# Claims


async def test_the_first_claim_is_given_with_its_row(store: Store) -> None:
    given = await store.claim(claim())
    assert (given.verdict, given.fence) == (ClaimVerdict.CLAIMED, 1)
    assert given.row == await store.ledger_row("k1")
    assert given.row is not None
    assert (given.row.state, given.row.lease_until, given.row.created_at) == (LedgerState.RUNNING, START + LEASE, START)


async def test_a_second_claim_waits_for_the_first(store: Store) -> None:
    await store.claim(claim())
    assert (await store.claim(claim(owner="o2"))).verdict is ClaimVerdict.RUNNING


async def test_of_a_hundred_racing_claims_one_is_given(store: Store) -> None:
    given = await asyncio.gather(*(store.claim(claim(claim_id=str(n))) for n in range(100)))
    assert Counter(result.verdict for result in given) == {ClaimVerdict.CLAIMED: 1, ClaimVerdict.RUNNING: 99}


async def test_a_settled_call_is_told_with_its_envelope(store: Store) -> None:
    await store.claim(claim())
    await store.finish(done())
    told = await store.claim(claim())
    assert told.verdict is ClaimVerdict.SETTLED
    assert told.row is not None
    assert (told.row.envelope, told.row.finished_at) == ('{"ok":true}', START)


@pytest.mark.parametrize("state", [LedgerState.FAILED, LedgerState.CANCELLED])
async def test_failures_are_settled_too(store: Store, state: LedgerState) -> None:
    await store.claim(claim())
    assert (await store.finish(done(state=state))).state is state
    assert (await store.claim(claim())).verdict is ClaimVerdict.SETTLED


@pytest.mark.parametrize("change", [{"args_digest": "d2"}, {"tool": "refund"}, {"session_id": "s2"}])
async def test_a_key_that_stands_for_something_else_is_a_mismatch(store: Store, change: dict[str, str]) -> None:
    await store.create_session(session("s2"))
    await store.claim(claim())
    assert (await store.claim(claim(**change))).verdict is ClaimVerdict.MISMATCH


async def test_a_claim_tried_again_is_recognised_as_ours(store: Store, clock: StillClock) -> None:
    first = await store.claim(claim(claim_id="a", rate=RateCharge(scope="x", limit=9, window_ms=60_000)))
    clock.pass_ms(500)
    again = await store.claim(claim(claim_id="a", rate=RateCharge(scope="x", limit=9, window_ms=60_000)))
    assert (again.verdict, again.fence) == (ClaimVerdict.CLAIMED, first.fence)
    assert again.row == await store.ledger_row("k1")
    assert await store.count_rates({("x", START): 0}) == {("x", START): 1}


@pytest.mark.parametrize("other", [{"claim_id": "b"}, {"claim_id": "a", "owner": "o2"}, {"claim_id": ""}])
async def test_another_claim_is_not_taken_for_ours(store: Store, other: dict[str, str]) -> None:
    await store.claim(claim(claim_id="a"))
    assert (await store.claim(claim(**other))).verdict is ClaimVerdict.RUNNING


async def test_claims_without_an_id_are_never_recognised(store: Store) -> None:
    await store.claim(claim())
    assert (await store.claim(claim())).verdict is ClaimVerdict.RUNNING


async def test_our_claim_is_recognised_although_the_connection_moved_on(store: Store) -> None:
    await store.claim(claim(claim_id="a"))
    await store.connect("s1", registry_version="r", owner="o")
    assert (await store.claim(claim(claim_id="a"))).verdict is ClaimVerdict.CLAIMED


async def test_a_settled_call_is_not_claimed_again_by_its_own_claim(store: Store) -> None:
    await store.claim(claim(claim_id="a"))
    await store.finish(done())
    assert (await store.claim(claim(claim_id="a"))).verdict is ClaimVerdict.SETTLED


@pytest.mark.parametrize("session_id", ["nobody", "s2"])
async def test_a_session_that_is_missing_or_closed_claims_nothing(store: Store, session_id: str) -> None:
    await store.create_session(session("s2", active=False))
    assert (await store.claim(claim(session_id=session_id))).verdict is ClaimVerdict.INACTIVE
    assert await store.ledger_row("k1") is None


async def test_a_stale_connection_claims_nothing_unless_it_need_not_be_current(store: Store) -> None:
    await store.connect("s1", registry_version="r", owner="o")
    assert (await store.claim(claim())).verdict is ClaimVerdict.STALE_CONNECTION
    assert (await store.claim(claim(check_connection=False))).verdict is ClaimVerdict.CLAIMED


async def test_a_blocked_user_claims_nothing_until_the_block_ends(store: Store, clock: StillClock) -> None:
    await store.block(Block(tenant="t", user="u", until=START + 1_000))
    refused = await store.claim(claim())
    assert (refused.verdict, refused.retry_after_ms) == (ClaimVerdict.BLOCKED, 1_000)
    clock.pass_ms(1_000)
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED


async def test_a_block_concerns_its_tenant_and_user_only(store: Store) -> None:
    await store.block(Block(tenant="other", user="u", until=START + 1_000))
    await store.block(Block(tenant="t", user="other", until=START + 1_000))
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED
    assert (await store.claim(claim("k2", user=None, args_digest="d2"))).verdict is ClaimVerdict.CLAIMED


async def test_a_tool_that_is_switched_off_is_not_claimed(store: Store) -> None:
    await store.switch("pay", "maintenance")
    refused = await store.claim(claim())
    assert (refused.verdict, refused.reason) == (ClaimVerdict.SWITCHED_OFF, "maintenance")
    await store.switch("pay", None)
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED


async def test_counters_are_written_with_a_claim_that_is_given_only(store: Store) -> None:
    await store.claim(claim(counters={"n": 1}))
    await store.claim(claim(counters={"n": 2}))
    found = await store.load_session("s1")
    assert found is not None
    assert found.counters == {"n": 1}


# Limits


async def test_a_limit_is_exact_under_concurrency_and_tells_when_it_ends(store: Store) -> None:
    rate = RateCharge(scope="pay:u", limit=7, window_ms=60_000)
    given = await asyncio.gather(*(store.claim(claim(f"k{n}", args_digest=f"d{n}", rate=rate)) for n in range(60)))
    assert Counter(result.verdict for result in given) == {ClaimVerdict.CLAIMED: 7, ClaimVerdict.RATE_LIMITED: 53}
    refused = next(result for result in given if result.verdict is ClaimVerdict.RATE_LIMITED)
    assert refused.retry_after_ms == 60_000


async def test_a_limit_slides_so_that_no_window_has_more(store: Store, clock: StillClock) -> None:
    rate = RateCharge(scope="x", limit=2, window_ms=1_000)

    async def claimed(number: int) -> ClaimVerdict:
        return (await store.claim(claim(f"k{number}", args_digest=f"d{number}", rate=rate))).verdict

    assert await claimed(1) is ClaimVerdict.CLAIMED
    clock.pass_ms(900)
    assert await claimed(2) is ClaimVerdict.CLAIMED
    clock.pass_ms(99)
    assert await claimed(3) is ClaimVerdict.RATE_LIMITED
    clock.pass_ms(1)
    assert await claimed(3) is ClaimVerdict.CLAIMED, "the first has left the window"
    clock.pass_ms(100)
    assert await claimed(4) is ClaimVerdict.RATE_LIMITED, "the second and the third have not"
    clock.pass_ms(800)
    assert await claimed(4) is ClaimVerdict.CLAIMED


async def test_a_full_limit_tells_when_its_oldest_unit_leaves_the_window(store: Store, clock: StillClock) -> None:
    rate = RateCharge(scope="x", limit=2, window_ms=1_000)
    await store.claim(claim("k1", args_digest="d1", rate=rate))
    clock.pass_ms(300)
    await store.claim(claim("k2", args_digest="d2", rate=rate))
    clock.pass_ms(100)
    refused = await store.claim(claim("k3", args_digest="d3", rate=rate))
    assert refused.verdict is ClaimVerdict.RATE_LIMITED
    assert refused.retry_after_ms == 600
    clock.pass_ms(600)
    assert (await store.claim(claim("k3", args_digest="d3", rate=rate))).verdict is ClaimVerdict.CLAIMED


async def test_units_count_up_to_one_window_ahead_of_a_clock_that_was_set_back(store: Store) -> None:
    await store.count_rates({("near", START + 1_000): 1, ("far", START + 1_001): 1})
    near, far = (RateCharge(scope=scope, limit=1, window_ms=1_000) for scope in ("near", "far"))
    assert (await store.claim(claim(rate=near))).verdict is ClaimVerdict.RATE_LIMITED
    assert (await store.claim(claim(rate=far))).verdict is ClaimVerdict.CLAIMED


async def test_a_claim_deletes_the_units_of_its_own_limit_that_are_over(store: Store) -> None:
    await store.count_rates({("x", START - 5_000): 1, ("y", START - 5_000): 1})
    await store.claim(claim(rate=RateCharge(scope="x", limit=1, window_ms=1_000)))
    assert await store.count_rates({}, {"x": 0, "y": 0}) == {("x", START): 1, ("y", START - 5_000): 1}


async def test_slots_of_a_limit_are_told_from_a_moment_on_and_those_before_are_deleted(store: Store) -> None:
    await store.count_rates({("x", START): 1, ("x", START + 5): 2, ("y", START): 3})
    assert await store.count_rates({("x", START + 9): 4}, {"x": START + 5}) == {
        ("x", START + 5): 2,
        ("x", START + 9): 4,
    }
    assert await store.count_rates({}, {"x": 0, "y": 0}) == {("x", START + 5): 2, ("x", START + 9): 4, ("y", START): 3}


async def test_a_claim_that_is_not_given_costs_no_limit(store: Store) -> None:
    rate = RateCharge(scope="x", limit=2, window_ms=10**9)
    window = START
    await store.claim(claim(rate=rate))
    await store.claim(claim(rate=rate))
    await store.claim(claim("k2", connection=9, rate=rate))
    await store.claim(claim("k3", hold_id="nothing", args_digest="d3", rate=rate))
    await store.finish(done())
    await store.claim(claim(rate=rate))
    assert await store.count_rates({("x", window): 0}) == {("x", window): 1}


async def test_a_replay_is_answered_although_the_limit_is_used_up(store: Store) -> None:
    rate = RateCharge(scope="x", limit=1, window_ms=10**9)
    await store.claim(claim(rate=rate))
    await store.finish(done())
    assert (await store.claim(claim(rate=rate))).verdict is ClaimVerdict.SETTLED


async def test_counted_rates_add_up_exactly_and_bind_claims(store: Store) -> None:
    window = START - START % 1_000
    await asyncio.gather(*(store.count_rates({("x", window): 1, ("y", window): 2}) for _ in range(50)))
    assert await store.count_rates({("x", window): 0, ("y", window): 1}) == {("x", window): 50, ("y", window): 101}
    rate = RateCharge(scope="x", limit=50, window_ms=1_000)
    assert (await store.claim(claim(rate=rate))).verdict is ClaimVerdict.RATE_LIMITED
    assert await store.count_rates({}) == {}


# Leases, takeover, unknown outcomes


async def test_an_unsafe_call_of_a_dead_owner_becomes_unknown_and_is_never_run_again(
    store: Store, clock: StillClock
) -> None:
    await store.claim(claim())
    await crash(store, clock)
    assert (await store.claim(claim(owner="o2"))).verdict is ClaimVerdict.UNKNOWN
    row = await store.ledger_row("k1")
    assert row is not None
    assert (row.state, row.fence, row.owner) == (LedgerState.UNKNOWN, 1, "o1")


@pytest.mark.parametrize("effects", ["none", "idempotent"])
async def test_a_safe_call_of_a_dead_owner_is_taken_over_once(store: Store, clock: StillClock, effects: str) -> None:
    await store.claim(claim(effects=effects))
    await crash(store, clock)
    await store.register_owner("o2")
    given = await asyncio.gather(*(store.claim(claim(effects=effects, owner="o2")) for _ in range(20)))
    assert Counter(result.verdict for result in given) == {ClaimVerdict.TAKEN_OVER: 1, ClaimVerdict.RUNNING: 19}
    taken = next(result for result in given if result.verdict is ClaimVerdict.TAKEN_OVER)
    assert taken.fence == 2
    assert taken.row == await store.ledger_row("k1")


async def test_a_call_that_is_no_longer_safe_to_run_again_becomes_unknown(store: Store, clock: StillClock) -> None:
    await store.claim(claim(effects="idempotent"))
    await crash(store, clock)
    assert (await store.claim(claim(effects="unsafe", owner="o2"))).verdict is ClaimVerdict.UNKNOWN


@pytest.mark.parametrize("effects", ["none", "idempotent", "unsafe"])
async def test_a_living_owner_is_never_taken_over_whatever_the_clock_says(
    store: Store, clock: StillClock, effects: str
) -> None:
    await store.claim(claim(effects=effects))
    clock.pass_ms(3_600_000)
    assert (await store.claim(claim(effects=effects, owner="o2"))).verdict is ClaimVerdict.RUNNING


@pytest.mark.parametrize("effects", ["none", "idempotent", "unsafe"])
async def test_a_dead_owner_is_not_taken_over_before_its_lease_ends(
    store: Store, clock: StillClock, effects: str
) -> None:
    await store.claim(claim(effects=effects))
    await store.release_owner("o1")
    assert (await store.claim(claim(effects=effects, owner="o2"))).verdict is ClaimVerdict.RUNNING
    clock.pass_ms(LEASE)
    assert (await store.claim(claim(effects=effects, owner="o2"))).verdict is ClaimVerdict.RUNNING


async def test_a_takeover_pays_no_second_unit_of_a_limit(store: Store, clock: StillClock) -> None:
    rate = RateCharge(scope="x", limit=1, window_ms=10**9)
    await store.claim(claim(effects="idempotent", rate=rate))
    await crash(store, clock)
    assert (await store.claim(claim(effects="idempotent", rate=rate))).verdict is ClaimVerdict.TAKEN_OVER


async def test_a_zombie_that_was_taken_over_gets_the_winners_outcome(store: Store, clock: StillClock) -> None:
    await store.claim(claim(effects="idempotent"))
    await crash(store, clock)
    await store.claim(claim(effects="idempotent", owner="o2"))
    early = await store.finish(done(fence=1, envelope='"zombie"'))
    assert (early.state, early.fence) == (LedgerState.RUNNING, 2)
    await store.finish(done(fence=2, envelope='"winner"'))
    late = await store.finish(done(fence=1, envelope='"zombie"', block=Block(tenant="t", user="u", until=START * 2)))
    assert late.envelope == '"winner"'
    assert (await store.operating()).blocks == {}


async def test_the_first_owner_may_still_settle_what_became_unknown(store: Store, clock: StillClock) -> None:
    await store.claim(claim())
    await crash(store, clock)
    assert (await store.claim(claim(owner="o2"))).verdict is ClaimVerdict.UNKNOWN
    assert (await store.finish(done())).state is LedgerState.SUCCEEDED
    assert (await store.claim(claim(owner="o2"))).verdict is ClaimVerdict.SETTLED


async def test_reading_a_row_notices_that_its_owner_died(store: Store, clock: StillClock) -> None:
    await store.claim(claim())
    await store.claim(claim("k2", effects="idempotent", args_digest="d2"))
    await crash(store, clock)
    states = [row.state for key in ("k1", "k2") if (row := await store.ledger_row(key))]
    assert states == [LedgerState.UNKNOWN, LedgerState.RUNNING]
    assert await store.ledger_row("nothing") is None


async def test_an_unknown_outcome_answers_every_later_ordinal_of_its_turn(store: Store) -> None:
    await store.claim(claim())
    await store.finish(done(state=LedgerState.UNKNOWN))
    met = await store.claim(claim("k2", ordinal=2))
    assert met.verdict is ClaimVerdict.UNKNOWN
    assert met.row is not None
    assert met.row.key == "k1"
    assert (await store.claim(claim("k3", turn=2))).verdict is ClaimVerdict.CLAIMED
    assert (await store.claim(claim("k4", args_digest="d2"))).verdict is ClaimVerdict.CLAIMED


async def test_a_later_ordinal_notices_that_the_owner_of_the_first_died(store: Store, clock: StillClock) -> None:
    await store.claim(claim())
    await crash(store, clock)
    assert (await store.claim(claim("k2", ordinal=2, owner="o2"))).verdict is ClaimVerdict.UNKNOWN


async def test_unknown_like_finds_by_session_turn_tool_and_arguments(store: Store, clock: StillClock) -> None:
    await store.claim(claim())
    assert await store.unknown_like("s1", 1, "pay", "d1") is None
    await crash(store, clock)
    row = await store.unknown_like("s1", 1, "pay", "d1")
    assert row is not None
    assert row.state is LedgerState.UNKNOWN
    assert await store.unknown_like("s1", 2, "pay", "d1") is None
    assert await store.unknown_like("s1", 1, "pay", "d2") is None


async def test_renewing_extends_a_lease_and_names_what_is_lost(store: Store, clock: StillClock) -> None:
    await store.claim(claim(effects="idempotent"))
    await store.claim(claim("k2", args_digest="d2"))
    await store.finish(done("k2"))
    clock.pass_ms(LEASE - 1)
    assert await store.renew([("k1", 1), ("k2", 1), ("k1", 2), ("nothing", 1)], LEASE) == ["k2", "k1", "nothing"]
    await store.release_owner("o1")
    clock.pass_ms(LEASE - 1)
    assert (await store.claim(claim(effects="idempotent", owner="o2"))).verdict is ClaimVerdict.RUNNING
    assert await store.renew([], LEASE) == []


# Finish and settle


async def test_a_finish_tried_again_changes_nothing(store: Store, clock: StillClock) -> None:
    await store.claim(claim())
    first = await store.finish(done())
    clock.pass_ms(5)
    assert await store.finish(done(state=LedgerState.FAILED, envelope='"other"')) == first


async def test_a_block_and_the_sessions_state_are_stored_with_the_outcome(store: Store) -> None:
    await store.claim(claim())
    await store.finish(done(block=Block(tenant="t", user="u", until=START + 9), session_state={"isActive": False}))
    assert (await store.operating()).blocks == {("t", "u"): START + 9}
    found = await store.load_session("s1")
    assert found is not None
    assert found.state == {"isActive": False}


async def test_the_state_of_a_stale_connection_is_not_stored_with_the_outcome(store: Store) -> None:
    await store.claim(claim())
    await store.connect("s1", registry_version="r", owner="o")
    row = await store.finish(done(session_state={"old": True}, connection=1))
    assert row.state is LedgerState.SUCCEEDED
    found = await store.load_session("s1")
    assert found is not None
    assert found.state == {}


async def test_an_outcome_that_cannot_be_stored_whole_is_not_stored_at_all(store: Store) -> None:
    await store.claim(claim())
    with pytest.raises(UsageError, match="JSON"):
        await store.finish(done(block=Block(tenant="t", user="u", until=START + 9), session_state={"x": object()}))
    row = await store.ledger_row("k1")
    assert row is not None
    assert row.state is LedgerState.RUNNING
    assert (await store.operating()).blocks == {}


async def test_what_was_never_claimed_or_still_runs_cannot_be_finished(store: Store) -> None:
    with pytest.raises(UsageError, match='no call "k9"'):
        await store.finish(done("k9"))
    with pytest.raises(UsageError, match="running"):
        await store.finish(done(state=LedgerState.RUNNING))


async def test_only_an_unknown_outcome_can_be_settled_and_only_once(store: Store) -> None:
    await store.claim(claim())
    assert await store.settle("k1", state=LedgerState.SUCCEEDED, envelope="1") is None
    await store.finish(done(state=LedgerState.UNKNOWN))
    settled = await store.settle("k1", state=LedgerState.FAILED, envelope='"by hand"')
    assert settled is not None
    assert (settled.state, settled.envelope, settled.finished_at) == (LedgerState.FAILED, '"by hand"', START)
    assert await store.settle("k1", state=LedgerState.SUCCEEDED, envelope="2") is None
    assert await store.settle("nothing", state=LedgerState.SUCCEEDED, envelope="2") is None
    assert (await store.finish(done())).envelope == '"by hand"'


async def test_an_outcome_is_settled_as_what_it_was(store: Store) -> None:
    with pytest.raises(UsageError, match="settled as"):
        await store.settle("k1", state=LedgerState.UNKNOWN, envelope="1")


async def test_rows_are_listed_newest_first_by_state_and_up_to_a_number(store: Store, clock: StillClock) -> None:
    for n in range(4):
        await store.claim(claim(f"k{n}", args_digest=f"d{n}", effects="unsafe" if n < 3 else "none"))
        clock.pass_ms(n % 2)
    await store.finish(done("k0"))
    assert [row.key for row in await store.ledger_rows()] == ["k3", "k2", "k1", "k0"]
    assert [row.key for row in await store.ledger_rows(limit=2)] == ["k3", "k2"]
    assert await store.ledger_rows(state=LedgerState.UNKNOWN) == []
    await crash(store, clock)
    assert [row.key for row in await store.ledger_rows(state=LedgerState.UNKNOWN)] == ["k2", "k1"]


# Eviction


async def test_an_evicted_body_is_told_and_its_call_never_run_again(store: Store, clock: StillClock) -> None:
    await store.claim(claim())
    await store.finish(done())
    clock.pass_ms(10)
    assert await store.evict(bodies_before=START + 1, rows_before=START + 1) == (1, 0, None)
    assert await store.evict(bodies_before=START + 1, rows_before=START + 1) == (0, 0, None)
    told = await store.claim(claim())
    assert told.verdict is ClaimVerdict.SETTLED
    assert told.row is not None
    assert (told.row.evicted, told.row.envelope) == (True, None)


async def test_rows_of_closed_sessions_go_and_the_session_stays_closed(store: Store, clock: StillClock) -> None:
    await store.claim(claim(alias=alias()))
    await store.finish(done())
    await store.save_sessions([("s1", 1, {"active": False})])
    clock.pass_ms(10)
    assert await store.evict(bodies_before=START, rows_before=START + 1) == (0, 1, None)
    assert await store.ledger_row("k1") is None
    assert await store.aliases("s1") == []
    await store.save_sessions([("s1", 1, {"active": True})])
    assert (await store.claim(claim())).verdict is ClaimVerdict.INACTIVE


async def test_a_closed_session_that_lost_nothing_may_be_opened_again(store: Store) -> None:
    await store.save_sessions([("s1", 1, {"active": False})])
    await store.evict(bodies_before=START * 2, rows_before=START * 2)
    await store.save_sessions([("s1", 1, {"active": True})])
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED


async def test_running_and_unknown_rows_are_never_evicted(store: Store) -> None:
    await store.claim(claim())
    await store.claim(claim("k2", args_digest="d2"))
    await store.finish(done("k2", state=LedgerState.UNKNOWN))
    await store.save_sessions([("s1", 1, {"active": False})])
    assert await store.evict(bodies_before=START * 2, rows_before=START * 2) == (0, 0, None)
    assert [row.evicted for row in await store.ledger_rows()] == [False, False]


async def test_rows_younger_than_the_limit_stay(store: Store) -> None:
    await store.claim(claim())
    await store.finish(done())
    await store.save_sessions([("s1", 1, {"active": False})])
    assert await store.evict(bodies_before=START, rows_before=START) == (0, 0, None)


# Operating


async def test_the_longer_block_wins_and_an_ended_one_is_not_told(store: Store, clock: StillClock) -> None:
    assert await store.block(Block(tenant="t", user="u", until=START + 100)) == START + 100
    assert await store.block(Block(tenant="t", user="u", until=START + 50)) == START + 100
    assert (await store.operating()).blocks == {("t", "u"): START + 100}
    clock.pass_ms(100)
    assert (await store.operating()).blocks == {}


async def test_a_user_can_be_unblocked(store: Store) -> None:
    await store.block(Block(tenant="t", user="u", until=START + 100))
    await store.unblock("t", "u")
    await store.unblock("t", "nobody")
    assert (await store.operating()).blocks == {}


async def test_switches_are_told_with_their_reason_and_the_time(store: Store) -> None:
    await store.switch("pay", "a")
    await store.switch("pay", "b")
    await store.switch("search", "c")
    await store.switch("search", None)
    told = await store.operating()
    assert (told.switches, told.now) == ({"pay": "b"}, START)
    assert await store.now() == START


# Owners, opening and closing


async def test_an_owners_name_is_taken_once_at_a_time(store: Store) -> None:
    with pytest.raises(UsageError, match='owner "o1" is registered already'):
        await store.register_owner("o1")
    await store.release_owner("o1")
    await store.register_owner("o1")
    await store.release_owner("nobody")


async def test_an_owner_lives_from_its_registration_to_its_release(store: Store) -> None:
    assert await store.owner_lives("o1")
    assert not await store.owner_lives("nobody")
    await store.release_owner("o1")
    assert not await store.owner_lives("o1")


async def test_a_try_at_writing_leaves_nothing_behind(store: Store) -> None:
    await store.switch("pay", "a")
    await store.try_writing()
    assert (await store.operating()).switches == {"pay": "a"}
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.try_writing()


async def test_a_store_that_is_shared_closes_with_its_last_user(store: Store) -> None:
    await store.open()
    await store.close()
    assert (await store.claim(claim())).verdict is ClaimVerdict.CLAIMED


async def test_a_closed_store_is_unavailable_and_opens_again_with_what_it_held(store: Store) -> None:
    await store.claim(claim())
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.load_session("s1")
    await store.open()
    row = await store.ledger_row("k1")
    assert row is not None
    assert row.owner == "o1"


async def test_one_failing_request_does_not_hurt_those_beside_it(store: Store) -> None:
    requests = [store.claim(claim(f"k{n}", args_digest=f"d{n}")) for n in range(20)]
    bad = [store.finish(done("missing")), store.create_session(session()), store.hold(held(session_id="nobody"), "x")]
    told = await asyncio.gather(*requests[:10], *bad, *requests[10:], return_exceptions=True)
    assert [type(outcome) for outcome in told[10:13]] == [UsageError] * 3
    assert {outcome.verdict for outcome in told[:10] + told[13:]} == {ClaimVerdict.CLAIMED}
    assert len(await store.ledger_rows()) == 20


async def test_a_wait_that_is_cancelled_does_not_take_the_claim_back(store: Store) -> None:
    task = asyncio.create_task(store.claim(claim(claim_id="a")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await store.claim(claim(claim_id="b"))).verdict is ClaimVerdict.RUNNING


async def test_two_identical_calls_under_their_own_ordinals_both_run(store: Store) -> None:
    given = await asyncio.gather(store.claim(claim("k1")), store.claim(replace(claim("k2"), ordinal=2)))
    assert [result.verdict for result in given] == [ClaimVerdict.CLAIMED] * 2


async def test_every_state_of_a_hold_can_be_stored(store: Store) -> None:
    for n, state in enumerate(HoldState):
        await store.hold(held(f"h{n}", args=f'{{"amount":{n}}}', args_digest=f"d{n}", state=state), "x")
    assert [hold.state for hold in await store.holds("s1", list(HoldState))] == list(HoldState)
