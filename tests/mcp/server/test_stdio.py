"""`handrail mcp` as its clients meet it: a process that speaks the protocol over its standard streams."""

import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


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
