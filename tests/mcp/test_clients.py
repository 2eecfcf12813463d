"""Clients of others, as their users use them: each lists, calls, and has one write confirmed by a person."""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import pytest
from scripts.node_packages import FOLDER, is_there, node
from tests.mcp.conftest import Notes
from tests.mcp.served_project import KEY, Served, effects, project

Call = Callable[[str, dict[str, Any]], Awaitable[str]]
_PACKAGE = FOLDER / "node_modules" / "@modelcontextprotocol" / "inspector"
INSPECTOR = _PACKAGE / "clients" / "launcher" / "build" / "index.js"


@pytest.fixture
def server(notes: Notes) -> Served:
    """As its user reaches it from a client that is not trusted to ask."""
    return replace(notes, key=notes.laptop)


def envelope_in(text: str) -> dict[str, Any]:
    """The envelope that a client gives to its model."""
    found: dict[str, Any] = json.loads(text)
    return found


@asynccontextmanager
async def sdk(server: Served) -> AsyncIterator[tuple[list[str], Call]]:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(headers=server.headers)
    async with (
        http,
        streamable_http_client(server.mcp, http_client=http) as streams,
        ClientSession(*streams[:2]) as client,
    ):
        await client.initialize()

        async def call(name: str, args: dict[str, Any]) -> str:
            return (await client.call_tool(name, args)).content[-1].text  # type: ignore[union-attr]

        yield [tool.name for tool in (await client.list_tools()).tools], call


@asynccontextmanager
async def fastmcp(server: Served) -> AsyncIterator[tuple[list[str], Call]]:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    async with Client(StreamableHttpTransport(server.mcp, headers=server.headers)) as client:

        async def call(name: str, args: dict[str, Any]) -> str:
            return (await client.call_tool(name, args, raise_on_error=False)).content[-1].text  # type: ignore[union-attr]

        yield [tool.name for tool in await client.list_tools()], call


@asynccontextmanager
async def openai_agents(server: Served) -> AsyncIterator[tuple[list[str], Call]]:
    from agents.mcp import MCPServerStreamableHttp

    async with MCPServerStreamableHttp(params={"url": server.mcp, "headers": server.headers}) as client:

        async def call(name: str, args: dict[str, Any]) -> str:
            return (await client.call_tool(name, args)).content[-1].text  # type: ignore[union-attr]

        yield [tool.name for tool in await client.list_tools()], call


@asynccontextmanager
async def pydantic_ai(server: Served) -> AsyncIterator[tuple[list[str], Call]]:
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(server.mcp, headers=server.headers) as client:

        async def call(name: str, args: dict[str, Any]) -> str:
            try:
                answer = await client.direct_call_tool(name, args)
            except ModelRetry as failed:
                return str(failed)
            return answer if isinstance(answer, str) else json.dumps(answer)

        yield [tool.name for tool in await client.list_tools()], call


LANGCHAIN = """
import asyncio, json, sys
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_core.tools import ToolException

async def main(address, headers, name, args):
    server = {"transport": "streamable_http", "url": address, "headers": json.loads(headers)}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"handrail": server}).get_tools()}
    if not name:
        return list(tools)
    try:
        answer = await tools[name].ainvoke(json.loads(args))
    except ToolException as failed:
        return str(failed)
    return answer if isinstance(answer, str) else answer[-1]["text"]

print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
"""


def sdk_1() -> Path:
    """Where version 1 of the SDK lies: fetched once, by its hashes, and in its place when all of it is there."""
    lock = Path(__file__).with_name("mcp_1.txt")
    folder = FOLDER.parent / f"mcp-{sha256(lock.read_bytes()).hexdigest()[:12]}"
    if not folder.is_dir():
        FOLDER.parent.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=FOLDER.parent) as aside:
            made = Path(aside) / "made"
            words = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(made)]
            pip = [sys.executable, "-m", "pip", "install", *words, "-r", str(lock)]
            subprocess.run(pip, capture_output=True, check=True, timeout=300)
            with suppress(OSError):  # another run was first
                made.rename(folder)
    return folder


