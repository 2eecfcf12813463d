"""Compare what this working copy takes with what an older commit took, side by side.

    python scripts/compare.py BASE [SCENARIO …] [--pairs N]

The older commit is exported to build/compare, and both run with the packages of this .venv. Each tree has a process that plays
scenarios through the public interface, and a `handrail serve` for those that need a server; its client and the local models are
in this process. A pair is one round of a scenario in each tree, one right after the other, in an order that alternates. What is
compared is the processor time of all threads and, where a scenario waits for the disk or the network, the time on the clock: the
median of the ratios of at least 15 pairs. A ratio above 1.10 fails, unless `INTENDED` has the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from benchmarks.voice_load import Client, Pair, Provider, World  # noqa: E402 - found once the root is on the path

from handrail.testing.servers import OpenAIChatServer, Reply, call  # noqa: E402

EXPORTS = ROOT / "build" / "compare"
WORKER = ROOT / "scripts" / "compare_scenarios.py"
LIMIT, ENOUGH_PAIRS = 1.10, 15
KEY, API_KEY = "hr_key_of_the_comparison_0001", "local-key"
TURNS, FRAMES, FRAME_PAUSE = 20, 300, 0.005
WAITING = ("begin a turn", "one write", "64 writing sessions", "a held call, approved", "text turn over HTTP")
"""The scenarios whose time on the clock is compared too."""
INTENDED = {
    "read, flat, text": "Flat arguments take the path of all others; `make bench` holds them to 8 times the bare handler.",
    "read, flat, object": "Flat arguments take the path of all others; `make bench` holds them to 8 times the bare handler.",
}
"""What may take longer than before, and why."""

Spent: TypeAlias = tuple[float, float]
"""Seconds of processor time and on the clock, of one operation."""
Round: TypeAlias = Callable[[], Awaitable[Spent]]


# ------------------------------------------------------------------------------------------------------------- the trees
def export(base: str) -> Path:
    """The files of a commit, in a folder that bears its hash."""
    commit = subprocess.run(
        ["git", "rev-parse", "--verify", f"{base}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    tree = EXPORTS / commit
    if not tree.is_dir():
        EXPORTS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=EXPORTS) as side:
            archive = Path(side) / "tree.tar"
            subprocess.run(["git", "archive", "--output", archive, commit, "src"], cwd=ROOT, check=True)
            subprocess.run(["tar", "-xf", archive, "-C", side], check=True)
            archive.unlink()
            (Path(side) / "src").rename(Path(side) / "whole")
            tree.mkdir()
            (Path(side) / "whole").rename(tree / "src")
    return tree


def environment_of(tree: Path) -> dict[str, str]:
    """What a process is started with so that it imports Handrail from this tree. Bytecode is kept in both."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join((str(tree / "src"), str(ROOT)))
    return {**own, "PYTHONPATH": path, "OPENAI_API_KEY": API_KEY, "HANDRAIL_ENV": "development"}


