"""Turns, model calls and tool calls are spans by the GenAI conventions. The real SDK sends them to a receiver on loopback."""

import gc
import subprocess
import sys
import weakref

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.observe.otlp_receiver import Receiver, facts
from tests.runtime.kit import FOUND, asked, confirmed, fails, reading
from tests.server.kit import in_process, text_of
from tests.server.voice.kit import on_the_line, voice_server
from tests.server.voice.test_wiring import offline

from handrail import trace_headers
from handrail.mcp.server.options import McpOptions
from handrail.observe.metrics import Metrics
from handrail.observe.otel_metrics import INSTRUMENTS
from handrail.observe.tracing import Tracing, tracing_of, tracing_or_none
from handrail.runtime.pipeline import Pipeline
from handrail.runtime.turns import Turns

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
MCP_CLIENT = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MCP_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "look",
}
TELLS = """
async def execute(args, ctx):
    return {"ok": True, "data": {"results": [args["q"], ctx.trace_headers.get("traceparent", "")]}}
"""
ASKS_A_SERVICE_IN_A_THREAD = """
def execute(args, ctx):
    ctx.shop.append(ctx.trace_headers["traceparent"])
    return {"ok": True, "data": {"results": [args["q"]]}}
"""


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def tracing(receiver):
    """Each span is sent when it ends."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    return Tracing(provider, owned=(provider,))


async def test_a_call_is_a_span_under_its_turn_with_the_attributes_of_the_conventions(make_tools, receiver, tracing):
    async with make_tools({"look": (reading(), TELLS)}) as world:
        session = await world.runtime(tracing=tracing).open_session()
        await session.begin_turn("m1")
        answer = await session.call("look", {"q": "a secret"}, call_id="c1", provider="openai-chat")
        await session.call("look", {"q": "a secret"}, call_id="c1", provider="openai-chat")
        await session.end_turn()
        (turn,), (first, again) = receiver.named("invoke_agent"), receiver.named("execute_tool look")
        assert first.parent_span_id == again.parent_span_id == turn.span_id
        description = session.snapshot.tool("look").definition.description
        assert facts(first) == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "c1",
            "gen_ai.tool.description": description,
            "gen_ai.conversation.id": session.id,
            "handrail.tool.version": "1.0.0",
            "handrail.turn": 1,
            "handrail.connection": 1,
            "handrail.mode": "text",
            "handrail.provider": "openai-chat",
        }
        assert facts(again)["handrail.replayed"] is True
        told = facts(turn)
        assert told["handrail.calls"] == 1
        assert told["gen_ai.conversation.id"] == session.id
        assert answer.data["results"][1].startswith(f"00-{first.trace_id.hex()}-{first.span_id.hex()}-")
        assert b"a secret" not in b"".join(span.SerializeToString() for span in receiver.spans)


async def test_a_refused_call_has_its_gate_and_a_made_up_name_stays_out(make_tools, receiver, tracing):
    async with make_tools({"look": (reading(), FOUND), "bad": (reading(), fails('ValueError("a secret")'))}) as world:
        session = await world.runtime(tracing=tracing).open_session()
        await session.call("look", {"q": 1})
        await session.call("my number is 0123", {})
        await session.call("bad", {"q": "a"})
        wrong, unknown, failed = (span for span in receiver.spans if span.name.startswith("execute_tool"))
        assert facts(wrong)["handrail.gate"] == "validate"
        assert facts(wrong)["error.type"] == "VALIDATION"
        assert wrong.status.code == wrong.status.STATUS_CODE_ERROR
        assert unknown.name == "execute_tool (unknown)"
        assert facts(unknown)["handrail.gate"] == "find"
        assert "handrail.tool.version" not in facts(unknown)
        assert facts(failed)["error.type"] == "INTERNAL"
        sent = b"".join(span.SerializeToString() for span in receiver.spans)
        assert b"0123" not in sent
        assert b"a secret" not in sent


async def test_an_approved_call_runs_in_a_span_of_its_own_under_the_same_turn(make_tools, receiver, tracing):
    async with make_tools({"pay": (confirmed(), TELLS)}) as world:
        runtime = world.runtime(tracing=tracing)
        session = await runtime.open_session()
        held = await session.call("pay", {"q": "a"}, call_id="c1")
        assert held.error.type == "CONFIRMATION_REQUIRED"
        number, token = await asked(session)
        await runtime.approve(number, token=token)
        await session.end_turn()
        waited, ran = receiver.named("execute_tool pay")
        assert facts(waited)["handrail.held"] is True
        assert waited.status.code == waited.status.STATUS_CODE_UNSET
        assert "handrail.held" not in facts(ran)
        (turn,) = receiver.named("invoke_agent")
        assert waited.parent_span_id == ran.parent_span_id == turn.span_id


async def test_a_message_over_http_continues_the_trace_that_it_names(tmp_path, receiver, tracing):
    tools, given = {"look": (reading(capabilities=["shop"]), ASKS_A_SERVICE_IN_A_THREAD)}, []
    async with in_process(tmp_path, tools=tools, tracing=tracing, capabilities={"shop": given}) as server:
        ana = await server.open()
        server.client.headers["traceparent"] = f"00-{TRACE}-{PARENT}-01"
        assert text_of(await ana.say('call look {"q": "tea"}')).strip() == "look: ok"
        del server.client.headers["traceparent"]
        await ana.say("thanks")
        turn, other = receiver.named("invoke_agent")
        assert (turn.trace_id.hex(), turn.parent_span_id.hex()) == (TRACE, PARENT)
        assert other.trace_id != turn.trace_id
        (call,) = receiver.named("execute_tool look")
        chats = [span for span in receiver.spans if span.name.startswith("chat ")]
        assert len(chats) == 3
        assert {span.parent_span_id for span in [call, *chats[:2]]} == {turn.span_id}
        assert facts(chats[0])["gen_ai.operation.name"] == "chat"
        assert chats[0].kind == chats[0].SPAN_KIND_CLIENT
        assert given == [f"00-{TRACE}-{call.span_id.hex()}-01"], "a plain function is given the trace, too"


async def test_mcp_and_voice_continue_the_trace_that_they_name_and_each_spoken_response_is_a_span(
    tmp_path, receiver, tracing
):
    """`traceparent` in the headers of the WebSocket's request, in `_meta` of MCP, or in the headers of its request."""
    parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    agent = offline(tmp_path)
    async with voice_server(tmp_path, agent=agent, mcp=McpOptions(), tracing=tracing) as server:
        api = await server.open()
        abilities = {"sound": False, "speaks": True, "recognises": True}
        async with on_the_line(api, rate=0, abilities=abilities, additional_headers=parent) as client:
            await client.send("text", id="m1", text='call look {"q": "x"}', spoken=True)
            told = await client.message("speak", kind="answer")
            await client.send("spoken", id=told["id"], completed=True)
            await client.message("turn_done")
            await client.send("end")
            await client.closed()
        (turn,), (call,) = receiver.named("invoke_agent"), receiver.named("execute_tool look")
        assert (turn.trace_id.hex(), turn.parent_span_id.hex()) == (TRACE, PARENT)
        asking, answering = (span for span in receiver.spans if span.name == "chat play")
        assert {call.parent_span_id, asking.parent_span_id, answering.parent_span_id} == {turn.span_id}
        reasons = [facts(span)["gen_ai.response.finish_reasons"].values[0].string_value for span in (asking, answering)]
        assert reasons == ["tool_calls", "stop"]
        assert asking.start_time_unix_nano <= asking.end_time_unix_nano <= call.end_time_unix_nano
        assert call.end_time_unix_nano <= answering.end_time_unix_nano
        for meta, headers in ((parent, {}), ({}, parent)):
            receiver.spans.clear()
            body = {"name": "look", "arguments": {"q": f"{headers}"}, "_meta": {**MCP_CLIENT, **meta}}
            answered = await server.client.post(
                "/mcp",
                json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": body},
                headers={**api.headers, **MCP_HEADERS, **headers},
            )
            assert answered.json()["result"]["structuredContent"], answered.text
            (called,) = receiver.named("execute_tool look")
            assert called.trace_id.hex() == TRACE


