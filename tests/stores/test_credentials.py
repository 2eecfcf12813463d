"""Credentials in every store: one for each person and connection, changed by one at a time, gone with their user."""

import asyncio
from dataclasses import replace

from tests.stores.values import StillClock

from handrail.contract.credentials import PendingAuthorization, StoredCredential
from handrail.contract.store import Store

ANA = StoredCredential(tenant="", user="ana", connection="example", sealed="sealed one", key_id="k1")


async def test_a_credential_is_kept_replaced_and_deleted(store: Store, clock: StillClock) -> None:
    kept = store.credentials
    assert await kept.get("", "ana", "example") is None
    assert await kept.put(ANA)
    first = await kept.get("", "ana", "example")
    assert first is not None
    assert (first.sealed, first.key_id, first.updated_at) == ("sealed one", "k1", clock())
    assert await kept.put(replace(ANA, sealed="sealed two"))
    second = await kept.get("", "ana", "example")
    assert second is not None
    assert second.version > first.version
    await kept.put(replace(ANA, connection="another"))
    assert [one.connection for one in await kept.all_of("", "ana")] == ["another", "example"]
    assert await kept.all_of("acme", "ana") == []
    assert await kept.delete("", "ana", "example") == second
    assert await kept.delete("", "ana", "example") is None


async def test_only_the_version_that_was_read_is_replaced(store: Store, clock: StillClock) -> None:
    kept = store.credentials
    await kept.put(ANA)
    read = await kept.get("", "ana", "example")
    assert read is not None
    results = await asyncio.gather(*(kept.put(replace(ANA, sealed=f"by {n}"), expected=read.version) for n in range(5)))
    assert results.count(True) == 1
    # Deleted and made anew: what was read before matches nothing of it.
    await kept.delete("", "ana", "example")
    clock.pass_ms(1)
    await kept.put(ANA)
    assert not await kept.put(replace(ANA, sealed="late"), expected=read.version)


async def test_one_refreshes_at_a_time_until_its_lease_is_over(store: Store, clock: StillClock) -> None:
    kept = store.credentials
    await kept.put(ANA)
    read = await kept.get("", "ana", "example")
    assert read is not None
    taken = await asyncio.gather(*(kept.begin_refresh(read, owner=f"p{n}", lease_ms=1000) for n in range(5)))
    assert taken.count(True) == 1
    owner = f"p{taken.index(True)}"
    await kept.end_refresh(read, owner="p9")
    assert not await kept.begin_refresh(read, owner="p9", lease_ms=1000)
    await kept.end_refresh(read, owner=owner)
    assert await kept.begin_refresh(read, owner="p9", lease_ms=1000)
    clock.pass_ms(1001)
    assert await kept.begin_refresh(read, owner="p8", lease_ms=1000)
    assert await kept.put(replace(ANA, sealed="new"), expected=read.version)
    assert not await kept.begin_refresh(read, owner="p8", lease_ms=1000), "that version is gone"


async def test_an_authorization_is_taken_once_and_in_time(store: Store, clock: StillClock) -> None:
    kept = store.credentials
    pending = PendingAuthorization(digest="d", tenant="", user="ana", connection="example", sealed="s")
    await kept.begin_authorization(pending, lives_for=1000)
    assert await kept.take_authorization("e") is None
    assert await kept.take_authorization("d") == pending
    assert await kept.take_authorization("d") is None
    await kept.begin_authorization(pending, lives_for=1000)
    clock.pass_ms(1000)
    assert await kept.take_authorization("d") is None


async def test_a_user_who_is_forgotten_leaves_none(store: Store) -> None:
    kept = store.credentials
    for user in ("ana", "ben"):
        await kept.put(replace(ANA, user=user))
    pending = PendingAuthorization(digest="d", tenant="", user="ana", connection="example", sealed="s")
    await kept.begin_authorization(pending, lives_for=1000)
    await store.forget_user("", "ana")
    assert await kept.all_of("", "ana") == []
    assert await kept.take_authorization("d") is None
    assert len(await kept.all_of("", "ben")) == 1


async def test_those_of_an_older_key_are_found(store: Store) -> None:
    kept = store.credentials
    await kept.put(ANA)
    await kept.put(replace(ANA, user="ben", key_id="k2"))
    assert [one.user for one in await kept.sealed_otherwise("k2", 10)] == ["ana"]
