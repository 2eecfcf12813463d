"""A small bank for the tests of approvals: tools as an author writes them, a runtime on virtual time, and a book in which
every start of a handler is written. Handlers reach the book as a capability, so nothing in the runtime is replaced."""

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from tests.runtime.kit import AtOnce

from handrail import Registry, Runtime, Session, ToolResponse
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.events import SessionEvent
from handrail.stores import MemoryStore
from handrail.testing import VirtualClock, settle

T = TypeVar("T")
HANDLER = """
async def execute(args, ctx):
    return await ctx.book.started(ctx, args)
"""
TEXT = {"type": "string", "description": "A text."}
NUMBER = {"type": "integer", "description": "A number."}
ANYTHING = {"type": "object", "description": "Whatever is wanted.", "additionalProperties": True}

TOOLS: dict[str, dict[str, Any]] = {
    "transfer_money": {
        "category": "action",
        "sideEffects": "writes",
        "requiresConfirmation": True,
        "preview": "Send {amount} to {to}.",
        "parameters": ({"to": TEXT, "amount": NUMBER, "note": TEXT}, ["to", "amount"]),
    },
    "delete_file": {
        "category": "action",
        "sideEffects": "writes",
        "requiresConfirmation": True,
        "parameters": ({"path": TEXT, "options": ANYTHING}, ["path"]),
    },
    "write_note": {
        "category": "action",
        "sideEffects": "writes",
        "requiresConfirmation": False,
        "waivers": {"action-unconfirmed": "A note harms nobody."},
        "parameters": ({"text": TEXT}, ["text"]),
    },
    "touch_note": {
        "category": "action",
        "sideEffects": "writes",
        "idempotent": True,
        "requiresConfirmation": False,
        "waivers": {"action-unconfirmed": "A note harms nobody."},
        "parameters": ({"text": TEXT}, ["text"]),
    },
    "read_mail": {
        "category": "retrieval",
        "sideEffects": "read_only",
        "idempotent": True,
        "requiresConfirmation": False,
        "parameters": ({"folder": TEXT}, ["folder"]),
    },
}
SENSITIVE = ("transfer_money", "delete_file")


class Book:
    """Every start of a handler: tool, arguments, key. A test may give a tool something else to do."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, Mapping[str, Any], str]] = []
        self.acts: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {}

    async def started(self, ctx: Any, args: Mapping[str, Any]) -> Any:
        self.starts.append((ctx.tool.id, dict(args), ctx.idempotency_key))
        act = self.acts.get(ctx.tool.id)
        if act is None:
            return {"ok": True, "data": {"receipt": len(self.starts)}}
        result = act(ctx, args)
        return await result if asyncio.iscoroutine(result) else result

    def of(self, *tools: str) -> list[tuple[str, Mapping[str, Any], str]]:
        return [start for start in self.starts if start[0] in tools]

    @property
    def sensitive(self) -> int:
        """How often a tool ran that only a person may let run."""
        return len(self.of(*SENSITIVE))


class Ear:
    """Listens to a session as the user's page does."""

    def __init__(self, stream: AsyncIterator[SessionEvent]) -> None:
        self.events: list[SessionEvent] = []
        self._task = asyncio.ensure_future(self._listen(stream))

    async def _listen(self, stream: AsyncIterator[SessionEvent]) -> None:
        async for event in stream:
            self.events.append(event)

    def of(self, type: str) -> list[Mapping[str, Any]]:
        return [event.data for event in self.events if event.type == type]

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


class Held:
    """A call that waits for a person, and what only the person was told."""

    def __init__(self, session: Session, ear: Ear, answer: ToolResponse) -> None:
        self.session = session
        self.ear = ear
        self.answer = answer
        assert answer.error is not None
        request = answer.error.confirmation_request
        assert request is not None
        self.id: str = request["id"]
        self.token: str = [asked["token"] for asked in ear.of("confirmation") if asked["id"] == self.id][-1]


