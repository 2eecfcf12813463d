"""The MCP servers of a project in the console: their state, pins and changes, and their calls in the timeline."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.console.browser import opened
from tests.console.served import Served
from tests.mcp.gateway.conftest import LOOK, NOTE, Scripted, pin

from handrail.mcp.gateway.project_file import server_table


async def called(served: Served, tool: str) -> dict[str, Any]:
    """The envelope of a call by an MCP client of ours: the server's tool, through the gateway."""
    headers = {"Authorization": f"Bearer {served.key}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as client,
    ):
        answer = await client.call_tool(tool, {"text": "x"})
    assert answer.structured_content is not None
    return answer.structured_content


def beside(work: Coroutine[Any, Any, Any]) -> Any:
    """The browser has a loop in this thread."""
    with ThreadPoolExecutor() as threads:
        return threads.submit(asyncio.run, work).result()


def test_a_server_is_shown_with_its_state_pins_and_changes_and_its_calls_are_in_the_timeline(
    browser: Any, tmp_path: Path
) -> None:
    scripted = Scripted(tmp_path / "scripted")
    folder = tmp_path / "project"
    folder.mkdir()
    server = {"command": scripted.command, "annotations": "trust"}
    (folder / "handrail.toml").write_text(server_table("box", server), encoding="utf-8")
    beside(pin(folder, {"box": server}))
    scripted.says(tools=[{**NOTE, "description": "Write two notes."}, LOOK], name="scripted\u202e")
    served = Served(folder)
    try:
        assert beside(called(served, "box_look"))["ok"] is True
        with opened(browser, f"{served.console}&/operate") as it:
            page = it.page
            panel = page.locator("section", has=page.get_by_role("heading", name="MCP servers"))
            panel.get_by_text("running", exact=True).wait_for()
            panel.get_by_text("2 changes since it was pinned").wait_for()
            assert "Write two notes." in panel.inner_text()
            assert "scripted\\u{202e}" in panel.inner_text()
            assert "\u202e" not in panel.inner_text()
            panel.get_by_text("2 tools pinned").click()
            words = panel.inner_text()
            assert "reads, runs at once" in words
            assert "changed since it was pinned; refused" in words
            assert "sha256:" in words
            panel.scroll_into_view_if_needed()
            it.shoot("mcp-servers")
        with opened(browser, f"{served.console}&/audit") as it:
            it.page.get_by_text("box_look").first.wait_for()
    finally:
        served.close()
