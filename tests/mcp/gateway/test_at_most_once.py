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
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from tests.mcp.gateway.conftest import Scripted, build_project, free, pin

from handrail import Runtime
from handrail.app import SystemClock
from handrail.mcp.gateway.gateway import Gateway

POLICY = {"text": {"total_calls": 100_000, "retrieval_calls": 100_000}}


def starts(scripted: Scripted) -> Counter[str]:
    return Counter(call["args"]["text"] for call in scripted.calls())


class Storm:
    """Deliveries of writing calls, each several times under ids of its own, through gateways that are killed and begun anew."""

    def __init__(self, project: Path, scripted: Scripted, configs: Any, seed: int) -> None:
        self.project, self.scripted, self.configs = project, scripted, configs
        self.registry = build_project(project, configs)
        self.chance = random.Random(seed)
        self.delivered = self.kills = 0
        self.outcomes: Counter[str] = Counter()

    def runtime(self) -> tuple[Runtime, Gateway]:
        gateway = Gateway(self.configs, environment={}, project=self.project, clock=SystemClock())
        store = f"sqlite:///{self.project / 'storm.db'}"
        made = Runtime(self.registry, store=store, capabilities={"mcp_servers": gateway}, audit=self.project / "audit")
        return made, gateway

    async def deliver(self, session: Any, text: str) -> None:
        self.delivered += 1
        answer = (await session.call("box_note", {"text": text}, id_scope="none")).to_dict()
        self.outcomes["ok" if answer["ok"] else answer["error"]["type"]] += 1

    async def round(self, number: int, texts: int, *, cut: bool) -> None:
        runtime, gateway = self.runtime()
        session = await runtime.open_session(user="ana")
        await session.begin_turn(input_id=f"round {number}")
        try:
            waiting = [
                asyncio.create_task(self.deliver(session, f"{number}-{at}"))
                for at in range(texts)
                for _ in range(self.chance.randint(2, 5))
            ]
            if cut:
                server = gateway.upstream("box")
                seen = len(self.scripted.calls())
                while not all(one.done() for one in waiting) and len(self.scripted.calls()) == seen:
                    await asyncio.sleep(0.002)  # until it is in the middle of them
                if server.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server.pid, signal.SIGKILL)
                        self.kills += 1
            await asyncio.gather(*waiting)
            # The same wishes once more, as a client that heard nothing sends them.
            for at in range(texts):
                await self.deliver(session, f"{number}-{at}")
        finally:
            await runtime.close()
            await gateway.aclose()


async def storm(
    project: Path, scripted: Scripted, deliveries: int, *, texts: int, seed: int, kind: type[Storm] = Storm
) -> Storm:
    configs = await pin(project, {"box": free(scripted)})
    made = kind(project, scripted, configs, seed)
    number = 0
    while made.delivered < deliveries:
        await made.round(number, texts, cut=number % 3 == 1)
        number += 1
    return made


async def test_deliveries_that_repeat_and_race_start_the_tool_once_each(tmp_path: Path, scripted: Scripted) -> None:
    made = await storm(tmp_path, scripted, 300, texts=12, seed=1)
    doubled = {text: count for text, count in starts(scripted).items() if count > 1}
    assert doubled == {}
    assert made.outcomes["ok"] > 50
    assert made.kills > 0
    assert made.outcomes.total() > made.outcomes["ok"], "what was cut is not told as done"
    assert made.delivered >= 300


@pytest.mark.long
async def test_a_hundred_thousand_deliveries_start_no_tool_twice(tmp_path: Path, scripted: Scripted) -> None:
    made = await storm(tmp_path, scripted, 100_000, texts=100, seed=2)
    assert {text: count for text, count in starts(scripted).items() if count > 1} == {}
    assert made.delivered >= 100_000


class Ungoverned(Storm):
    """The same storm, by a client that speaks to the server itself."""

    async def round(self, number: int, texts: int, *, cut: bool) -> None:
        self.scripted.says(call="die after effect" if cut else None)
        sent = [f"{number}-{at}" for at in range(texts) for _ in range(self.chance.randint(2, 5))]
        again = [f"{number}-{at}" for at in range(texts)]
        await self.send(sent)
        self.scripted.says()
        await self.send(again)

    async def send(self, texts: list[str]) -> None:
        params = StdioServerParameters(command=self.scripted.command[0], args=self.scripted.command[1:])
        with (self.project / "errors").open("w") as errors, contextlib.suppress(MCPError, Exception):
            async with Client(stdio_client(params, errors), mode="legacy") as client:
                calls = (client.call_tool("note", {"text": text}) for text in texts)
                await asyncio.gather(*calls, return_exceptions=True)
        self.delivered += len(texts)


async def test_the_same_storm_without_handrail_doubles(tmp_path: Path, scripted: Scripted) -> None:
    made = await storm(tmp_path, scripted, 300, texts=12, seed=1, kind=Ungoverned)
    doubled = [text for text, count in starts(scripted).items() if count > 1]
    assert made.delivered >= 300
    assert len(doubled) > 30


GATEWAY = """
import asyncio, os, sys
from pathlib import Path
from handrail import Registry, Runtime
from handrail.app import SystemClock
from handrail.authoring.mcp.server_config import upstream_configs
from handrail.mcp.gateway.gateway import Gateway
import json
project, servers, session_id, token = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
async def main():
    registry = Registry.load(project / "tool_registry.json"); registry.lock()
    gateway = Gateway(upstream_configs(servers), environment={}, project=project, clock=SystemClock())
    runtime = Runtime(registry, store=f"sqlite:///{project / 'killed.db'}", capabilities={"mcp_servers": gateway},
        policy={"lease_ms": 2_000})
    session = await (runtime.open_session(user="ana") if not session_id else runtime.resume_session(session_id, token=token))
    await session.begin_turn(input_id="one")
    print(json.dumps([session.id, session.token]), flush=True)
    texts = sys.argv[5:]
    answers = await asyncio.gather(*(session.call("box_note", {"text": text}, id_scope="none") for text in texts))
    print(json.dumps({text: answer.to_dict() for text, answer in zip(texts, answers)}), flush=True)
    await runtime.close(); await gateway.aclose()
asyncio.run(main())
"""


async def test_a_gateway_that_is_killed_makes_none_of_its_calls_again(tmp_path: Path, scripted: Scripted) -> None:
    servers, texts = {"box": free(scripted)}, [f"text {at}" for at in range(6)]
    build_project(tmp_path, await pin(tmp_path, servers))
    scripted.says(call="slow", seconds=0.3)

    async def gateway(*who: str) -> asyncio.subprocess.Process:
        words = ["-c", GATEWAY, str(tmp_path), json.dumps(servers), *(who or ("", "")), *texts]
        return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)

    first = await gateway()
    assert first.stdout is not None
    who = json.loads(await first.stdout.readline())
    while len(scripted.calls()) < 2:  # one is answered, one runs, and others are on their way
        await asyncio.sleep(0.01)
    first.kill()
    await first.wait()
    scripted.says()
    second = await gateway(*who)
    assert second.stdout is not None
    await second.stdout.readline()
    answers = json.loads(await second.stdout.readline())
    await second.wait()
    assert set(answers) == set(texts)
    assert max(starts(scripted).values()) == 1
    cut = [one["error"] for one in answers.values() if not one["ok"]]
    assert cut, "the one that ran when the gateway was killed"
    assert all(one["type"] == "CONFLICT" and one["partialSideEffects"] for one in cut)
