"""Steps 15 and 16: deadlines, threads, retries, what a handler can do wrong, intents, and what is written down."""

import asyncio
import json
import threading

import pytest
from tests.runtime.kit import (
    FOUND,
    PAID,
    PATIENT_IN_A_THREAD,
    audited,
    begins_at_once,
    fails,
    kind,
    reading,
    until,
    utility,
    writing,
)


async def test_a_deadline_really_cancels_a_coroutine(make_tools):
    source = """
async def execute(args, ctx):
    try:
        await asyncio.Event().wait()
    finally:
        mark("cancelled")
"""
    async with make_tools({"look": (reading(timeoutMs=50), source)}) as world:
        session = await world.session()
        response = await session.call("look", {})
        assert kind(response) == "TIMEOUT"
        assert world.tools.started() == ["cancelled"]


async def test_a_handler_s_own_timeout_is_an_unexpected_exception(make_tools):
    async with make_tools({"look": (reading(timeoutMs=5000), fails('TimeoutError("socket")'))}) as world:
        session = await world.session()
        response = await session.call("look", {})
        assert kind(response) == "INTERNAL"
        assert "socket" not in json.dumps(response.to_dict())


async def test_a_late_result_of_a_plain_function_is_recorded_and_not_delivered(make_tools):
    async with make_tools({"look": (reading(timeoutMs=40), PATIENT_IN_A_THREAD)}) as world:
        session = await world.session()
        begins_at_once(session.core)
        assert kind(await session.call("look", {}, call_id="c1")) == "TIMEOUT"
        world.go()
        await until(lambda: audited(session.core, "late_result"))
        assert [event["ok"] for event in audited(session.core, "late_result")] == [True]
        assert kind(await session.call("look", {}, call_id="c1")) == "TIMEOUT"


async def test_a_plain_function_runs_in_the_pool_and_not_on_the_loop(make_tools):
    source = "def execute(args, ctx):\n    return {'ok': True, 'data': threading.current_thread().name}"
    async with make_tools({"look": (reading(), source)}) as world:
        session = await world.session()
        response = await session.call("look", {})
        assert response.data.startswith("handrail-tool")
        assert response.data != threading.current_thread().name


