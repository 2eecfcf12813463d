"""The real MCP client on our transport: definition → its list → its call → governed pipeline → a result that it accepts."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.clients.kit import build

from handrail import Runtime
from handrail.providers.event_stream import StreamCounters
from handrail.providers.mcp import transport


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("tools"))


@asynccontextmanager
async def client(registry):
    """A client of the SDK, connected through memory to a governed session."""
    from mcp import ClientSession
    from mcp.shared.memory import create_client_server_memory_streams

    async with (
        Runtime(registry, store="memory:") as runtime,
        create_client_server_memory_streams() as (theirs, ours),
        ClientSession(*theirs) as session,
    ):
        serving = asyncio.ensure_future(serve(await runtime.open_session(user="u1"), registry, *ours))
        try:
            yield session
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def serve(session, registry, incoming, outgoing):
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCError, JSONRPCResponse

    reader = transport.McpReader(StreamCounters())
    async for message in incoming:
        told = reader.feed(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
        match told:
            case transport.McpOpening():
                sent = transport.opened(told, name="handrail", version="1")
            case transport.McpListing():
                sent = transport.listed(told, registry.provider_schemas("mcp"))
            case transport.McpCall():
                sent = transport.answered(told, (await session.call_many([told.call]))[0].to_dict())
            case transport.McpAnswer():
                sent = told.message
            case _:
                continue
        kind = JSONRPCError if "error" in sent else JSONRPCResponse
        await outgoing.send(SessionMessage(kind.model_validate(sent)))


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_call_of_an_mcp_client_goes_all_the_way(built, era):
    tools, registry = built
    tools.forget()
    async with asyncio.timeout(30), client(registry) as session:
        await (session.initialize() if era == "handshake" else session.discover())
        listed = await session.list_tools()
        assert {tool.name for tool in listed.tools} == {"pay", "look"}
        paid = await session.call_tool("pay", {"q": "rent"})
        refused = await session.call_tool("pay", {"q": 7})
        unknown = await session.call_tool("no_such_tool", {})

    assert session.protocol_version == ("2025-11-25" if era == "handshake" else "2026-07-28")
    assert not paid.is_error
    assert paid.structured_content["data"]["paid"] == "rent"
    assert {"toolId", "registryVersion"} <= paid.structured_content["meta"].keys(), "the full envelope goes back"
    assert [one.is_error for one in (refused, unknown)] == [True, True]
    errors = [one.structured_content["error"]["type"] for one in (refused, unknown)]
    assert errors == ["VALIDATION", "NOT_FOUND"]
    assert tools.started() == [{"q": "rent"}]