# ------------------------------------------------------------------------------------- scenarios in a process of the tree
@asynccontextmanager
async def _worker(tree: Path, folder: Path) -> AsyncIterator[dict[str, Round]]:
    """The scenarios that need no server, by name."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, WORKER, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment_of(tree)
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    async def ask(name: str) -> Spent:
        stdin.write(f"{name}\n".encode())
        processor, clock = json.loads(await stdout.readline())
        return processor, clock

    try:
        ready = json.loads(await stdout.readline())
        if not Path(ready["from"]).is_relative_to(tree):
            raise SystemExit(f'compare: Handrail was imported from "{ready["from"]}" instead of "{tree}".')
        yield {name: partial(ask, name) for name in ready["scenarios"]}
    finally:
        stdin.close()
        await process.wait()


_IMPORTS = {
    "import handrail": "import handrail",
    "import handrail.Runtime": "from handrail import Runtime",
}


async def _imported(tree: Path, statement: str) -> Spent:
    """What an import takes in a new process, without the start of the interpreter."""
    program = (
        "import time; began = time.process_time(), time.perf_counter()\n"
        f"{statement}\nprint(time.process_time() - began[0], time.perf_counter() - began[1])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE, env=environment_of(tree)
    )
    told, _ = await process.communicate()
    processor, clock = map(float, told.split())
    return processor, clock


# -------------------------------------------------------------------------------------------- scenarios through a server
class _Listener(Provider):
    """A live model that hears, and says nothing."""

    def _join(self, pair: Pair) -> None:
        self.pair = pair
        pair.provider = self


class _Served:
    """`handrail serve` of one tree, with a text model and a live model that run here."""

    def __init__(self, url: str, pid: int, world: World) -> None:
        self._url = url
        self._clock = ~pid << 3 | 2  # the clock of another process's processor time, as Linux numbers it
        self._world = world
        self._made = 0

    def _ask(self, path: str, body: dict[str, Any], **headers: str) -> bytes:
        known = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
        with urlopen(Request(self._url + path, json.dumps(body).encode(), known), timeout=60) as answer:  # noqa: S310
            content: bytes = answer.read()
            return content

    def _open(self) -> tuple[str, dict[str, str]]:
        opened = json.loads(self._ask("/api/sessions", {}))
        return f"/api/sessions/{opened['sessionId']}", {"X-Session-Token": opened["token"]}

    async def text_turns(self) -> Spent:
        path, secret = await asyncio.to_thread(self._open)
        processor, clock = time.clock_gettime(self._clock), time.perf_counter()
        for number in range(TURNS):
            body = {"id": f"m{number}", "text": f"Look up {number}."}
            told = await asyncio.to_thread(
                partial(self._ask, f"{path}/messages", body, Accept="text/event-stream", **secret)
            )
            assert b"It is there." in told, told
        return (time.clock_gettime(self._clock) - processor) / TURNS, (time.perf_counter() - clock) / TURNS

    async def voice_frames(self) -> Spent:
        path, secret = await asyncio.to_thread(self._open)
        ticket = json.loads(await asyncio.to_thread(partial(self._ask, f"{path}/voice", {}, **secret)))
        pair = self._world.pairs[0] = Pair(0, 1)
        made = partial(Client, pair, ticket["url"], ticket["ticket"])
        port = int(self._url.rpartition(":")[2])
        _, client = await asyncio.get_running_loop().create_connection(made, "127.0.0.1", port)
        async with asyncio.timeout(60):
            await client.ready.wait()
            await self._send(client, pair, FRAMES // 5)
            pair.inward.measuring = True
            processor, clock = time.clock_gettime(self._clock), time.perf_counter()
            await self._send(client, pair, FRAMES)
            while pair.inward.missing:  # noqa: ASYNC110 - what counts them tells nobody
                await asyncio.sleep(FRAME_PAUSE)
        spent = (time.clock_gettime(self._clock) - processor) / FRAMES, (time.perf_counter() - clock) / FRAMES
        client.transport.abort()
        return spent

    async def _send(self, client: Client, pair: Pair, count: int) -> None:
        for _ in range(count):
            client.send(pair.inward.leave(), 2)
            await asyncio.sleep(FRAME_PAUSE)


def _script() -> list[Reply]:
    """A call and an answer for each turn, for as many rounds as anybody waits for."""
    asked = (Reply(calls=[call("tool_00000", query=f"number {number}", top_k=3)]) for number in range(20_000))
    return [one for reply in asked for one in (reply, Reply("It is there."))]


@asynccontextmanager
async def _server(tree: Path, folder: Path) -> AsyncIterator[dict[str, Round]]:
    """The scenarios that need a server, by name."""
    from benchmarks.catalogue import write_tools  # noqa: PLC0415 - beside its only use

    world = World(1)
    live = await asyncio.get_running_loop().create_server(lambda: _Listener(world), "127.0.0.1", 0)
    async with OpenAIChatServer(_script(), api_key=API_KEY) as text, live:
        write_tools(folder / "tools", 1)
        (folder / "handrail.toml").write_text(
            f'[agent]\nmodel = "openai-chat:compare"\nbase_url = "{text.base_url}"\n\n'
            "[server]\nrequests_per_minute = 1000000\n\n"
            f'[voice]\nmodel = "openai-realtime:compare"\nbase_url = "ws://127.0.0.1:{live.sockets[0].getsockname()[1]}/v1"\n'
        )
        command = [sys.executable, "-m", "handrail", "serve", "--port", "0", "--json", "--key", KEY]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment_of(tree)
        )
        assert process.stdout is not None
        try:
            ready = json.loads(await process.stdout.readline())
            served = _Served(ready["url"], int(ready["pid"]), world)
            yield {"text turn over HTTP": served.text_turns, "voice frame": served.voice_frames}
        finally:
            process.terminate()
            await process.wait()


@asynccontextmanager
async def scenarios(tree: Path, folder: Path) -> AsyncIterator[dict[str, Round]]:
    """All scenarios of one tree."""
    async with AsyncExitStack() as stack:
        for part in ("worker", "server"):
            (folder / part).mkdir(parents=True)
        found: dict[str, Round] = {name: partial(_imported, tree, text) for name, text in _IMPORTS.items()}
        found |= await stack.enter_async_context(_worker(tree, folder / "worker"))
        found |= await stack.enter_async_context(_server(tree, folder / "server"))
        yield found


# --------------------------------------------------------------------------------------------------------- the comparison
async def compare(old: Path, new: Path, wanted: Sequence[str], pairs: int) -> dict[str, list[tuple[Spent, Spent]]]:
    """What each scenario took in the old tree and in the new one, pair by pair."""
    with tempfile.TemporaryDirectory() as side:
        folder = Path(side)
        async with scenarios(old, folder / "old") as before, scenarios(new, folder / "new") as after:
            unknown = [name for name in wanted if name not in after]
            if unknown:
                raise SystemExit(f'compare: there is no scenario "{unknown[0]}"; known are {", ".join(after)}.')
            names = [name for name in after if not wanted or name in wanted]
            found: dict[str, list[tuple[Spent, Spent]]] = {name: [] for name in names}
            for number in range(pairs + 1):
                for name in names:
                    if number % 2:
                        then, now = await before[name](), await after[name]()
                    else:
                        now, then = await after[name](), await before[name]()
                    if number:  # the first round warms up
                        found[name].append((then, now))
                print(f"pair {number} of {pairs}", file=sys.stderr, flush=True)
            return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report: the median microseconds in either tree, and the median of their ratios in pairs."""

    scenario: str
    kind: str
    before: float
    now: float
    ratio: float

    @property
    def is_intended(self) -> bool:
        return self.scenario in INTENDED

    @property
    def is_slower(self) -> bool:
        return self.ratio > LIMIT


