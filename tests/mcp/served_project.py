"""A small project of notes, and any project served over HTTP in a process of its own, as `handrail serve` does it.

`open_to_all` adds the key to what comes without one, for clients that cannot send any."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

KEY = "hr_a-key-for-the-tests-of-mcp"
_WRAPPED = """
import sys
from handrail.server.api import guard
plain = guard.Guard.__call__

async def with_key(self, scope, receive, send):
    if scope["type"] == "http" and not any(name == b"authorization" for name, _ in scope["headers"]):
        scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer %(key)s")]}
    await plain(self, scope, receive, send)

guard.Guard.__call__ = with_key
from handrail.cli import main
sys.exit(main(sys.argv[1:]))
"""


TOOLS = '''
import asyncio
import base64
import os
from handrail import tool

def _note(text):
    with open("effects.txt", "a") as file:
        file.write(text + "\\n")
        file.flush()
        os.fsync(file.fileno())

@tool(category="action", side_effects="writes", idempotent=False)
async def send_note(text: str, ctx) -> str:
    """Send a note.

    Args:
        text: What it says.
    """
    return await write(text)

async def write(text):
    _note(text)
    await asyncio.sleep(5 if text == "cut" else 0.05)  # one that is killed must not have ended before
    return text

@tool(category="retrieval", side_effects="read_only", timeout_ms=120_000)
async def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: How long.
    """
    import asyncio
    _note(f"waiting for {seconds}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        _note("stopped waiting")
        raise
    return "waited"

@tool(category="utility", side_effects="none")
def echo(text: str) -> str:
    """Give a text back.

    Args:
        text: Which.
    """
    return text

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="

@tool(category="utility", side_effects="none", capabilities=["client"])
async def draw(ctx) -> list[str]:
    """Draw a dot, and say what the client can be asked."""
    ctx.client.progress(1, 2, "half drawn")
    await asyncio.sleep(0.2)
    ctx.client.image(base64.b64decode(PNG), "image/png")
    return sorted(ctx.client.can)

@tool(category="action", side_effects="writes", idempotent=False, requires_confirmation=True, preview="Pay {amount} euros")
def pay(amount: int) -> str:
    """Pay something.

    Args:
        amount: How much, in euros.
    """
    _note(f"paid {amount}")
    return f"paid {amount}"
'''
CLIENT = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


ELICITS = {**CLIENT, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
TASKS = {**CLIENT, "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@dataclass
class Served:
    url: str
    process: subprocess.Popen[str]
    folder: Path
    key: str = KEY

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@contextmanager
def served(project: Path, *, open_to_all: bool = False, **environment: str) -> Iterator[Served]:
    """The project, served on a free port until the end."""
    words = ["serve", "--port", "0", "--json", "--key", KEY, "--model", "demo"]
    how = ["-c", _WRAPPED % {"key": KEY}] if open_to_all else ["-m", "handrail"]
    with (project / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *how, *words],
            cwd=project,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (project / "serve.log").read_text()
        yield Served(json.loads(line)["url"], process, project)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def project(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "handrail.toml").write_text('[tools]\nmodules = ["notes"]\n')
    (folder / "notes.py").write_text(TOOLS)
    return folder


def effects(folder: Path) -> list[str]:
    noted = folder / "effects.txt"
    return noted.read_text().split("\n")[:-1] if noted.exists() else []


def request(number: Any, name: str, args: dict[str, Any], **meta: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": args, "_meta": {**CLIENT, **meta}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def headers_of(server: Served, name: str) -> dict[str, str]:
    return {
        **server.headers,
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }


async def send(
    server: Served, method: str, named: str, meta: Any = None, key: str = "", **params: Any
) -> dict[str, Any]:
    """A request of 2026-07-28 that stands alone, by the server's key or another one; its answer."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta or ELICITS}}
    headers = {**headers_of(server, named), "Mcp-Method": method}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    async with httpx2.AsyncClient(timeout=30) as client:
        answer: dict[str, Any] = (await client.post(server.mcp, json=body, headers=headers)).json()
    return answer
