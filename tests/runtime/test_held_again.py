"""What a held call is answered with when it comes again, and what a resumed session knows of its requests."""

import asyncio
from dataclasses import replace

import pytest
from tests.faults.accidents import Flaky
from tests.runtime.kit import FOUND, PAID, PATIENT, asked, audited, confirmed, kind, next_event, reading, until

from handrail.contract.store import HoldState, LedgerState, StoreUnavailable
from handrail.testing import VirtualClock, settle

TOOLS = {"pay": (confirmed(), PAID), "look": (reading(), FOUND)}
HALF_PAID = """
async def execute(args, ctx):
    mark(args)
    raise ToolError("PERMANENT", "Half of it was paid.", partial_side_effects=True)
"""
WITH_FACTS = PAID + "\nasync def preview(args, ctx):\n    return 'The shop is open.'\n"


async def pay(session, call_id=None, q="a"):
    return await session.call("pay", {"q": q}, call_id=call_id)


async def held(session, call_id=None, q="a"):
    """A request, and its secret."""
    assert kind(await pay(session, call_id, q)) == "CONFIRMATION_REQUIRED"
    return await asked(session)


async def resumed(session, runtime=None):
    return await (runtime or session.core).resume_session(session.id, token=session.token)


async def state_of(world, hold_id):
    return (await world.store.hold_by_id(hold_id)).state


# The same call again


