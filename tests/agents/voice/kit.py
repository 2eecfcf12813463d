"""A spoken conversation for tests: the voice agent on the real SDKs and the local live servers, real tools, the real pipeline.

`Client` is the user's side: a `VoiceListener` that keeps all that it is told, plays sound without taking time for it, and
reports what it has played. `voice(...)` makes everything around it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.clients.live.kit import LIMITS, built, new_model, new_server

from handrail import Runtime, Session
from handrail.agents import AgentPolicy
from handrail.agents.conversation import Conversation
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.host_port import Abilities, Sound, VoicePolicy
from handrail.agents.voice.spoken import Recogniser
from handrail.agents.voice.voice_session import VoiceSession
from handrail.contract.live import LiveLimits, LiveModel
from handrail.events import SessionEvent
from handrail.registry import Registry
from handrail.testing.servers.live import Say, Turn, silence, speech
from handrail.testing.servers.live.script import Step

HANDLER = """
async def execute(args, ctx):
    return await ctx.tool_log.work(ctx, args)
"""
PRICED_HANDLER = """
async def execute(args, ctx):
    return await ctx.tool_log.work(ctx, args)

async def preview(args, ctx):
    return ctx.tool_log.price
"""
END_HANDLER = """
async def execute(args, ctx):
    closing = args.get("closing")
    after = "farewell_spoken" if closing else "current_turn"
    ctx.voice.end_session(after=after, reason="user_requested", closing_message=closing, text_response=args.get("text"))
    return {"ok": True, "data": {}}
"""
HUSH_HANDLER = """
async def execute(args, ctx):
    return {"ok": True, "data": {}, "intents": [{"type": args["what"], "value": args["on"]}]}
"""
BLOCK_HANDLER = """
async def execute(args, ctx):
    intent = {"type": "BLOCK_USER", "until": ctx.now + 3600}
    return {"ok": True, "data": {"farewellMessage": "We stop here."}, "intents": [intent]}
