"""Voice over loopback: 50 and 200 conversations of 20 ms frames both ways, each of which calls a writing tool again and again.

The server is `handrail serve` in a process of its own, on files, with OpenAI Realtime behind it: the real SDK against a lean
stand-in for the service. Clients and stand-in are in this process (`voice_load`), so a frame's way is measured on one clock. What
the frames take without the server, from socket to socket in this process, is measured in the same run, before and after;
what the server adds is the difference. Both ends share two processors with the server, so the tails tell of the machine too.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show
from benchmarks.serving import _memory, _processor
from benchmarks.voice_load import Client, Pair, Provider, Ticker, Wire, World, number_of

_KEY = "hr_key_of_the_benchmark_0001"
_SECONDS = {50: 12.0, 200: 10.0}
_LIMIT_MS = 2.0
_PATIENCE = 60.0
_FIRST_SECONDS = 4.0
"""The first conversation speaks so long alone: it brings SDK and engines into memory, which are not its own."""


# ----------------------------------------------------------------------------------------------------------- the server
def _write_project(folder: Path, provider: int) -> None:
    (folder / "handrail.toml").write_text(
        f"[server]\nrequests_per_minute = 1000000\nmax_connections = 2000\nmax_streams = 2000\n\n"
        f'[voice]\nmodel = "openai-realtime:bench"\nbase_url = "ws://127.0.0.1:{provider}/v1"\n'
        "max_conversations = 1000\nmax_conversations_per_key = 1000\n"
    )
    tool = folder / "tools" / "note"
    tool.mkdir(parents=True)
    described = {"type": "string", "description": "What it is about."}
    schema = {
        "toolId": "note", "version": "1.0.0", "description": "Notes something.", "category": "action",
        "sideEffects": "writes", "idempotent": False, "requiresConfirmation": False, "allowedModes": ["voice"],
        "latencyBudgetMs": 1500, "waivers": {"action-unconfirmed": "A benchmark."},
        "parameters": {"type": "object", "properties": {"q": described}, "required": ["q"], "additionalProperties": False},
    }  # fmt: skip
    (tool / "schema.json").write_text(json.dumps(schema))
    (tool / "guide.md").write_text("# note\n\nNotes what was said.\n")
    (tool / "handler.py").write_text(
        "async def execute(args, ctx):\n"
        f"    with open({str(folder / 'effects.txt')!r}, 'a') as file:\n        file.write(args['q'] + '\\n')\n"
        "    return {'ok': True, 'data': {'noted': True}}\n"
    )


@contextmanager
def _served(folder: Path) -> Iterator[tuple[int, int]]:
    """The server's port and process id."""
    command = [sys.executable, "-m", "handrail", "serve", "--port", "0", "--json", "--key", _KEY]
    environment = {**os.environ, "OPENAI_API_KEY": "local-key", "HANDRAIL_ENV": "development"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            yield int(ready["url"].rpartition(":")[2]), int(ready["pid"])
        finally:
            process.terminate()
            process.wait(60)


def _ticket(port: int, number: int) -> tuple[str, str]:
    """Open a session and ask for a ticket: path and ticket."""
    line = HTTPConnection("127.0.0.1", port, timeout=60)
    common = {"Authorization": f"Bearer {_KEY}", "Content-Type": "application/json"}

    def ask(path: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        line.request("POST", path, json.dumps(body), {**common, **headers})
        with line.getresponse() as answer:
            told: dict[str, Any] = json.loads(answer.read())
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {told}")
        return told

    opened = ask("/api/sessions", {"user": f"user-{number}"}, {})
    ticket = ask(f"/api/sessions/{opened['sessionId']}/voice", {}, {"X-Session-Token": opened["token"]})
    line.close()
    return ticket["url"], ticket["ticket"]


# ------------------------------------------------------------------------------------------------------------- the runs
class _Direct(Wire):
    """A frame's way without a server: the other end is in this process too."""

    def __init__(self, world: World, *, masks: bool) -> None:
        super().__init__(masks=masks)
        self._upgraded = True
        self._pairs, self._joined = world.pairs, world.joined
        self.pair: Pair | None = None

    def speak(self) -> None:
        assert self.pair is not None
        self.send((self.pair.inward if self._masks else self.pair.outward).leave(), 2)

    def taken(self, body: bytes, mask: bytes | None, binary: bool) -> None:
        if self.pair is None:
            self.pair = self._pairs[number_of(body)]
            self._joined[self.pair.number].set()
        elif self._masks:
            self.pair.outward.arrive(number_of(body))
        else:
            self.pair.inward.arrive(number_of(body))


async def _directly(count: int, seconds: float) -> list[float]:
    """What frames take from socket to socket, both ways, at the same pace."""
    world = World(count)
    loop = asyncio.get_running_loop()
    ends: list[_Direct] = []

    def accepted() -> _Direct:
        ends.append(_Direct(world, masks=False))
        return ends[-1]

    server = await loop.create_server(accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    lines: list[_Direct] = []
    for pair in world.pairs:
        pair.inward.measuring = pair.outward.measuring = True
        _, line = await loop.create_connection(lambda: _Direct(world, masks=True), "127.0.0.1", port)
        line.pair = pair
        line.send(pair.number.to_bytes(4, "little"), 2)
        lines.append(line)
    async with asyncio.timeout(_PATIENCE):
        await asyncio.gather(*(joined.wait() for joined in world.joined))
    tickers = [Ticker(end.pair.phase, end.speak) for end in (*lines, *ends) if end.pair is not None]
    await asyncio.sleep(seconds)
    for ticker in tickers:
        ticker.stop()
    for line in lines:
        line.transport.abort()
    server.close()
    return [one for pair in world.pairs for one in (*pair.inward.took, *pair.outward.took)]


async def _run(count: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    world = World(count)
    server = await loop.create_server(lambda: Provider(world), "127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as side:
        folder = Path(side)
        _write_project(folder, server.sockets[0].getsockname()[1])
        direct = await _directly(count, 2.0)
        with _served(folder) as (port, pid):
            facts = await _talk(world, port, pid, seconds)
        direct += await _directly(count, 2.0)
        effects = Counter((folder / "effects.txt").read_text().split())
    server.close()
    wanted = Counter(f"{pair.number}-{number + 1}" for pair in world.pairs for number in range(pair.calls_made))
    return {
        **facts,
        "direct": sorted(direct),
        "lost": (wanted - effects).total(),
        "doubled": (effects - wanted).total(),
    }


async def _talk(world: World, port: int, pid: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    first = 0.0
    for pair in world.pairs:
        path, ticket = await asyncio.to_thread(_ticket, port, pair.number)
        made = partial(Client, pair, path, ticket)
        _, pair.client = await loop.create_connection(made, "127.0.0.1", port)
        async with asyncio.timeout(_PATIENCE):
            await pair.client.ready.wait()
        pair.speak()
        if pair.number == 0:
            await asyncio.sleep(_FIRST_SECONDS)
            first = _memory(pid)
    await asyncio.sleep(1.0)
    for pair in world.pairs:
        pair.inward.measuring = pair.outward.measuring = True
    used, began = _processor(pid), loop.time()
    await asyncio.sleep(seconds)
    busy = (_processor(pid) - used) / (loop.time() - began)
    for pair in world.pairs:
        pair.inward.measuring = pair.outward.measuring = False
    memory = (_memory(pid) - first) / (len(world.pairs) - 1)
    await _finish(world)
    return {"busy": busy, "memory": memory, **_found(world)}


def _found(world: World) -> dict[str, Any]:
    pairs = world.pairs
    clients = [pair.client for pair in pairs if pair.client is not None]
    answers = [answer for pair in pairs if pair.provider is not None for answer in pair.provider.calls_answered]
    calls = sum(pair.calls_made for pair in pairs)
    told = sum(client.kinds.get("tool_finished", 0) for client in clients)
    return {
        "in": sorted(one for pair in pairs for one in pair.inward.took),
        "out": sorted(one for pair in pairs for one in pair.outward.took),
        "dropped": sum(pair.inward.missing + pair.outward.missing for pair in pairs),
        "gaps": sum(client.gaps for client in clients) + abs(calls - told),
        "failed": answers.count(False) + calls - len(answers),
        "calls": calls,
        "odd": sum(client.closed for client in clients),
        "errors": [error for client in clients for error in client.errors][:3],
    }


async def _finish(world: World) -> None:
    """Everybody says what they were about to say; then the lines are closed."""
    world.stopping = True
    async with asyncio.timeout(_PATIENCE):
        for pair in world.pairs:
            await pair.silent.wait()
    for pair in world.pairs:
        pair.stop()
    await asyncio.sleep(1.0)


def _at(sorted_values: list[float], share: float) -> float:
    return 1000 * sorted_values[int(len(sorted_values) * share)] if sorted_values else 0.0


def run(counts: tuple[int, ...] = (50, 200)) -> list[Result]:
    results: list[Result] = []
    for count in counts:
        facts = asyncio.run(_run(count, _SECONDS.get(count, 10.0)))
        frames = len(facts["in"]) + len(facts["out"])
        note = f"{frames:,} frames measured, {facts['calls']:,} calls, {facts['busy']:.0%} of a core"
        name = f"{count} conversations: "
        results += [
            Result(name + "control messages lost", facts["gaps"], "messages", 0.0, note),
            Result(name + "calls failed or unanswered", facts["failed"], "calls", 0.0),
            Result(name + "writes lost or doubled", facts["lost"] + facts["doubled"], "calls", 0.0),
            Result(name + "ended unexpectedly", facts["odd"], "lines", 0.0, "; ".join(facts["errors"])),
        ]
        for way, words in (("in", "user to model"), ("out", "model to user")):
            for share in (0.5, 0.99):
                through, bare = _at(facts[way], share), _at(facts["direct"], share)
                limit = _LIMIT_MS if share == 0.99 and count == 50 else None
                words_of = f"{through:.2f} ms through the server, {bare:.2f} ms without it"
                results.append(Result(f"{name}added, {words}, p{share * 100:g}", through - bare, "ms", limit, words_of))
        results.append(Result(name + "frames dropped", facts["dropped"], "frames"))
        results.append(Result(name + "memory per conversation", facts["memory"], "KiB"))
    return results


if __name__ == "__main__":
    show(run(tuple(map(int, sys.argv[1:])) or (50, 200)))
