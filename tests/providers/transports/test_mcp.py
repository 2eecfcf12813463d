"""MCP: a client's messages of both eras are read, what is sent back has the examples' form, and nothing of it raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.wire_examples import LAMP, example

from handrail import Call
from handrail.providers.event_stream import StreamCounters
from handrail.providers.mcp import transport
from handrail.providers.mcp.json_rpc import McpFault, McpMalformed, McpNotice, McpReply, McpRequest, read_message
from handrail.providers.mcp.transport import McpAnswer, McpCall, McpCancellation, McpListing, McpOpening, McpReader

OK = {"ok": True, "data": {"room": "kitchen", "level": 20}, "intents": [], "meta": {}}
BAD = {"ok": False, "error": {"type": "TRANSIENT", "message": "Lamp offline"}, "intents": [], "meta": {}}
MODERN = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


def ask(method, number=1, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def wire(message):
    return json.dumps(message).encode()


def read_all(name):
    counters = StreamCounters()
    reader = McpReader(counters)
    return [reader.feed(wire(message)) for message in example(name)], counters


def test_a_client_of_the_handshake_is_read():
    told, counters = read_all("mcp-2025-11-25.client-to-server.json")
    opened, _, listed, called, cancelled, reply, with_task, *tasks = told

    assert (opened, listed) == (McpOpening(0, "2025-11-25"), McpListing(1, "2025-11-25"))
    assert called.call == Call("set_lamp", {"room": "kitchen", "level": 20}, "2", "mcp", "connection")
    assert (called.progress, called.turn) == ("p2", None)
    assert cancelled == McpCancellation(2, "2")
    assert reply is None
    assert with_task.call.call_id == "3", "who has no tasks runs the call as any other"
    assert [one.message["error"]["code"] for one in tasks] == [-32601] * 3
    assert (counters.malformed_events, counters.unknown_events) == (0, 4)


def test_a_client_that_says_its_version_every_time_is_read():
    told, counters = read_all("mcp-2026-07-28.client-to-server.json")
    opened, listed, called, again, cancelled = told

    assert (opened, listed) == (McpOpening(1, "2026-07-28"), McpListing(2, "2026-07-28"))
    assert (called.call.args, called.progress) == ({"level": 20}, "p3")
    assert (again.call.args, again.call.call_id) == ({"level": 20}, "4")
    assert cancelled == McpCancellation(4, "4")
    assert (counters.malformed_events, counters.unknown_events) == (0, 0)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("2025-11-25", "mcp-2025-11-25.server-to-client.json"),
        ("2026-07-28", "mcp-2026-07-28.server-to-client.json"),
    ],
)
def test_what_is_sent_back_has_the_form_of_the_examples(name, file):
    theirs = example(file)
    results = [message["result"] for message in theirs if "result" in message]
    tool = next(result for result in results if "tools" in result)["tools"][0]
    listed = transport.listed(McpListing(1, name), [{**tool, "inputSchema": LAMP}])["result"]
    assert listed.keys() == next(result for result in results if "tools" in result).keys() - {"_meta"}

    good, bad = (result for result in results if "content" in result)
    asked = McpCall(2, name, None, progress="p2")
    for wanted, envelope in ((good, OK), (bad, BAD)):
        sent = transport.answered(asked, envelope)
        assert sent["result"].keys() >= wanted.keys()
        assert sent["result"]["isError"] is wanted["isError"]
        assert sent["result"].get("resultType") == wanted.get("resultType")
        assert json.loads(sent["result"]["content"][0]["text"]) == sent["result"]["structuredContent"] == envelope
    opened = transport.opened(McpOpening(0, name), name="example-server", version="1.0")["result"]
    assert opened.keys() == results[0].keys()
    notice = next(message for message in theirs if message.get("method") == "notifications/progress")
    assert transport.progressed(asked, 1, "Connecting").keys() == notice.keys()
    assert transport.progressed(McpCall(2, name, None), 1, "Connecting") is None
    changed = [message for message in theirs if message.get("method") == "notifications/tools/list_changed"]
    assert changed in ([], [transport.tools_changed()])


def test_a_version_that_is_not_known_is_refused_as_in_the_example():
    (wanted,) = [m for m in example("mcp-2026-07-28.server-to-client.json") if "error" in m]
    meta = {"io.modelcontextprotocol/protocolVersion": "2030-01-01"}
    told = McpReader(StreamCounters()).feed(wire(ask("tools/list", wanted["id"], _meta=meta)))
    assert told == McpAnswer(wanted)


@pytest.mark.parametrize(
    "name",
    [
        "mcp-2025-11-25.server-to-client.json",
        "mcp-2026-07-28.server-to-client.json",
        "mcp-2026-07-28.tasks-extension.json",
    ],
)
def test_what_a_server_sends_is_read_as_well(name):
    counters = StreamCounters()
    for sent in example(name):
        message = read_message(wire(sent), counters)
        match message:
            case McpReply():
                assert message.result == sent["result"]
                wanted = "task" if "task" in sent["result"] else sent["result"].get("resultType", "complete")
                assert message.kind == wanted
                assert message.is_error is bool(sent["result"].get("isError"))
            case McpFault():
                assert message.to_dict() == sent
            case McpRequest() | McpNotice():
                assert (message.method, message.params) == (sent["method"], sent["params"])
    assert counters.malformed_events == 0


def test_what_is_written_passes_the_sdks_types():
    from mcp_types import CallToolResult, InitializeResult, JSONRPCError, ListToolsResult

    called, opened, listed = McpCall(2, "2025-11-25", None), McpOpening(0, "2025-11-25"), McpListing(1, "2025-11-25")
    assert CallToolResult.model_validate(transport.answered(called, BAD)["result"]).is_error
    tools = [{"name": "set_lamp", "inputSchema": LAMP}]
    assert ListToolsResult.model_validate(transport.listed(listed, tools, cursor="2")["result"]).next_cursor == "2"
    InitializeResult.model_validate(transport.opened(opened, name="handrail", version="1")["result"])
    refused = McpReader(StreamCounters()).feed(wire(ask("tools/call", name="x")))
    assert JSONRPCError.model_validate(refused.message).error.code == -32602


@pytest.mark.parametrize(
    ("data", "code", "named"),
    [
        (b"no JSON {", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b"null", -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"result":7}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"a","method":7}', -32600, "a"),
        (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":[1]}', -32602, "a"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":%s}' % wire(MODERN), -32601, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"y" * 5_000_000 + b'"}}', -32600, None),
    ],
)
def test_what_is_no_message_is_answered_with_an_error(data, code, named):
    counters = StreamCounters()
    told = McpReader(counters).feed(data)

    assert (told.message["error"]["code"], told.message["id"]) == (code, named)
    assert told.message["error"]["message"]


@pytest.mark.parametrize(
    ("params", "name", "args"),
    [
        ({}, "", {}),
        ({"name": 7}, "", {}),
        ({"name": "pay", "arguments": None}, "pay", {}),
        ({"name": "pay", "arguments": [1]}, "pay", [1]),
        ({"name": "pay", "arguments": "text"}, "pay", "text"),
    ],
)
def test_an_odd_call_is_one_that_the_pipeline_refuses(params, name, args):
    told = McpReader(StreamCounters()).feed(wire(ask("tools/call", **params, **MODERN)))
    assert (told.call.name, told.call.args) == (name, args)


def test_arguments_beyond_measure_are_cut_to_what_the_pipeline_refuses():
    told = McpReader(StreamCounters()).feed(
        wire(ask("tools/call", name="pay", arguments={"q": "x" * 200_000}, **MODERN))
    )
    assert isinstance(told.call.args, str)
    assert len(told.call.args) < 80_000


def test_ids_stay_apart_and_a_turn_can_be_named():
    reader = McpReader(StreamCounters())
    meta = {**MODERN["_meta"], "handrail/turn": "t7"}
    number, text = (reader.feed(ask("tools/call", named, name="pay", _meta=meta)) for named in (2, "2"))
    assert number.call.call_id != text.call.call_id
    assert (number.id, text.id, number.turn) == (2, "2", "t7")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = {
    "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
    "id": JSON | st.integers(0, 5),
    "method": st.sampled_from(["initialize", "tools/list", "tools/call", "notifications/cancelled", "ping", "x"])
    | JSON,
    "params": JSON
    | st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON, "_meta": JSON, "requestId": JSON}),
    "result": JSON,
    "error": JSON,
}


@given(st.lists(st.fixed_dictionaries({}, optional=FIELDS) | JSON, max_size=4))
def test_messages_of_any_shape_never_raise(messages):
    counters = StreamCounters()
    reader = McpReader(counters)
    for message in messages:
        data = json.dumps(message).encode()
        told = reader.feed(data)
        assert told is None or isinstance(told, (McpOpening, McpListing, McpCall, McpCancellation, McpAnswer))
        try:
            read_message(data, counters)
        except McpMalformed:
            assert counters.malformed_events
