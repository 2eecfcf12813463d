"""Credentials in every store: one for each person and connection, changed by one at a time, gone with their user."""

import asyncio
from dataclasses import replace

import pytest
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
    now = await kept.get("", "ana", "example")
    assert now is not None
    assert not await kept.begin_refresh(now, owner="p9", lease_ms=1000), "whoever changes it ends no refresh of another"
    await kept.end_refresh(now, owner="p8")
    assert await kept.begin_refresh(now, owner="p9", lease_ms=1000)


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


async def test_an_authorization_that_was_taken_is_completed_once_over_the_version_that_was_read(
    store: Store, clock: StillClock
) -> None:
    kept = store.credentials
    pending = PendingAuthorization(digest="d", tenant="", user="ana", connection="example", sealed="s")
    await kept.begin_authorization(pending, lives_for=1000)
    assert not await kept.complete_authorization("d", ANA, expected=None), "not taken yet"
    await kept.take_authorization("d")
    clock.pass_ms(2000)
    assert not await kept.complete_authorization("d", replace(ANA, user="eve"), expected=None), "another's"
    assert not await kept.complete_authorization("d", ANA, expected=1), "there is none of this version"
    assert await kept.complete_authorization("d", ANA, expected=None)
    first = await kept.get("", "ana", "example")
    assert first is not None
    assert await kept.begin_refresh(first, owner="p1", lease_ms=1000)
    assert not await kept.complete_authorization("d", ANA, expected=first.version), "it was completed"
    await kept.begin_authorization(pending, lives_for=1000)
    await kept.take_authorization("d")
    assert not await kept.complete_authorization("d", ANA, expected=None), "there is one by now"
    results = await asyncio.gather(
        *(kept.complete_authorization("d", replace(ANA, sealed=f"by {n}"), expected=first.version) for n in range(3))
    )
    assert results.count(True) == 1
    second = await kept.get("", "ana", "example")
    assert second is not None
    assert await kept.begin_refresh(second, owner="p2", lease_ms=1000), "a refresh of the earlier one holds up nobody"


@pytest.mark.parametrize("how", ["forget", "delete", "begin", "late"])
async def test_an_authorization_that_is_gone_cannot_be_completed(store: Store, clock: StillClock, how: str) -> None:
    kept = store.credentials
    pending = PendingAuthorization(digest="d", tenant="", user="ana", connection="example", sealed="s")
    await kept.begin_authorization(pending, lives_for=1000)
    await kept.take_authorization("d")
    if how == "forget":
        assert await kept.forget("", "ana") == []
    elif how == "delete":
        assert await kept.delete("", "ana", "example", expected=7) is None
        assert await kept.delete("", "ana", "example") is None
    else:
        clock.pass_ms(600_000 if how == "late" else 1)
        another = replace(pending, digest="e", user="ben" if how == "late" else "ana")
        await kept.begin_authorization(another, lives_for=1000)
    assert not await kept.complete_authorization("d", ANA, expected=None)
    assert await kept.all_of("", "ana") == []


async def test_only_the_version_that_was_read_is_deleted_and_what_is_under_way_stays(store: Store) -> None:
    kept = store.credentials
    await kept.put(ANA)
    read = await kept.get("", "ana", "example")
    assert read is not None
    pending = PendingAuthorization(digest="d", tenant="", user="ana", connection="example", sealed="s")
    await kept.begin_authorization(pending, lives_for=1000)
    assert await kept.put(replace(ANA, sealed="newer"), expected=read.version)
    assert await kept.delete("", "ana", "example", expected=read.version) is None
    assert (gone := await kept.delete("", "ana", "example", expected=read.version + 1)) is not None
    assert gone.sealed == "newer"
    assert await kept.take_authorization("d") == pending


async def test_a_user_who_is_forgotten_leaves_none(store: Store) -> None:
    kept = store.credentials
    for user in ("ana", "ben"):
        await kept.put(replace(ANA, user=user))
    pending = PendingAuthorization(digest="d", tenant="", user="ana", connection="example", sealed="s")
    await kept.begin_authorization(pending, lives_for=1000)
    assert [one.connection for one in await kept.forget("", "ana")] == ["example"]
    await kept.put(ANA)
    await store.forget_user("", "ana")
    assert await kept.all_of("", "ana") == []
    assert await kept.take_authorization("d") is None
    assert len(await kept.all_of("", "ben")) == 1


async def test_those_of_an_older_key_are_found(store: Store) -> None:
    kept = store.credentials
    await kept.put(ANA)
    await kept.put(replace(ANA, user="ben", key_id="k2"))
    assert [one.user for one in await kept.sealed_otherwise("k2", 10)] == ["ana"]
