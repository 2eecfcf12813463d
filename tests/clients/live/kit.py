"""A voice conversation for tests: real tools through the real pipeline, the real SDKs, and the local servers.

`Host` is the least that an agent does: it runs the calls that the model makes in a governed session, answers them, and
resumes the session when the provider's connection was replaced.
"""

import asyncio
import atexit
import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from handrail import Runtime, Session
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsCancelled,
    CallsMade,
    Closed,
    Connected,
    Interrupted,
    LiveConfig,
    LiveConnection,
    LiveEvent,
    LiveLimits,
    LiveModel,
    OutputTranscript,
    TurnEnded,
    UserSpeechEnded,
)
from handrail.registry import Registry
from handrail.testing.servers.live import GeminiLiveServer, OpenAIRealtimeServer, Turn, silence, speech
from handrail.testing.servers.live.server import LiveServer

PROVIDERS = ("gemini-live", "openai-realtime")
RECENT_GEMINI = "gemini-live:gemini-3.1-flash-live-preview"
"""A provider with the name of its model: of a generation that takes content only before the conversation."""
LIMITS = LiveLimits(connect_seconds=30, send_seconds=30, reply_seconds=30, attempts=4, first_delay=0.02, max_delay=0.05)
IMPATIENT = replace(LIMITS, reply_seconds=0.6, attempts=50)
"""For providers that stall. On a busy machine a good one may look like one, so there are many attempts."""
HANDLER = """
async def execute(args, ctx):
    return await ctx.book.started(ctx, args)
"""


def _parameters(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": f"The {name}."} for name in names}
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(names)}


TOOLS: dict[str, dict[str, Any]] = {
    "book_table": {
        "category": "action",
        "sideEffects": "writes",
        "idempotent": False,
        "waivers": {"action-unconfirmed": "A test tool.", "voice-latency": "A test tool."},
        "parameters": _parameters("guest"),
    },
    "find_table": {
        "category": "retrieval",
        "sideEffects": "read_only",
        "idempotent": True,
        "parameters": _parameters("place"),
    },
}


@cache
def registry() -> Registry:
    return built({name: (fields, HANDLER) for name, fields in TOOLS.items()})


