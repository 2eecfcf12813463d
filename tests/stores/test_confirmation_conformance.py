"""What every store must do with held calls, their tokens and grants, and with the ids under which calls arrive."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.stores.values import START, StillClock, alias, claim, crash, done, held, session

from handrail.contract.errors import UsageError
from handrail.contract.store import (
    HOLD_TOKENS,
    Approval,
    ClaimVerdict,
    Finish,
    Hold,
    HoldState,
    LedgerState,
    RateCharge,
    Store,
)

OPEN = (HoldState.PENDING, HoldState.APPROVED)
OTHER = {"args": '{"amount":6}', "args_digest": "d2"}


async def approve(store: Store, hold_id: str = "h1") -> None:
    moved = await store.move_hold(hold_id, HoldState.APPROVED, expected=[HoldState.PENDING])
    assert moved is not None
    assert moved.state is HoldState.APPROVED


# Holding


async def test_a_held_call_is_given_back_as_it_was_stored(store: Store) -> None:
    made = held(alias=alias(), repaired=True, user=None)
    assert await store.hold(made, "x") == made
    assert await store.hold_by_id("h1") == made
    assert await store.hold_by_id("nothing") is None


async def test_the_same_call_held_again_in_another_turn_is_the_open_one(store: Store) -> None:
    first = await store.hold(held(), "x")
    again = await store.hold(held("h2", turn=7, ledger_key="k7"), "y")
    assert again == replace(first, asked_turn=7)
    assert await store.hold_by_id("h2") is None


async def test_racing_holds_of_one_call_are_one(store: Store) -> None:
    given = await asyncio.gather(*(store.hold(held(f"h{n}"), f"x{n}") for n in range(40)))
    assert len({hold.hold_id for hold in given}) == 1
    tokens = await asyncio.gather(*(store.shown_with(given[0].hold_id, f"x{n}") for n in range(40)))
    assert tokens == [""] * 40


@pytest.mark.parametrize("change", [OTHER, {"tool": "refund"}, {"session_id": "s2"}])
async def test_another_call_is_held_beside_it(store: Store, change: dict[str, str]) -> None:
    await store.create_session(session("s2"))
    await store.hold(held(), "x")
    assert (await store.hold(held("h2", **change), "x")).hold_id == "h2"


@pytest.mark.parametrize("end", [HoldState.DECLINED, HoldState.SUPERSEDED, HoldState.CONSUMED])
async def test_a_closed_request_makes_room_for_a_new_one(store: Store, end: HoldState) -> None:
    await store.hold(held(), "x")
    await store.move_hold("h1", end, expected=OPEN)
    assert (await store.hold(held("h2"), "x")).hold_id == "h2"


async def test_an_approved_request_is_still_the_open_one(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    assert (await store.hold(held("h2"), "x")).hold_id == "h1"


async def test_an_overdue_request_makes_room_for_a_new_one(store: Store, clock: StillClock) -> None:
    await store.hold(held(), "x")
    clock.pass_ms(300_000)
    assert (await store.hold(held("h2", expires_at=clock.now + 1), "x")).hold_id == "h2"
    assert [hold.hold_id for hold in await store.holds("s1", [HoldState.EXPIRED])] == ["h1"]


async def test_a_request_for_an_older_version_of_the_tool_is_superseded(store: Store) -> None:
    await store.hold(held(), "x")
    assert (await store.hold(held("h2", tool_hash="h2"), "x")).hold_id == "h2"
    old = await store.hold_by_id("h1")
    assert old is not None
    assert old.state is HoldState.SUPERSEDED


async def test_a_call_cannot_be_held_for_a_session_that_is_not_there(store: Store) -> None:
    with pytest.raises(UsageError):
        await store.hold(held(session_id="nobody"), "x")


async def test_held_calls_are_listed_by_session_and_state_in_order(store: Store) -> None:
    for n in range(3):
        await store.hold(held(f"h{9 - n}", args=f'{{"amount":{n}}}', args_digest=f"d{n}"), "x")
    await store.move_hold("h8", HoldState.DECLINED, expected=OPEN)
    assert [hold.hold_id for hold in await store.holds("s1", OPEN)] == ["h9", "h7"]
    assert [hold.hold_id for hold in await store.holds("s1", [HoldState.DECLINED])] == ["h8"]
    assert await store.holds("nobody", OPEN) == []
    assert await store.holds("s1", []) == []


# Tokens


async def test_any_token_of_a_held_call_is_known_and_no_other(store: Store) -> None:
    await store.hold(held(), "x")
    await store.hold(held("h2", **OTHER), "other")
    await store.add_hold_token("h1", "y", "what was shown")
    await store.add_hold_token("h1", "y", "something else")
    known = [await store.shown_with("h1", token) for token in ("x", "y", "other", "")]
    assert known == ["", "what was shown", None, None]
    assert await store.shown_with("nothing", "x") is None


async def test_a_duplicates_token_opens_the_first_request(store: Store) -> None:
    await store.hold(held(), "x")
    await store.hold(held("h2"), "y")
    assert await store.shown_with("h1", "y") is not None


async def test_a_token_needs_a_held_call(store: Store) -> None:
    with pytest.raises(UsageError, match='no held call "nothing"'):
        await store.add_hold_token("nothing", "x")


# Moving


async def test_a_hold_moves_only_from_the_states_that_are_named(store: Store) -> None:
    await store.hold(held(), "x")
    await store.move_hold("h1", HoldState.DECLINED, expected=[HoldState.PENDING])
    kept = await store.move_hold("h1", HoldState.APPROVED, expected=[HoldState.PENDING])
    assert kept is not None
    assert kept.state is HoldState.DECLINED
    assert await store.hold_by_id("h1") == kept
    assert await store.move_hold("nothing", HoldState.APPROVED, expected=OPEN) is None


async def test_of_an_approval_and_a_refusal_that_race_one_stands(store: Store) -> None:
    await store.hold(held(), "x")
    wanted = [HoldState.APPROVED, HoldState.DECLINED] * 10
    told = await asyncio.gather(*(store.move_hold("h1", to, expected=[HoldState.PENDING]) for to in wanted))
    assert len({hold.state for hold in told if hold}) == 1


@pytest.mark.parametrize("to", [HoldState.APPROVED, HoldState.DECLINED, HoldState.SUPERSEDED])
async def test_a_late_decision_finds_the_request_expired(store: Store, clock: StillClock, to: HoldState) -> None:
    await store.hold(held(), "x")
    clock.pass_ms(300_000)
    late = await store.move_hold("h1", to, expected=OPEN)
    assert late is not None
    assert late.state is HoldState.EXPIRED
    clock.pass_ms(-300_000)
    stored = await store.hold_by_id("h1")
    assert stored is not None
    assert stored.state is HoldState.EXPIRED


async def test_an_expired_request_is_never_revived_whatever_it_may_be_moved_from(
    store: Store, clock: StillClock
) -> None:
    await store.hold(held(), "x")
    clock.pass_ms(300_000)
    for _ in range(2):
        late = await store.move_hold("h1", HoldState.APPROVED, expected=list(HoldState))
        assert late is not None
        assert late.state is HoldState.EXPIRED


async def test_an_overdue_request_is_told_as_expired_before_anyone_moves_it(store: Store, clock: StillClock) -> None:
    await store.hold(held(), "x")
    clock.pass_ms(299_999)
    assert len(await store.holds("s1", OPEN)) == 1
    clock.pass_ms(1)
    assert await store.holds("s1", OPEN) == []
    found = await store.hold_by_id("h1")
    assert found is not None
    assert found.state is HoldState.EXPIRED


async def test_who_approved_is_kept_until_the_request_is_opened_again(store: Store) -> None:
    await store.hold(held(), "x")

    async def moved(to: HoldState, *, by: Approval | None = None) -> tuple[str | None, str | None]:
        told = await store.move_hold("h1", to, expected=OPEN, approval=by)
        kept = await found(store, "h1")
        assert told == kept
        assert kept.state is to
        return kept.approver, kept.approved_via

    nobody = await moved(HoldState.PENDING, by=Approval("eve", "page"))
    assert nobody == (held().approver, held().approved_via), "nothing was approved"
    assert await moved(HoldState.APPROVED, by=Approval("ana", "page")) == ("ana", "page")
    assert await moved(HoldState.APPROVED, by=Approval("ben", "voice")) == ("ana", "page"), "the first yes is the grant"
    assert await moved(HoldState.PENDING) == nobody
    assert await moved(HoldState.APPROVED, by=Approval("ben", "voice")) == ("ben", "voice")
    assert await moved(HoldState.DECLINED) == ("ben", "voice"), "what was is not forgotten"


# Grants


async def test_an_approved_call_is_claimed_and_its_grant_consumed(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    given = await store.claim(claim(hold_id="h1"))
    assert given.verdict is ClaimVerdict.CLAIMED
    assert given.row is not None
    assert given.row.hold_id == "h1"
    used = await store.hold_by_id("h1")
    assert used is not None
    assert used.state is HoldState.CONSUMED


@pytest.mark.parametrize(
    "state", [HoldState.PENDING, HoldState.DECLINED, HoldState.SUPERSEDED, HoldState.EXPIRED, HoldState.CONSUMED]
)
async def test_only_an_approved_call_is_claimed(store: Store, state: HoldState) -> None:
    await store.hold(held(state=state), "x")
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.NO_GRANT
    assert await store.ledger_row("k1") is None


async def test_a_grant_ends_with_its_time(store: Store, clock: StillClock) -> None:
    await store.hold(held(), "x")
    await approve(store)
    clock.pass_ms(300_000)
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.NO_GRANT


@pytest.mark.parametrize(
    "change",
    [
        {"args": '{"amount":6}'},
        {"tool": "refund"},
        {"tool_hash": "h2"},
        {"user": "somebody"},
        {"user": None},
        {"tenant": "other"},
        {"session_id": "s2"},
        {"hold_id": "nothing"},
    ],
)
async def test_a_grant_is_bound_to_its_call(store: Store, change: dict[str, Any]) -> None:
    await store.create_session(session("s2"))
    await store.hold(held(), "x")
    await approve(store)
    assert (await store.claim(claim(**({"hold_id": "h1"} | change)))).verdict is ClaimVerdict.NO_GRANT
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.CLAIMED


async def test_a_grant_is_for_all_arguments_also_where_the_ledger_compares_fewer(store: Store) -> None:
    """Two bookings that `dedupeFields` make the same one: each has a request of its own, and each grant runs its own."""
    for hold_id, amount in (("h1", 5), ("h2", 6)):
        await store.hold(held(hold_id, args=f'{{"amount":{amount}}}', args_digest=f"d{amount}"), "x")
        await approve(store, hold_id)
    both = {"hold_id": "h2", "args_digest": "same"}
    assert (await store.claim(claim("k1", hold_id="h1", args_digest="same"))).verdict is ClaimVerdict.CLAIMED
    assert (await store.claim(claim("k2", ordinal=2, **both))).verdict is ClaimVerdict.NO_GRANT
    six = {"args": '{"amount":6}', **both}
    # A key runs once: the other grant neither runs under it nor gets the outcome of arguments that nobody approved.
    assert (await store.claim(claim("k1", **six))).verdict is ClaimVerdict.NO_GRANT
    assert (await store.claim(claim("k2", ordinal=2, **six))).verdict is ClaimVerdict.CLAIMED


async def test_a_request_that_bears_another_digest_is_the_open_one_by_its_arguments(store: Store) -> None:
    await store.hold(held(args_digest="of older versions"), "x")
    assert (await store.hold(held("h2"), "y")).hold_id == "h1"


async def test_of_two_hundred_racing_claims_under_other_keys_one_gets_the_grant(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    given = await asyncio.gather(*(store.claim(claim(f"k{n}", hold_id="h1", ordinal=n)) for n in range(200)))
    assert Counter(result.verdict for result in given) == {ClaimVerdict.CLAIMED: 1, ClaimVerdict.NO_GRANT: 199}
    assert len(await store.ledger_rows(limit=500)) == 1


async def test_of_two_hundred_racing_claims_of_the_held_call_one_runs(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    given = await asyncio.gather(*(store.claim(claim(hold_id="h1", claim_id=str(n))) for n in range(200)))
    assert Counter(result.verdict for result in given) == {ClaimVerdict.CLAIMED: 1, ClaimVerdict.RUNNING: 199}


async def test_a_second_approval_gets_the_outcome_of_the_first(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    await store.claim(claim(hold_id="h1"))
    await store.finish(done())
    told = await store.claim(claim(hold_id="h1"))
    assert told.verdict is ClaimVerdict.SETTLED
    assert told.row is not None
    assert told.row.envelope == '{"ok":true}'


async def test_a_grant_of_another_call_does_not_open_a_row(store: Store) -> None:
    await store.claim(claim())
    await store.hold(held(), "x")
    await approve(store)
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.NO_GRANT


async def test_a_grant_takes_over_what_a_dead_owner_had_begun_without_one(store: Store, clock: StillClock) -> None:
    begun = await store.claim(claim(effects="idempotent"))
    await crash(store, clock)
    await store.hold(held(), "x")
    assert (await store.claim(claim(hold_id="h1", effects="idempotent"))).verdict is ClaimVerdict.NO_GRANT
    await approve(store)
    taken = await store.claim(claim(hold_id="h1", effects="idempotent"))
    assert (taken.verdict, taken.fence) == (ClaimVerdict.TAKEN_OVER, begun.fence + 1)
    assert (await store.hold_by_id("h1")).state is HoldState.CONSUMED
    assert (await store.ledger_row("k1")).hold_id == "h1"


async def test_a_grant_gets_what_became_of_the_call_that_it_was_to_take_over(store: Store, clock: StillClock) -> None:
    begun = await store.claim(claim(effects="idempotent"))
    await crash(store, clock)
    await store.hold(held(), "x")
    await approve(store)
    await store.finish(Finish(key="k1", fence=begun.fence, state=LedgerState.SUCCEEDED, envelope="{}"))
    assert (await store.claim(claim(hold_id="h1", effects="idempotent"))).verdict is ClaimVerdict.SETTLED
    assert (await store.hold_by_id("h1")).state is HoldState.CONSUMED


async def test_a_no_settles_what_a_dead_owner_had_begun_and_nothing_else(store: Store, clock: StillClock) -> None:
    await store.claim(claim(effects="idempotent"))
    await store.hold(held(), "x")
    await store.hold(held("h2", args='{"amount":6}', args_digest="d6"), "x")
    assert (await store.decline_hold("h2", expected=OPEN, left='{"left":1}')).state is HoldState.DECLINED
    assert (await store.ledger_row("k1")).state is LedgerState.RUNNING, "its owner lives"
    await crash(store, clock)
    assert (await store.decline_hold("h1", expected=OPEN, left='{"left":2}')).state is HoldState.DECLINED
    row = await store.ledger_row("k1")
    assert (row.state, row.envelope) == (LedgerState.CANCELLED, '{"left":2}')
    assert (await store.decline_hold("h1", expected=OPEN, left='{"left":3}')).state is HoldState.DECLINED
    assert (await store.ledger_row("k1")).envelope == '{"left":2}'


async def test_a_claim_that_is_refused_keeps_the_grant(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    await store.switch("pay", "off")
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.SWITCHED_OFF
    await store.switch("pay", None)
    full = RateCharge(scope="x", limit=0, window_ms=1_000)
    assert (await store.claim(claim(hold_id="h1", rate=full))).verdict is ClaimVerdict.RATE_LIMITED
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.CLAIMED


async def test_a_confirmed_call_of_a_dead_owner_is_taken_over_with_its_consumed_grant(
    store: Store, clock: StillClock
) -> None:
    await store.hold(held(), "x")
    await approve(store)
    await store.claim(claim(hold_id="h1", effects="idempotent"))
    await crash(store, clock)
    assert (await store.claim(claim(hold_id="h1", effects="idempotent"))).verdict is ClaimVerdict.TAKEN_OVER


async def test_an_unknown_confirmed_call_is_not_run_again_by_another_approval(store: Store, clock: StillClock) -> None:
    await store.hold(held(), "x")
    await approve(store)
    await store.claim(claim(hold_id="h1"))
    await crash(store, clock)
    assert (await store.claim(claim(hold_id="h1"))).verdict is ClaimVerdict.UNKNOWN


async def test_eviction_leaves_held_calls_of_open_sessions(store: Store) -> None:
    await store.hold(held(), "x")
    await store.evict(bodies_before=START * 2, rows_before=START * 2)
    assert await store.hold_by_id("h1") is not None
    await store.save_sessions([("s1", 1, {"active": False})])
    await store.evict(bodies_before=START * 2, rows_before=START * 2)
    assert await store.hold_by_id("h1") is None


# Ids of calls


async def test_a_claim_remembers_the_id_of_its_call(store: Store) -> None:
    await store.claim(claim(alias=alias()))
    assert await store.aliases("s1") == [alias(ledger_key="k1")]
    assert await store.aliases("nobody") == []


async def test_an_id_that_was_used_for_other_arguments_is_a_mismatch(store: Store) -> None:
    await store.claim(claim(alias=alias()))
    other = claim("k2", args_digest="d2", alias=alias(raw_digest="raw2"))
    assert (await store.claim(other)).verdict is ClaimVerdict.MISMATCH
    assert await store.ledger_row("k2") is None
    assert await store.aliases("s1") == [alias(ledger_key="k1")]


async def test_an_id_that_another_key_took_meanwhile_is_answered_from_there(store: Store) -> None:
    await store.claim(claim(alias=alias()))
    met = await store.claim(claim("k2", ordinal=2, alias=alias()))
    assert met.verdict is ClaimVerdict.RUNNING
    assert met.row is not None
    assert met.row.key == "k1"


async def test_racing_deliveries_of_one_id_under_different_keys_run_once(store: Store) -> None:
    given = await asyncio.gather(*(store.claim(claim(f"k{n}", ordinal=n, alias=alias())) for n in range(30)))
    assert Counter(result.verdict for result in given) == {ClaimVerdict.CLAIMED: 1, ClaimVerdict.RUNNING: 29}


async def test_a_call_that_met_anothers_outcome_may_take_the_next_ordinal_under_its_id(store: Store) -> None:
    await store.claim(claim(alias=alias()))
    await store.finish(done(state=LedgerState.FAILED))
    second = alias("provider:c2")
    assert (await store.claim(claim(alias=second))).verdict is ClaimVerdict.SETTLED
    assert (await store.claim(claim("k2", ordinal=2, alias=second))).verdict is ClaimVerdict.CLAIMED
    assert await store.aliases("s1") == [alias(ledger_key="k1"), replace(second, ledger_key="k2")]


async def test_an_id_that_was_answered_by_a_replay_can_be_remembered_and_keeps_its_meaning(store: Store) -> None:
    await store.claim(claim())
    first = alias("provider:c2", ledger_key="k1")
    assert await store.add_alias("s1", first) == first
    await store.claim(claim("k2", args_digest="d2"))
    assert await store.add_alias("s1", alias("provider:c2", ledger_key="k2")) == first
    with pytest.raises(UsageError):
        await store.add_alias("s1", alias("provider:c3", ledger_key="nothing"))


async def test_ids_belong_to_their_session(store: Store) -> None:
    await store.create_session(session("s2"))
    await store.claim(claim(alias=alias()))
    other = claim("k2", session_id="s2", alias=alias(raw_digest="raw2"))
    assert (await store.claim(other)).verdict is ClaimVerdict.CLAIMED


async def test_the_ids_of_a_held_call_and_its_duplicates_lead_to_the_claim(store: Store) -> None:
    await store.hold(held(alias=alias()), "x")
    await store.hold(held("h2", alias=alias("provider:c2")), "y")
    assert [(a.ledger_key, a.hold_id) for a in await store.aliases("s1")] == [(None, "h1"), (None, "h1")]
    await approve(store)
    await store.claim(claim(hold_id="h1", alias=alias()))
    assert [(a.ledger_key, a.hold_id) for a in await store.aliases("s1")] == [("k1", "h1"), ("k1", "h1")]


async def test_a_new_id_that_claims_a_held_call_leads_to_its_request(store: Store) -> None:
    await store.hold(held(), "x")
    await approve(store)
    await store.claim(claim(hold_id="h1", alias=alias("provider:c9")))
    assert await store.aliases("s1") == [alias("provider:c9", ledger_key="k1", hold_id="h1")]


async def test_an_id_that_is_held_cannot_be_claimed_around_the_confirmation(store: Store) -> None:
    await store.hold(held(alias=alias()), "x")
    assert (await store.claim(claim(alias=alias()))).verdict is ClaimVerdict.NO_GRANT


async def test_an_id_held_again_after_its_request_expired_leads_to_the_new_one(store: Store, clock: StillClock) -> None:
    await store.hold(held(alias=alias()), "x")
    clock.pass_ms(300_000)
    await store.hold(held("h2", alias=alias(), expires_at=clock.now + 100), "x")
    await approve(store, "h2")
    assert (await store.claim(claim(hold_id="h2", alias=alias()))).verdict is ClaimVerdict.CLAIMED


# What was shown, replaced and told


async def test_the_newest_tokens_of_a_request_are_kept_each_with_what_was_shown(store: Store) -> None:
    await store.hold(held(), "first", "shown first")
    await store.hold(held("h2", **OTHER), "another request's", "shown")
    for n in range(HOLD_TOKENS):
        await store.add_hold_token("h1", f"x{n}", f"shown {n}")
    assert await store.shown_with("h1", "first") is None
    shown = [await store.shown_with("h1", f"x{n}") for n in range(HOLD_TOKENS)]
    assert shown == [f"shown {n}" for n in range(HOLD_TOKENS)]
    assert await store.shown_with("h2", "another request's") == "shown"


async def test_a_showing_keeps_the_new_preview_of_an_open_request(store: Store) -> None:
    await store.hold(held(), "x")
    assert (await store.add_hold_token("h1", "y", preview="Pay 5, clashes")).preview == "Pay 5, clashes"
    assert (await store.add_hold_token("h1", "z")).preview == "Pay 5, clashes"
    await store.move_hold("h1", HoldState.DECLINED, expected=OPEN)
    closed = await store.add_hold_token("h1", "w", preview="too late")
    assert (closed.state, closed.preview) == (HoldState.DECLINED, "Pay 5, clashes")


async def marks(store: Store) -> dict[str, str | None]:
    return {hold.hold_id: hold.replaced_by for hold in await store.holds("s1", tuple(HoldState))}


async def test_a_request_of_a_later_turn_replaces_open_ones_of_its_tool(store: Store) -> None:
    await store.create_session(session("s2"))
    for n in range(1, 4):
        await store.hold(held(f"h{n}", args=f'{{"amount":{n}}}', args_digest=f"d{n}"), f"x{n}")
    await store.hold(held("h4", tool="refund"), "x4")
    await store.hold(held("h5", session_id="s2"), "x5")
    await store.move_hold("h2", HoldState.APPROVED, expected=OPEN)
    await store.move_hold("h3", HoldState.DECLINED, expected=OPEN)
    assert set((await marks(store)).values()) == {None}, "those of one turn stand beside each other"
    new = await store.hold(held("h6", turn=2, args='{"amount":9}', args_digest="d9"), "x6")
    assert (new.hold_id, new.replaced_by) == ("h6", None)
    assert await marks(store) == {"h1": "h6", "h2": "h6", "h3": None, "h4": None, "h6": None}
    await store.ask_again("h2", 1)
    assert (await marks(store))["h2"] == "h6", "asked for again in its own turn, which was earlier"
    again = await store.hold(held("h7", turn=3, args='{"amount":1}', args_digest="d1"), "x7")
    assert (again.hold_id, again.replaced_by, again.asked_turn) == ("h1", None, 3)
    assert await marks(store) == {"h1": None, "h2": "h6", "h3": None, "h4": None, "h6": "h1"}
    await store.ask_again("h6", 4)
    assert (await marks(store))["h1"] == "h6"
    await store.ask_again("h3", 5)
    await store.ask_again("nothing", 5)
    assert (await marks(store))["h6"] is None, "a closed request replaces nothing"


async def test_the_first_turn_in_which_the_outcome_was_told_stays(store: Store) -> None:
    await store.hold(held(), "x")
    await store.hold(held("h2", **OTHER), "y")
    assert (await found(store, "h1")).told_turn is None
    await store.outcome_delivered("h1", 3)
    await store.outcome_delivered("h1", 5)
    await store.outcome_delivered("nothing", 5)
    assert (await found(store, "h1")).told_turn == 3
    assert (await found(store, "h2")).told_turn is None


async def found(store: Store, hold_id: str) -> Hold:
    hold = await store.hold_by_id(hold_id)
    assert hold is not None
    return hold
