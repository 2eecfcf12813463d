"""DBOS's durable step, to compare writing calls with: a workflow of one step, one after the other, on the same server.

`make bench` brings DBOS into `build/dbos`, where that is possible; nothing else needs it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[1] / "build" / "dbos"


class DurableSteps:
    """DBOS on an empty database; `is_there` says whether it could be had."""

    def __init__(self, url: str) -> None:
        if _FOLDER.is_dir() and str(_FOLDER) not in sys.path:
            sys.path.append(str(_FOLDER))  # behind everything that is installed
        self.is_there = find_spec("dbos") is not None
        if not self.is_there:
            return
        self._dbos: Any = import_module("dbos")
        self._number = 0
        self._dbos.DBOS(
            config={
                "name": "benchmark",
                "system_database_url": url.replace("postgresql://", "postgresql+psycopg://", 1),
                "run_admin_server": False,
                "log_level": "ERROR",
            }
        )

        @self._dbos.DBOS.step()  # type: ignore[untyped-decorator]
        def step(query: str) -> dict[str, str]:
            return {"echo": query}

        @self._dbos.DBOS.workflow()  # type: ignore[untyped-decorator]
        def workflow(query: str) -> Any:
            return step(query)

        self._workflow: Any = workflow

    async def start(self, warm_up: int) -> None:
        if self.is_there:
            await asyncio.to_thread(self._dbos.DBOS.launch)
            await self.seconds(warm_up)

    async def seconds(self, count: int) -> float:
        """What one workflow of one step takes."""
        return await asyncio.to_thread(self._seconds, count)

    def _seconds(self, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            self._number += 1
            with self._dbos.SetWorkflowID(f"w{self._number}"):
                self._workflow(f"query {self._number}")
        return (time.perf_counter() - started) / count

    def close(self) -> None:
        if self.is_there:
            self._dbos.DBOS.destroy()
