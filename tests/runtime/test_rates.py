"""Limits over a sliding window: held against a list of all calls, which is what they mean."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.kit import FOUND, PAID, kind, reading, writing

from handrail.contract.definition import RateLimit
from handrail.contract.store import StoreUnavailable
from handrail.runtime import rates as rates_module
from handrail.runtime.rates import Rates, scope_of
from handrail.stores import MemoryStore
from handrail.testing import VirtualClock

WHO = SimpleNamespace(id="s1", tenant="acme", user="ana")


class Hand:
    """A clock that is set by hand, in milliseconds."""

    def __init__(self):
        self.now = 1_700_000_000_123

    def time(self):
        return self.now / 1000


class Oracle:
    """Every call that was let pass, and nothing cleverer."""

    def __init__(self, limit):
        self.limit, self.passed = limit, []

    def allows(self, now):
        return sum(at > now - self.limit.window_ms for at in self.passed) < self.limit.calls

    def most_in_any_window(self):
        return max(sum(at <= other < at + self.limit.window_ms for other in self.passed) for at in self.passed)


@settings(max_examples=300, deadline=None)
@given(
    calls=st.integers(1, 6),
    window_ms=st.integers(1, 50),
    pauses=st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60),
)
def test_a_limit_lets_pass_what_a_list_of_all_calls_would(calls, window_ms, pauses):
    limit = RateLimit(calls=calls, window_ms=window_ms, scope="user")
    clock, oracle = Hand(), Oracle(limit)
    rates = Rates(clock)
    for pause, gives_back in pauses:
        clock.now += pause
        wait, slot = rates.charge(WHO, "pay", limit)
        assert (wait is None) is oracle.allows(clock.now)
        if wait is not None:
            later = clock.now + round(wait * 1000)
            assert oracle.allows(later), "after the time that it says there is one"
            assert not oracle.allows(later - 1), "and not sooner"
        elif gives_back:
            rates.give_back(WHO, "pay", limit, slot)
        else:
            oracle.passed.append(clock.now)
    if oracle.passed:
        assert oracle.most_in_any_window() <= calls


@settings(max_examples=20, deadline=None)
@given(window_ms=st.integers(1_000, 9_000), pauses=st.lists(st.integers(0, 700), min_size=20, max_size=60))
def test_a_limit_of_many_calls_is_kept_in_little_memory_and_never_exceeded(window_ms, pauses):
    limit = RateLimit(calls=1_000, window_ms=window_ms, scope="user")
    clock, rates, passed = Hand(), None, []
    rates = Rates(clock)
    for pause in pauses:
        clock.now += pause
        for _ in range(150):
            wait, _ = rates.charge(WHO, "pay", limit)
            if wait is not None:
                break
            passed.append(clock.now)
        if wait is not None:
            assert wait * 1000 <= window_ms * 257 / 256 + 1
    assert all(later - first >= window_ms for first, later in zip(passed, passed[1_000:], strict=False))
    (window,) = rates._windows.values()
    assert len(window.slots) <= 258


async def test_no_burst_over_the_edge_of_a_window_has_more_calls_than_the_limit(make_tools):
    clock = VirtualClock(start=1_700_000_000.9)
    limit = {"calls": 3, "windowMs": 1_000, "scope": "session"}
    async with make_tools({"look": (reading(rateLimit=limit), FOUND)}, clock=clock) as world:
        session = await world.session(clock=clock, policy={"text": {"retrieval_calls": 50}})
        before = [kind(await session.call("look", {"q": f"a{n}"}, call_id=f"a{n}")) for n in range(4)]
        await clock.advance(0.2)  # a new second has begun
        after = [kind(await session.call("look", {"q": f"b{n}"}, call_id=f"b{n}")) for n in range(3)]
        assert before == [None, None, None, "RATE_LIMIT"]
        assert after == ["RATE_LIMIT"] * 3
        await clock.advance(0.8)
        assert kind(await session.call("look", {"q": "c"}, call_id="c")) is None


@pytest.mark.parametrize("source", ["read", "write"])
async def test_users_whose_names_run_together_have_limits_of_their_own(make_tools, source):
    limit = {"calls": 1, "windowMs": 60_000, "scope": "user"}
    made = {"read": (reading(rateLimit=limit), FOUND), "write": (writing(rateLimit=limit), PAID)}
    async with make_tools({"tool": made[source]}, store="sqlite") as world:
        runtime = world.runtime()
        for tenant, user in (("acme", "eu:bob"), ("acme:eu", "bob"), ("acme%3Aeu", "bob"), ("", "acme:eu:bob")):
            session = await world.session(runtime=runtime, tenant=tenant, user=user)
            assert (await session.call("tool", {"q": "a"}, call_id="c1")).ok, (tenant, user)
            assert kind(await session.call("tool", {"q": "b"}, call_id="c2")) == "RATE_LIMIT"


async def test_a_user_s_limit_is_shared_by_processes_without_counting_a_call_twice(make_tools):
    limit = {"calls": 4, "windowMs": 3_600_000, "scope": "user"}
    tools = {"look": (reading(rateLimit=limit), FOUND), "pay": (writing(rateLimit=limit), PAID)}
    async with make_tools(tools, store="sqlite") as world:
        here, there = world.runtime(), world.runtime()
        for tool in ("look", "pay"):
            for number, runtime in enumerate((here, there, here, there)):
                session = await world.session(runtime=runtime, user="ana")
                assert (await session.call(tool, {"q": "a"}, call_id=f"c{number}")).ok, (tool, number)
                await runtime.housekeeper.write_behind()
            for runtime in (here, there):
                session = await world.session(runtime=runtime, user="ana")
                assert kind(await session.call(tool, {"q": "a"}, call_id="last")) == "RATE_LIMIT"


class Deaf(MemoryStore):
    """Stores what is counted, and its answer is lost."""

    is_deaf = False

    async def count_rates(self, charges, since=None):
        totals = await super().count_rates(charges, since)
        if self.is_deaf:
            raise StoreUnavailable("The store did not answer.")
        return totals


async def test_what_was_counted_unheard_counts_again_and_lets_nobody_have_more_than_the_limit(monkeypatch):
    monkeypatch.setattr(rates_module, "_MAX_AT_ONCE", 2)
    limit, store, clock = RateLimit(calls=8, window_ms=60_000, scope="user"), Deaf(), VirtualClock()
    await store.open()
    here, there = Rates(clock), Rates(clock)
    for number in range(3):
        await clock.advance(number)
        wait, slot = here.charge(WHO, "look", limit)
        assert wait is None
        here.write_behind(WHO, "look", limit, slot)
    store.is_deaf = True
    with pytest.raises(StoreUnavailable):
        await here.synchronise(store)
    store.is_deaf = False
    # As many at once as are written in one transaction: the rest comes with the next.
    for units in (2 + 2, 2 + 3):
        await here.synchronise(store)
        await there.learn(store, WHO, [("look", limit)])
        used = sum(1 for _ in range(8) if there.charge(WHO, "look", limit)[0] is None)
        assert used == 8 - units
        there = Rates(clock)
    await store.close()


class Counting(MemoryStore):
    """Knows how many limits each transaction counted."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    async def count_rates(self, charges, since=None):
        self.sizes.append(len({scope for scope, _ in charges}))
        return await super().count_rates(charges, since)


