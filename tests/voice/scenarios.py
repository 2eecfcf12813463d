"""Seven spoken conversations, each played with a local server and recorded, or from its recording in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.agents.voice.kit import Client, ToolLog, registry
from tests.clients.live.kit import LIMITS, new_model, new_server

from handrail import Runtime
from handrail.agents.conversation import Conversation
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import Abilities, VoicePolicy
from handrail.agents.voice.voice_session import VoiceSession
from handrail.contract.live import LiveModel
from handrail.stores.memory import MemoryStore
from handrail.testing.hosting import hosted
from handrail.testing.recording import Line, Recorder, Replayed
from handrail.testing.servers.live import Ask, Depart, Say, Turn, call, silence, speech
from handrail.testing.servers.live.script import Step
from handrail.testing.virtual_time import LoopClock, run_virtually

BOOK = call("book_table", guest="Ana")
FIND = call("find_table", place="window")
BUY = call("buy_table", guest="Ana")
LEAVE = call("leave", closing="Goodbye, and see you soon.", text="Your table: Friday, eight.")
_RANDOM = ("token", "id", "confirmationId", "expires_at", "meta", "latency", "callId", "inputId")


@dataclass(slots=True)
class ScenarioRun:
    """What a scenario acts on. `cut` breaks the provider's line; on a recording that has happened already."""

    voice: VoiceSession
    client: Client
    tool_log: ToolLog
    runtime: Runtime
    cut: Callable[[], None]

    async def speak(self) -> None:
        rate = self.voice.input_rates[0]
        pcm, size = speech(120, rate) + silence(260, rate), rate // 50 * 2
        for place in range(0, len(pcm), size):
            self.voice.hear(pcm[place : place + size], rate)

    async def answered(self, count: int = 1) -> None:
        await self.client.until("turn_done", count)

    def approve(self, asked: dict[str, Any]) -> Awaitable[Any]:
        return self.runtime.approve(asked["id"], token=asked["token"])


@dataclass(frozen=True, slots=True)
class Scenario:
    steps: Sequence[Sequence[Step]]
    act: Callable[[ScenarioRun], Awaitable[None]]

    @property
    def turns(self) -> list[Turn]:
        return [Turn(list(steps), hears=f"Input {number}") for number, steps in enumerate(self.steps)]


@dataclass(frozen=True, slots=True)
class Played:
    """What a conversation came to: what the client was told, what handlers did, what it kept."""

    told: list[tuple[str, Any]]
    effects: list[tuple[str, Any]]
    outcomes: list[tuple[str, bool]]
    answers: list[str]
    ended: str


async def _booking(run: ScenarioRun) -> None:
    await run.speak()
    await run.answered()


async def _barge_in(run: ScenarioRun) -> None:
    run.tool_log.may_finish.clear()
    await run.speak()
    await run.tool_log.until(lambda tool_log: tool_log.of("find_table") == 1)
    await run.speak()
    await run.tool_log.until(lambda tool_log: bool(tool_log.cancelled))
    await run.client.until(lambda client: any("second" in answer for answer in client.answers))


async def _line_lost(run: ScenarioRun) -> None:
    run.tool_log.may_finish.clear()
    await run.speak()
    await run.tool_log.until(lambda tool_log: tool_log.of("book_table") == 1)
    run.cut()
    await run.client.until(lambda client: any(data["number"] == 2 for data in client.of("link")))
    run.tool_log.may_finish.set()
    await run.client.until("tool_finished")
    await run.answered()


async def _reissued(run: ScenarioRun) -> None:
    await run.speak()
    await run.client.until(lambda client: any(data["number"] == 2 for data in client.of("link")))
    await run.client.until("tool_finished", 2)
    await run.answered()


async def _replaced(run: ScenarioRun) -> None:
    await run.speak()
    await run.answered()
    await run.voice.connection.rotate()
    await run.client.until(lambda client: any(data["number"] == 2 for data in client.of("link")))
    await run.speak()
    await run.answered(2)


async def _farewell(run: ScenarioRun) -> None:
    await run.speak()
    await run.client.until("ended")


async def _approved(run: ScenarioRun) -> None:
    await run.speak()
    await run.client.until("confirmation")
    await run.answered()
    await run.approve(run.client.of("confirmation")[0])
    await run.client.until(lambda client: any(data.get("late") for data in client.of("tool_finished")))


SCENARIOS = {
    "booking": Scenario([[Ask(FIND), Ask(BOOK), Say("Your table is booked.")]], _booking),
    "barge_in": Scenario([[Ask(FIND), Say("One is free.")], [Say("This is the second answer.")]], _barge_in),
    "line_lost": Scenario([[Ask(BOOK), Say("Booked after all.")]], _line_lost),
    "reissued": Scenario([[Ask(BOOK, fault="reissue"), Say("Booked once.")]], _reissued),
    "replaced": Scenario([[Ask(BOOK), Depart(30.0), Say("Booked.")], [Say("Still here.")]], _replaced),
    "farewell": Scenario([[Ask(LEAVE), Say("Goodbye, and see you soon.")]], _farewell),
    "approved": Scenario([[Ask(BUY), Say("Please approve it.")]], _approved),
}


@asynccontextmanager
async def _running(model: LiveModel, cut: Callable[[], None]) -> AsyncIterator[tuple[ScenarioRun, Conversation]]:
    clock = LoopClock()
    tool_log, client, conversation = ToolLog(), Client(), Conversation(time_zone="Europe/Berlin")
    store = MemoryStore(clock=clock.milliseconds)
    async with Runtime(registry(), store=store, capabilities={"tool_log": tool_log}, clock=clock) as runtime:
        session = await runtime.open_session(mode="text", user="ana")
        agent = VoiceAgent(runtime, model, policy=VoicePolicy())
        voice = client.voice = await agent.begin(session, conversation, client, abilities=Abilities())
        async with hosted(voice):
            try:
                yield ScenarioRun(voice, client, tool_log, runtime, cut), conversation
            finally:
                tool_log.may_finish.set()


async def _play(model: LiveModel, scenario: Scenario, cut: Callable[[], None]) -> Played:
    async with _running(model, cut) as (run, _):
        await scenario.act(run)
        client = run.client
        return Played(
            told=[(kind, _without_chance(data)) for kind, data in client.told],
            effects=list(run.tool_log.starts),
            outcomes=[(data["toolId"], data["ok"]) for data in client.of("tool_finished")],
            answers=client.answers,
            ended=next((data["reason"] for data in client.of("ended")), ""),
        )


def _without_chance(value: Any) -> Any:
    """What is told without secrets, ids and measured times, which differ each time."""
    if isinstance(value, dict):
        return {key: _without_chance(one) for key, one in value.items() if key not in _RANDOM}
    return [_without_chance(one) for one in value] if isinstance(value, list) else value


def recorded(provider: str, name: str) -> tuple[list[Line], Played]:
    """Play a scenario with the provider's local server, and keep what passed between."""

    async def play() -> tuple[list[Line], Played]:
        scenario = SCENARIOS[name]
        async with new_server(provider, scenario.turns) as server:
            recorder = Recorder(new_model(provider, server, limits=LIMITS))
            played = await _play(recorder, scenario, server.cut_all)
            await recorder.close()
        return recorder.lines, played

    return asyncio.run(play())


def replayed(lines: Sequence[Line], name: str) -> tuple[Played, list[str]]:
    """Play a scenario from its recording in virtual time: what came of it, and what the host did otherwise."""

    async def play() -> tuple[Played, list[str]]:
        model = Replayed(lines)
        return await _play(model, SCENARIOS[name], lambda: None), model.unlike

    return run_virtually(play())
