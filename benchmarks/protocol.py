"""`tools/call` and `tools/list` of MCP, governed and ungoverned: our server, FastMCP's and the SDK's own, in one interleaved run.

Each is a process of its own with the same read-only tool. The client is the same few lines over a socket or a pipe, so that what
differs is the server. Clients are of three kinds: of 2026-07-28, where each request stands alone; the same with a progress token,
which some send with every call; and those of the handshake era. Values are ratios of medians over several rounds; a limit is what
is promised: as many calls a second as FastMCP, 0.9 of the SDK's plain server, and a p99 of at most 1.2 of its.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Result

_KEY = "hr_key_of_the_benchmark_0001"
_ROUNDS, _CALLS, _WARM = 9, 200, 50
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
}
_TOOLS = '''
from handrail import tool

@tool(category="utility", side_effects="none")
async def echo(text: str) -> str:
    """Give a text back.

    Args:
        text: Which.
    """
    return text
'''
_PLAIN = """
import sys
import anyio, mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}
COUNT = int(sys.argv[2])
NAMES = ["echo", *(f"echo_{n}" for n in range(1, COUNT))]
TOOLS = [types.Tool(name=name, description="Give a text back.", input_schema=SCHEMA) for name in NAMES]

async def list_tools(ctx, params):
    return types.ListToolsResult(tools=TOOLS)

async def call_tool(ctx, params):
    text = params.arguments["text"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content={"result": text})

server = Server("plain", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda name: SCHEMA)

async def pipes():
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())

if sys.argv[1] == "stdio":
    anyio.run(pipes)
else:
    import uvicorn
    uvicorn.run(server.streamable_http_app(), port=int(sys.argv[1]), log_level="error")
