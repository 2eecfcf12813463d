"""Every store, open, with one living owner "o1", one session "s1", and a clock that stands still until told."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.stores.values import StillClock, session

from handrail.contract.store import Store
from handrail.stores import MemoryStore, SqliteStore
from handrail.stores.postgres import PostgresStore


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: StillClock) -> Iterator[Store]:
    made: Store
    borrowed = ExitStack()
    if request.param == "memory":
        made = MemoryStore(clock=clock)
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "s.db", clock=clock)
    else:
        url = borrowed.enter_context(request.getfixturevalue("postgres").borrowed())
        made = PostgresStore(url, clock=clock)

    async def prepare() -> None:
        await made.open()
        await made.register_owner("o1")
        await made.create_session(session())

    with borrowed:
        asyncio.run(prepare())
        yield made
        asyncio.run(made.close())
