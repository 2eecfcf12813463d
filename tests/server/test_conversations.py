"""Conversations on disk: what is written is found again, a request that fails undoes nothing else, and old ones make room."""

import asyncio
import sqlite3
import stat

import pytest

from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.server.host.conversation_store import MAX_TURNS, ConversationStore, StoredConversation, StoredTurn


def stored(name: str, user: str | None = "ana", **more) -> StoredConversation:
    return StoredConversation(session_id=name, tenant="", user=user, passing=False, document=more or {"messages": []})


class Opened:
    def __init__(self, path=None, clock=None) -> None:
        self.kept = ConversationStore(path, **({"clock": clock} if clock else {}))

    async def __aenter__(self) -> ConversationStore:
        await self.kept.open()
        return self.kept

    async def __aexit__(self, *error: object) -> None:
        await self.kept.close()


async def test_what_was_said_is_there_after_a_restart(tmp_path):
    path = tmp_path / "conversations.db"
    async with Opened(path) as kept:
        await kept.create(stored("s1"))
        turn = StoredTurn(message_id="m1", text="hi", position=1)
        await kept.begin("s1", turn)
        turn.state, turn.number, turn.answer, turn.last_event = "done", 1, {"text": "hello"}, 10_000_007
        await kept.finish("s1", turn, {"messages": [1]})
        await kept.begin("s1", StoredTurn(message_id="m2", text="more", position=2))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with Opened(path) as kept:
        found = await kept.load("s1")
        assert found.document == {"messages": [1]}
        assert found.turns == [turn, StoredTurn(message_id="m2", text="more", position=2)]
        assert await kept.load("s2") is None


async def test_many_at_once_are_all_stored_and_one_that_fails_takes_no_other_with_it():
    async with Opened() as kept:
        await kept.create(stored("s0"))
        wishes = [kept.create(stored(f"s{number % 20}")) for number in range(40)]
        outcomes = await asyncio.gather(*wishes, return_exceptions=True)
        assert sum(isinstance(one, StoreUnavailable) for one in outcomes) == 21
        assert all([await kept.load(f"s{number}") for number in range(20)])


async def test_of_a_forgotten_session_nothing_is_kept():
    async with Opened() as kept:
        await kept.create(stored("s1"))
        turn = StoredTurn(message_id="m1", text="hi", position=1)
        await kept.begin("s1", turn)
        assert await kept.delete("s1") is True
        assert await kept.delete("s1") is False
        await kept.finish("s1", turn, {"messages": ["secret"]})
        assert await kept.load("s1") is None


async def test_a_users_conversations_go_with_the_images_that_only_they_mention():
    mine, both = "img_" + "a" * 32, "img_" + "b" * 32
    async with Opened() as kept:
        await kept.create(stored("s1", text=f"{mine} {both}"))
        await kept.create(stored("s2", "bob", text=both))
        await kept.create(stored("s3", None))
        assert await kept.forget("", "ana") == (1, {mine})
        assert await kept.forget("", "ana") == (0, set())
        assert await kept.load("s2") is not None
        assert await kept.load("s3") is not None


async def test_what_was_deleted_is_not_left_in_the_file(tmp_path):
    path = tmp_path / "conversations.db"
    async with Opened(path) as kept:
        await kept.create(stored("s1", text="a very private sentence"))
        await kept.forget("", "ana")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert b"very private" not in path.read_bytes()


async def test_conversations_that_nobody_went_on_with_are_deleted():
    now = [1_000.0]
    async with Opened(clock=lambda: now[0]) as kept:
        for number in range(5):
            now[0] += 10
            await kept.create(stored(f"s{number}"))
        assert await kept.prune(unused_for=25) == ["s0", "s1"]
        assert await kept.prune(unused_for=1_000) == []
        assert await kept.load("s2") is not None


async def test_of_a_long_session_the_newest_turns_are_kept():
    async with Opened() as kept:
        await kept.create(stored("s1"))
        for number in range(1, MAX_TURNS + 6):
            await kept.begin("s1", StoredTurn(message_id=f"m{number}", text="", position=number))
        found = await kept.load("s1")
        assert len(found.turns) == MAX_TURNS
        assert found.turns[0].message_id == "m6"


async def test_a_file_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="another program"):
        await ConversationStore(path).open()
    assert path.read_bytes() == before


async def test_a_file_that_cannot_be_had_is_told(tmp_path):
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be looked at" * 20)
    for path in (tmp_path / "nowhere" / "c.db", tmp_path, tmp_path / "text.db"):
        with pytest.raises(StoreUnavailable, match="conversations"):
            await ConversationStore(path).open()
    with pytest.raises(StoreUnavailable):
        await ConversationStore(None).load("s1")
