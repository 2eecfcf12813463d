"""Keys of a server in every store: kept as hashes, changed one at a time, and counted whenever they change."""

import asyncio

import pytest

from handrail.contract.errors import UsageError
from handrail.contract.keys import Key


def key(name: str, user: str | None = None, **more) -> Key:
    return Key(name=name, hash=(name + "0" * 64)[:64], user=user, created="2026-11-18", **more)


async def names(store) -> list[str]:
    return [one.name for one in await store.keys.all()]


async def test_keys_are_listed_in_the_order_in_which_they_were_made(store):
    made = [key("b", "ana"), key("a", role="operator"), key("c")]
    for one in made:
        await store.keys.add(one, replace=False)
    found = await store.keys.all()
    assert found == made
    assert [one.created for one in found] == ["2026-11-18"] * 3


async def test_a_name_that_is_taken_is_refused_or_replaced(store):
    await store.keys.add(key("a", "ana"), replace=False)
    before = await store.keys.changes()
    with pytest.raises(UsageError, match='There is a key "a"'):
        await store.keys.add(key("a", "bob"), replace=False)
    assert [one.user for one in await store.keys.all()] == ["ana"]
    assert await store.keys.changes() == before
    await store.keys.add(key("a", "bob"), replace=True)
    assert [one.user for one in await store.keys.all()] == ["bob"]
    assert await store.keys.changes() > before


async def test_a_numbered_key_takes_the_place_of_no_other(store):
    made = await asyncio.gather(*(store.keys.add_numbered(key("console")) for _ in range(5)))
    assert sorted(one.name for one in made) == ["console", *(f"console-{number}" for number in range(2, 6))]
    assert sorted(await names(store)) == sorted(one.name for one in made)


async def test_keys_are_revoked_by_name_and_by_user(store):
    for name, user in (("a", "ana"), ("b", "ana"), ("c", "bob"), ("d", None)):
        await store.keys.add(key(name, user), replace=False)
    before = await store.keys.changes()
    assert await store.keys.revoke("c") == key("c", "bob")
    assert await store.keys.revoke("c") is None
    assert await store.keys.revoke_of("ana") == [key("a", "ana"), key("b", "ana")]
    assert await names(store) == ["d"]
    assert await store.keys.changes() > before


async def test_no_more_keys_are_kept_than_there_may_be(store, monkeypatch):
    monkeypatch.setattr("handrail.stores.statements.keys.MAX_KEYS", 2)
    for name in ("a", "b"):
        await store.keys.add(key(name), replace=False)
    for refused in (store.keys.add(key("c"), replace=False), store.keys.add_numbered(key("d"))):
        with pytest.raises(UsageError, match="revoke some"):
            await refused
    await store.keys.add(key("a", "ana"), replace=True)
    assert sorted(await names(store)) == ["a", "b"]


async def test_a_file_of_keys_is_imported_once(store):
    await store.keys.add(key("a", "ana"), replace=False)
    assert await store.keys.import_all("file", [key("a", "eve"), key("b"), key("c")]) == 2
    await store.keys.revoke("b")
    assert await store.keys.import_all("file", [key("a", "eve"), key("b"), key("c")]) == 0
    assert [(one.name, one.user) for one in await store.keys.all()] == [("a", "ana"), ("c", None)]
