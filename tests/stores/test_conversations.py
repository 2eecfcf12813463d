"""Conversations in every store: what is written is found again, only the owner writes, and old ones make room."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from handrail.contract.conversations import (
    MAX_TURNS,
    ImportedConversation,
    Moved,
    Ownership,
    Quota,
    QuotaExceeded,
    StoredConversation,
    StoredTurn,
)
from handrail.contract.errors import UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores import SqliteStore

ODD = 'NUL \x00, a lone surrogate \ud800, "quotes" and 😀'


def stored(name: str, user: str | None = "ana", **more) -> StoredConversation:
    return StoredConversation(session_id=name, tenant="", user=user, passing=False, document=more or {"messages": []})


async def create(store, name: str, user: str | None = "ana", owner: str = "o1", **more) -> None:
    await store.conversations.create(stored(name, user, **more), owner=owner)


async def test_what_was_said_is_found_again(store):
    kept = store.conversations
    await create(store, "s1")
    turn = StoredTurn(message_id="m1", text=ODD, position=1)
    await kept.begin("s1", turn, owner="o1")
    turn.state, turn.number, turn.answer, turn.last_event = "done", 1, {"text": "a\x00b"}, 10_000_000_007
    await kept.finish("s1", turn, {"messages": ["x\x00y", "\ud800"]}, owner="o1")
    more = StoredTurn(message_id="m2", text="more", position=2)
    await kept.begin("s1", more, owner="o1")
    found = await kept.load("s1")
    assert found.document == {"messages": ["x\x00y", "\ud800"]}
    assert found.turns == [turn, more]
    assert await kept.turn("s1", "m1") == turn
    assert await kept.turn("s1", "m3") is None
    assert await kept.load("s2") is None


async def test_what_was_said_is_there_after_a_restart(tmp_path):
    for attempt in range(2):
        store = SqliteStore(tmp_path / "s.db")
        await store.open()
        if attempt == 0:
            await create(store, "s1", text="hello")
        assert (await store.conversations.load("s1")).document == {"text": "hello"}
        await store.close()


async def test_many_at_once_are_all_stored_and_one_that_fails_takes_no_other_with_it(store):
    await create(store, "s0")
    wishes = [create(store, f"s{number % 20}") for number in range(40)]
    outcomes = await asyncio.gather(*wishes, return_exceptions=True)
    assert sum(isinstance(one, UsageError) for one in outcomes) == 21
    assert all([await store.conversations.load(f"s{number}") for number in range(20)])


async def test_of_a_deleted_conversation_nothing_is_kept(store):
    kept = store.conversations
    await create(store, "s1")
    turn = StoredTurn(message_id="m1", text="hi", position=1)
    await kept.begin("s1", turn, owner="o1")
    assert await kept.delete("s1") is True
    assert await kept.delete("s1") is False
    await kept.finish("s1", turn, {"messages": ["secret"]}, owner="o1")
    await kept.set_live("s1", True, owner="o1")
    with pytest.raises(StoreUnavailable, match="no longer kept"):
        await kept.begin("s1", turn, owner="o1")
    assert await kept.load("s1") is None
    assert await kept.turn("s1", "m1") is None


async def test_a_conversation_whose_user_was_forgotten_before_it_was_made_is_not_kept(store):
    assert (await store.forget_user("t", "u"))["sessions"] == 1
    with pytest.raises(StoreUnavailable, match="was forgotten meanwhile"):
        await create(store, "s1", "u")
    assert await store.conversations.load("s1") is None


async def test_a_users_conversations_go_with_the_images_that_only_they_mention(store):
    mine, both = "img_" + "a" * 32, "img_" + "b" * 32
    kept = store.conversations
    await create(store, "s1", text=f"{mine} {both}")
    await create(store, "s2", "bob", text=both)
    await create(store, "s3", None)
    assert await kept.forget("", "ana") == (1, {mine})
    assert await kept.forget("", "ana") == (0, set())
    assert set(await kept.owners(["s1", "s2", "s3"])) == {"s2", "s3"}


async def test_what_was_deleted_is_not_left_in_the_file(tmp_path):
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    await store.open()
    await create(store, "s1", text="a very private sentence " * 1_000)
    await store.conversations.delete("s1")
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"very private" not in path.read_bytes()


async def test_conversations_that_nobody_went_on_with_are_deleted(store, clock):
    for number in range(5):
        clock.now += 10
        await create(store, f"s{number}")
    assert await store.conversations.prune(unused_for=25) == ["s0", "s1"]
    assert await store.conversations.prune(unused_for=1_000) == []
    assert await store.conversations.load("s2") is not None


async def test_old_conversations_are_deleted_in_small_batches(store, clock, monkeypatch):
    monkeypatch.setattr("handrail.stores.statements.conversations._MAX_PRUNED", 3)
    for number in range(7):
        await create(store, f"s{number}")
    clock.now += 1_000
    batches = [len(await store.conversations.prune(unused_for=500)) for _ in range(4)]
    assert batches == [3, 3, 1, 0]


async def test_of_a_long_session_the_newest_turns_are_kept(store, monkeypatch):
    monkeypatch.setattr("handrail.stores.statements.conversations.MAX_TURNS", 20)
    assert MAX_TURNS == 500
    await create(store, "s1")
    for number in range(1, 26):
        await store.conversations.begin("s1", StoredTurn(message_id=f"m{number}", text="", position=number), owner="o1")
    found = await store.conversations.load("s1")
    assert [turn.message_id for turn in found.turns] == [f"m{number}" for number in range(6, 26)]


async def test_only_the_owner_writes_and_a_busy_one_is_not_taken_over(store):
    kept = store.conversations
    await create(store, "s1")
    turn = StoredTurn(message_id="m1", text="hi", position=1)
    await kept.begin("s1", turn, owner="o1")
    assert await kept.standing("s1") == Ownership(owner="o1", live=False, running="m1")
    assert not await kept.take("s1", owner="o2", former="o1", though_busy=False)
    turn.state = "done"
    await kept.finish("s1", turn, {}, owner="o1")
    await kept.set_live("s1", True, owner="o1")
    assert not await kept.take("s1", owner="o2", former="o1", though_busy=False)
    assert await kept.take("s1", owner="o2", former="o1", though_busy=True)
    assert await kept.standing("s1") == Ownership(owner="o2", live=True, running=None)
    assert not await kept.take("s1", owner="o3", former="o1", though_busy=True)
    for refused in (
        kept.begin("s1", turn, owner="o1"),
        kept.finish("s1", turn, {"messages": ["mine"]}, owner="o1"),
        kept.set_live("s1", False, owner="o1"),
    ):
        with pytest.raises(Moved):
            await refused
    assert (await kept.load("s1")).document == {}
    assert await kept.standing("none") is None


async def test_of_those_who_want_an_idle_conversation_at_once_one_gets_it(store):
    await create(store, "s1", owner="gone")
    wishes = [
        store.conversations.take("s1", owner=f"p{number}", former="gone", though_busy=False) for number in range(20)
    ]
    assert sum(await asyncio.gather(*wishes)) == 1


async def test_what_has_ended_since_an_event_is_told_in_the_order_of_its_end(store):
    kept = store.conversations
    await create(store, "s1")
    for number, last in ((1, 30), (2, 10), (3, 20)):
        turn = StoredTurn(message_id=f"m{number}", text="", position=number, state="done", last_event=last)
        await kept.finish("s1", turn, {}, owner="o1")
    await kept.begin("s1", StoredTurn(message_id="m4", text="", position=4), owner="o1")
    standing, turns = await kept.changes("s1", 10)
    assert standing.running == "m4"
    assert [turn.message_id for turn in turns] == ["m3", "m1"]
    assert await kept.changes("none", 0) is None


async def test_a_key_lists_what_it_opened_by_the_first_words(store, clock):
    kept = store.conversations
    for name, user, key in (("s1", "ana", "k1"), ("s2", "ana", "k1"), ("s3", "bob", "k1"), ("s4", "ana", "k2")):
        clock.now += 10
        await kept.create(replace(stored(name, user), key=key), owner="o1")
        await kept.remember_opener(name, f"sealed {name}")
    for position, text in ((1, ""), (2, f"  first\n words {'x' * 200}"), (3, "later")):
        turn = StoredTurn(message_id=f"m{position}", text=text, position=position)
        await kept.finish("s1", turn, {}, owner="o1")
    (listed,) = await kept.opened_with("k1", "ana", 10)  # in the second one nothing was said
    assert (listed.session_id, listed.sealed, listed.answering) == ("s1", "sealed s1", True)
    assert listed.title.startswith("first words xxx")
    assert listed.updated_at > listed.created_at
    clock.now += 10
    await kept.finish("s2", StoredTurn(message_id="m1", text=ODD, position=1, state="done"), {}, owner="o1")
    assert [one.session_id for one in await kept.opened_with("k1", "ana", 10)] == ["s2", "s1"]
    assert len(await kept.opened_with("k1", "ana", 1)) == 1
    assert await kept.opened_with("k1", None, 10) == []


async def test_the_quotas_of_users_keys_and_all_are_kept(store, clock):
    kept, quota = store.conversations, Quota(in_all=5, per_key=4, per_user=2)

    async def opened(name: str, user: str | None, key: str) -> list[str]:
        clock.now += 1
        gone = await kept.create(replace(stored(name, user), key=key), owner="o1", quota=quota)
        await kept.begin(name, StoredTurn(message_id="m", text="x", position=1, state="done"), owner="o1")
        await kept.finish(name, StoredTurn(message_id="m", text="x", position=1, state="done"), {}, owner="o1")
        return gone

    assert await opened("a1", "ana", "k1") == []
    assert await opened("a2", "ana", "k1") == []
    assert await opened("a3", "ana", "k1") == ["a1"]
    assert await opened("b1", "bob", "k1") == []
    assert await opened("b2", "bob", "k1") == []
    with pytest.raises(QuotaExceeded) as full:
        await opened("c1", "eva", "k1")
    assert full.value.scope == "key"
    assert await opened("d1", "eva", "k2") == []
    with pytest.raises(QuotaExceeded) as full:
        await opened("e1", "ivo", "k3")
    assert full.value.scope == "all"
    for name in ("a2", "a3"):
        await kept.set_live(name, True, owner="o1")
    with pytest.raises(QuotaExceeded) as full:
        await opened("a4", "ana", "k1")
    assert full.value.scope == "user"


async def test_of_those_that_are_as_old_the_first_makes_room(store):
    quota = Quota(in_all=100, per_key=100, per_user=2)
    names = ["z", "a", "m", "b"]
    gone = [await store.conversations.create(stored(name), owner="o1", quota=quota) for name in names]
    assert gone == [[], [], ["z"], ["a"]]


def imported(name: str, text: str = "hi") -> ImportedConversation:
    turn = StoredTurn(message_id="m1", text=text, position=1, state="done", answer={"text": "yes"}, last_event=7)
    kept = replace(stored(name, text=text), turns=[turn], key="k1")
    return ImportedConversation(conversation=kept, sealed="sealed", created_at=5, updated_at=6)


async def test_an_import_that_begins_anew_brings_nothing_back_and_changes_nothing(store):
    kept = store.conversations
    assert await kept.import_all("file", [imported("a"), imported("b")]) == 2
    assert await kept.imported_until("file") == "b"
    assert await kept.load("a") == imported("a").conversation
    (listed,) = await kept.opened_with("k1", "ana", 1)
    assert (listed.created_at, listed.updated_at, listed.sealed) == (5, 6, "sealed")
    await kept.delete("a")
    await kept.finish("b", None, {"text": "newer"}, owner="")
    assert await kept.import_all("file", [imported("a"), imported("b"), imported("c")]) == 1
    assert set(await kept.owners(["a", "b", "c"])) == {"b", "c"}
    assert (await kept.load("b")).document == {"text": "newer"}
    # Of another file: what is there already stays as it is.
    assert await kept.import_all("other", [imported("b"), imported("d")]) == 1
    assert (await kept.load("b")).document == {"text": "newer"}
    assert await kept.imported_until("none") == ""


async def test_a_store_that_is_not_open_says_so(tmp_path):
    with pytest.raises(StoreUnavailable, match="not open"):
        await SqliteStore(tmp_path / "s.db").conversations.load("s1")