def built(tools: Mapping[str, tuple[Mapping[str, Any], str]]) -> Registry:
    """The registry of these tools (fields of the schema, handler), in a folder that goes away with the process."""
    from handrail.build.compiler import BuildPlan, build
    from handrail.build.writer import stamp_for, write

    root = Path(mkdtemp(prefix="handrail-live-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name, (fields, handler) in tools.items():
        folder = root / "tools" / name.replace("_", "-")
        folder.mkdir(parents=True)
        schema = {
            "toolId": name,
            "version": "1.0.0",
            "description": f"Does what {name} says.",
            "requiresConfirmation": False,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 500,
            **fields,
        }
        (folder / "schema.json").write_text(json.dumps(schema), "utf-8")
        (folder / "guide.md").write_text(f"# {name}\n\nDoes what {name} says.\n", "utf-8")
        (folder / "handler.py").write_text(handler, "utf-8")
    result = build(BuildPlan(tools=root / "tools", artifact=root / "tool_registry.json", project=root))
    assert not result.errors, [str(finding) for finding in result.errors]
    write(result, stamp_for(result, {}))
    made = Registry.load(root / "tool_registry.json")
    made.lock()
    return made


class Book:
    """Every start of a handler; a test may hold handlers back."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, dict[str, Any]]] = []
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self.started_one = asyncio.Event()

    async def started(self, ctx: Any, args: Any) -> Any:
        self.starts.append((ctx.tool.id, dict(args)))
        self.started_one.set()
        await self.may_finish.wait()
        return {"ok": True, "data": {"receipt": len(self.starts), "for": "".join(map(str, args.values()))}}

    def of(self, tool: str) -> int:
        return sum(name == tool for name, _ in self.starts)


class Host:
    """Runs one conversation and keeps what happened."""

    def __init__(self, runtime: Runtime, session: Session, connection: LiveConnection, rate: int) -> None:
        self.runtime = runtime
        self.session = session
        self.connection = connection
        self.rate = rate
        self.events: list[LiveEvent] = []
        self._moved = asyncio.Condition()
        self._work: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self.connection.events():
            match event:
                case Connected(number, _, restored) if number > 1:
                    self.session = await self.runtime.resume_session(
                        self.session.id, token=self.session.token, restored_calls=restored
                    )
                case UserSpeechEnded():
                    await self.session.begin_turn()
                case CallsMade(calls):
                    self._start(self._answer(self.session, calls))
                case CallsCancelled() | Interrupted():
                    await self.session.interrupt()
                case _:
                    pass
            async with self._moved:
                self.events.append(event)
                self._moved.notify_all()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _answer(self, session: Session, calls: Any) -> None:
        envelopes = await session.call_many(list(calls))
        answers = [Answer(call, envelope.to_dict()) for call, envelope in zip(calls, envelopes, strict=True)]
        await self.connection.send_envelopes(answers)

    async def speak(self, milliseconds: int = 120) -> None:
        """Say something and be silent, in frames of 20 ms."""
        pcm = speech(milliseconds, self.rate) + silence(260, self.rate)
        size = self.rate // 50 * 2
        for place in range(0, len(pcm), size):
            self.connection.send_audio(pcm[place : place + size], self.rate)

    async def until(self, wanted: Any, seconds: float = 60.0) -> None:
        """Wait until what has happened is what is wanted: a function of this host, or a kind of event."""
        holds = wanted if not isinstance(wanted, type) else (lambda host: bool(host.of(wanted)))
        async with asyncio.timeout(seconds), self._moved:
            await self._moved.wait_for(lambda: holds(self))

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def spoken(self) -> str:
        return " ".join(event.text for event in self.of(OutputTranscript) if event.text)

    @property
    def answered(self) -> list[TurnEnded]:
        return [event for event in self.of(TurnEnded) if event.reason == "done"]

    async def close(self) -> None:
        await self.connection.close()
        async with asyncio.timeout(60):
            await self._task
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        assert isinstance(self.events[-1], Closed)


def heard_audio(host: Host) -> int:
    return sum(len(event.pcm) for event in host.of(AudioOut))


def new_server(provider: str, turns: Sequence[Turn], **options: Any) -> LiveServer:
    if provider.startswith("gemini-live"):
        return GeminiLiveServer(turns, **options)
    return OpenAIRealtimeServer(turns, **options)


def new_model(provider: str, server: LiveServer, **options: Any) -> LiveModel:
    from handrail.clients.live import open_live_model

    if isinstance(server, GeminiLiveServer):
        options = {"tls": server.tls, **options}
    key = options.pop("api_key", server.api_key)
    environment = {"GEMINI_API_KEY": key, "OPENAI_API_KEY": key}
    facts = {"limits": LIMITS, **options}
    spec = provider if ":" in provider else f"{provider}:a-model"
    return open_live_model(spec, environment=environment, base_url=server.base_url, **facts)  # type: ignore[attr-defined]


class LiveCase:
    def __init__(self, server: Any, host: Host, book: Book, model: LiveModel) -> None:
        self.server = server
        self.host = host
        self.book = book
        self.model = model


@asynccontextmanager
async def conversation(
    provider: str,
    turns: Sequence[Turn],
    *,
    limits: LiveLimits = LIMITS,
    config: dict[str, Any] | None = None,
    **server: Any,
) -> AsyncIterator[LiveCase]:
    """A governed voice session whose model is the local server's script."""
    book = Book()
    runtime = Runtime(registry(), store="memory:", capabilities={"book": book})
    async with new_server(provider, turns, **server) as running, runtime:
        model = new_model(provider, running, limits=limits)
        session = await runtime.open_session(mode="voice", user="ana")
        tools = session.snapshot.provider_schemas(provider.partition(":")[0], "voice")
        connection = await model.connect(LiveConfig(system="Be brief.", tools=tools, **(config or {})))
        host = Host(runtime, session, connection, model.input_rates[0])
        try:
            yield LiveCase(running, host, book, model)
        finally:
            await host.close()
            await model.close()
