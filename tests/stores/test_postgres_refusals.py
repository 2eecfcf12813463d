"""A server that refuses: each time one sentence, writes say that the store is away, and what can be read is read."""

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.loopback_proxy import LoopbackProxy, Pooler
from tests.postgres_server import NOBODY, PostgresServer, postgres_server, standby_of
from tests.stores.test_postgres import machines
from tests.stores.values import claim, done, session

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import ClaimVerdict, LedgerState, StoreUnavailable
from handrail.stores.postgres import PostgresStore


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


def _sentence(caught) -> str:
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


async def _refusal(url: str, kind: type[HandrailError]) -> str:
    """What a store says that cannot be opened."""
    with pytest.raises(kind) as caught:
        await _open(url)
    return _sentence(caught)


async def _open(url: str) -> None:
    store = PostgresStore(url, limit_seconds=5)
    try:
        await store.open()
        await store.register_owner("o1")
    finally:
        await store.close()


async def test_a_wrong_password_is_said_without_it(url):
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE ROLE locked LOGIN PASSWORD 'right'")
        rules = Path(db.execute("SHOW hba_file").fetchone()[0])
        before = rules.read_text()
        rules.write_text(f"local all locked scram-sha-256\n{before}")
        db.execute("SELECT pg_reload_conf()")
        try:
            said = await _refusal(url.replace("postgres@", "locked:falsch@", 1), StoreUnavailable)
            missing = await _refusal(url.replace("postgres@", "locked@", 1), StoreUnavailable)
        finally:
            rules.write_text(before)
            db.execute("SELECT pg_reload_conf()")
            db.execute("DROP ROLE locked")
    assert said.endswith("does not take this password.")
    assert "falsch" not in said
    assert "asks for a password; put it into PGPASSWORD" in missing


class Older(LoopbackProxy):
    """The server says that it is of an older version."""

    def __init__(self, place: str) -> None:
        self._place = place
        super().__init__()

    async def connect(self, head):
        return await asyncio.open_unix_connection(self._place)

    async def down(self, reader, writer):
        while data := await reader.read(65_536):
            writer.write(re.sub(rb"(?<=server_version\x00)\d\d", b"13", data))


async def test_a_server_that_is_too_old_is_refused(url):
    place = f"{conninfo_to_dict(url)['host']}/.s.PGSQL.5432"
    name = conninfo_to_dict(url)["dbname"]
    with closing(Older(place)) as older:
        said = await _refusal(f"postgresql://postgres@127.0.0.1:{older.port}/{name}?sslmode=disable", UsageError)
    assert "is on PostgreSQL 13; 14 or newer is needed" in said


@pytest.mark.parametrize("refuses", ["", "statement_timeout"], ids=["takes our settings", "refuses our settings"])
async def test_a_pooler_is_refused_and_it_is_said_what_to_do(url, refuses):
    parts = conninfo_to_dict(url)
    with Pooler(Path(parts["host"]) / ".s.PGSQL.5432", refuses) as pooler:
        pooled = f"postgresql://postgres@127.0.0.1:{pooler.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        said = await _refusal(pooled, UsageError)
    assert "is reached through a connection pooler such as PgBouncer, which in transaction mode loses" in said
    assert said.endswith("; name the PostgreSQL server itself in its URL.")


class Name(LoopbackProxy):
    """A name of a machine, which leads to one server, and later to another."""

    def __init__(self, server: PostgresServer) -> None:
        self.leads_to = server
        super().__init__()

    async def connect(self, head):
        return await asyncio.open_unix_connection(str(self.leads_to.folder / ".s.PGSQL.5432"))


async def _refusal_of(request) -> str:
    """What a store says in the end that has lost its connections and made new ones."""
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            await request()
    return _sentence(caught)


async def test_a_standby_is_refused_and_left_once_the_name_leads_to_the_primary_again():
    with postgres_server("wal_level=replica") as primary:
        url = primary.new_database()
        with standby_of(primary) as standby, Name(primary) as name:
            database = conninfo_to_dict(url)["dbname"]
            said = await _refusal(standby.url(database), StoreUnavailable)
            assert "may only be read; it is a standby" in said
            named = f"postgresql://postgres@127.0.0.1:{name.port}/{database}?sslmode=disable&gssencmode=disable"
            async with machines(named, "o1") as (store,):
                name.leads_to = standby
                name.cut()
                assert "may only be read; it is a standby" in await _refusal_of(lambda: store.claim(claim("k1")))
                assert "may be behind what was answered" in await _refusal_of(lambda: store.ledger_row("k1"))
                name.leads_to = primary  # and nobody cuts the connections to the standby
                assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED
                assert await store.ledger_row("k1") is not None


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 32 megabytes, for the server."""
    if os.geteuid() != 0:
        pytest.skip("Only root can mount a small file system, which this test has to fill.")
    folder = Path(tempfile.mkdtemp(prefix="hr-disk-"))
    options = f"size=32m,mode=0700,uid={NOBODY},gid={NOBODY}"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        folder.rmdir()
        pytest.skip(f"This root may not mount a small file system, which this test has to fill: {done.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


async def _open_sessions(store: PostgresStore, count: int) -> None:
    for number in range(count):
        await store.create_session(session(f"s-{number}", attributes={"filling": os.urandom(5_000).hex()}))


async def test_a_full_disk_stops_writes_and_nothing_that_is_read(small_disk):
    with postgres_server() as server:
        with psycopg.connect(server.url("postgres"), autocommit=True) as db:
            db.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
            db.execute("CREATE DATABASE filled TEMPLATE with_tables TABLESPACE small")
        async with machines(server.url("filled"), "o1") as (store,):
            assert (await store.claim(claim("k1"))).verdict is ClaimVerdict.CLAIMED
            ballast = small_disk / "ballast"
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4_096))
            with pytest.raises(StoreUnavailable, match="its disk is full; make room") as caught:
                await _open_sessions(store, 1_000)  # there is room in pages that the tables have already
            _sentence(caught)
            assert await store.ledger_row("k1") is not None
            ballast.unlink()
            assert (await store.finish(done("k1"))).state is LedgerState.SUCCEEDED
            assert (await store.claim(claim("k2", args_digest="d2"))).verdict is ClaimVerdict.CLAIMED
        with psycopg.connect(server.url("postgres"), autocommit=True) as db:
            db.execute("DROP DATABASE filled WITH (FORCE)")


async def test_a_claim_or_an_outcome_that_finds_the_disk_full_is_refused_alone(url):
    """Simulated: a real disk leaves room for some rows, and nobody can say whose write is the first that finds it full."""
    async with machines(url, "o1") as (store,):
        first = await store.claim(claim("k1"))
        assert first.verdict is ClaimVerdict.CLAIMED
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(
                """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$"""
            )
            db.execute(
                "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON ledger FOR EACH ROW EXECUTE FUNCTION full_disk()"
            )
        for request in (store.claim(claim("k2")), store.finish(done("k1"))):
            with pytest.raises(StoreUnavailable, match="its disk is full; make room") as caught:
                await request
            _sentence(caught)
        row = await store.ledger_row("k1")
        assert row is not None
        assert await store.ledger_row("k2") is None
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("DROP TRIGGER full_disk ON ledger")
        assert (await store.claim(claim("k2"))).verdict is ClaimVerdict.CLAIMED