async def test_few_limits_are_counted_in_one_transaction_and_at_the_end_all(monkeypatch):
    monkeypatch.setattr(rates_module, "_MAX_SCOPES", 2)
    limit, store, clock = RateLimit(calls=8, window_ms=60_000, scope="user"), Counting(), VirtualClock()
    await store.open()
    rates = Rates(clock)
    for moment in range(2):
        await clock.advance(moment)
        for number in range(5):
            who = SimpleNamespace(id="s1", tenant="acme", user=f"user {number}")
            rates.write_behind(who, "look", limit, rates.charge(who, "look", limit)[1])
    await rates.write_all(store)
    assert store.sizes == [2, 2, 1]
    scopes = {scope_of(SimpleNamespace(id="s1", tenant="acme", user=f"user {n}"), "look", limit): 0 for n in range(5)}
    assert list((await store.count_rates({}, scopes)).values()) == [1] * 10
    await store.close()


async def test_a_runtime_that_closes_leaves_no_call_uncounted(make_tools, monkeypatch):
    monkeypatch.setattr(rates_module, "_MAX_AT_ONCE", 1)
    limit, users = {"calls": 1, "windowMs": 3_600_000, "scope": "user"}, ("ana", "ivo", "eva")
    clock = VirtualClock()  # so that no housekeeper comes before the end
    async with make_tools({"look": (reading(rateLimit=limit), FOUND)}, store="sqlite", clock=clock) as world:
        here, there = world.runtime(clock=clock), world.runtime(clock=clock)
        for session in [await world.session(runtime=here, user=user) for user in users]:
            assert (await session.call("look", {"q": "a"}, call_id="c1")).ok
        await here.close()
        for user in users:
            session = await world.session(runtime=there, user=user)
            assert kind(await session.call("look", {"q": "a"}, call_id="c1")) == "RATE_LIMIT"


@given(st.lists(st.tuples(st.text(":%a", max_size=4), st.text(":%a", max_size=4)), min_size=2, max_size=2, unique=True))
def test_no_two_users_have_one_name(pair):
    limit = RateLimit(calls=1, window_ms=1, scope="user")
    one, other = (scope_of(SimpleNamespace(id="s", tenant=t, user=u), "pay", limit) for t, u in pair)
    assert one != other


def test_the_name_of_who_is_limited_does_not_name_them():
    assert "ana" not in scope_of(WHO, "pay", RateLimit(calls=1, window_ms=1, scope="user"))
