"""A session is one object over reconnects: whoever still holds a replaced connection changes nothing any more."""

import asyncio

from tests.runtime.kit import PAID, PATIENT, asked, kind, reading, writing
from tests.runtime.test_host_gates import Says, opened

from handrail import AskPerson, Refuse
from handrail.adopt.exporting.framework_session import FrameworkSession
from handrail.agents import Conversation, TextAgent
from handrail.contract.call import Call
from handrail.contract.store import StoreUnavailable
from handrail.testing.scripted_model import PlayedModel

SLOW = """
async def execute(args, ctx):
    mark(args)
    await asyncio.sleep(0.2)
    return {"ok": True, "data": {}}
"""
FAILS_ONCE = """
async def execute(args, ctx):
    mark(args)
    if len(MARKS.read_text().splitlines()) == 1:
        raise ToolError("TRANSIENT", "down", retryable=False)
    return {"ok": True, "data": {"results": ["one"]}}
"""
PRICED = (
    SLOW
    + """
def preview(args, ctx):
    return "5 euros"
"""
)


async def test_the_tools_of_a_framework_that_were_handed_over_before_a_reconnect_write_nothing(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        old = FrameworkSession(session, "langchain", None, "message")
        await runtime.resume_session(session.id, token=session.token)
        assert (await FrameworkSession(session, "langchain", None, "message").call("pay", {"q": "1"}, "new-1")).ok
        assert kind(await old.call("pay", {"q": "1"}, "old-1")) == "CONFLICT"
        assert world.starts == 1


async def test_a_frameworks_call_that_waited_while_its_connection_was_replaced_does_not_run(make_tools):
    async with make_tools({"pay": (writing(), SLOW)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        door = FrameworkSession(session, "langchain", None, "message")
        calls = [asyncio.ensure_future(door.call("pay", {"q": q}, q)) for q in "ab"]
        while not world.starts:
            await asyncio.sleep(0.01)
        await runtime.resume_session(session.id, token=session.token)
        first, second = await asyncio.gather(*calls)
        assert (first.ok, kind(second), world.starts) == (True, "CONFLICT", 1)


async def test_an_answer_that_began_before_a_reconnect_makes_no_calls_after_it(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        agent = TextAgent(runtime, PlayedModel([[Call("pay", {"q": "1"}, "old-1")], ["done"]]))
        answer = agent.run(session, Conversation(), "pay 1", message_id="m1")
        assert (await anext(answer)).type == "turn"
        await runtime.resume_session(session.id, token=session.token)
        assert (await session.call("pay", {"q": "1"}, call_id="new-1")).ok
        assert [event async for event in answer]
        assert world.starts == 1


async def test_a_message_that_waited_while_its_connection_was_replaced_begins_no_turn(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        conversation = Conversation()
        agent = TextAgent(runtime, PlayedModel([[Call("pay", {"q": "1"}, "old-1")], ["done"]]))

        async def run():
            return [event async for event in agent.run(session, conversation, "pay 1", message_id="m1")]

        async with conversation.lock:
            waiting = asyncio.ensure_future(run())
            await asyncio.sleep(0)
            await runtime.resume_session(session.id, token=session.token)
        told = await waiting
        assert [event.type for event in told] == ["text", "done"]
        assert told[-1].data["reason"] == "stale"
        assert world.starts == 0


async def test_a_stream_that_cleans_up_after_it_was_replaced_neither_ends_nor_interrupts_the_session(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        old = session.connection
        await runtime.resume_session(session.id, token=session.token)
        interruptions = session.interruptions
        await old.interrupt()
        await old.close()
        assert session.is_active
        assert session.interruptions == interruptions
        assert (await session.call("pay", {"q": "1"}, call_id="new-1")).ok
        await session.connection.close()
        assert not session.is_active


async def test_whatever_a_stream_does_through_a_connection_that_was_replaced_changes_nothing(make_tools):
    async with make_tools({"pay": (writing(), PAID), "look": (reading(), PATIENT)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        old = session.connection
        assert (await old.call("pay", {"q": "0"}, call_id="old-0")).ok
        new = (await runtime.resume_session(session.id, token=session.token)).connection
        assert (old.is_current, new.is_current) == (False, True)
        looking = asyncio.ensure_future(new.call("look", {"q": "a"}, call_id="new-1"))
        while world.starts < 2:
            await asyncio.sleep(0.01)
        assert kind(await old.call("pay", {"q": "1"}, call_id="old-1")) == "CONFLICT"
        many = await old.call_many([Call("pay", {"q": "2"}, "old-2"), Call("pay", {"q": "3"}, "old-3", connection=new)])
        assert [kind(answer) for answer in many] == ["CONFLICT", "CONFLICT"], "a stream speaks for itself alone"
        assert await old.begin_turn("m2") == 1
        await old.end_turn()
        await old.interrupt()
        await old.close()
        assert session.is_active
        assert not session.turn.ended
        world.go()
        assert (await looking).ok, "nobody who is connected has interrupted it"
        assert await new.begin_turn("m2") == 2
        assert [answer.ok for answer in await new.call_many([Call("pay", {"q": "1"}, "new-2")])] == [True]
        assert world.starts == 3


async def test_through_its_connection_a_stream_can_do_all_that_the_session_can(make_tools):
    async with make_tools({"pay": (writing(), PAID), "look": (reading(), PATIENT)}) as world:
        session = await world.session(user="ana")
        connection = session.connection
        assert await connection.begin_turn("m2") == 2
        looking = asyncio.ensure_future(connection.call("look", {"q": "a"}, call_id="c1"))
        while not world.starts:
            await asyncio.sleep(0.01)
        await connection.interrupt(["c1"])
        assert kind(await looking) == "CANCELLED"
        await connection.end_turn()
        assert session.turn.ended
        await connection.close()
        assert not session.is_active
        assert kind(await connection.call("pay", {"q": "1"}, call_id="c2")) == "SESSION_INACTIVE"


async def test_an_answer_that_was_replaced_does_not_end_the_turn_of_the_next_stream(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        agent = TextAgent(runtime, PlayedModel([["done"]]))
        answer = agent.run(session, Conversation(), "hello", message_id="m1")
        assert (await anext(answer)).type == "turn"
        connection = (await runtime.resume_session(session.id, token=session.token)).connection
        assert await connection.begin_turn("m2") == 2
        assert [event async for event in answer]
        assert not session.turn.ended


async def test_a_connection_that_the_store_made_unheard_is_no_takeover(make_tools, monkeypatch):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        runtime = world.runtime()
        session = await world.session(runtime=runtime, user="ana")
        connect, lost = world.store.connect, []

        async def unheard(*args, **options):
            made = await connect(*args, **options)
            if not lost:
                lost.append(made)
                raise StoreUnavailable("The answer was lost.")
            return made

        monkeypatch.setattr(type(world.store), "connect", lambda self, *args, **options: unheard(*args, **options))
        try:
            await runtime.resume_session(session.id, token=session.token)
        except StoreUnavailable:
            assert await runtime.resume_session(session.id, token=session.token) is session
        assert lost
        assert not session.is_taken_over
        assert (await session.call("pay", {"q": "1"}, call_id="new-1")).ok


async def test_a_read_that_a_gate_sends_to_a_person_runs_when_it_is_approved_a_second_time(make_tools):
    gate = Says(lambda call: AskPerson("look at it"))
    async with make_tools({"look": (reading(), FAILS_ONCE)}) as world:
        runtime, session = await opened(world, gate, user="ana")
        for number in (1, 2):
            call = {"call_id": "call_0", "id_scope": "message", "response_id": f"r{number}"}
            assert kind(await session.call("look", {"q": "a"}, **call)) == "CONFIRMATION_REQUIRED"
            hold, token = await asked(session)
            outcome = await runtime.approve(hold, token=token)
        assert outcome.ok
        assert world.starts == 2


async def test_a_gate_is_asked_again_when_an_approval_has_waited_for_the_one_before_it(make_tools):
    async with make_tools({"pay": (writing(requiresConfirmation=True), PRICED)}) as world:
        gate = Says(lambda call: Refuse("only one") if world.starts else None)
        runtime, session = await opened(world, gate, user="ana")
        requests = []
        for q in "ab":
            assert kind(await session.call("pay", {"q": q}, call_id=q)) == "CONFIRMATION_REQUIRED"
            requests.append(await asked(session))
        outcomes = await asyncio.gather(*(runtime.approve(hold, token=token) for hold, token in requests))
        assert [outcome.ok for outcome in outcomes] == [True, False]
        assert world.starts == 1
