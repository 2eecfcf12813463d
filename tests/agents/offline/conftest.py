"""The offline model at the tools that come with Handrail, on their real services, at a fixed time."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.agents.inventions import MONDAY, ZONE, Desk

import handrail_reference
from handrail.agents import TextAgent
from handrail.agents.offline import OfflineModel
from handrail.app import find_services
from handrail.picking import pick_tools
from handrail.settings import load_settings
from handrail.stores import MemoryStore
from handrail.testing import ToolKit, VirtualClock, open_tools
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.writing import Tally, put_records

SERVICES = ("kb", "calendar", "images")
Opens = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture(scope="package")
def reference_tools() -> Iterator[ToolKit]:
    with open_tools(Path(handrail_reference.__file__).parent / "tools", reference=("get_tool_guide",)) as kit:
        yield kit


@pytest.fixture
def at_home(reference_tools: ToolKit, tmp_path: Path) -> Opens:
    """`async with at_home() as here`: a desk with the reference tools and a starter base that finds by keywords, and with
    the records that are given beside it."""

    @asynccontextmanager
    async def at(*records: Mapping[str, Any], user: str | None = "u1") -> AsyncIterator[Desk]:
        chosen = {"HANDRAIL_SERVICES_KB_EMBEDDINGS": "none", "HANDRAIL_SERVICES_CALENDAR_TIME_ZONE": ZONE}
        opened = find_services(load_settings(tmp_path, chosen), SERVICES)
        services = await opened.open()
        if records:
            await services["kb"].warm_up()
            made = [make_record(dict(record)) for record in records]
            services["kb"].database.write_now(lambda db: put_records(db, made, Tally()))
        clock = VirtualClock(MONDAY)
        async with reference_tools.runtime(
            store=MemoryStore(clock=clock.milliseconds),
            clock=clock,
            capabilities=services,
        ) as runtime:
            agent = TextAgent(runtime, OfflineModel(), picker=pick_tools)
            session = await runtime.open_session(mode="text", user=user)
            yield Desk(runtime, agent, session, None)  # type: ignore[arg-type]  # real tools leave no marks
        await opened.close()

    return at