class Bank:
    """A runtime over the bank's tools."""

    def __init__(self, folder: Path, clock: VirtualClock, store: MemoryStore, **options: Any) -> None:
        self.folder = folder
        self.clock = clock
        self.store = store
        self.book = Book()
        self.registry = Registry.load(folder / "tool_registry.json")
        self.runtime = self.another_runtime(**options)
        self._ears: list[Ear] = []

    def another_runtime(self, **options: Any) -> Runtime:
        """A runtime of another process, on the same store."""
        return Runtime(
            self.registry, **{"store": self.store, "clock": self.clock, "capabilities": {"book": self.book}, **options}
        )

    async def open(self, **facts: Any) -> tuple[Session, Ear]:
        session = await self.runtime.open_session(**{"user": "ana", "tenant": "bank", **facts})
        await session.begin_turn("hello")
        return session, self.listen(session.events())

    def listen(self, stream: AsyncIterator[SessionEvent]) -> Ear:
        ear = Ear(stream)
        self._ears.append(ear)
        return ear

    async def hold(
        self, tool: str = "transfer_money", args: Any = None, *, call_id: str | None = "call_1", **facts: Any
    ) -> Held:
        """A session in which one call is held."""
        session, ear = await self.open(**facts)
        return await self.hold_in(session, ear, tool, args, call_id=call_id)

    async def hold_in(
        self, session: Session, ear: Ear, tool: str = "transfer_money", args: Any = None, *, call_id: str | None = None
    ) -> Held:
        await settle()
        answer = await session.call(tool, args or {"to": "bob", "amount": 5}, call_id=call_id)
        assert answer.error is not None
        assert answer.error.type == "CONFIRMATION_REQUIRED", answer
        await settle()
        return Held(session, ear, answer)

    async def close(self) -> None:
        for ear in self._ears:
            await ear.stop()
        await self.runtime.close()


async def meanwhile(clock: VirtualClock, work: Awaitable[T]) -> T:
    """What comes of `work`, with time passing for as long as it waits for something."""
    task = asyncio.ensure_future(work)
    await settle(50)
    for _ in range(2_000):
        if task.done():
            return await task
        await clock.advance(0.05)
        await asyncio.sleep(0.001)
    task.cancel()
    raise AssertionError("It still waits after a hundred seconds of the virtual clock.")


@asynccontextmanager
async def open_bank(folder: Path | None = None, **options: Any) -> AsyncIterator[Bank]:
    asyncio.get_running_loop().set_default_executor(AtOnce())
    clock = VirtualClock()
    bank = Bank(folder or built_once(), clock, MemoryStore(clock=clock.milliseconds), **options)
    await bank.runtime.open()
    try:
        yield bank
    finally:
        await bank.close()


@cache
def built_once() -> Path:
    """The bank's tools as they are, for every test that does not change them."""
    folder = tempfile.mkdtemp(prefix="handrail-bank-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build_tools(Path(folder))


def build_tools(folder: Path, **changes: Mapping[str, Any]) -> Path:
    """The bank's tools, built; `changes` are fields of schema.json by tool."""
    tools = folder / "tools"
    for name, fields in TOOLS.items():
        place = tools / name
        place.mkdir(parents=True, exist_ok=True)
        schema = {**_BASE, "toolId": name, "description": f"Does what {name} says.", **fields, **changes.get(name, {})}
        properties, required = fields["parameters"]
        schema["parameters"] = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
            "required": required,
        }
        (place / "schema.json").write_text(json.dumps(schema), "utf-8")
        (place / "guide.md").write_text(f"# {name}\n\nDoes what {name} says, and tells how it went.\n", "utf-8")
        (place / "handler.py").write_text(HANDLER, "utf-8")
    result = build(BuildPlan(tools=tools, artifact=folder / "tool_registry.json", project=folder))
    assert not result.errors, [str(finding) for finding in result.errors]
    write(result, stamp_for(result, {}))
    return folder


_BASE = {"version": "1.0.0", "idempotent": False, "allowedModes": ["text", "voice"], "latencyBudgetMs": 1000}


def kind(answer: ToolResponse) -> str:
    return "OK" if answer.error is None else str(answer.error.type)


async def the_real_one_still_works(bank: Bank, held: Held) -> None:
    """The forgery has neither run the call nor spoilt it for the person who may approve it."""
    assert bank.book.sensitive == 0
    assert kind(await bank.runtime.approve(held.id, token=held.token)) == "OK"
    assert bank.book.sensitive == 1
