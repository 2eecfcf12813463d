"""Tools written into a temporary folder, over a memory store, one in a file, or one in PostgreSQL."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.faults.accidents import Flaky, FlakyFile, FlakyPostgres
from tests.runtime.kit import Tools, World

from handrail.stores import MemoryStore, SqliteStore
from handrail.stores.postgres import PostgresStore


@pytest.fixture
def make_tools(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., World]]:
    """`make_tools({name: (fields, handler)})`: a world with these tools; `store="sqlite"` or
    `"postgres"` for a store that others can open; `flaky` for one with accidents."""

    def make(tools, *, store="memory", clock=None, flaky=False):
        kit = Tools(tmp_path / "project")
        kit.write(tools)
        kept, url = store, ""
        if store == "memory":
            kept = (Flaky if flaky else MemoryStore)(clock=clock.milliseconds if clock else None)
        elif store == "sqlite":
            url = f"sqlite:///{tmp_path / 'store.db'}"
            made = FlakyFile if flaky else SqliteStore
            kept = made(tmp_path / "store.db", clock=clock.milliseconds if clock else None)
        elif store == "postgres":
            url = borrowed.enter_context(request.getfixturevalue("postgres").borrowed())
            kept = (FlakyPostgres if flaky else PostgresStore)(url, clock=clock.milliseconds if clock else None)
        return World(kit, kit.build(), kept, url)

    with ExitStack() as borrowed:
        yield make