async def test_what_the_environment_names_is_sent_and_the_durations_are_a_histogram(make_tools, receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    async with make_tools({"look": (reading(), FOUND)}) as world:
        runtime = world.runtime(tracing=tracing_of({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}))
        session = await runtime.open_session()
        await session.call("look", {"q": "a"})
        await session.call("look", {"q": 1})
        await session.end_turn()
        await runtime.close()
    assert len(receiver.named("execute_tool look")) == 2
    (durations,) = (one for one in receiver.metrics if one.name == "gen_ai.execute_tool.duration")
    assert durations.unit == "s"
    counted = {facts(point).get("error.type"): point.count for point in durations.histogram.data_points}
    assert counted == {None: 1, "VALIDATION": 1}
    assert {facts(point).get("handrail.tool.version") for point in durations.histogram.data_points} == {"1.0.0"}
    told = {
        one.name: (one.sum if one.HasField("sum") else one.gauge).data_points
        for one in receiver.metrics
        if one != durations
    }
    calls, errors = told["handrail.tool.calls"], told["handrail.tool.errors"]
    assert [(facts(point), point.as_int) for point in calls] == [({"gen_ai.tool.name": "look"}, 2)]
    assert [facts(point)["error.type"] for point in errors] == ["VALIDATION"]
    assert told["handrail.session.turns"][0].as_int == 1
    assert {instrument.name for instrument in INSTRUMENTS} <= set(told)


async def test_metrics_are_sent_where_traces_are_not(make_tools, receiver, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_TRACES_EXPORTER": "none"}
    async with make_tools({"look": (reading(), FOUND)}) as world:
        runtime = world.runtime(tracing=tracing_of(named))
        session = await runtime.open_session()
        assert (await session.call("look", {"q": "a"})).ok
        await runtime.close()
    assert receiver.spans == []
    assert {"gen_ai.execute_tool.duration", "handrail.tool.calls"} <= {one.name for one in receiver.metrics}


async def test_runtimes_of_one_process_are_counted_together_as_long_as_they_are_there(make_tools):
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def sessions() -> float:
        found = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        return next(one for one in found if one.name == "handrail.session.opened").data.data_points[0].value

    numbers = [Metrics(), Metrics()]
    for number, one in enumerate(numbers):
        Tracing(meter_provider=provider).observe(one)
        for session in range(number + 1):
            one.session_opened(f"s{session}")
    assert sessions() == 3
    gone = weakref.ref(numbers.pop(0))
    del one
    gc.collect()
    assert gone() is None
    provider.shutdown()


def test_where_nothing_is_traced_a_service_has_no_header_to_send():
    assert trace_headers() == {}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "shop"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
        },
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_where_nothing_is_to_be_sent_there_is_no_tracing(environment):
    assert tracing_of(environment) is None


def test_without_the_extra_an_endpoint_is_a_warning(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracing_of({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) is None
    assert 'pip install "handrail[otel]"' in caplog.text


async def test_a_runtime_without_an_sdk_has_the_plain_parts(make_tools):
    assert "opentelemetry.trace" in sys.modules
    assert tracing_or_none() is None
    async with make_tools({"look": (reading(), TELLS)}) as world:
        runtime = world.runtime()
        assert (type(runtime.pipeline), type(runtime.turns), runtime.tracing) == (Pipeline, Turns, None)
        session = await runtime.open_session()
        assert (await session.call("look", {"q": "a"})).data["results"] == ["a", ""]


def test_a_host_that_has_configured_an_sdk_is_traced():
    program = (
        "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider;"
        "trace.set_tracer_provider(TracerProvider());"
        "from handrail.observe.tracing import tracing_or_none; print(type(tracing_or_none()).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Tracing\n"


def test_importing_the_runtime_imports_no_opentelemetry():
    program = (
        "import sys, handrail.app, handrail.observe.tracing as t; t.tracing_or_none(); t.tracing_of({});"
        "print([name for name in sys.modules if name.startswith('opentele')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
