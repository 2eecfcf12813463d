"""Documents are kept by version, found until they end, and gone with their user."""

from dataclasses import replace

from tests.stores.values import StillClock

from handrail.contract.documents import Document
from handrail.contract.store import Store

TASK = Document(kind="task", id="t1", tenant="acme", user="ana", body={"state": "working"}, expires_at=2_000_000)


async def test_a_document_is_kept_once_and_changed_by_whoever_knows_its_version(
    store: Store, clock: StillClock
) -> None:
    task = replace(TASK, expires_at=await store.now() + 60_000)
    kept, first = await store.documents.put(task)
    assert kept
    assert first.version == 1
    assert first.body == {"state": "working"}
    kept, there = await store.documents.put(replace(task, body={"state": "other"}))
    assert not kept
    assert there == first
    kept, second = await store.documents.put(replace(first, body={"state": "done"}))
    assert kept
    assert second.version == 2
    kept, there = await store.documents.put(replace(first, body={"state": "late"}))
    assert not kept
    assert there.body == {"state": "done"}
    assert await store.documents.get("task", "t1") == second
    await store.documents.delete("task", "t1")
    assert await store.documents.get("task", "t1") is None


async def test_a_document_is_not_there_after_its_end_and_its_id_is_free_again(store: Store, clock: StillClock) -> None:
    now = await store.now()
    await store.documents.put(replace(TASK, expires_at=now + 1000))
    clock.now += 1000
    assert await store.documents.get("task", "t1") is None
    kept, made = await store.documents.put(replace(TASK, expires_at=now + 5000, body={"state": "new"}))
    assert kept
    assert made.version == 1


async def test_forgetting_a_user_deletes_that_users_documents_alone(store: Store) -> None:
    end = await store.now() + 60_000
    await store.documents.put(replace(TASK, expires_at=end))
    await store.documents.put(replace(TASK, id="t2", user="ben", expires_at=end))
    await store.forget_user("acme", "ana")
    assert await store.documents.get("task", "t1") is None
    assert await store.documents.get("task", "t2") is not None


async def test_nothing_is_kept_for_a_session_whose_user_was_forgotten(store: Store, clock: StillClock) -> None:
    mine = replace(TASK, tenant="t", user="u", expires_at=await store.now() + 60_000, session="s1")
    kept, first = await store.documents.put(mine)
    assert kept
    await store.forget_user("t", "u")
    for late in (mine, replace(mine, id="t2"), replace(first, body={"state": "done"})):
        kept, _ = await store.documents.put(late)
        assert not kept
        assert await store.documents.get(late.kind, late.id) is None
    assert (await store.documents.put(replace(mine, id="t3", session="s2")))[0]