async def test_text_retries_an_idempotent_tool_once_and_voice_never(make_tools):
    source = """
async def execute(args, ctx):
    mark(args)
    if MARKS.read_text().count(args["q"]) < 2:
        raise ToolError("TRANSIENT", "Busy.", retryable=True)
    return {"ok": True, "data": 1}
"""
    async with make_tools({"look": (reading(), source), "pay": (writing(), source)}) as world:
        session = await world.session()
        response = await session.call("look", {"q": "text"})
        assert response.ok
        assert response.meta["attempts"] == 2
        assert kind(await session.call("pay", {"q": "payment"})) == "TRANSIENT", "a tool that is not idempotent"
        voice = await world.session(mode="voice")
        response = await voice.call("look", {"q": "voice"})
        assert kind(response) == "TRANSIENT"
        assert response.error.retryable is False
        assert world.starts == 4


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (fails('RuntimeError("secret text")'), "INTERNAL"),
        (fails('ToolError("PERMANENT", "No.", partial_side_effects=True)'), "PERMANENT"),
        (fails('ToolError("TRANSIENT", "No.", details=[{"pointer": object()}])'), "TRANSIENT"),
        ("async def execute(args, ctx):\n    return {'ok': True, 'data': {'x': float('nan')}}", "INTERNAL"),
        ("async def execute(args, ctx):\n    return {'ok': True, 'data': {'x': object()}}", "INTERNAL"),
        ("async def execute(args, ctx):\n    return {'ok': True, 'data': {1: 2}}", "INTERNAL"),
        ("async def execute(args, ctx):\n    return {'ok': True, 'data': '\\ud800'}", "INTERNAL"),
        ("async def execute(args, ctx):\n    return {'ok': True, 'data': 1, 'meta': {'x': object()}}", "INTERNAL"),
        (
            "async def execute(args, ctx):\n"
            "    return {'ok': True, 'data': 1, 'intents': [{'type': 'X', 'y': object()}]}",
            "INTERNAL",
        ),
        ("async def execute(args, ctx):\n    return {'ok': False, 'error': {'type': 'NOPE', 'message': ''}}", "INTERNAL"),
        ("async def execute(args, ctx):\n    return {'data': 1}", "INTERNAL"),
        ("async def execute(args, ctx):\n    return None", "INTERNAL"),
        ("async def execute(args, ctx):\n    return {'ok': True, 'data': 'x' * 2_000_000}", "INTERNAL"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("writes", [False, True])
async def test_whatever_a_handler_does_the_call_ends_in_an_envelope(make_tools, source, expected, writes):
    async with make_tools({"tool": (writing() if writes else reading(), source)}) as world:
        session = await world.session()
        response = await session.call("tool", {}, call_id="c1")
        assert kind(response) == expected
        wire = json.dumps(response.to_dict())
        assert "secret text" not in wire
        assert response.error.partial_side_effects is ((writes and expected == "INTERNAL") or expected == "PERMANENT")


async def test_data_that_breaks_the_output_schema_is_internal(make_tools):
    fields = reading(outputSchema={"type": "object", "required": ["items"]})
    async with make_tools(
        {"look": (fields, "async def execute(args, ctx):\n    return {'ok': True, 'data': {}}")}
    ) as world:
        assert kind(await (await world.session()).call("look", {})) == "INTERNAL"


async def test_data_beyond_its_limit_is_cut_and_says_so(make_tools):
    source = "async def execute(args, ctx):\n    return {'ok': True, 'data': {'items': ['x' * 20] * 100}}"
    async with make_tools({"look": (reading(maxOutputBytes=500), source)}) as world:
        session = await world.session()
        response = await session.call("look", {}, call_id="c")
        assert response.meta["truncated"] is True
        assert len(json.dumps(response.data, separators=(",", ":"))) <= 500
        assert response.data["items"]
        assert (await session.call("look", {}, call_id="c")).data == response.data


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("words", ["SystemExit(3)", "asyncio.CancelledError()", "KeyboardInterrupt()"])
async def test_a_process_exit_or_cancellation_is_recorded_and_passed_on(make_tools, words, writes):
    async with make_tools({"tool": (writing() if writes else reading(), fails(words))}) as world:
        session = await world.session()
        with pytest.raises((SystemExit, asyncio.CancelledError, KeyboardInterrupt)):
            await session.call("tool", {}, call_id="c1")
        assert audited(session.core, "execution")[-1]["errorType"] == "CANCELLED"
        if writes:
            again = await session.call("tool", {}, call_id="c1")
            assert (kind(again), again.error.retryable, again.error.partial_side_effects) == ("CONFLICT", False, True)
            (row,) = await world.store.ledger_rows()
            kept = json.loads(row.envelope)["error"]
            assert (kept["type"], kept["retryable"], kept["partialSideEffects"]) == ("CANCELLED", False, True)
            assert world.starts == 1


# 16. Settle


async def test_intents_are_applied_once_and_never_by_a_replay(make_tools):
    source = """
async def execute(args, ctx):
    return {"ok": True, "data": 1, "intents": [{"type": "SET_PENDING_MESSAGE", "message": "hello"}, {"type": "DANCE"}]}
"""
    for fields in (utility(), writing()):
        async with make_tools({"tool": (fields, source)}) as world:
            session = await world.session()
            response = await session.call("tool", {}, call_id="c1")
            assert session.state.get("pendingMessage") == "hello"
            session.state.set("pendingMessage", None)
            assert (await session.call("tool", {}, call_id="c1")).meta["replayed"]
            assert session.state.get("pendingMessage") is None
            assert [event["ok"] for event in audited(session.core, "intent")] == [True, False]
            assert response.to_dict()["intents"][0]["type"] == "SET_PENDING_MESSAGE"


async def test_a_writing_tool_s_intents_are_stored_with_its_outcome(make_tools):
    source = """
async def execute(args, ctx):
    until = time.time() + 60
    return {"ok": True, "data": 1, "intents": [
        {"type": "SET_PENDING_MESSAGE", "message": "hello"}, {"type": "BLOCK_USER", "until": until}]}
"""
    async with make_tools({"tool": (writing(), source)}) as world:
        session = await world.session(user="u1")
        await session.call("tool", {}, call_id="c1")
        record = await world.store.load_session(session.id)
        assert record.state["pendingMessage"] == "hello"
        assert ("", "u1") in (await world.store.operating()).blocks


async def test_the_facts_of_a_call_are_in_its_envelope_and_its_audit_line(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        meta = (await session.call("look", {"q": "a"}, call_id="c1", provider="openai-chat")).meta
        assert (meta["toolId"], meta["toolVersion"], meta["responseSchemaVersion"]) == ("look", "1.0.0", "1.0.0")
        assert meta["registryVersion"] == world.registry.version
        assert meta["duration"] >= 0
        line = audited(session.core, "execution")[-1]
        wanted = {
            "sessionId": session.id,
            "turnId": 1,
            "connection": 1,
            "callId": "c1",
            "idempotencyKey": "provider:c1",
            "toolId": "look",
            "toolVersion": "1.0.0",
            "category": "retrieval",
            "mode": "text",
            "provider": "openai-chat",
            "ok": True,
            "errorType": None,
        }
        assert wanted.items() <= line.items()


# Operating


async def test_a_gate_that_observes_writes_down_what_it_would_have_refused(make_tools):
    limit = {"calls": 1, "windowMs": 60_000, "scope": "session"}
    async with make_tools({"look": (reading(allowedModes=["text"], rateLimit=limit), FOUND)}) as world:
        runtime = world.runtime(policy={"observe": ["mode", "budget", "rate", "loop"]})
        session = await world.session(runtime=runtime, mode="voice")
        for number in range(4):
            assert (await session.call("look", {"q": "a"}, call_id=str(number))).ok
        gates = [event["gate"] for event in audited(runtime, "would_refuse")]
        assert {"mode", "rate", "loop", "budget"} <= set(gates)
        assert world.starts == 4


async def test_reads_go_on_while_the_store_is_away_and_writes_do_not(make_tools):
    async with make_tools({"look": (reading(), FOUND), "pay": (writing(), PAID)}) as world:
        session = await world.session()
        await world.store.close()
        assert (await session.call("look", {"q": "a"})).ok
        assert kind(await session.call("pay", {"q": "a"})) == "STORE_UNAVAILABLE"
        assert await session.begin_turn("m2") == 2
        assert await session.begin_turn("m2") == 2, "a resent message keeps its turn"
        assert (await session.call("look", {"q": "a"})).ok
        response = await session.call("pay", {"q": "a"}, call_id="p")
        assert kind(response) == "STORE_UNAVAILABLE"
        assert response.error.retry_after
        await world.store.open()
        assert (await session.call("pay", {"q": "a"}, call_id="p")).ok
        assert (await world.store.load_session(session.id)).turn == 2
        assert await session.begin_turn("m2") == 2
        assert await session.begin_turn("m3") == 3
