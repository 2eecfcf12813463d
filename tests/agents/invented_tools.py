"""Registries that nobody foresaw: tools invented for a test, written as an author would, built and run for real."""

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from handrail import Runtime
from handrail.agents import AgentEvent, AgentPolicy, Conversation, TextAgent
from handrail.picking import pick_tools
from handrail.runtime.session import Session
from handrail.stores import MemoryStore
from handrail.testing import ToolKit, VirtualClock, open_tools
from handrail_reference.demo import DemoModel

MONDAY = 1794819600.0
"""Monday, 16 November 2026, 10:00 in Zagreb."""
ZONE = "Europe/Zagreb"
EFFECTS = {"retrieval": "read_only", "action": "writes", "utility": "none"}


@dataclass
class Invented:
    """A tool of a test. `body` is the body of its handler; `marks` in it is a list that outlives the call."""

    name: str
    category: str
    description: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: str = "return {'ok': True, 'data': dict(args)}"
    confirm: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        home = folder / self.name.replace("_", "-")
        home.mkdir()
        schema = {
            "toolId": self.name,
            "version": "1.0.0",
            "description": self.description,
            "category": self.category,
            "sideEffects": EFFECTS[self.category],
            "idempotent": self.category != "action",
            "requiresConfirmation": self.confirm,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 500,
            "capabilities": ["marks"],
            "waivers": {} if self.confirm or self.category != "action" else {"action-unconfirmed": "A test."},
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": dict(self.properties),
                "required": list(self.required),
            },
            **self.fields,
        }
        (home / "schema.json").write_text(json.dumps({k: v for k, v in schema.items() if v != {}}), "utf-8")
        (home / "guide.md").write_text(f"# {self.name}\n\n{self.description}\n", "utf-8")
        source = "import asyncio\nfrom handrail import ToolError\n\n\nasync def execute(args, ctx):\n"
        source += indent(f"marks = ctx.marks\nmarks.append((ctx.tool.id, dict(args)))\n{dedent(self.body)}", "    ")
        (home / "handler.py").write_text(source + "\n", "utf-8")


def text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


class Marks(list[tuple[str, dict[str, Any]]]):
    """What handlers were given, in order; `gate` lets a test hold one back."""

    gate: Any = None


@contextmanager
def built(*tools: Invented, reference: tuple[str, ...] = (), **capabilities: Any) -> Iterator[tuple[ToolKit, Marks]]:
    marks = Marks()
    with tempfile.TemporaryDirectory() as folder:
        for tool in tools:
            tool.write(Path(folder))
        with open_tools(folder, reference=reference, capabilities={"marks": marks, **capabilities}) as kit:
            yield kit, marks


class AgentCase:
    """An agent in a session, and everything that it told."""

    def __init__(self, runtime: Runtime, agent: TextAgent, session: Session, marks: Marks) -> None:
        self.runtime, self.agent, self.session, self.marks = runtime, agent, session, marks
        self.conversation = Conversation(time_zone=ZONE)
        self.events: list[AgentEvent] = []
        self._number = 0

    async def say(self, words: str, message_id: str | None = None) -> str:
        """One turn; the text that was shown."""
        self._number += 1
        self.events = []
        turn = self.agent.run(self.session, self.conversation, words, message_id=message_id or f"m{self._number}")
        async for event in turn:
            self.events.append(event)
        assert self.events[-1].type == "done"
        return str(self.events[-1].data["text"])

    def told(self, type: str) -> list[Mapping[str, Any]]:
        return [event.data for event in self.events if event.type == type]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """What was called in the last turn."""
        return [(data["toolId"], data["args"]) for data in self.told("tool_started")]

    @property
    def done(self) -> Mapping[str, Any]:
        return self.events[-1].data


@asynccontextmanager
async def open_agent(
    *tools: Invented,
    model: Any = None,
    policy: AgentPolicy | None = None,
    kit: tuple[ToolKit, Marks] | None = None,
    mode: Any = "text",
    user: str | None = "u1",
    reference: tuple[str, ...] = (),
    **options: Any,
) -> AsyncIterator[AgentCase]:
    """An agent over these tools, at a fixed time."""
    if kit is None:
        with built(*tools, reference=reference) as made:
            async with open_agent(model=model, policy=policy, kit=made, mode=mode, user=user, **options) as opened:
                yield opened
        return
    clock = VirtualClock(MONDAY)
    async with kit[0].runtime(store=MemoryStore(clock=clock.milliseconds), clock=clock, **options) as runtime:
        agent = TextAgent(runtime, model or DemoModel(), policy=policy, picker=pick_tools)
        session = await runtime.open_session(mode=mode, user=user)
        opened = AgentCase(runtime, agent, session, kit[1])
        yield opened
