"""Tools written into a temporary folder, over a memory store or one in a file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runtime.kit import Tools, World

from handrail.stores import MemoryStore, SqliteStore


@pytest.fixture
def make_tools(tmp_path: Path) -> Callable[..., World]:
    """`make_tools({name: (fields, handler)})`: a world with these tools; `store="sqlite"` for a store in a file."""

    def make(tools, *, store="memory", clock=None):
        kit = Tools(tmp_path / "project")
        kit.write(tools)
        kept = store
        if store == "memory":
            kept = MemoryStore(clock=clock.milliseconds if clock else None)
        elif store == "sqlite":
            kept = SqliteStore(tmp_path / "store.db", clock=clock.milliseconds if clock else None)
        return World(kit, kit.build(), kept)

    return make
