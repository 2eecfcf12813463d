"""The list of conversations: what a key finds again, with the secret to continue, and what it is never told."""

import asyncio
import sqlite3
from contextlib import closing

from tests.server.kit import KEYS, OPERATOR, OTHER, USER, ServerUnderTest, in_process

from handrail.server.key_ring import Key, hash_of


async def listed(server: ServerUnderTest, key: str = USER) -> list[dict]:
    return (await server.get("/api/sessions", key)).json()["sessions"]


async def said(conversation, text: str) -> None:
    """The turn is stored, too: its stream ends a little before that."""
    await conversation.say(text)
    async with asyncio.timeout(30):
        while any(one["answering"] for one in await listed(conversation.server)):
            await asyncio.sleep(0.01)


async def test_conversations_are_listed_by_their_first_words_the_newest_first(tmp_path):
    async with in_process(tmp_path) as server:
        first, second, _ = await server.open(), await server.open(), await server.open()
        await said(first, "good  morning,\nhow are you?")
        await said(second, "and now something else")
        assert [one["title"] for one in await listed(server)] == [
            "and now something else",
            "good morning, how are you?",
        ]
        await said(first, "once more")
        newest, older = await listed(server)
        assert [newest["sessionId"], older["sessionId"]] == [first.id, second.id]
        assert newest["createdAt"] <= newest["updatedAt"]
        assert older["updatedAt"] <= newest["updatedAt"]
        assert not newest["answering"]


async def test_what_is_listed_can_be_gone_on_with(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say("good morning")
        (one,) = await listed(server)
        assert one["token"] == ana.opened["token"]
        found = await server.get(f"/api/sessions/{ana.id}", USER, headers={"X-Session-Token": one["token"]})
        assert found.json()["messages"][0]["text"] == "good morning"


async def test_a_request_that_waits_is_counted(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say('call pay {"q": "5"}')
        (one,) = await listed(server)
        assert one["waiting"] == 1


async def test_no_other_key_is_told_of_a_conversation(tmp_path):
    async with in_process(tmp_path) as server:
        ana, for_bob = await server.open(), await server.open(OPERATOR, user="bob")
        await ana.say("good morning")
        await for_bob.say("good evening")
        assert await listed(server, OTHER) == []
        assert await listed(server, OPERATOR) == [], "what it opened for others is theirs"
        assert (await server.get("/api/sessions", None)).status_code == 401


async def test_a_key_without_a_user_is_told_of_no_conversation(tmp_path):
    """Visitors who share it do not know each other."""
    shared = "hr_shared_key_for_tests_0000001"
    key = Key(name="site", hash=hash_of(shared), role="user", user=None)
    async with in_process(tmp_path, keys=[*KEYS, key]) as server:
        visitor = await server.open(shared)
        await visitor.say("good morning")
        assert await listed(server, shared) == []


async def test_an_ended_conversation_is_listed_no_more(tmp_path):
    async with in_process(tmp_path) as server:
        ana = await server.open()
        await ana.say("good morning")
        await server.client.delete(f"/api/sessions/{ana.id}", headers=ana.headers)
        assert await listed(server) == []


async def test_the_secret_of_a_session_cannot_be_read_from_the_file(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:///{tmp_path}/handrail.db") as server:
        ana = await server.open()
        await ana.say("good morning")
        with closing(sqlite3.connect(tmp_path / "handrail.db")) as db:
            ((session_id, sealed),) = db.execute("SELECT session_id, sealed FROM conversation").fetchall()
        assert session_id == ana.id
        assert sealed
        for path in tmp_path.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            assert ana.opened["token"].encode() not in content, path.name
            assert USER.encode() not in content, path.name
