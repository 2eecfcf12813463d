"""The offline model at the tools that come with Handrail, on their real services, at a fixed time."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.inventions import MONDAY, ZONE, Desk

import handrail
from handrail.agents import TextAgent
from handrail.agents.offline import OfflineModel
from handrail.app import open_capabilities
from handrail.picking import pick_tools
from handrail.services.kb.record import make_record
from handrail.services.kb.writing import Tally, put_records
from handrail.settings import load_settings
from handrail.stores import MemoryStore
from handrail.testing import ToolKit, VirtualClock, open_tools

SERVICES = ("kb", "calendar", "images")
Opens = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture(scope="package")
def reference_tools() -> Iterator[ToolKit]:
    with open_tools(Path(handrail.__file__).parent / "tools") as kit:
        yield kit


@pytest.fixture
def at_home(reference_tools: ToolKit, tmp_path: Path) -> Opens:
    """`async with at_home() as here`: a desk with the reference tools and a starter base that finds by keywords, and with
    the records that are given beside it."""

    @asynccontextmanager
    async def opened(*records: Mapping[str, Any], user: str | None = "u1") -> AsyncIterator[Desk]:
        settings = replace(load_settings(tmp_path, {}), kb_embeddings="none", calendar_time_zone=ZONE)
        services = open_capabilities(settings, SERVICES)
        if records:
            await services["kb"].open()
            made = [make_record(dict(record)) for record in records]
            services["kb"].database.write_now(lambda db: put_records(db, made, Tally()))
        clock = VirtualClock(MONDAY)
        async with reference_tools.runtime(
            store=MemoryStore(clock=clock.milliseconds),
            clock=clock,
            capabilities=services,
            owned=[service for service in services.values() if hasattr(service, "close")],
        ) as runtime:
            agent = TextAgent(runtime, OfflineModel(), picker=pick_tools)
            session = await runtime.open_session(mode="text", user=user)
            yield Desk(runtime, agent, session, None)  # type: ignore[arg-type]  # real tools leave no marks

    return opened
