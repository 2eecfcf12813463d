"""The connection that writes is cut at each statement of a request, and after a commit that nobody hears of: each time one
sentence, and asked for again it is done once."""

import asyncio
import struct
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.loopback_proxy import LoopbackProxy
from tests.stores.values import claim, held, session

from handrail.contract.store import ClaimVerdict, HoldState, StoreUnavailable
from handrail.stores.postgres import PostgresStore

_SYNC = b"S\0\0\0\4"


class Cutter(LoopbackProxy):
    """Cuts a connection that begins transactions, before the statement with this number is passed on; or once the server has
    committed, before the client knows."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.statement = 0
        """Counted from now on; 0: none is waited for."""
        self.after_commit = False
        self.cuts = 0
        self._committed = asyncio.Event()
        super().__init__()

    async def connect(self, head):
        return await asyncio.open_unix_connection(str(self._server))

    async def up(self, reader, writer, client):
        begins = False
        (size,) = struct.unpack("!I", start := await reader.readexactly(4))
        writer.write(start + await reader.readexactly(size - 4))
        while True:
            kind = await reader.readexactly(5)
            message = kind + await reader.readexactly(struct.unpack("!I", kind[1:])[0] - 4)
            begins |= b"BEGIN ISOLATION" in message
            if begins and self.statement and kind[:1] in b"EQ":
                self.statement -= 1
                if not self.statement:
                    if self.after_commit:
                        writer.write(message + _SYNC)
                        await self._committed.wait()
                        self._committed.clear()
                    self.cuts += 1
                    raise ConnectionResetError
            writer.write(message)

    async def down(self, reader, writer):
        while data := await reader.read(65_536):
            if self.after_commit and b"COMMIT\0" in data:
                self.after_commit = False
                self._committed.set()
                await asyncio.Event().wait()
            writer.write(data)


class Turn:
    """Begin a turn."""

    async def prepare(self, store, name):
        await store.create_session(session(name))

    async def ask(self, store, name):
        return await store.begin_turn(name, connection=1, input_id="m1")

    async def check(self, store, name, told):
        assert told.turn == 1
        assert (await store.load_session(name)).turn == 1


class Question(Turn):
    """Hold a call."""

    def hold(self, name):
        return held(f"h-{name}", session_id=name, ledger_key=f"k-{name}", expires_at=2**50)

    async def ask(self, store, name):
        return await store.hold(self.hold(name), "token")

    async def check(self, store, name, told):
        (kept,) = await store.holds(name, list(HoldState))
        assert kept == told
        assert kept.state is HoldState.PENDING
        assert await store.shown_with(kept.hold_id, "token") == ""


class Answer(Question):
    """Approve it."""

    async def prepare(self, store, name):
        await super().prepare(store, name)
        await store.hold(self.hold(name), "token")

    async def ask(self, store, name):
        return await store.move_hold(f"h-{name}", HoldState.APPROVED, expected=[HoldState.PENDING])

    async def check(self, store, name, told):
        (kept,) = await store.holds(name, list(HoldState))
        assert (told.state, kept.state) == (HoldState.APPROVED, HoldState.APPROVED)


class GrantedClaim(Answer):
    """Claim the call that was approved."""

    async def prepare(self, store, name):
        await super().prepare(store, name)
        await super().ask(store, name)

    async def ask(self, store, name):
        return await store.claim(claim(f"k-{name}", session_id=name, hold_id=f"h-{name}", claim_id=name))

    async def check(self, store, name, told):
        assert told.verdict is ClaimVerdict.CLAIMED
        (kept,) = await store.holds(name, list(HoldState))
        assert kept.state is HoldState.CONSUMED
        row = await store.ledger_row(f"k-{name}")
        assert (row.fence, row.state.value) == (1, "running")


async def _outcome(store, asked, name):
    """What is told in the end to whoever asks again until it is told something; and what it was refused with before."""
    refusals = []
    async with asyncio.timeout(60):
        while True:
            try:
                return await asked.ask(store, name), refusals
            except StoreUnavailable as error:
                refusals.append(str(error))


@pytest.mark.parametrize(
    "asked", [Turn(), Question(), Answer(), GrantedClaim()], ids=lambda asked: type(asked).__name__
)
async def test_a_request_whose_connection_is_cut_at_any_statement_is_done_once(postgres, asked):
    parts = conninfo_to_dict(postgres.new_database())
    with Cutter(Path(parts["host"]) / ".s.PGSQL.5432") as cutter:
        store = PostgresStore(
            f"postgresql://postgres@127.0.0.1:{cutter.port}/{parts['dbname']}?sslmode=disable&gssencmode=disable"
        )
        await store.open()
        await store.register_owner("o1")

        async def is_cut(name, statement, *, after_commit=False):
            await asked.prepare(store, name)
            before = cutter.cuts
            cutter.statement, cutter.after_commit = statement, after_commit
            told, refusals = await _outcome(store, asked, name)
            cutter.statement, cutter.after_commit = 0, False
            await asked.check(store, name, told)
            assert len(refusals) == cutter.cuts - before
            assert all(said.endswith(".") and "\n" not in said for said in refusals)
            return bool(refusals)

        statements = 0
        while await is_cut(f"s{statements}", statements + 1):
            statements += 1
        assert statements >= 4, "it begins, locks, writes and commits"
        assert await is_cut("unheard", statements, after_commit=True)
        await store.close()
