"""Room given back in batches: however small they are, all of them together drop the same, and nothing that counts."""

import pytest
from tests.stores.values import START, StillClock, alias, claim, done, held, session

from handrail.contract.store import ClaimVerdict, Evicted, Store
from handrail.stores.statements.evicting import MAX_BATCH_BYTES

DAY = 86_400_000


async def evict(
    store: Store, *, batch_size: int, bodies_before: int = START + 1, rows_before: int = START + 1
) -> list[Evicted]:
    """Every batch until there is nothing more to look at."""
    batches: list[Evicted] = []
    left_at = None
    while not batches or left_at is not None:
        batches.append(
            await store.evict(
                bodies_before=bodies_before, rows_before=rows_before, batch_size=batch_size, left_at=left_at
            )
        )
        left_at = batches[-1].left_at
    return batches


async def called(store: Store, session_id: str, calls: int = 1) -> None:
    """A session in which a number of calls ended."""
    await store.create_session(session(session_id))
    await store.begin_turn(session_id, connection=1, input_id="m1")
    for number in range(calls):
        key = f"{session_id}-{number}"
        await store.claim(claim(key, session_id=session_id, args_digest=key, alias=alias(f"provider:{number}")))
        await store.finish(done(key))


async def closed(store: Store, *session_ids: str) -> None:
    await store.save_sessions([(session_id, 1, {"active": False}) for session_id in session_ids])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 200])
async def test_small_batches_drop_the_same_together(store: Store, clock: StillClock, batch_size: int) -> None:
    for name in ("open", "over", "read"):
        await called(store, name, 0 if name == "read" else 3)
    await store.hold(held(session_id="over", expires_at=START), "x")
    await closed(store, "over", "read")
    clock.pass_ms(10)
    batches = await evict(store, batch_size=batch_size)
    assert (sum(one.results for one in batches), sum(one.rows for one in batches)) == (3, 3)
    assert {row.session_id for row in await store.ledger_rows()} == {"open"}
    assert [len(await store.aliases(name)) for name in ("open", "over")] == [3, 0]
    assert await store.hold_by_id("h1") is None
    for name in ("open", "over", "read"):
        assert (await store.begin_turn(name, connection=1, input_id="m1")).known is (name == "open")
    assert sum(one.results + one.rows for one in await evict(store, batch_size=batch_size)) == 0


async def test_no_batch_drops_more_than_it_may_look_at(store: Store, clock: StillClock) -> None:
    await called(store, "open", 5)
    await called(store, "over", 5)
    await closed(store, "over")
    clock.pass_ms(10)
    batches = await evict(store, batch_size=2)
    assert max(one.results + one.rows for one in batches) == 2


@pytest.mark.parametrize("name", ["open", "over"])
async def test_a_batch_ends_with_the_result_that_makes_it_large(store: Store, clock: StillClock, name: str) -> None:
    await store.create_session(session(name))
    for number, share in enumerate((0.4, 0.7, 0.1, 3, 0.6, 0.6)):
        await store.claim(claim(str(number), session_id=name, args_digest=str(number)))
        await store.finish(done(str(number), envelope="é" * int(share * MAX_BATCH_BYTES / 2)))
    if name == "over":
        await closed(store, name)
    clock.pass_ms(10)
    batches = await evict(store, batch_size=100)
    assert [one.results + one.rows for one in batches] == [2, 2, 2, 0]
    assert all(row.envelope is None for row in await store.ledger_rows())


async def test_calls_that_have_to_stay_are_not_looked_at_twice(store: Store, clock: StillClock) -> None:
    await called(store, "open", 5)
    clock.pass_ms(10)
    await evict(store, batch_size=200)
    await called(store, "over")
    await closed(store, "over")
    first = await store.evict(bodies_before=START + 20, rows_before=START + 20, batch_size=3)
    assert first.rows == 0
    clock.pass_ms(10)
    second = await store.evict(bodies_before=START + 20, rows_before=START + 20, batch_size=3, left_at=first.left_at)
    assert second.rows == 1


async def test_a_session_that_has_lost_its_first_call_only_stays_closed(store: Store, clock: StillClock) -> None:
    await called(store, "over", 2)
    await closed(store, "over")
    clock.pass_ms(10)
    assert (await store.evict(bodies_before=0, rows_before=START + 1, batch_size=1)).rows == 1
    await store.save_sessions([("over", 1, {"active": True})])
    for key in ("over-0", "over-1"):
        again = await store.claim(claim(key, session_id="over", args_digest=key))
        assert again.verdict is ClaimVerdict.INACTIVE


@pytest.mark.parametrize("batch_size", [1, 200])
async def test_only_windows_that_are_over_for_sure_are_forgotten(
    store: Store, clock: StillClock, batch_size: int
) -> None:
    """How long a window is, only the tool knows: one that no other has followed may be going on."""
    await store.count_rates({("a", START): 1, ("a", START + 5): 2, ("b", START): 3})
    clock.pass_ms(60 * DAY)
    await store.count_rates({("a", START + 30 * DAY): 4})
    await evict(store, batch_size=batch_size, rows_before=START + 15 * DAY)
    windows = {("a", START): 0, ("a", START + 5): 0, ("a", START + 30 * DAY): 0, ("b", START): 0}
    assert list((await store.count_rates(windows)).values()) == [0, 0, 4, 3]
    clock.pass_ms(366 * DAY)
    await evict(store, batch_size=batch_size, rows_before=START + 400 * DAY)
    assert list((await store.count_rates(windows)).values()) == [0, 0, 0, 0]
