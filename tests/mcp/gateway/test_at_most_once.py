"""At most once, whatever is cut or killed: a server that notes every start, under deliveries that repeat, race and break.

The control makes the same deliveries to the same server without Handrail, and doubles.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from tests.conftest import RecordFigures
from tests.mcp.gateway.conftest import Scripted, build_project, free, pin
from tests.mcp.gateway.test_http_upstream import HttpServer

from handrail import Runtime
from handrail.mcp.gateway.gateway import Gateway
from handrail.mcp.gateway.upstream import Upstream
from handrail.standard_runtime import SystemClock

POLICY = {"identical_calls": 1_000, "lease_ms": 1_000}
"""The storm repeats more often than a turn may, and does not wait long for a gateway that is dead."""
AT_ONCE = 16


class PipedServer:
    """The server behind the gateway, in a process which the gateway starts."""

    def __init__(self, scripted: Scripted) -> None:
        self.table = free(scripted)
        self.cuts = 0
        self._log = scripted.folder / "effects.log"
        self._read = 0
        self._noted: list[str] = []

    def started(self) -> list[str]:
        """The text of each call, in their order. What was read before is not read again."""
        if self._log.exists():
            with self._log.open("rb") as file:
                file.seek(self._read)
                new, _, _ = file.read().rpartition(b"\n")
            if new:
                self._read += len(new) + 1
                self._noted += [json.loads(line)["args"]["text"] for line in new.splitlines()]
        return self._noted

    def cut(self, server: Upstream) -> None:
        """Kill it in the middle of what it does."""
        if server.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGKILL)
                self.cuts += 1

    def mend(self) -> None:
        """The gateway starts it anew."""


class WebServer:
    """The server behind the gateway, at an address. Where it is cut, its answers end after the effect, in the middle."""

    def __init__(self, http: HttpServer) -> None:
        self.table = {"url": http.url, "call_seconds": 30, "tools": {"note": {"confirm": False}}}
        self.cuts = 0
        self._noted: list[str] = []
        self._cutting = False
        http.call = self._call

    def started(self) -> list[str]:
        return self._noted

    def cut(self, server: Upstream) -> None:
        self._cutting = True

    def mend(self) -> None:
        self._cutting = False

    def _call(self, handler: Any, body: dict[str, Any]) -> bool:
        self._noted.append(body["params"]["arguments"]["text"])
        if not self._cutting or len(self._noted) % 3:
            return False
        self.cuts += 1
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        handler.wfile.write(b'data: {"jsonrpc": "2.0", "id"')
        handler.close_connection = True
        return True


async def gateway_process(project: Path, **facts: Any) -> asyncio.subprocess.Process:
    """A gateway in a process of its own. It prints its session, then each delivery that was answered."""
    words = ["-c", GATEWAY, json.dumps({"project": str(project), **facts})]
    return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)


class Storm:
    """Deliveries of writing calls, each several times under ids of its own.

    Of three rounds one is left alone, in one the server behind the gateway is cut off, and in one the gateway is killed.
    """

    def __init__(self, project: Path, server: PipedServer | WebServer, configs: Any, seed: int) -> None:
        self.project, self.server, self.configs = project, server, configs
        self.registry = build_project(project, configs)
        self.chance = random.Random(seed)
        self.delivered = self.gateways_killed = 0
        self.left_alone: list[str] = []
        """What was sent while nothing was cut."""
        self.outcomes: Counter[str] = Counter()

    def __str__(self) -> str:
        started = Counter(self.server.started())
        return (
            f"{self.delivered} deliveries, {self.server.cuts} cuts, {self.gateways_killed} gateways killed, {len(started)} texts "
            f"started, {doubled(started)} doubled: {dict(self.outcomes)}"
        )

    @asynccontextmanager
    async def runtime(self) -> AsyncIterator[tuple[Runtime, Gateway]]:
        gateway = Gateway(self.configs, environment={}, project=self.project, clock=SystemClock())
        store = f"sqlite:///{self.project / 'storm.db'}"
        served = {"mcp_servers": gateway}
        runtime = Runtime(self.registry, store=store, capabilities=served, audit=self.project / "audit", policy=POLICY)
        try:
            yield runtime, gateway
        finally:
            await runtime.close()
            await gateway.aclose()

    async def deliver(self, session: Any, text: str) -> None:
        self.count((await session.call("box_note", {"text": text}, id_scope="none")).to_dict())

    def count(self, answer: dict[str, Any]) -> None:
        self.delivered += 1
        self.outcomes["ok" if answer["ok"] else answer["error"]["type"]] += 1

    async def round(self, number: int, texts: list[str]) -> None:
        sent = [text for text in texts for _ in range(self.chance.randint(2, 5))]
        if number % 3 == 2:
            await self.round_of_a_killed_gateway(number, texts, sent)
            return
        async with self.runtime() as (runtime, gateway):
            session = await runtime.open_session(user="ana")
            await session.begin_turn(input_id=f"round {number}")
            gate = asyncio.Semaphore(AT_ONCE)

            async def one(text: str) -> None:
                async with gate:
                    await self.deliver(session, text)

            waiting = [asyncio.create_task(one(text)) for text in sent]
            if number % 3 == 1:
                await self.reached(len(self.server.started()) + self.chance.randint(1, len(texts) // 2))
                self.server.cut(gateway.upstream("box"))
            else:
                self.left_alone += texts
            await asyncio.gather(*waiting)
            self.server.mend()
            # The same wishes once more, as a client that heard nothing sends them.
            for text in texts:
                await self.deliver(session, text)

    async def round_of_a_killed_gateway(self, number: int, texts: list[str], sent: list[str]) -> None:
        before = len(self.server.started())
        facts = {"servers": {"box": self.server.table}, "store": "storm.db", "input": f"round {number}", "texts": sent}
        process = await gateway_process(self.project, policy=POLICY, at_once=AT_ONCE, **facts)
        assert process.stdout is not None
        who = json.loads(await process.stdout.readline())
        await self.reached(before + self.chance.randint(1, len(texts) // 2))
        process.kill()
        answers = [json.loads(line) async for line in process.stdout if line.endswith(b"\n")]
        assert await process.wait() == -signal.SIGKILL
        self.gateways_killed += 1
        for _, answer in answers:
            self.count(answer)
        async with self.runtime() as (runtime, _):
            session = await runtime.resume_session(who[0], token=who[1])
            await session.begin_turn(input_id=f"round {number}")
            for text in texts:
                await self.deliver(session, text)

    async def reached(self, starts: int) -> None:
        async with asyncio.timeout(60):
            while len(self.server.started()) < starts:
                await asyncio.sleep(0.002)


def doubled(started: Counter[str]) -> int:
    return sum(count > 1 for count in started.values())


async def storm(project: Path, made: Storm, deliveries: int, *, texts: int) -> None:
    number = 0
    while made.delivered < deliveries:
        await made.round(number, [f"{number}-{at}" for at in range(texts)])
        number += 1


@pytest.fixture(params=["pipes", "http"])
def behind(request: pytest.FixtureRequest, scripted: Scripted) -> Iterator[PipedServer | WebServer]:
    if request.param == "pipes":
        yield PipedServer(scripted)
        return
    with HttpServer().running() as http:
        yield WebServer(http)


async def test_deliveries_that_repeat_and_race_start_the_tool_once_each(
    tmp_path: Path, behind: PipedServer | WebServer, record_figures: RecordFigures
) -> None:
    made = Storm(tmp_path, behind, await pin(tmp_path, {"box": behind.table}), seed=1)
    await storm(tmp_path, made, 300, texts=12)
    record_figures(made)
    started = Counter(behind.started())
    assert {text: count for text, count in started.items() if count > 1} == {}
    assert made.left_alone
    assert all(started[text] == 1 for text in made.left_alone)
    assert made.outcomes["ok"] > 150
    assert behind.cuts > 0
    assert made.gateways_killed > 0
    assert made.outcomes["CONFLICT"] > 0, "what was cut is not told as done"


@pytest.mark.long
async def test_a_hundred_thousand_deliveries_start_no_tool_twice(
    tmp_path: Path, behind: PipedServer | WebServer, record_figures: RecordFigures
) -> None:
    deliveries = 100_000 if isinstance(behind, PipedServer) else 20_000
    made = Storm(tmp_path, behind, await pin(tmp_path, {"box": behind.table}), seed=2)
    await storm(tmp_path, made, deliveries, texts=100)
    record_figures(made)
    started = Counter(behind.started())
    assert {text: count for text, count in started.items() if count > 1} == {}
    assert len(made.left_alone) > deliveries // 20
    assert all(started[text] == 1 for text in made.left_alone)
    assert made.delivered >= deliveries
    assert made.outcomes["ok"] > deliveries // 2
    assert behind.cuts > deliveries // 2_000
    assert made.gateways_killed > deliveries // 2_000


async def test_the_same_storm_without_handrail_doubles(
    tmp_path: Path, scripted: Scripted, record_figures: RecordFigures
) -> None:
    """By a client that speaks to the server itself, which dies in every third round."""
    chance, delivered = random.Random(1), 0

    async def send(texts: list[str]) -> None:
        params = StdioServerParameters(command=scripted.command[0], args=scripted.command[1:])
        with (tmp_path / "errors").open("w") as errors, contextlib.suppress(MCPError, Exception):
            async with Client(stdio_client(params, errors), mode="legacy") as client:
                calls = (client.call_tool("note", {"text": text}) for text in texts)
                await asyncio.gather(*calls, return_exceptions=True)

    for number in range(6):
        texts = [f"{number}-{at}" for at in range(12)]
        sent = [text for text in texts for _ in range(chance.randint(2, 5))]
        scripted.says(call="die after effect" if number % 3 == 1 else None)
        await send(sent)
        scripted.says()
        await send(texts)
        delivered += len(sent) + len(texts)
    started = Counter(PipedServer(scripted).started())
    record_figures(f"control: {delivered} deliveries, {len(started)} texts started, {doubled(started)} doubled")
    assert delivered >= 250
    assert doubled(started) > 30


GATEWAY = """
import asyncio, json, sys
from pathlib import Path
from handrail import Registry, Runtime
from handrail.standard_runtime import SystemClock
from handrail.authoring.mcp.server_config import upstream_configs
from handrail.mcp.gateway.gateway import Gateway
facts = json.loads(sys.argv[1])
project = Path(facts["project"])
async def main():
    registry = Registry.load(project / "tool_registry.json"); registry.lock()
    gateway = Gateway(upstream_configs(facts["servers"]), environment={}, project=project, clock=SystemClock())
    runtime = Runtime(registry, store=f"sqlite:///{project / facts['store']}", capabilities={"mcp_servers": gateway},
        policy=facts["policy"])
    who = facts.get("session")
    session = await (runtime.resume_session(who[0], token=who[1]) if who else runtime.open_session(user="ana"))
    await session.begin_turn(input_id=facts["input"])
    print(json.dumps([session.id, session.token]), flush=True)
    gate = asyncio.Semaphore(facts["at_once"])
    async def deliver(text):
        async with gate:
            answer = await session.call("box_note", {"text": text}, id_scope="none")
        print(json.dumps([text, answer.to_dict()]), flush=True)
    await asyncio.gather(*map(deliver, facts["texts"]))
    await runtime.close(); await gateway.aclose()
