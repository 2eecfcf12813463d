"""Confirmation: a call that a person must approve is held, shown, and carried out once, after the person said yes."""

import asyncio
import json

import pytest
from tests.runtime.kit import (
    FOUND,
    PAID,
    PATIENT,
    Tools,
    asked,
    audited,
    calls_left,
    confirmed,
    kind,
    next_event,
    reading,
    until,
    writing,
)

from handrail import Call, Runtime
from handrail.contract.store import Block
from handrail.runtime.confirmation import NOT_LOOKED_UP
from handrail.stores import MemoryStore
from handrail.testing import VirtualClock, settle

TOOLS = {"pay": (confirmed(), PAID), "look": (reading(), FOUND)}


async def pay(session, call_id=None, q="a", **facts):
    return await session.call("pay", {"q": q}, call_id=call_id, **facts)


async def held(session, call_id=None, q="a"):
    """A held call: the answer, its id and its secret."""
    response = await pay(session, call_id, q)
    assert kind(response) == "CONFIRMATION_REQUIRED"
    return (response, *(await asked(session)))


# Held


async def test_a_call_without_a_grant_is_held_and_says_what_it_waits_for(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(user="u1", clock=clock)
        response, hold_id, token = await held(session, "c1")
        request = response.error.confirmation_request
        assert set(request) == {"id", "tool", "args", "preview", "expires_at"}
        assert (request["id"], request["tool"], request["args"]) == (hold_id, "pay", {"q": "a"})
        assert request["expires_at"] == clock.milliseconds() + 300_000
        assert token not in json.dumps(response.to_dict())
        assert token not in json.dumps(audited(session.core))
        assert world.starts == 0
        assert response.error.partial_side_effects is False


async def test_voice_waits_for_a_minute(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(mode="voice", clock=clock)
        response, *_ = await held(session)
        assert response.error.confirmation_request["expires_at"] == clock.milliseconds() + 60_000


async def test_there_is_one_open_request_for_the_same_call_across_turns_and_ids(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session(mode="voice")
        _, hold_id, _ = await held(session, "c1")
        assert set(session.calls_by_id) == {"provider:c1"}
        for call_id in ("c1", "c2", None):
            again = await pay(session, call_id)
            assert again.error.confirmation_request["id"] == hold_id
        assert set(session.calls_by_id) == {"provider:c1", "provider:c2"}, "a call without an id leaves none behind"
        await session.begin_turn("m2")
        again = await pay(session, "c3")
        assert again.error.confirmation_request["id"] == hold_id
        assert calls_left(again) == {"retrieval": 2, "total": 3}, "it pays no second unit"
        other = await pay(session, "c4", q="b")
        assert other.error.confirmation_request["id"] != hold_id


async def test_identical_calls_at_the_same_time_get_one_request_and_pay_once(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session(mode="voice")
        answers = await asyncio.gather(
            pay(session, "1"), pay(session, "2"), pay(session), pay(session), pay(session, "1")
        )
        assert {kind(answer) for answer in answers} == {"CONFIRMATION_REQUIRED"}
        assert len({answer.error.confirmation_request["id"] for answer in answers}) == 1
        assert session.turn.total_used == 1


async def test_each_id_of_identical_calls_at_the_same_time_stands_for_what_was_carried_out(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await asyncio.gather(pay(session, "c1"), pay(session, "c2"), pay(session))
        hold_id, token = await asked(session)
        assert set(session.calls_by_id) == {"provider:c1", "provider:c2"}, "a call without an id leaves none behind"
        done = await session.core.approve(hold_id, token=token)
        assert (await pay(session, "c1")).data == done.data
        await session.begin_turn("m2")
        for call_id in ("c1", "c2"):
            again = await pay(session, call_id)
            assert (again.data, again.meta["replayed"]) == (done.data, True), "the same id is no new wish"
        assert world.starts == 1


async def test_a_held_call_keeps_its_unit_and_approving_charges_nothing(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session(mode="voice")
        response, hold_id, token = await held(session)
        assert response.meta["budget"]["total"] == 2
        assert (await session.core.approve(hold_id, token=token)).ok
        assert session.turn.total_used == 1


async def test_a_call_that_is_cancelled_before_it_is_held_gives_its_unit_back(make_tools):
    slow = PAID + "\nasync def preview(args, ctx):\n    mark(args)\n    await asyncio.sleep(3600)\n"
    async with make_tools({"pay": (confirmed(), slow)}) as world:
        session = await world.session()
        call = asyncio.create_task(pay(session, "c1"))
        await until(lambda: world.starts)
        assert session.turn.total_used == 1
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert session.turn.total_used == 0
        assert not session.calls_by_id


@pytest.mark.parametrize(
    ("fields", "args", "policy", "wanted"),
    [
        (writing(confirmation={"when": 'size(args.q) > 3'}), {"q": "long text"}, {}, True),
        (writing(confirmation={"when": 'size(args.q) > 3'}), {"q": "abc"}, {}, False),
        (writing(confirmation={"when": 'mode == "voice"'}), {"q": "a"}, {}, False),
        (writing(confirmation={"when": "session.missing == 1"}), {"q": "a"}, {}, True),
        (reading(requiresConfirmation=True), {"q": "a"}, {}, True),
        (writing(), '{"q": "a",}', {"repair": True}, True),
        (reading(), '{"q": "a",}', {"repair": True}, False),
    ],
)  # fmt: skip
async def test_a_person_is_asked_when_the_tool_or_its_arguments_want_it(make_tools, fields, args, policy, wanted):
    async with make_tools({"tool": (fields, FOUND)}) as world:
        session = await world.session(policy=policy)
        response = await session.call("tool", args, call_id="c1")
        assert (kind(response) == "CONFIRMATION_REQUIRED") is wanted
        assert world.starts == (0 if wanted else 1)
        if wanted:
            hold_id, token = await asked(session)
            assert (await session.core.approve(hold_id, token=token)).ok
            assert world.starts == 1


async def test_an_unvalidated_tool_is_always_confirmed_and_marked(make_tools, tmp_path, monkeypatch):
    module = tmp_path / "project" / "loose_tools_for_a_test.py"
    module.parent.mkdir(exist_ok=True)
    module.write_text(
        '''"""Tools of a test."""
from handrail import tool

@tool(allow_no_schema=True, category="utility", side_effects="none", idempotent=True)
class Loose:
    """Does anything with anything."""

    def __init__(self, args):
        self.args = args

    async def run(self, params=None):
        return {"ok": True, "data": params}
''',
        "utf-8",
    )
    monkeypatch.syspath_prepend(str(module.parent))
    from handrail.testing import open_tools

    (tmp_path / "project" / "tools").mkdir()
    with open_tools(tmp_path / "project" / "tools", modules=("loose_tools_for_a_test",)) as kit:
        async with kit.runtime() as runtime:
            session = await runtime.open_session()
            name = next(iter(kit.snapshot.tools))
            response = await session.call(name, {"any": "thing"}, call_id="c1")
            assert kind(response) == "CONFIRMATION_REQUIRED"
            assert response.meta["unvalidated"] is True
            hold_id, token = await asked(session)
            done = await runtime.approve(hold_id, token=token)
            assert done.meta["unvalidated"] is True


# Approved


async def test_an_approval_runs_the_held_call_once_and_a_second_gets_the_same_outcome(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        first = await session.core.approve(hold_id, token=token)
        second = await session.core.approve(hold_id, token=token)
        assert first.ok
        assert second.data == first.data
        assert second.meta["replayed"]
        assert world.starts == 1
        assert (await pay(session, "c1")).data == first.data, "its id is answered from there"
        await session.close()
        assert (await session.core.approve(hold_id, token=token)).data == first.data


async def test_many_approvals_at_once_run_it_once(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        answers = await asyncio.gather(*(session.core.approve(hold_id, token=token) for _ in range(10)))
        assert all(answer.ok for answer in answers)
        assert world.starts == 1
        late = session.events()
        assert [(await anext(late)).type for _ in range(2)] == ["confirmation_running", "envelope"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(late), 0.05)


class SlowToClaim(MemoryStore):
    """A store whose claims wait until they may continue."""

    def __init__(self):
        super().__init__()
        self.claimed, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def claim(self, claim):
        self.claimed.set()
        await self.may_go_on.wait()
        return await super().claim(claim)


async def test_a_second_yes_that_waits_no_longer_takes_nothing_from_the_first(make_tools):
    """Its grant is not withdrawn while the first is being claimed, which can take longer than anybody waits."""
    async with make_tools(TOOLS, store=SlowToClaim()) as world:
        session = await world.session(policy={"text": {"wait_seconds": 0.05}})
        _, hold_id, token = await held(session, "c1")
        first = asyncio.create_task(session.core.approve(hold_id, token=token))
        await world.store.claimed.wait()
        second = await session.core.approve(hold_id, token=token)
        assert (kind(second), second.error.retryable) == ("IN_PROGRESS", True)
        world.store.may_go_on.set()
        assert (await first).ok
        assert world.starts == 1
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == 1


async def test_the_late_envelope_reaches_the_session_and_names_the_call(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        answer = await session.core.approve(hold_id, token=token)
        event = await next_event(session, "envelope")
        assert (event.data["callId"], event.data["toolId"], event.data["confirmationId"]) == ("c1", "pay", hold_id)
        assert event.data["envelope"]["data"] == answer.data


async def test_identical_calls_get_the_envelope_until_the_request_would_have_expired(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        _, hold_id, token = await held(session, "c1")
        await session.core.approve(hold_id, token=token)
        await session.begin_turn("m2")
        assert (await pay(session, "c2")).meta["replayed"]
        assert (await pay(session, "c3")).meta["replayed"]
        await clock.advance(301)
        assert kind(await pay(session, "c4")) == "CONFIRMATION_REQUIRED"
        assert (await pay(session, "c3")).meta["replayed"], "its id stands for the first"
        assert world.starts == 1


async def test_a_failure_without_side_effects_was_not_carried_out(make_tools):
    source = "async def execute(args, ctx):\n    mark(args)\n    raise ToolError('PERMANENT', 'Closed.')"
    async with make_tools({"pay": (confirmed(), source)}) as world:
        session = await world.session()
        response, hold_id, token = await held(session, "c1")
        assert kind(await session.core.approve(hold_id, token=token)) == "PERMANENT"
        again = await pay(session, "c2")
        assert kind(again) == "CONFIRMATION_REQUIRED"
        assert again.error.confirmation_request["id"] != response.error.confirmation_request["id"]
        assert kind(await pay(session, "c1")) == "PERMANENT", "the same id is the same call"


# Declined, expired, superseded


async def test_declined_is_the_answer_for_the_rest_of_the_turn(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        assert kind(await session.core.decline(hold_id, token=token)) == "DECLINED"
        event = await next_event(session, "envelope")
        assert event.data["envelope"]["error"]["type"] == "DECLINED"
        for call_id in ("c1", "c2", None):
            assert kind(await pay(session, call_id)) == "DECLINED"
        assert kind(await session.core.approve(hold_id, token=token)) == "DECLINED"
        assert world.starts == 0
        await session.begin_turn("m2")
        assert kind(await pay(session, "c3")) == "CONFIRMATION_REQUIRED"


async def test_a_no_that_was_said_in_another_process_counts_too(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        other = world.runtime()
        assert kind(await other.decline(hold_id, token=token)) == "DECLINED"
        assert kind(await pay(session, "c2")) == "DECLINED"
        event = await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert event.data["envelope"]["error"]["type"] == "DECLINED"


async def test_the_model_hears_of_a_no_from_another_process_without_asking_again(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        await world.runtime().decline(hold_id, token=token)
        event = await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert event.data["envelope"]["error"]["type"] == "DECLINED"


async def test_a_late_approval_runs_nothing(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        response, hold_id, token = await held(session, "c1")
        await clock.advance(299)
        assert (await pay(session)).error.confirmation_request["id"] == hold_id
        await clock.advance(2)
        late = await session.core.approve(hold_id, token=token)
        assert kind(late) == "CONFLICT"
        assert "expired" in late.error.message
        assert kind(await session.core.decline(hold_id, token=token)) == "CONFLICT"
        fresh = await pay(session, "c2")
        assert fresh.error.confirmation_request["id"] != response.error.confirmation_request["id"]
        assert world.starts == 0


async def test_a_changed_tool_supersedes_the_request(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        world.tools.write({"pay": (confirmed(version="1.1.0"), PAID)})
        world.tools.rebuild()
        world.registry.reload()
        session = await session.core.resume_session(session.id, token=session.token)
        answer = await session.core.approve(hold_id, token=token)
        assert kind(answer) == "CONFLICT"
        assert world.starts == 0
        again = await pay(session, "c2")
        assert again.error.confirmation_request["id"] != hold_id
        assert audited(session.core, "confirmation_superseded")


async def test_a_changed_neighbour_leaves_the_request_open(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        world.tools.write({"look": (reading(version="1.1.0"), FOUND)})
        world.tools.rebuild()
        world.registry.reload()
        session = await session.core.resume_session(session.id, token=session.token)
        assert (await session.core.approve(hold_id, token=token)).ok


async def test_arguments_that_would_now_be_others_supersede_the_request(make_tools):
    parameters = {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 9}},
        "additionalProperties": False,
    }
    fields = confirmed(parameters=parameters, clamp={"voice": {"n": 3}})
    async with make_tools({"pay": (fields, PAID)}) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        await session.set_mode("voice")
        assert kind(await session.core.approve(hold_id, token=token)) == "CONFLICT"
        assert world.starts == 0
        assert (await pay(session, "c2")).error.confirmation_request["args"]["n"] == 3


# Checked again


@pytest.mark.parametrize("how", ["blocked", "switched off", "unavailable", "wrong mode"])
async def test_an_approval_is_refused_with_the_reason_and_the_request_stays_open(make_tools, how):
    fields = confirmed(allowedModes=["text"], availability={"condition": "session.open"})
    async with make_tools({"pay": (fields, PAID)}) as world:
        session = await world.session(user="u1", attributes={"open": True})
        runtime = session.core
        _, hold_id, token = await held(session, "c1")
        if how == "blocked":
            now = await world.store.now()
            await world.store.block(Block(tenant="", user="u1", until=now + 60_000))
        elif how == "switched off":
            await world.store.switch("pay", "closed")
        elif how == "unavailable":
            session.attributes = {"open": False}
        else:
            await session.set_mode("voice")
        expected = {"blocked": "AUTH", "wrong mode": "MODE_RESTRICTED"}.get(how, "UNAVAILABLE")
        answer = await runtime.approve(hold_id, token=token)
        assert kind(answer) == expected, "also before the housekeeper has heard of it"
        await runtime.housekeeper.learn()
        assert kind(await runtime.approve(hold_id, token=token)) == expected
        assert world.starts == 0
        await world.store.unblock("", "u1")
        await world.store.switch("pay", None)
        session.attributes = {"open": True}
        await session.set_mode("text")
        await runtime.housekeeper.learn()
        await asyncio.sleep(0.6)
        assert world.starts == 0, "nothing runs later by itself after the person was told no"
        assert (await runtime.approve(hold_id, token=token)).ok
        assert world.starts == 1


async def test_an_approval_after_the_session_has_ended_runs_nothing(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        await session.close()
        assert kind(await session.core.approve(hold_id, token=token)) == "SESSION_INACTIVE"
        assert world.starts == 0


async def test_an_approval_does_not_need_the_connection_that_asked(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        session = await session.core.resume_session(session.id, token=session.token)
        assert (await session.core.approve(hold_id, token=token)).ok


@pytest.mark.parametrize("token", ["", None, 7, "x", "\ud800"])
async def test_a_forged_approval_finds_nothing(make_tools, token):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, hold_id, _ = await held(session, "c1")
        assert kind(await session.core.approve(hold_id, token=token)) == "NOT_FOUND"
        assert kind(await session.core.decline(hold_id, token=token)) == "NOT_FOUND"
        assert kind(await session.core.approve("conf_x", token="y")) == "NOT_FOUND"
        assert world.starts == 0


async def test_a_secret_of_another_request_opens_nothing(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        _, first, first_token = await held(session, "c1")
        _, second, second_token = await held(session, "c2", q="b")
        assert kind(await session.core.approve(first, token=second_token)) == "NOT_FOUND"
        assert world.starts == 0
        assert (await session.core.approve(second, token=second_token)).data["paid"] == "b"
        assert first_token


# Attached, restarted, elsewhere


async def test_attaching_sends_open_requests_again_with_a_fresh_token_and_any_approves(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        listening = asyncio.create_task(next_event(session, "envelope"))
        await settle()
        _, hold_id, token = await _held_unheard(session)
        client = await session.core.attach(session.id, token=session.token)
        again, fresh = await asyncio.wait_for(asked(client), 30)
        assert again == hold_id
        assert fresh != token
        assert (await client.approve(hold_id, token=fresh)).ok
        assert (await session.core.approve(hold_id, token=fresh)).meta["replayed"]
        assert world.starts == 1
        assert (await listening).data["confirmationId"] == hold_id
        assert session.connection == 1, "a user's page is no connection"


async def _held_unheard(session):
    response = await pay(session, "c1")
    return response, response.error.confirmation_request["id"], "never seen"


async def test_a_request_survives_a_restart(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session(user="u1")
        _, hold_id, token = await held(session, "c1")
        await session.core.close()
        world.runtimes.clear()
        runtime = world.runtime()
        session = await runtime.resume_session(session.id, token=session.token)
        again, fresh = await asked(session)
        assert again == hold_id
        assert (await pay(session, "c1")).error.confirmation_request["id"] == hold_id
        assert (await pay(session, "c9")).error.confirmation_request["id"] == hold_id
        assert (await runtime.approve(hold_id, token=token)).ok, "the first secret is as good as the fresh one"
        assert (await runtime.approve(hold_id, token=fresh)).meta["replayed"]
        assert (await pay(session, "c1")).meta["replayed"]
        assert world.starts == 1


async def test_a_no_survives_a_restart(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        await session.core.decline(hold_id, token=token)
        await session.core.close()
        world.runtimes.clear()
        session = await world.runtime().resume_session(session.id, token=session.token)
        assert kind(await pay(session, "c1")) == "DECLINED"
        assert kind(await pay(session, "c2")) == "DECLINED"


async def test_the_process_with_the_connection_runs_what_was_approved_elsewhere(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        other = world.runtime()
        answer = await other.approve(hold_id, token=token)
        assert answer.ok
        assert world.starts == 1
        event = await asyncio.wait_for(next_event(session, "envelope"), 30)
        assert event.data["envelope"]["data"] == answer.data
        assert not audited(other, "execution")


async def test_the_approver_runs_it_after_two_seconds_if_nobody_has_the_connection(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        _, hold_id, token = await held(session, "c1")
        # The process that has the connection is gone without a word.
        session.core._housekeeper.cancel()
        other = world.runtime(clock=clock)
        approval = asyncio.create_task(other.approve(hold_id, token=token))
        await settle(100)
        await clock.advance(1.9)
        assert not approval.done()
        await clock.advance(0.3)
        assert (await approval).ok
        assert world.starts == 1
        resumed = await other.resume_session(session.id, token=session.token)
        await clock.advance(0.3)
        assert (await next_event(resumed, "envelope")).data["callId"] == "c1"


async def test_an_approver_learns_at_once_that_the_process_with_the_connection_has_run_it(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        _, hold_id, token = await held(session, "c1")
        other = world.runtime(clock=clock)
        approval = asyncio.create_task(other.approve(hold_id, token=token))
        await settle(100)
        for _ in range(4):
            await session.core.approvals.carry_out_granted(session)
            await clock.advance(0.15)
            await settle(100)
        assert approval.done(), "long before two seconds are over"
        assert (approval.result().ok, world.starts) == (True, 1)


async def test_an_approver_runs_a_call_that_was_held_after_the_session_had_left_its_process(make_tools):
    clock = VirtualClock()
    async with make_tools(TOOLS, clock=clock) as world:
        session = await world.session(clock=clock)
        other = world.runtime(clock=clock)
        moved = await other.resume_session(session.id, token=session.token)
        _, hold_id, token = await held(moved)
        other._housekeeper.cancel()
        approval = asyncio.create_task(session.core.approve(hold_id, token=token))
        await settle(100)
        await clock.advance(2.2)
        assert (await approval).ok
        assert world.starts == 1


async def test_an_approved_call_outlives_the_approver_s_request(make_tools):
    async with make_tools({"pay": (confirmed(), PATIENT)}) as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        approval = asyncio.create_task(session.core.approve(hold_id, token=token))
        await until(lambda: world.starts)
        approval.cancel()
        await asyncio.gather(approval, return_exceptions=True)
        world.go()
        assert (await session.core.approve(hold_id, token=token)).ok
        assert world.starts == 1


async def test_a_slow_approved_call_does_not_keep_the_housekeeper_from_its_work(make_tools):
    async with make_tools({"pay": (confirmed(), PATIENT), "look": (reading(), FOUND)}, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        approval = asyncio.create_task(world.runtime().approve(hold_id, token=token))
        await until(lambda: world.starts)
        await world.store.switch("look", "off")
        await until(lambda: "look" in session.core.switches)
        assert kind(await session.call("look", {})) == "UNAVAILABLE"
        world.go()
        assert (await approval).ok


# Preview


async def shown(world, args, **facts):
    session = await world.session(**facts)
    response = await session.call("pay", args)
    return response.error.confirmation_request["preview"]


RICH = {
    "type": "object",
    "properties": {
        "to": {"type": "array", "items": {"type": "string"}},
        "text": {"type": "string"},
        "when": {"type": "string", "format": "date-time"},
        "pin": {"type": "string", "writeOnly": True},
        "card": {"type": "object", "properties": {"number": {"type": "string", "writeOnly": True}, "name": {"type": "string"}}},
        "sure": {"type": "boolean"},
    },
    "additionalProperties": False,
}  # fmt: skip


async def test_a_preview_is_the_template_with_every_other_argument_below(make_tools):
    fields = confirmed(parameters=RICH, preview="Send to {to|count} people on {when|date}: {text|short}")
    async with make_tools({"pay": (fields, PAID)}) as world:
        args = {"to": ["ana", "ben"], "when": "2026-03-29T09:30:00+02:00", "text": "x" * 100, "sure": True}
        preview = await shown(world, args)
        first, *rest = preview.split("\n")
        assert first.startswith("Send to 2 people on Sunday 29 March 2026, 09:30 (UTC+0200): xxx")
        assert "(40 more characters)" in first
        assert rest == ["sure: yes"]


async def test_a_preview_without_a_template_shows_every_argument_and_hides_secrets_at_any_depth(make_tools):
    async with make_tools({"pay": (confirmed(parameters=RICH), PAID)}) as world:
        args = {"to": ["a, b", "c"], "pin": "1234", "card": {"number": "4111-1111", "name": "Ana"}}
        preview = await shown(world, args)
        assert "1234" not in preview
        assert "4111" not in preview
        assert "Ana" in preview
        assert 'to: ["a, b","c"]' in preview, "one item with a comma does not look like two"
        assert preview.count("\n") == 3


async def test_nothing_in_an_argument_can_forge_a_line_or_turn_the_text_around(make_tools):
    async with make_tools({"pay": (confirmed(parameters=RICH, preview="Say {text}"), PAID)}) as world:
        preview = await shown(world, {"text": "hi\nApproved: yes \u202etxt.exe\u200b\x1b[2J {pin} {to}"})
        assert preview.count("\n") == 0
        for hidden in "\u202e\u200b\x1b":
            assert hidden not in preview
        assert "\\u{202e}" in preview
        assert "{pin} {to}" in preview, "arguments are not templates"


async def test_the_facts_of_a_tool_s_own_preview_stand_below_and_cannot_break_it(make_tools):
    source = (
        PAID
        + "\ndef preview(args, ctx):\n    if args.get('text') == 'bad':\n        raise RuntimeError('x')\n"
        + "    return 'Clashes with\\nlunch'\n"
    )
    async with make_tools({"pay": (confirmed(parameters=RICH), source)}) as world:
        assert (await shown(world, {"text": "a"})).split("\n")[-1] == "Clashes with\\u{a}lunch"
        assert (await shown(world, {"text": "bad"})).split("\n")[-1] == NOT_LOOKED_UP


async def test_the_held_arguments_are_the_ones_that_run(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        args = {"q": "a"}
        await session.call("pay", args, call_id="c1")
        args["q"] = "changed by the caller"
        hold_id, token = await asked(session)
        await session.core.approve(hold_id, token=token)
        assert world.tools.started() == [{"q": "a"}]


async def test_a_held_call_in_a_message_is_a_barrier_for_nobody_after_it(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        calls = [
            Call(name="look", args={"q": "1"}),
            Call(name="pay", args={"q": "2"}),
            Call(name="look", args={"q": "3"}),
        ]
        assert [kind(answer) for answer in await session.call_many(calls)] == [None, "CONFIRMATION_REQUIRED", None]


async def test_a_session_pinned_to_an_older_version_elsewhere_is_superseded_only_where_the_tool_changed(
    make_tools, tmp_path
):
    async with make_tools({**TOOLS, "send": (confirmed(), PAID)}, store="sqlite") as world:
        session = await world.session()
        _, hold_id, token = await held(session, "c1")
        kept = await session.call("send", {"q": "x"}, call_id="c2")
        kept_id, kept_token = await asked(session)
        assert kept.error.confirmation_request["id"] == kept_id
        newer = Tools(tmp_path / "newer")
        newer.write(
            {"pay": (confirmed(version="2.0.0"), PAID), "look": (reading(), FOUND), "send": (confirmed(), PAID)}
        )
        # The same handler bytes, so that only the definition of one tool differs.
        (newer.folder / "send" / "handler.py").write_bytes((world.tools.folder / "send" / "handler.py").read_bytes())
        runtime = Runtime(newer.build(), store=world.store)
        world.runtimes.append(runtime)
        session = await runtime.resume_session(session.id, token=session.token)
        assert kind(await runtime.approve(hold_id, token=token)) == "CONFLICT"
        assert (await runtime.approve(kept_id, token=kept_token)).ok


async def test_an_approval_that_is_refused_is_a_failure_and_no_second_call_in_the_metrics(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        runtime = session.core
        _, hold_id, token = await held(session, "c1")
        await world.store.switch("pay", "for a test")  # the claim refuses it; nobody has told this process yet
        assert kind(await runtime.approve(hold_id, token=token)) == "UNAVAILABLE"
        told = runtime.metrics.to_json()["tools"]["pay"]
        assert (told["calls"], told["held"], told["errors"]) == (1, 1, {"UNAVAILABLE": 1})

        await world.store.switch("pay", None)
        await runtime.housekeeper.learn()
        assert (await runtime.approve(hold_id, token=token)).ok
        told = runtime.metrics.to_json()["tools"]["pay"]
        assert (told["calls"], told["held"]) == (1, 1)
        assert runtime.metrics.to_json()["sessions"]["calls"] == 1


async def test_a_held_call_is_one_call_in_the_metrics_whatever_becomes_of_it(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        runtime = session.core
        _, hold_id, token = await held(session, "c1")
        await session.call("pay", {"q": "a"}, call_id="c1")
        told = runtime.metrics.to_json()["tools"]["pay"]
        assert (told["calls"], told["held"], told["errors"]) == (1, 1, {})
        assert runtime.metrics.to_json()["sessions"]["calls"] == 0

        assert (await runtime.approve(hold_id, token=token)).ok
        assert (await runtime.approve(hold_id, token=token)).ok
        told = runtime.metrics.to_json()["tools"]["pay"]
        assert (told["calls"], told["held"], told["errors"]) == (1, 1, {})
        assert told["avgDuration"] > 0
        assert runtime.metrics.to_json()["sessions"]["calls"] == 1

        _, hold_id, token = await held(session, "c2", q="b")
        await runtime.decline(hold_id, token=token)
        told = runtime.metrics.to_json()["tools"]["pay"]
        assert (told["calls"], told["held"]) == (2, 2)
