"""The demo model at the tools that come with Handrail, on their real services, at a fixed time."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from typing import Any

import pytest

import handrail_reference
from handrail import Runtime
from handrail.agents import AgentEvent, Conversation, TextAgent
from handrail.app import find_services
from handrail.picking import pick_tools
from handrail.runtime.session import Session
from handrail.settings import load_settings
from handrail.stores import MemoryStore
from handrail.testing import ToolKit, VirtualClock, open_tools
from handrail_reference.demo import DemoModel

MONDAY = 1794819600.0
"""Monday, 16 November 2026, 10:00 in Zagreb."""
ZONE = "Europe/Zagreb"


class DemoCase:
    """A conversation of one user with the demo model, and what it did in the last turn."""

    def __init__(self, runtime: Runtime, session: Session) -> None:
        self.runtime, self.session = runtime, session
        self.agent = TextAgent(runtime, DemoModel(), picker=pick_tools)
        self.conversation = Conversation(time_zone=ZONE)
        self.events: list[AgentEvent] = []
        self._turns = 0

    async def say(self, *sentences: str) -> str:
        """Say these one after the other; what was answered to the last."""
        for text in sentences:
            self._turns += 1
            turn = self.agent.run(self.session, self.conversation, text, message_id=f"m{self._turns}")
            self.events = [event async for event in turn]
        return str(self.events[-1].data["text"])

    @property
    def calls(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(e.data["toolId"], e.data["args"]) for e in self.events if e.type == "tool_started"]

    @property
    def written(self) -> dict[str, Mapping[str, Any]]:
        """The calls that change something, by tool."""
        looks = ("kb_search", "calendar_get_availability", "extract_contacts", "image_draft_prompt", "send_image")
        return {name: args for name, args in self.calls if name not in looks}

    async def decide(self, answer: str = "approve") -> str:
        """Approve or decline what was asked for in the last turn; what the model says about it."""
        [asked] = [event.data for event in self.events if event.type == "confirmation"]
        [held] = [event.data for event in self.events if event.data.get("held")]
        decide = self.runtime.approve if answer == "approve" else self.runtime.decline
        envelope = (await decide(asked["id"], token=asked["token"])).to_dict()
        told = {"callId": held["callId"], "toolId": asked["tool"], "envelope": envelope, "confirmationId": asked["id"]}
        events = await self.agent.late(self.session, self.conversation, told)
        return str(events[-1].data["text"])


Opens = Callable[..., AbstractAsyncContextManager[DemoCase]]


@pytest.fixture(scope="package")
def reference_tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolKit]:
    """With deadlines that no machine misses, however busy it is: what is tested here is what the model makes of the answers."""
    tools = tmp_path_factory.mktemp("reference") / "tools"
    copytree(Path(handrail_reference.__file__).parent / "tools", tools, ignore=ignore_patterns("__pycache__"))
    for schema in tools.glob("*/schema.json"):
        definition = json.loads(schema.read_text("utf-8"))
        schema.write_text(json.dumps({**definition, "timeoutMs": 600_000}), "utf-8")
    # A search that gives up is tried again a little later, and no virtual clock is ever a little later by itself.
    search = tools / "kb-search" / "handler.py"
    source, limit = search.read_text("utf-8"), '_SECONDS = {"voice": 1.5, "text": 4.0}'
    assert limit in source
    search.write_text(source.replace(limit, '_SECONDS = {"voice": 600.0, "text": 600.0}'), "utf-8")
    with open_tools(tools, reference=("get_tool_guide",)) as kit:
        yield kit


@pytest.fixture(scope="package")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A knowledge base with the pages that it begins with, made once."""
    folder = tmp_path_factory.mktemp("handbook")

    async def made() -> None:
        services = find_services(load_settings(folder, {"HANDRAIL_SERVICES_KB_EMBEDDINGS": "none"}), ("kb",))
        knowledge = (await services.open())["kb"]
        await knowledge.search("handrail", user=None, tenant="")
        await services.close()

    asyncio.run(made())
    return folder / "kb.db"


@pytest.fixture
def open_demo_case(reference_tools: ToolKit, handbook: Path, tmp_path: Path) -> Opens:
    """`async with open_demo_case() as here`: the reference tools, or those of `kit`, at that time."""

    @asynccontextmanager
    async def opened(mode: Any = "text", kit: ToolKit | None = None) -> AsyncIterator[DemoCase]:
        chosen = {"HANDRAIL_SERVICES_KB_EMBEDDINGS": "none", "HANDRAIL_SERVICES_CALENDAR_TIME_ZONE": ZONE}
        services = find_services(load_settings(tmp_path, chosen), ("kb", "calendar", "images") if kit is None else ())
        copy(handbook, tmp_path)
        clock = VirtualClock(MONDAY)
        async with (kit or reference_tools).runtime(
            store=MemoryStore(clock=clock.milliseconds),
            clock=clock,
            capabilities={"marks": [], **await services.open()},
        ) as runtime:
            yield DemoCase(runtime, await runtime.open_session(mode=mode, user="u1"))
        await services.close()

    return opened