"""


def _parameters(required: Sequence[str] = (), **optional: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": f"The {name}."} for name in [*required, *optional]}
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(required)}


_WRITES = {"category": "action", "sideEffects": "writes", "idempotent": False}
_READS = {"category": "retrieval", "sideEffects": "read_only", "idempotent": True}
_WAIVED = {"waivers": {"action-unconfirmed": "A test tool.", "voice-latency": "A test tool."}}
_NOTE = {"note": {"type": "string", "description": "The note.", "default": "none"}}
_SEATS = {"seats": {"type": "integer", "description": "How many seats."}}
_ON = {"type": "boolean", "description": "On or off."}
TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "book_table": ({**_WRITES, **_WAIVED, "parameters": _parameters(["guest"])}, HANDLER),
    "reserve_table": (
        {
            **_WRITES,
            **_WAIVED,
            "parameters": {
                **_parameters(["guest"]),
                "properties": {**_parameters(["guest"])["properties"], **_NOTE, **_SEATS},
            },
            "clamp": {"voice": {"seats": 8}},
        },
        HANDLER,
    ),
    "keep_table": (
        {**_WRITES, **_WAIVED, "parameters": _parameters(["guest"], note=""), "dedupeFields": ["guest"]},
        HANDLER,
    ),
    "find_table": ({**_READS, "parameters": _parameters(["place"])}, HANDLER),
    "watch_table": ({**_READS, "parameters": _parameters(["place"]), "onInterrupt": "finish"}, HANDLER),
    "slow_table": ({**_READS, "parameters": _parameters(["place"]), "latencyBudgetMs": 1}, HANDLER),
    "buy_table": (
        {
            **_WRITES,
            "requiresConfirmation": True,
            "preview": "Buy the table {guest}",
            "parameters": _parameters(["guest"]),
        },
        HANDLER,
    ),
    "rent_table": (
        {
            **_WRITES,
            "requiresConfirmation": True,
            "preview": "Rent the table {guest}",
            "parameters": _parameters(["guest"]),
        },
        PRICED_HANDLER,
    ),
    "sell_table": (
        {
            **_WRITES,
            "requiresConfirmation": True,
            "confirmation": {"channel": "screen"},
            "preview": "Sell the table {guest}",
            "parameters": _parameters(["guest"]),
        },
        HANDLER,
    ),
    "leave": ({**_WRITES, **_WAIVED, "parameters": _parameters([], closing="", text="")}, END_HANDLER),
    "hush": (
        {
            **_WRITES,
            **_WAIVED,
            "parameters": {
                **_parameters(["what"]),
                "properties": {"what": {"type": "string", "description": "The intent."}, "on": _ON},
                "required": ["what", "on"],
            },
        },
        HUSH_HANDLER,
    ),
    "block": ({**_WRITES, **_WAIVED, "parameters": _parameters()}, BLOCK_HANDLER),
}


@cache
def registry() -> Registry:
    return built(TOOLS)


def obedient(note: str) -> Sequence[Step]:
    """A model that says what the host asks it to say, word for word."""
    _, asked, words = note.partition("word for word and nothing else, and call no tool: ")
    return [Say(words)] if asked else []


class ToolLog:
    """What handlers do: every start and every end is noted, and a test may hold them back."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, dict[str, Any]]] = []
        self.ends: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[str] = []
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.says: str | None = None
        """Progress that a handler tells when it starts."""
        self.price = "It costs 5 euros"
        """What the preview of a table that is rented looks up."""
        self.problem: Exception | None = None
        """What a handler fails with after it started."""
        self._moved = asyncio.Event()

    async def work(self, ctx: Any, args: Mapping[str, Any]) -> Any:
        self.starts.append((ctx.tool.id, dict(args)))
        number = len(self.starts)
        self._moved.set()
        if self.says:
            ctx.progress(self.says)
        try:
            await self.may_finish.wait()
        except asyncio.CancelledError:
            self.cancelled.append(ctx.tool.id)
            self._moved.set()
            raise
        if self.problem is not None:
            raise self.problem
        self.ends.append((ctx.tool.id, dict(args)))
        self._moved.set()
        return {"ok": True, "data": {"receipt": number, "for": "".join(map(str, args.values()))}}

    def of(self, tool: str) -> int:
        return sum(name == tool for name, _ in self.starts)

    async def until(self, holds: Callable[["ToolLog"], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds(self):
                self._moved.clear()
                await self._moved.wait()


def new_runtime(tool_log: ToolLog | None = None, store: str = "memory:") -> Runtime:
    return Runtime(registry(), store=store, capabilities={"tool_log": tool_log or ToolLog()})


class Client:
    """The user's client. With `reports` it says what it has played as soon as it has all of it."""

    def __init__(self, *, reports: bool = True) -> None:
        self.reports = reports
        self.voice: VoiceSession | None = None
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.sounds: list[Sound] = []
        self._moved = asyncio.Event()

    def tell(self, type: str, data: Mapping[str, Any]) -> None:
        json.dumps(data, default=dict)  # what is told is JSON
        self.told.append((type, dict(data)))
        self._moved.set()
        voice = self.voice
        if voice is None or not self.reports:
            return
        if type == "audio_end":
            asyncio.get_running_loop().call_soon(voice.played, data["item"], data["ms"], True)
        elif type == "speak" and voice.abilities.speaks:
            asyncio.get_running_loop().call_soon(voice.spoken, data["id"], True)

    def play(self, sound: Sound) -> None:
        self.sounds.append(sound)
        self._moved.set()

    async def until(self, wanted: "str | Callable[[Client], Any]", count: int = 1, seconds: float = 60.0) -> None:
        """Wait until it was told this (so often), or until this holds."""

        def told(client: Client) -> bool:
            return len(client.of(str(wanted))) >= count

        holds = told if isinstance(wanted, str) else wanted
        try:
            async with asyncio.timeout(seconds):
                while not holds(self):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            raise AssertionError(
                f"It did not come to {wanted}; told was: {[str(one)[:200] for one in self.told[-25:]]}"
            ) from None

    def of(self, type: str) -> list[dict[str, Any]]:
        return [data for name, data in self.told if name == type]

    @property
    def types(self) -> list[str]:
        return [name for name, _ in self.told]

    @property
    def states(self) -> list[str]:
        return [data["state"] for data in self.of("state")]

    @property
    def answers(self) -> list[str]:
        return [data["text"] for data in self.of("turn_done")]

    def heard_of(self, item: int) -> int:
        return sum(len(sound.pcm) for sound in self.sounds if sound.item == item)

    def words(self, who: str) -> list[str]:
        return [data["whole"] for data in self.of("transcript") if data["who"] == who and data["final"]]


@dataclass(slots=True)
class VoiceCase:
    server: Any
    runtime: Runtime
    voice: VoiceSession
    client: Client
    tool_log: ToolLog
    conversation: Conversation
    agent: VoiceAgent
    untaken: list[SessionEvent]
    """What the session told and the conversation left to its host."""

    async def speak(self, milliseconds: int = 120) -> None:
        """Say something and be silent, in frames of 20 ms."""
        rate = self.voice.input_rates[0]
        pcm = speech(milliseconds, rate) + silence(260, rate)
        size = rate // 50 * 2
        for place in range(0, len(pcm), size):
            self.voice.hear(pcm[place : place + size], rate)

    async def start_speaking(self, milliseconds: int = 60) -> None:
        rate = self.voice.input_rates[0]
        self.voice.hear(speech(milliseconds, rate), rate)

    async def stop_speaking(self) -> None:
        rate = self.voice.input_rates[0]
        pcm = silence(260, rate)
        size = rate // 50 * 2
        for place in range(0, len(pcm), size):
            self.voice.hear(pcm[place : place + size], rate)


@asynccontextmanager
async def voice(
    provider: str,
    turns: Sequence[Turn],
    *,
    policy: VoicePolicy | None = None,
    abilities: Abilities | None = None,
    limits: LiveLimits = LIMITS,
    client: Client | None = None,
    prepare: Callable[[Session, Conversation], None] | None = None,
    recogniser: Recogniser | None = None,
    agent_policy: AgentPolicy | None = None,
    runtime: Runtime | None = None,
    **server: Any,
) -> AsyncIterator[VoiceCase]:
    """A voice conversation whose model is the local server's script."""
    async with new_server(provider, turns, **server) as running:
        model = new_model(provider, running, limits=limits)
        try:
            async with on_model(
                model,
                policy=policy,
                abilities=abilities,
                client=client,
                prepare=prepare,
                recogniser=recogniser,
                agent_policy=agent_policy,
                runtime=runtime,
            ) as case:
                case.server = running
                yield case
        finally:
            await model.close()


@asynccontextmanager
async def on_model(
    model: LiveModel,
    *,
    policy: VoicePolicy | None = None,
    abilities: Abilities | None = None,
    client: Client | None = None,
    prepare: Callable[[Session, Conversation], None] | None = None,
    recogniser: Recogniser | None = None,
    store: str = "memory:",
    agent_policy: AgentPolicy | None = None,
    runtime: Runtime | None = None,
) -> AsyncIterator[VoiceCase]:
    tool_log, client, conversation = ToolLog(), client or Client(), Conversation(time_zone="Europe/Berlin")
    untaken: list[SessionEvent] = []
    runtime = runtime or new_runtime(tool_log, store)
    async with runtime:
        session = await runtime.open_session(mode="text", user="ana")
        if prepare is not None:
            prepare(session, conversation)
        agent = VoiceAgent(
            runtime, model, policy=policy or VoicePolicy(), recogniser=recogniser, agent_policy=agent_policy
        )
        spoken = client.voice = await agent.begin(session, conversation, client, abilities=abilities or Abilities())

        async def listen() -> None:
            async for event in session.events_queue.listen():
                if not (client.voice or spoken).take(event):
                    untaken.append(event)

        ears = asyncio.create_task(listen())
        try:
            yield VoiceCase(None, runtime, spoken, client, tool_log, conversation, agent, untaken)
        finally:
            tool_log.may_finish.set()
            await spoken.close()
            ears.cancel()
            await asyncio.gather(ears, return_exceptions=True)