asyncio.run(main())
"""


async def test_a_gateway_that_is_killed_makes_none_of_its_calls_again(tmp_path: Path, scripted: Scripted) -> None:
    servers, texts = {"box": free(scripted)}, [f"text {at}" for at in range(6)]
    build_project(tmp_path, await pin(tmp_path, servers))
    scripted.says(call="slow", seconds=0.3)
    facts: dict[str, Any] = {"servers": servers, "store": "killed.db", "input": "one", "texts": texts}
    facts |= {"policy": {"lease_ms": 2_000}, "at_once": len(texts)}
    first = await gateway_process(tmp_path, **facts)
    assert first.stdout is not None
    who = json.loads(await first.stdout.readline())
    while len(scripted.calls()) < 2:  # one is answered, one runs, and others are on their way
        await asyncio.sleep(0.01)
    first.kill()
    await first.wait()
    scripted.says()
    second = await gateway_process(tmp_path, **facts, session=who)
    assert second.stdout is not None
    await second.stdout.readline()
    answers = dict([json.loads(line) async for line in second.stdout])
    await second.wait()
    assert set(answers) == set(texts)
    assert max(Counter(PipedServer(scripted).started()).values()) == 1
    cut = [one["error"] for one in answers.values() if not one["ok"]]
    assert cut, "the one that ran when the gateway was killed"
    assert all(one["type"] == "CONFLICT" and one["partialSideEffects"] for one in cut)
