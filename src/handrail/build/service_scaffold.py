"""`handrail new --service`: a service with its factory, its settings in `handrail.toml`, and a test that passes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from handrail.build.scaffold import write_new
from handrail.contract.errors import UsageError

_FILE = "handrail.toml"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

_MODULE = '''\
"""The service "{name}": tools that list it among their capabilities reach it as `ctx.{name}`.

Replace the SQLite file by your own database, pool or client.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class {type}:
    """What tools may do with it: a few methods that speak of your business, not of SQL."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def status_of(self, record_id: str) -> str | None:
        """The status of a record; None if there is no such record."""
        row = await asyncio.to_thread(self._one, "SELECT status FROM record WHERE id = ?", record_id)
        return None if row is None else str(row[0])

    async def check(self) -> str:
        """What `handrail doctor` says about this service; raise an error if it cannot be used."""
        (number,) = await asyncio.to_thread(self._one, "SELECT count(*) FROM record")
        return f"{{number}} records"

    def _one(self, statement: str, *values: str) -> tuple[object, ...] | None:
        row: tuple[object, ...] | None = self._connection.execute(statement, values).fetchone()
        return row


@asynccontextmanager
async def open_{name}(project: Path, path: str = "{name}.db") -> AsyncIterator[{type}]:
    """Opened once when a process starts, closed when it stops. The parameters are the keys of [services.{name}]."""
    connection = sqlite3.connect(project / path, check_same_thread=False)
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS record (id TEXT PRIMARY KEY, status TEXT NOT NULL)")
        connection.execute("INSERT OR IGNORE INTO record VALUES (\'A-1001\', \'shipped\')")
        connection.commit()
        yield {type}(connection)
    finally:
        connection.close()
'''

_TEST = '''\
"""Tests of the service "{name}", opened as a server would open it, on a database of the test\'s own."""

import asyncio
from pathlib import Path

from handrail.testing import open_service

PROJECT = Path(__file__).parent.parent


def test_it_knows_a_record_and_says_when_there_is_none(tmp_path):
    async def ask():
        async with open_service("{name}", project=PROJECT, path=str(tmp_path / "{name}.db")) as {name}:
            assert await {name}.status_of("A-1001") == "shipped"
            assert await {name}.status_of("A-9999") is None

    asyncio.run(ask())
'''

_SETTINGS = """\

[services.{name}]
factory = "services.{name}:open_{name}"
path = "{name}.db"
"""


def new_service(project: Path, name: str) -> list[Path]:
    """Write a service, its test and its settings; the paths of what was written."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f'"{name}" cannot be the name of a service; use small letters, digits and underscores, a letter first.'
        )
    settings, module = project / _FILE, project / "services" / f"{name}.py"
    before = settings.read_text(encoding="utf-8") if settings.is_file() else ""
    _check_absent(before, name)
    if module.exists():
        raise UsageError(f'There is a service "{name}" already, in "{module}".')
    words = {"name": name, "type": "".join(part.capitalize() for part in name.split("_"))}
    content = {module: _MODULE.format(**words), project / "tests" / f"test_{name}_service.py": _TEST.format(**words)}
    written = [path for path, text in content.items() if write_new(path, text)]
    try:
        settings.write_text(before + _SETTINGS.format(**words).removeprefix("" if before else "\n"), encoding="utf-8")
    except OSError as error:
        raise UsageError(f'"{settings}" cannot be written ({error.strerror}).') from None
    return [*written, settings]


def _check_absent(text: str, name: str) -> None:
    document: dict[str, Any] = tomllib.loads(text)  # it was read before, so it is TOML
    if name in document.get("services", {}):
        raise UsageError(f"{_FILE} has a [services.{name}] already.")
    try:
        tomllib.loads(text + _SETTINGS.format(name=name))
    except tomllib.TOMLDecodeError:  # such as `services = {…}` in one line
        raise UsageError(
            f"{_FILE} has a form of [services] to which nothing can be added; write one table for each."
        ) from None
