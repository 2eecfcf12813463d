"""`handrail mcp` as its clients meet it: a process that speaks the protocol over its standard streams."""

import os
import socket
import sys
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from handrail.contract.errors import UsageError
from handrail.mcp.server.stdio import check_wire


def server(project: Path, *words: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "handrail", "mcp", *words], cwd=project)


async def test_a_client_lists_and_calls_the_tools_of_a_folder_without_any(tmp_path: Path) -> None:
    async with stdio_client(server(tmp_path)) as streams, ClientSession(*streams) as client:
        await client.initialize()
        listed = await client.list_tools()
        assert "format_datetime" in {tool.name for tool in listed.tools}
        answer = await client.call_tool("format_datetime", {"value": "2026-11-18T12:00:00Z"})
        assert answer.structured_content is not None
        assert set(answer.structured_content) >= {"ok", "intents", "meta"}
        assert answer.structured_content["ok"] is True


def test_a_file_or_nothing_in_a_clients_place_is_refused_in_one_sentence(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    with (
        os.fdopen(reading, "rb"),
        os.fdopen(writing, "wb"),
        ours,
        theirs,
        (tmp_path / "out").open("wb") as file,
        Path(os.devnull).open("rb") as nothing,
    ):
        check_wire(reading, writing)
        check_wire(ours.fileno(), ours.fileno())
        with pytest.raises(UsageError, match="Standard output leads to no MCP client"):
            check_wire(reading, file.fileno())
        with pytest.raises(UsageError, match="Standard input leads to no MCP client"):
            check_wire(nothing.fileno(), writing)
        with pytest.raises(UsageError, match="Standard output leads to no MCP client"):
            check_wire(reading, -1)
