"""What the tests of the example loops share: the program as a user starts it, at its terminal, and a model that plays a script.

The loops themselves share nothing: each is read, and copied, by itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from handrail.testing.servers import ProviderServer


class Program:
    """The running program, at its terminal."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.printed = ""

    def type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def until(self, text: str) -> None:
        assert self._process.stdout is not None
        async with asyncio.timeout(120):
            while text not in self.printed:
                piece = await self._process.stdout.read(4096)
                assert piece, f"it ended before it printed {text!r}:\n{self.printed}"
                self.printed += piece.decode()


P = TypeVar("P", bound=Program)


def built_copy(project: Path, folder: Path) -> Path:
    """A copy of an example's project, built."""
    copy = folder / "project"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("tests", "handrail.db*", "tool_registry*"))
    subprocess.run([sys.executable, "-m", "handrail", "build", "--strict"], cwd=copy, check=True, timeout=60)
    return copy


@asynccontextmanager
async def started(
    project: Path, file: str, server: ProviderServer, *, kind: type[P] = Program, **environment: str
) -> AsyncIterator[P]:
    """The program, which `server` answers; it ends by itself when its input does, and has asked nothing wrong."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        file,
        "any",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=project,
        env={**os.environ, **server.environment, **environment},
    )
    try:
        yield kind(process)
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert server.problems == []
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
