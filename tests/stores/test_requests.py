"""Tickets and requests of clients in every store: a ticket is used once, and a request has one session, whoever makes it."""

import asyncio
from dataclasses import replace

from handrail.contract.server_requests import RequestClaim, StoredTicket

KEPT = 600_000


def ticket(name: str) -> StoredTicket:
    return StoredTicket(digest=name, session_id="s1", sealed="sealed", key="k1")


async def test_a_ticket_is_used_once_and_in_time(store, clock):
    requests = store.requests
    for name in ("a", "b"):
        await requests.give_ticket(ticket(name), lives_for=30_000)
    used = await asyncio.gather(*(requests.use_ticket("a") for _ in range(10)))
    assert [one for one in used if one is not None] == [ticket("a")]
    clock.pass_ms(30_000)
    assert await requests.use_ticket("b") is None
    assert await requests.use_ticket("c") is None


async def test_of_those_who_bring_a_request_at_once_one_makes_its_session(store):
    await store.register_owner("o2")
    claims = await asyncio.gather(
        *(store.requests.claim("r", owner=f"o{1 + number % 2}", kept_for=KEPT) for number in range(2))
    )
    (first,) = [number for number, one in enumerate(claims) if one.ours]
    assert claims[1 - first] == RequestClaim(), "the other waits"
    maker, other = f"o{1 + first}", f"o{2 - first}"
    await store.requests.answer("r", owner=maker, session_id="s1", sealed="sealed")
    for owner in (maker, other):
        assert await store.requests.claim("r", owner=owner, kept_for=KEPT) == RequestClaim(
            session_id="s1", sealed="sealed"
        )


async def test_a_request_of_a_process_that_has_ended_or_let_go_is_made_by_the_next(store):
    await store.register_owner("o2")
    assert (await store.requests.claim("r", owner="o2", kept_for=KEPT)).ours
    assert not (await store.requests.claim("r", owner="o1", kept_for=KEPT)).ours
    await store.release_owner("o2")
    assert (await store.requests.claim("r", owner="o1", kept_for=KEPT)).ours
    await store.requests.release("r", owner="o2")
    assert (await store.requests.claim("r", owner="o1", kept_for=KEPT)).ours
    await store.requests.release("r", owner="o1")
    await store.register_owner("o3")
    assert (await store.requests.claim("r", owner="o3", kept_for=KEPT)).ours


async def test_a_request_is_forgotten_after_a_while(store, clock):
    await store.requests.claim("r", owner="o1", kept_for=KEPT)
    await store.requests.answer("r", owner="o1", session_id="s1", sealed="")
    clock.pass_ms(KEPT)
    assert (await store.requests.claim("r", owner="o1", kept_for=KEPT)).session_id == "s1"
    clock.pass_ms(1)
    assert (await store.requests.claim("r", owner="o1", kept_for=KEPT)).ours


async def test_a_ticket_of_a_forgotten_user_is_gone_and_none_is_given_for_their_session_any_more(store):
    named = replace(ticket("a"), key='{"user": "ana"}')
    await store.requests.give_ticket(named, lives_for=30_000)
    await store.forget_user("t", "u")
    assert await store.requests.use_ticket("a") is None
    await store.requests.give_ticket(replace(named, digest="b"), lives_for=30_000)
    assert await store.requests.use_ticket("b") is None


async def test_a_ticket_that_nobody_used_goes_when_room_is_given_back(store, clock):
    await store.requests.give_ticket(ticket("a"), lives_for=30_000)
    clock.pass_ms(30_001)
    await store.evict(bodies_before=0, rows_before=0)
    clock.pass_ms(-30_001)  # it would count again, if it were still there
    assert await store.requests.use_ticket("a") is None