@asynccontextmanager
async def langchain(server: Served) -> AsyncIterator[tuple[list[str], Call]]:
    """LangChain's adapter does not work with version 2 of the SDK, so it finds version 1 before it."""
    folder = sdk_1()

    def run(name: str = "", args: str = "{}") -> Any:
        made = subprocess.run(
            [sys.executable, "-c", LANGCHAIN, server.mcp, json.dumps(server.headers), name, args],
            env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert made.stdout, made.stderr
        return json.loads(made.stdout)

    async def call(name: str, args: dict[str, Any]) -> str:
        return str(run(name, json.dumps(args)))

    yield run(), call


@asynccontextmanager
async def inspector(server: Served) -> AsyncIterator[tuple[list[str], Call]]:
    if not is_there() and os.environ.get("CI") != "true":
        pytest.skip("the inspector is not here; `make node` brings it")

    def run(*words: str) -> dict[str, Any]:
        header = ["--header", f"Authorization: Bearer {server.key}"]
        made = subprocess.run(
            [node(), str(INSPECTOR), "--cli", server.mcp, "--transport", "http", *header, *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert made.stdout, made.stderr
        return json.loads(made.stdout)  # type: ignore[no-any-return]

    async def call(name: str, args: dict[str, Any]) -> str:
        given = [f"{key}={value}" for key, value in args.items()]
        words = [word for one in given for word in ("--tool-arg", one)]
        return str(run("--method", "tools/call", "--tool-name", name, *words)["content"][-1]["text"])

    yield [tool["name"] for tool in run("--method", "tools/list")["tools"]], call


CLIENTS = [sdk, fastmcp, openai_agents, pydantic_ai, inspector, langchain]


@pytest.mark.parametrize("client", [*CLIENTS[:-1], pytest.param(langchain, marks=pytest.mark.long)])
async def test_a_client_lists_calls_and_gets_a_write_that_a_person_approved(server: Served, client: Any) -> None:
    amount = 100 + CLIENTS.index(client)
    async with client(server) as (names, call):
        assert {"echo", "pay", "send_note"} <= set(names)
        assert envelope_in(await call("echo", {"text": "hello"}))["data"] == "hello"
        held = await call("pay", {"amount": amount})
        found = re.search(r"confirmation\.html#([\w-]+)", held)
        assert found is not None, held
        await answered(server, found[1])
        outcome = envelope_in(await call("pay", {"amount": amount}))
        assert outcome["data"] == f"paid {amount}"
    assert effects(server.folder).count(f"paid {amount}") == 1


MCP = ["-m", "handrail", "mcp"]


async def fastmcp_over_pipes(folder: str) -> tuple[list[str], str]:
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async with Client(StdioTransport(sys.executable, MCP, cwd=folder)) as client:
        answer = await client.call_tool("echo", {"text": "hello"})
        return [tool.name for tool in await client.list_tools()], answer.content[-1].text  # type: ignore[union-attr]


async def openai_agents_over_pipes(folder: str) -> tuple[list[str], str]:
    from agents.mcp import MCPServerStdio

    words: Any = {"command": sys.executable, "args": MCP, "cwd": folder}
    async with MCPServerStdio(params=words, client_session_timeout_seconds=60) as client:
        answer = await client.call_tool("echo", {"text": "hello"})
        return [tool.name for tool in await client.list_tools()], answer.content[-1].text  # type: ignore[union-attr]


async def pydantic_ai_over_pipes(folder: str) -> tuple[list[str], str]:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(StdioTransport(sys.executable, MCP, cwd=folder)) as client:
        answer = await client.direct_call_tool("echo", {"text": "hello"})
        return [tool.name for tool in await client.list_tools()], json.dumps(answer)


async def inspector_over_pipes(folder: str) -> tuple[list[str], str]:
    def run(*words: str) -> dict[str, Any]:
        made = subprocess.run(
            [node(), str(INSPECTOR), "--cli", sys.executable, *MCP, "--method", *words],
            cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert made.stdout, made.stderr
        return json.loads(made.stdout)  # type: ignore[no-any-return]

    if not is_there() and os.environ.get("CI") != "true":
        pytest.skip("the inspector is not here; `make node` brings it")
    answer = run("tools/call", "--tool-name", "echo", "--tool-arg", "text=hello")
    return [tool["name"] for tool in run("tools/list")["tools"]], str(answer["content"][-1]["text"])


PIPED = [fastmcp_over_pipes, openai_agents_over_pipes, pydantic_ai_over_pipes, inspector_over_pipes]


@pytest.mark.long
@pytest.mark.parametrize("client", PIPED)
async def test_a_client_starts_the_server_itself(tmp_path: Path, client: Any) -> None:
    names, answer = await client(str(project(tmp_path)))
    assert {"echo", "pay", "send_note"} <= set(names)
    assert envelope_in(answer)["data"] == "hello"


async def fastmcp_asks(server: Served, person: Any, args: dict[str, Any]) -> str:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    async def asked(message: str, response_type: Any, params: Any, context: Any) -> dict[str, Any]:
        return person(message)

    transport = StreamableHttpTransport(server.mcp, headers=server.headers)
    async with Client(transport, elicitation_handler=asked) as client:
        return (await client.call_tool("pay", args)).content[-1].text  # type: ignore[union-attr]


async def pydantic_ai_asks(server: Served, person: Any, args: dict[str, Any]) -> str:
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport
    from pydantic_ai.mcp import MCPToolset

    async def asked(message: str, response_type: Any, params: Any, context: Any) -> dict[str, Any]:
        return person(message)

    # In 2026-07-28 it takes no questions.
    transport = StreamableHttpTransport(server.mcp, headers=server.headers)
    async with MCPToolset(Client(transport, elicitation_handler=asked, mode="legacy")) as client:
        return json.dumps(await client.direct_call_tool("pay", args))


@pytest.mark.parametrize("client", [fastmcp_asks, pydantic_ai_asks])
async def test_a_trusted_client_asks_its_person_itself(notes: Notes, client: Any) -> None:
    shown: list[str] = []

    def person(message: str) -> dict[str, Any]:
        shown.append(message)
        return {"approve": True}

    amount = 200 + len(client.__name__)
    outcome = envelope_in(await client(notes, person, {"amount": amount}))
    assert outcome["data"] == f"paid {amount}"
    assert [message.splitlines()[0] for message in shown] == [f"Pay {amount} euros"]
    assert effects(notes.folder).count(f"paid {amount}") == 1


async def answered(server: Served, confirmation: str, word: str = "approve") -> None:
    """A person opens the link: with their own key, never with the client's."""
    async with httpx2.AsyncClient(base_url=server.url) as person:
        address = f"/api/confirmations/{confirmation}"
        assert (await person.get(address, headers=server.headers)).status_code == 403
        shown = (await person.get(address, headers={"Authorization": f"Bearer {KEY}"})).json()
        body = {"token": shown["token"]}
        refused = await person.post(f"{address}/{word}", json=body, headers=server.headers)
        assert refused.status_code == 403
        done = await person.post(f"{address}/{word}", json=body, headers={"Authorization": f"Bearer {KEY}"})
        assert done.status_code == 200
