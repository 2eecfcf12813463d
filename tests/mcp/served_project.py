"""A project served over HTTP in a process of its own, as `handrail serve` does it. `open_to_all` adds the key to what comes
without one, for clients that cannot send any."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEY = "hr_a-key-for-the-tests-of-mcp"
_WRAPPED = """
import sys
from handrail.server.api import guard
plain = guard.Guard.__call__

async def with_key(self, scope, receive, send):
    if scope["type"] == "http" and not any(name == b"authorization" for name, _ in scope["headers"]):
        scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer %(key)s")]}
    await plain(self, scope, receive, send)

guard.Guard.__call__ = with_key
from handrail.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass
class Served:
    url: str
    process: subprocess.Popen[str]
    key: str = KEY

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@contextmanager
def served(project: Path, *, open_to_all: bool = False, **environment: str) -> Iterator[Served]:
    """The project, served on a free port until the end."""
    words = ["serve", "--port", "0", "--json", "--key", KEY, "--model", "demo"]
    how = ["-c", _WRAPPED % {"key": KEY}] if open_to_all else ["-m", "handrail"]
    with (project / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *how, *words],
            cwd=project,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (project / "serve.log").read_text()
        yield Served(json.loads(line)["url"], process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