"""
_FAST = '''
import sys
from fastmcp import FastMCP

server = FastMCP("fast")

def make(n):
    async def echo(text: str) -> str:
        """Give a text back."""
        return text
    server.tool(echo, name="echo" if n == 0 else f"echo_{n}")

for n in range(int(sys.argv[2])):
    make(n)
if sys.argv[1] == "stdio":
    server.run(show_banner=False)
else:
    import uvicorn
    uvicorn.run(server.http_app(path="/mcp"), port=int(sys.argv[1]), log_level="error")
'''

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
_HANDSHAKE = "2025-11-25"
_ALONE, _PROGRESS, _SHAKEN = "", ", with a progress token", ", after a handshake"
"""What a client is, as the rows say it."""


def _body(kind: str, number: int, method: str, params: dict[str, Any]) -> bytes:
    if kind != _SHAKEN:
        params = {**params, "_meta": {**_META, "progressToken": number} if kind == _PROGRESS else _META}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


_HELLO = {"protocolVersion": _HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
_HEARD = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'


@contextmanager
def _over_http(port: int, kind: str, key: str = "") -> Iterator[Ask]:
    """A client over one connection."""
    number = 0
    session = ""

    def connected() -> tuple[socket.socket, Any]:
        made = socket.create_connection(("127.0.0.1", port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made, made.makefile("rb")

    link, stream = connected()

    def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal number
        number += 1
        status, found = post(_body(kind, number, method, params), method, params.get("name", ""))
        if b" 200 " not in status or "result" not in found:
            raise RuntimeError(f"{status!r} {found}")
        return dict(found["result"])

    def post(body: bytes, method: str, name: str) -> tuple[bytes, dict[str, Any]]:
        nonlocal link, stream, session
        era = f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n" + f"Mcp-Name: {name}\r\n" * bool(name)
        if kind == _SHAKEN:
            era = f"MCP-Protocol-Version: {_HANDSHAKE}\r\n" + f"Mcp-Session-Id: {session}\r\n" * bool(session)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{era}"
            + (f"Authorization: Bearer {key}\r\n" if key else "")
            + f"Content-Length: {len(body)}\r\n\r\n"
        )
        status = b""
        while not status:  # a server closes a connection that was idle while the others were measured
            try:
                link.sendall(head.encode() + body)
                status = stream.readline()
            except ConnectionError:
                status = b""
            if not status:
                stream.close()
                link.close()
                link, stream = connected()
        length: int | None = None
        while (line := stream.readline().strip()) != b"":
            header, _, value = line.partition(b":")
            if header.lower() == b"content-length":
                length = int(value)
            elif header.lower() == b"mcp-session-id":
                session = value.strip().decode()
        content = stream.read(length) if length is not None else _chunks(stream)
        if b"data: " in content[:200]:  # of an event stream, what its last event says
            content = content.rpartition(b"data: ")[2].strip()
        return status, json.loads(content) if content else {}

    try:
        if kind == _SHAKEN:
            ask("initialize", _HELLO)
            post(_HEARD, "notifications/initialized", "")
        yield ask
    finally:
        stream.close()
        link.close()


def _chunks(stream: Any) -> bytes:
    """A body in chunks."""
    parts = []
    while size := int(stream.readline(), 16):
        parts.append(stream.read(size))
        stream.readline()
    stream.readline()
    return b"".join(parts)


@contextmanager
def _over_pipes(words: list[str], kind: str, folder: Path) -> Iterator[Ask]:
    process = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    given, answers = process.stdin, process.stdout
    number = 0

    def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        nonlocal number
        number += 1
        given.write(_body(kind, number, method, params) + b"\n")
        given.flush()
        while True:
            found = json.loads(answers.readline())
            if found.get("id") == number:
                return dict(found["result"])

    try:
        if kind == _SHAKEN:
            ask("initialize", _HELLO)
            given.write(_HEARD + b"\n")
        yield ask
    finally:
        given.close()
        process.wait(20)
        answers.close()


@contextmanager
def _served(words: list[str], folder: Path, port: int) -> Iterator[None]:
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment()
    )
    try:
        until = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > until or process.poll() is not None:
                    raise
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


def _environment() -> dict[str, str]:
    return {**os.environ, "HANDRAIL_SERVER_REQUESTS_PER_MINUTE": "100000000"}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _project(folder: Path, count: int) -> None:
    more = "\n".join(
        _TOOLS.split("\n\n", 1)[1].replace("async def echo(", f"async def echo_{number}(") for number in range(1, count)
    )
    (folder / "bench_tools.py").write_text(_TOOLS + more)
    (folder / "handrail.toml").write_text('[tools]\nmodules = ["bench_tools"]\n')
    (folder / "plain_server.py").write_text(_PLAIN)
    (folder / "fast_server.py").write_text(_FAST)


@contextmanager
def _clients(over: str, kind: str, folder: Path, count: int) -> Iterator[dict[str, Ask]]:
    python, made = sys.executable, str(count)
    with ExitStack() as stack:
        if over == "stdio":
            words = {
                "governed": [python, "-m", "handrail", "mcp"],
                "fastmcp": [python, "fast_server.py", "stdio", made],
                "plain": [python, "plain_server.py", "stdio", made],
            }
            yield {name: stack.enter_context(_over_pipes(one, kind, folder)) for name, one in words.items()}
            return
        ports = {name: _free_port() for name in ("governed", "fastmcp", "plain")}
        serve = [python, "-m", "handrail", "serve", "--port", str(ports["governed"]), "--key", _KEY, "--model", "demo"]
        stack.enter_context(_served(serve, folder, ports["governed"]))
        stack.enter_context(_served([python, "fast_server.py", str(ports["fastmcp"]), made], folder, ports["fastmcp"]))
        stack.enter_context(_served([python, "plain_server.py", str(ports["plain"]), made], folder, ports["plain"]))
        time.sleep(1)  # a server that listens may still load
        keys = {"governed": _KEY}
        yield {name: stack.enter_context(_over_http(port, kind, keys.get(name, ""))) for name, port in ports.items()}


def _measured(asks: dict[str, Ask], method: str, params: dict[str, Any], rounds: int, calls: int) -> dict[str, Any]:
    """Seconds of a call: the median of the rounds' means, and of their 99th percentiles."""
    means: dict[str, list[float]] = {name: [] for name in asks}
    tails: dict[str, list[float]] = {name: [] for name in asks}
    for ask in asks.values():
        for _ in range(min(_WARM, calls)):
            ask(method, params)
    for _ in range(rounds):
        for name, ask in asks.items():
            times = []
            for _ in range(calls):
                started = time.perf_counter()
                ask(method, params)
                times.append(time.perf_counter() - started)
            means[name].append(sum(times) / len(times))
            tails[name].append(sorted(times)[int(len(times) * 0.99) - 1])
    return {name: (median(means[name]), median(tails[name])) for name in asks}


def _compared(row: str, found: dict[str, Any]) -> list[Result]:
    mean = {who: one[0] for who, one in found.items()}
    note = ", ".join(f"{who} {1 / one:.0f}/s" for who, one in mean.items())
    return [
        Result(f"{row}: time of a call, of FastMCP's", mean["governed"] / mean["fastmcp"], "×", 1.0, note),
        Result(f"{row}: time of a call, of the plain server's", mean["governed"] / mean["plain"], "×", 1 / 0.9),
        Result(f"{row}: p99, of the plain server's", found["governed"][1] / found["plain"][1], "×", 1.2),
    ]


def run() -> list[Result]:
    results: list[Result] = []
    call = {"name": "echo", "arguments": {"text": "hello"}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _project(folder, 1)
        for over in ("http", "stdio"):
            for kind in (_ALONE, _PROGRESS, _SHAKEN):
                with _clients(over, kind, folder, 1) as asks:
                    found = _measured(asks, "tools/call", call, _ROUNDS, _CALLS)
                results += _compared(f"{over}{kind}", found)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _project(folder, 1_000)
        with _clients("http", _ALONE, folder, 1_000) as asks:
            found = _measured(asks, "tools/list", {}, 3, 5)
        note = ", ".join(f"{who} {one[0] * 1000:.0f} ms" for who, one in found.items())
        results.append(
            Result("listing 1,000 tools, of FastMCP's", found["governed"][0] / found["fastmcp"][0], "×", None, note)
        )
    return results
