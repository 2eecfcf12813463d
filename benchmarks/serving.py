"""500 text turns at once over loopback: is a call lost or doubled, what does the server add to a turn, what does a session take.

The server is a process of its own (`--worker`), on files, with a model that thinks for a fixed time and asks for a reading and a
writing call in each turn. What the server adds is the time of a turn, as its client measures it from the first byte
of the request to the last of the answer, without the time that the model was told to think. So it holds what a late
timer, the network and the client itself take as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show
from handrail import Runtime
from handrail.agents import TextAgent
from handrail.contract.call import Call, IdScope
from handrail.contract.model import CallMade, Finished, TextDelta, ToolMessage
from handrail.server.assembly import assemble
from handrail.server.key_ring import KeyRing, given_key
from handrail.server.options import Options
from handrail.server.uvicorn_server import bound, make_server, tune_garbage_collector
from handrail.testing import open_tools

_CLIENTS = 500
_SECONDS = 12.0
_THINKING = 1.5
"""Seconds that the model takes for each of the two rounds of a turn."""
_KEY = "hr_key_of_the_benchmark_0001"


# ---------------------------------------------------------------------------------------------------------- the server
class _Thinker:
    """A model that calls `look` and `note` for every message, then answers."""

    name = "thinker"
    provider = "openai-chat"
    id_scope: IdScope = "session"
    context_window = None

    def __init__(self, thinking: float) -> None:
        self._thinking = thinking
        self._made = 0

    async def stream(self, request: Any) -> AsyncGenerator[Any, None]:
        await asyncio.sleep(self._thinking)
        if isinstance(request.messages[-1], ToolMessage):
            good = all(one.envelope["ok"] for one in request.messages[-2:])
            for word in ("That ", "is ", "done." if good else "not done."):
                yield TextDelta(word)
            yield Finished("stop")
            return
        text = request.messages[-1].text
        for name in ("look", "note"):
            self._made += 1
            yield CallMade(Call(name, {"q": text}, f"call_{self._made}"))
        yield Finished("calls")

    async def close(self) -> None:
        return None


def _write_tools(folder: Path) -> Path:
    parameters = {
        "type": "object",
        "properties": {"q": {"type": "string", "description": "What it is about."}},
        "additionalProperties": False,
    }
    common = {
        "version": "1.0.0", "requiresConfirmation": False, "allowedModes": ["text"], "latencyBudgetMs": 5_000,
        "parameters": parameters,
    }  # fmt: skip
    kinds = {
        "look": {"category": "retrieval", "sideEffects": "read_only", "idempotent": True},
        "note": {"category": "action", "sideEffects": "writes", "idempotent": False,
                 "waivers": {"action-unconfirmed": "A benchmark."}},
    }  # fmt: skip
    ledger = folder / "effects.txt"
    handlers = {
        "look": "async def execute(args, ctx):\n    return {'ok': True, 'data': {'results': [args['q']]}}\n",
        "note": "async def execute(args, ctx):\n"
        f"    with open({str(ledger)!r}, 'a') as file:\n        file.write(args['q'] + '\\n')\n"
        "    return {'ok': True, 'data': {'noted': True}}\n",
    }
    for name, kind in kinds.items():
        tool = folder / "tools" / name
        tool.mkdir(parents=True)
        (tool / "schema.json").write_text(
            json.dumps({"toolId": name, "description": f"The tool {name}.", **common, **kind})
        )
        (tool / "guide.md").write_text(f"# {name}\n\nDoes what {name} does.\n")
        (tool / "handler.py").write_text(handlers[name])
    return folder / "tools"


async def _serve(folder: Path, thinking: float) -> None:
    many = 10_000_000
    options = Options(port=0, requests_per_minute=many, max_connections=2_000, max_streams=2_000)
    with open_tools(_write_tools(folder)) as tools:
        runtime = Runtime(tools.registry, store=f"sqlite:////{folder}/store.db", audit=folder / "audit")
        made = assemble(
            runtime,
            TextAgent(runtime, _Thinker(thinking), listen=False),
            keys=KeyRing([given_key(_KEY)]),
            options=options,
            audit=folder / "audit",
        )
        socket = bound(options)
        port = socket.getsockname()[1]

        def ready() -> None:
            tune_garbage_collector()  # as `handrail serve` does
            print(port, flush=True)

        await make_server(made.app, options, made.sessions.drain, ready).serve(sockets=[socket])


# ---------------------------------------------------------------------------------------------------------- the clients
class _Client:
    """A connection that is kept alive, and a session on it. Small, because 500 of them share two cores with the server."""

    def __init__(self, port: int, number: int) -> None:
        self._port = port
        self.number = number
        self.turns = 0
        self.added: list[float] = []
        self.done: list[str] = []
        self.failed = 0

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        opened = json.loads(await self._ask("/api/sessions", {}))
        self._session = opened["sessionId"]
        self._token = opened["token"]

    async def turn(self) -> None:
        self.turns += 1
        text = f"{self.number}-{self.turns}"
        started = time.perf_counter()
        body = {"id": f"m{self.turns}", "text": text}
        answer = await self._ask(f"/api/sessions/{self._session}/messages", body, streamed=True)
        self.added.append(time.perf_counter() - started - 2 * _THINKING)
        if b'"text":"That is done."' in answer:
            self.done.append(text)
        else:
            self.failed += 1

    async def close(self) -> None:
        self._writer.close()

    async def _ask(self, path: str, body: dict[str, Any], *, streamed: bool = False) -> bytes:
        content = json.dumps(body).encode()
        secret = f"X-Session-Token: {self._token}\r\nAccept: text/event-stream\r\n" if streamed else ""
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {_KEY}\r\n{secret}"
        self._writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        if b"chunked" not in answered:
            length = int(answered.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            return await self._reader.readexactly(length)
        parts = []
        while size := int(await self._reader.readline(), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readline()
        return b"".join(parts)


async def _load(port: int, pid: int, clients: int, seconds: float) -> tuple[list[_Client], dict[str, float]]:
    warm = [_Client(port, -1 - number) for number in range(20)]
    for client in warm:
        await client.open()
    await asyncio.gather(*(client.turn() for client in warm))
    before = _memory(pid)
    crowd = [_Client(port, number) for number in range(clients)]
    for client in crowd:
        await client.open()
    opened = _memory(pid)
    ends = time.perf_counter() + seconds

    async def talk(client: _Client) -> None:
        await asyncio.sleep(client.number / clients * 2 * _THINKING)  # people do not begin in the same millisecond
        while time.perf_counter() < ends:
            await client.turn()

    started, used = time.perf_counter(), _processor(pid)
    await asyncio.gather(*map(talk, crowd))
    took = time.perf_counter() - started
    facts = {
        "idle": (opened - before) / clients,
        "used": (_memory(pid) - before) / clients,
        "busy": (_processor(pid) - used) / took,
        "rate": sum(client.turns for client in crowd) / took,
    }
    for client in (*warm, *crowd):
        await client.close()
    return [*warm, *crowd], facts


def _memory(pid: int) -> float:
    """Resident memory in KiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def _processor(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(clients: int = _CLIENTS, seconds: float = _SECONDS) -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        command = [sys.executable, "-m", "benchmarks.serving", "--worker", side, str(_THINKING)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                port = int(process.stdout.readline())
                crowd, facts = asyncio.run(_load(port, process.pid, clients, seconds))
            finally:
                process.terminate()
                process.wait(60)
        effects = Counter((Path(side) / "effects.txt").read_text().split())
    wanted = Counter(text for client in crowd for text in client.done)
    added = sorted(1000 * one for client in crowd if client.number >= 0 for one in client.added)
    turns = sum(client.turns for client in crowd if client.number >= 0)
    note = f"{clients} clients, {turns} turns, {facts['rate']:.0f} a second, {facts['busy']:.0%} of a core"
    return [
        Result("turns that failed", sum(client.failed for client in crowd), "turns", 0.0, note),
        Result("writing calls that were lost", (wanted - effects).total(), "calls", 0.0),
        Result("writing calls that were doubled", (effects - wanted).total(), "calls", 0.0),
        Result("added to a turn of two calls, p50", added[len(added) // 2], "ms", None, "beside the model's thinking"),
        Result("added to a turn of two calls, p99", added[len(added) * 99 // 100], "ms"),
        Result("memory per session", facts["idle"], "KiB", None, "opened, nothing said yet"),
        Result("memory per session in use", facts["used"], "KiB", None, f"after {turns / clients:.1f} turns each"),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        asyncio.run(_serve(Path(sys.argv[2]), float(sys.argv[3])))
    else:
        show(run())