def rows(found: Mapping[str, Sequence[tuple[Spent, Spent]]]) -> list[Row]:
    """One row of processor time for each scenario, and one of the time on the clock for those that wait."""
    made = []
    for name, pairs in found.items():
        for kind, at in (("processor", 0), ("clock", 1)):
            if kind == "clock" and name not in WAITING:
                continue
            before, now = (median(pair[side][at] for pair in pairs) * 1e6 for side in (0, 1))
            ratio = median(pair[1][at] / pair[0][at] for pair in pairs)
            made.append(Row(scenario=name, kind=kind, before=before, now=now, ratio=ratio))
    return made


def report(found: Sequence[Row], base: str, pairs: int) -> tuple[list[str], int]:
    """The lines of the report, and the exit status: 1 if something is slower than it may be, 2 if too few pairs say so."""
    lines = [f"{'median, µs':36} {base[:12]:>12} {'now':>12} {'ratio':>7}"]
    for row in found:
        note = "" if not row.is_slower else "  slower, as intended" if row.is_intended else "  slower"
        lines.append(f"{f'{row.scenario}, {row.kind}':36} {row.before:12.1f} {row.now:12.1f} {row.ratio:7.2f}{note}")
    if pairs < ENOUGH_PAIRS:
        return [*lines, f"compare: {pairs} pairs are too few for a verdict; take {ENOUGH_PAIRS}."], 2
    return lines, int(any(row.is_slower and not row.is_intended for row in found))


def main(arguments: list[str]) -> int:
    """Compare, print a line for each row; the exit status is that of the report."""
    parser = argparse.ArgumentParser(description="What takes longer than it did at an older commit.")
    parser.add_argument("base", help="the older commit")
    parser.add_argument("scenarios", nargs="*", help="which ones; none: all")
    parser.add_argument("--pairs", type=int, default=ENOUGH_PAIRS, help=f"at least {ENOUGH_PAIRS} for a verdict")
    options = parser.parse_args(arguments)
    found = rows(asyncio.run(compare(export(options.base), ROOT, options.scenarios, options.pairs)))
    lines, status = report(found, options.base, options.pairs)
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