async def test_a_held_call_is_not_worth_a_retry_and_says_how_long_it_waits(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        answer = await pay(await world.session(clock=clock), "c1")
        assert (answer.ok, answer.error.retryable, answer.error.partial_side_effects) == (False, False, False)
        assert answer.error.confirmation_request["expires_at"] == clock.milliseconds() + 300_000


async def test_an_approved_call_that_failed_half_way_is_not_asked_for_again(make_tools):
    async with make_tools({"pay": (confirmed(), HALF_PAID)}) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        assert kind(await session.core.approve(hold_id, token=token)) == "PERMANENT"
        again = await pay(session, "c2")
        assert (kind(again), again.error.partial_side_effects, again.meta["replayed"]) == ("PERMANENT", True, True)
        assert world.starts == 1


async def test_a_call_that_another_process_carried_out_is_answered_with_its_outcome(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        hold_id, token = await held(session, "c1")
        session.core._housekeeper.cancel()  # nobody tells this process what became of the request
        approval = asyncio.create_task(world.runtime(clock=clock).approve(hold_id, token=token))
        await settle(100)
        await clock.advance(2.2)
        outcome = await approval
        assert outcome.ok
        for call_id in ("c2", "c1"):
            again = await pay(session, call_id)
            assert (again.data, again.meta["replayed"]) == (outcome.data, True)
        assert world.starts == 1


async def test_a_call_that_comes_while_the_approved_one_runs_waits_for_it_after_a_reconnect_too(make_tools):
    async with make_tools({"pay": (confirmed(), PATIENT)}) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        approval = asyncio.create_task(session.core.approve(hold_id, token=token))
        await until(lambda: world.starts)
        session = await resumed(session)
        again = asyncio.create_task(pay(session, "c2"))
        await settle()
        assert not again.done()
        world.go()
        assert (await approval).ok
        answer = await again
        assert (answer.data, answer.meta["replayed"], world.starts) == ({"done": "a"}, True, 1)


@pytest.mark.parametrize("how", ["expired", "superseded"])
async def test_the_id_of_a_closed_request_is_told_why_and_is_no_loop(make_tools, how):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        hold_id, _ = await held(session, "c1")
        if how == "expired":
            await clock.advance(301)
        else:
            await world.store.move_hold(hold_id, HoldState.SUPERSEDED, expected=[HoldState.PENDING])
        for _ in range(6):
            answer = await pay(session, "c1")
            assert kind(answer) == "CONFLICT"
        assert session.turn.refusals == 0
        assert world.starts == 0
        assert kind(await pay(session, "c2")) == "CONFIRMATION_REQUIRED", "another id asks anew"


async def test_a_no_is_no_loop_for_the_id_that_it_answers(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        await session.core.decline(hold_id, token=token)
        for _ in range(3):
            assert kind(await pay(session, "c1")) == "DECLINED"
        assert session.turn.refusals == 0


async def test_a_store_that_does_not_take_down_who_knows_the_outcome_spoils_no_answer(make_tools, monkeypatch):
    async with make_tools(TOOLS, store=Flaky()) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        outcome = await session.core.approve(hold_id, token=token)

        async def away(*_):
            raise StoreUnavailable("The store is down.")

        monkeypatch.setattr(world.store, "outcome_delivered", away)
        monkeypatch.setattr(world.store, "ledger_row", away)  # nor is it asked for what is at hand
        assert (await pay(session, "c2")).data == outcome.data
        await session.begin_turn("m2")
        assert (await pay(session, "c3")).data == outcome.data, "never a second time by mistake"
        assert world.starts == 1


async def test_a_no_between_a_yes_and_its_claim_is_what_the_approver_is_told(make_tools, monkeypatch):
    async with make_tools(TOOLS, store=Flaky()) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        claim = world.store.claim

        async def declined_before(wish):
            await session.core.decline(hold_id, token=token)
            return await claim(wish)

        monkeypatch.setattr(world.store, "claim", declined_before)
        assert kind(await session.core.approve(hold_id, token=token)) == "DECLINED"
        assert world.starts == 0


async def test_a_closed_request_is_let_go_of_though_the_next_cannot_be_stored(make_tools, monkeypatch):
    async with make_tools(TOOLS, store=Flaky()) as world:
        session = await world.session()
        hold_id, _ = await held(session, "c1")
        await world.store.move_hold(hold_id, HoldState.SUPERSEDED, expected=[HoldState.PENDING])

        async def away(*_):
            raise StoreUnavailable("The store is down.")

        monkeypatch.setattr(world.store, "hold", away)
        assert kind(await pay(session, "c2")) == "STORE_UNAVAILABLE"
        assert not session.holds


# Looked at, and resumed


async def test_a_request_of_a_tool_that_is_not_here_is_shown_as_it_was_stored(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        hold_id, _ = await held(session, "c1")
        stored = await world.store.hold_by_id(hold_id)
        elsewhere = replace(stored, hold_id="conf_2", tool="send", ledger_key="another", alias=None, preview="Send a")
        await world.store.hold(elsewhere, "hash", "digest")
        for tokens in (True, False):
            shown = await session.core.confirmations.show_all(session, tokens=tokens)
            assert [(one["tool"], one["preview"]) for one in shown] == [("pay", stored.preview), ("send", "Send a")]


@pytest.mark.parametrize("source", [PAID, WITH_FACTS])
async def test_whoever_only_looks_at_a_request_sees_what_the_user_sees_and_no_secret(make_tools, source):
    async with make_tools({"pay": (confirmed(preview="Pay {q}"), source)}) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        [looked_at] = await session.core.confirmations.show_all(session, tokens=False)
        [shown] = await session.core.confirmations.show_all(session)
        assert shown.pop("token") != token
        assert looked_at == shown
        assert (looked_at["id"], looked_at["turn"], looked_at["preview"].startswith("Pay a")) == (hold_id, 1, True)
        assert ("The shop is open." in looked_at["preview"]) is (source == WITH_FACTS)


@pytest.mark.parametrize("change", ["another version", "gone"])
async def test_a_resume_closes_the_requests_of_tools_that_changed_and_keeps_the_others(make_tools, change):
    tools = {**TOOLS, "send": (confirmed(), PAID)}
    async with make_tools(tools) as world:
        session = await world.session()
        changed, token = await held(session, "c1")
        await session.call("send", {"q": "a"}, call_id="c2")
        kept, kept_token = await asked(session)
        if change == "gone":
            for file in (world.tools.folder / "pay").iterdir():
                file.unlink()
            (world.tools.folder / "pay").rmdir()
        else:
            world.tools.write({"pay": (confirmed(version="1.1.0"), PAID)})
        world.tools.rebuild()
        world.registry.reload()
        session = await resumed(session)
        assert await state_of(world, changed) is HoldState.SUPERSEDED
        assert [one["id"] for one in await session.core.confirmations.show_all(session)] == [kept]
        assert [one["confirmationId"] for one in audited(session.core, "confirmation_superseded")] == [changed]
        assert kind(await session.core.approve(changed, token=token)) == "CONFLICT"
        assert (await session.core.approve(kept, token=kept_token)).ok


async def test_an_outcome_stays_the_answer_after_a_resume_though_its_tool_has_changed(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        outcome = await session.core.approve(hold_id, token=token)
        world.tools.write({"pay": (confirmed(version="1.1.0"), PAID)})
        world.tools.rebuild()
        world.registry.reload()
        session = await resumed(session)
        assert await state_of(world, hold_id) is HoldState.CONSUMED
        assert (await pay(session, "c2")).data == outcome.data
        assert world.starts == 1


@pytest.mark.parametrize("same_process", [True, False])
async def test_only_open_requests_are_sent_again_after_a_resume(make_tools, same_process):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        done, done_token = await held(session, "c1", "done")
        refused, refused_token = await held(session, "c2", "refused")
        still_open, _ = await held(session, "c3", "open")
        assert (await session.core.approve(done, token=done_token)).ok
        await session.core.decline(refused, token=refused_token)
        session = await resumed(session, None if same_process else world.runtime())
        assert (await asked(session))[0] == still_open
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asked(session), 0.05)


async def test_a_no_is_told_and_written_down_once_though_the_session_is_resumed(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        await session.core.decline(hold_id, token=token)
        assert (await next_event(session, "envelope")).data["confirmationId"] == hold_id
        for _ in range(2):
            session = await resumed(session)
        assert kind(await pay(session, "c2")) == "DECLINED"
        assert len(audited(session.core, "confirmation_declined")) == 1
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(next_event(session, "envelope"), 0.1)


# What a person and other processes see


async def test_an_open_request_is_shown_again_to_whoever_has_a_secret_of_it(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        shown = await session.core.show(hold_id, token=token)
        assert shown["id"] == hold_id
        assert shown["token"] != token
        assert await session.core.show(hold_id, token="a guess") is None
        assert (await session.core.approve(hold_id, token=shown["token"])).ok
        assert await session.core.show(hold_id, token=token) is None, "it was answered"


async def test_an_unknown_outcome_of_an_approved_call_answers_once_it_is_known(make_tools):
    ended = "async def execute(args, ctx):\n    mark(args)\n    raise SystemExit(1)\n"
    async with make_tools({"pay": (confirmed(), ended)}) as world:
        session = await world.session()
        hold_id, token = await held(session, "c1")
        with pytest.raises(SystemExit):
            await session.core.approve(hold_id, token=token)
        assert kind(await pay(session, "c2")) == "CONFLICT"
        (row,) = await world.store.ledger_rows()
        envelope = '{"ok": true, "data": {"found": 1}, "intents": [], "meta": {}}'
        await world.store.settle(row.key, state=LedgerState.SUCCEEDED, envelope=envelope)
        assert (await pay(session, "c3")).data == {"found": 1}
        assert world.starts == 1


async def test_other_processes_learn_that_a_held_call_has_used_a_unit_of_the_user_s_limit(make_tools):
    limit = {"calls": 1, "windowMs": 60_000, "scope": "user"}
    async with make_tools({"pay": (confirmed(rateLimit=limit), PAID)}) as world:
        session = await world.session(user="ana")
        await held(session, "c1")
        await session.core.housekeeper.write_behind()
        elsewhere = await world.session(user="ana")
        await elsewhere.core.housekeeper.learn()
        assert kind(await pay(elsewhere, "c1", q="b")) == "RATE_LIMIT"
