"""What clients of others can do with a server of ours beside calling tools, as the table in docs/mcp.md says it."""

import asyncio
import base64
import json
import os
import re
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from scripts.node_packages import is_there, node
from tests.mcp.conftest import Notes
from tests.mcp.served_project import TOOLS
from tests.mcp.test_clients import INSPECTOR
from tests.mcp.test_list_changes import switch

DOCS = Path(__file__).parents[2] / "docs" / "mcp.md"
PNG = re.findall(r'PNG = "(.+)"', TOOLS)[0]
GUIDE, PROMPT, HALF = "handrail://guide/echo", "handrail_tools", "half drawn"
FEATURES = ("resources", "prompts", "pictures", "progress", "tasks", "list changes")
Used = set[str]


def seen(*, guide: str = "", prompt: str = "", picture: str = "", told: list[str], can: str = "") -> Used:
    """What came of it."""
    found = {
        "resources": "Give a text back" in guide,
        "prompts": "echo" in prompt,
        "pictures": picture == PNG,
        "progress": HALF in told,
        "tasks": "tasks" in can,
    }
    return {name for name, is_so in found.items() if is_so}


async def hears(notes: Notes, heard: asyncio.Event) -> Used:
    """Whether a client that does nothing hears that a tool was switched off."""
    try:
        await switch(notes, "off", "wait")
        async with asyncio.timeout(20):
            await heard.wait()
    except TimeoutError:
        return set()
    finally:
        await switch(notes, "on", "wait")
    return {"list changes"}


def listener(heard: asyncio.Event) -> Callable[[Any], Awaitable[None]]:
    async def handler(message: Any) -> None:
        if (
            "ToolListChanged" in type(message).__name__
            or "ToolListChanged" in type(getattr(message, "root", 0)).__name__
        ):
            heard.set()

    return handler


async def sdk(notes: Notes) -> Used:
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    told: list[str] = []
    heard = asyncio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    http = httpx2.AsyncClient(headers=notes.headers, timeout=60)
    transport = streamable_http_client(notes.mcp, http_client=http)
    async with http, Client(transport, mode="legacy", message_handler=listener(heard)) as client:
        guide = (await client.read_resource(GUIDE)).contents[0].text  # type: ignore[union-attr]
        prompt = (await client.get_prompt(PROMPT)).messages[0].content.text  # type: ignore[union-attr]
        picture, text = (await client.call_tool("draw", {}, progress_callback=progress)).content  # type: ignore[union-attr]
        used = seen(guide=guide, prompt=prompt, picture=picture.data, told=told, can=text.text)  # type: ignore[union-attr]
        return used | await hears(notes, heard)


async def fastmcp(notes: Notes) -> Used:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    told: list[str] = []
    heard = asyncio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    transport = StreamableHttpTransport(notes.mcp, headers=notes.headers)
    async with Client(transport, mode="legacy", progress_handler=progress, message_handler=listener(heard)) as client:
        guide = (await client.read_resource(GUIDE))[0].text  # type: ignore[union-attr]
        prompt = (await client.get_prompt(PROMPT)).messages[0].content.text  # type: ignore[union-attr]
        picture, text = (await client.call_tool("draw", {})).content
        used = seen(guide=guide, prompt=prompt, picture=picture.data, told=told, can=text.text)  # type: ignore[union-attr]
        return used | await hears(notes, heard)


async def openai_agents(notes: Notes) -> Used:
    from agents.mcp import MCPServerStreamableHttp

    heard = asyncio.Event()
    words: Any = {"url": notes.mcp, "headers": notes.headers}
    async with MCPServerStreamableHttp(params=words, message_handler=listener(heard)) as client:
        guide = (await client.read_resource(GUIDE)).contents[0].text  # type: ignore[union-attr]
        prompt = (await client.get_prompt(PROMPT)).messages[0].content.text  # type: ignore[union-attr]
        picture, text = (await client.call_tool("draw", {})).content
        used = seen(guide=guide, prompt=prompt, picture=picture.data, told=[], can=text.text)  # type: ignore[union-attr]
        return used | await hears(notes, heard)


async def pydantic_ai(notes: Notes) -> Used:
    from pydantic_ai import BinaryContent
    from pydantic_ai.mcp import MCPToolset

    told: list[str] = []
    heard = asyncio.Event()

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    more: Any = {"progress_handler": progress, "message_handler": listener(heard)}
    async with MCPToolset(notes.mcp, headers=notes.headers, **more) as client:
        guide = str(await client.read_resource(GUIDE))
        prompt = str(await client.get_prompt(PROMPT))
        answer: Any = await client.direct_call_tool("draw", {})
        parts = answer if isinstance(answer, list) else [answer]
        pictures = [base64.b64encode(one.data).decode() for one in parts if isinstance(one, BinaryContent)]
        used = seen(guide=guide, prompt=prompt, picture="".join(pictures), told=told, can=str(answer))
        return used | await hears(notes, heard)


async def inspector(notes: Notes) -> Used:
    def run(*words: str) -> dict[str, Any]:
        header = ["--header", f"Authorization: Bearer {notes.key}"]
        made = subprocess.run(
            [node(), str(INSPECTOR), "--cli", notes.mcp, "--transport", "http", *header, "--method", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert made.stdout, made.stderr
        return json.loads(made.stdout)  # type: ignore[no-any-return]

    guide = run("resources/read", "--uri", GUIDE)["contents"][0]["text"]
    prompt = run("prompts/get", "--prompt-name", PROMPT)["messages"][0]["content"]["text"]
    picture, text = run("tools/call", "--tool-name", "draw")["content"]
    return seen(guide=guide, prompt=prompt, picture=picture["data"], told=[], can=text["text"])


def in_docs(row: str) -> Used:
    """What the page says that a client can do."""
    (cells,) = re.findall(rf"^\| {re.escape(row)} ((?:\| (?:yes|no) ){{6}})\|$", DOCS.read_text(encoding="utf-8"), re.M)
    return {name for name, said in zip(FEATURES, re.findall("yes|no", cells), strict=True) if said == "yes"}


ROWS = {
    "`mcp` SDK": sdk,
    "FastMCP's client": fastmcp,
    "Pydantic AI (`MCPToolset`)": pydantic_ai,
    "OpenAI Agents": openai_agents,
    "Inspector's command line": inspector,
}


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
async def test_a_client_can_do_what_the_page_says_and_no_more(notes: Notes, row: str) -> None:
    if ROWS[row] is inspector and not is_there() and os.environ.get("CI") != "true":
        pytest.skip("the inspector is not here; `make node` brings it")
    assert await ROWS[row](notes) == in_docs(row)
