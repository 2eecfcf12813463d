"""Statistics by day: what calls, people and turns did is counted off their way, and stored by batches."""

import json
import math
import random
from datetime import date

import pytest
from tests.runtime.kit import FOUND, asked, confirmed, fails, reading, utility

from handrail.contract.store import StoreUnavailable
from handrail.contract.usage import UsageRow, add_counts
from handrail.observe.metrics import quantile
from handrail.observe.sketch import ACCURACY, add_value, bin_of, quantiles, value_of
from handrail.observe.usage_log import day_of
from handrail.observe.usage_report import first_day, merged, report, reports
from handrail.testing import VirtualClock

TOOLS = {
    "look": (reading(), FOUND),
    "breaks": (utility(), fails('ToolError("PERMANENT", "no")')),
    "pay": (confirmed(), FOUND),
}


@pytest.fixture
def world(make_tools):
    return make_tools(TOOLS)


async def counted(world, tool, *, tenant="", version="1.0.0"):
    """What the store has of a tool after its runtimes were closed."""
    for runtime in world.runtimes:
        await runtime.close()
    await world.store.open()
    rows = await world.store.usage.rows()
    await world.store.close()
    total = {}
    for row in rows:
        if (row.tool, row.tenant, row.version) == (tool, tenant, version if tool else ""):
            add_counts(total, row.counts)
    return total


async def test_executions_refusals_and_replays_are_counted(world):
    session = await world.session(tenant="Acme")
    await session.call("look", {"q": "a"}, call_id="c1")
    await session.call("look", {"q": "a"}, call_id="c1")
    await session.call("look", {"w": "a"}, call_id="c2")
    await session.call("breaks", {}, call_id="c3")
    await session.call("no_such_tool_of_anna", {}, call_id="c4")
    found = await counted(world, "look", tenant="Acme")
    assert (found["calls"], found["executed"], found["replayed"]) == (2, 1, 1)
    assert found["outcomes"] == {"ok": 1}
    assert found["refusals"] == {"validate": 1}
    assert found["refused"] == {"VALIDATION": 1}
    assert found["latency"]["count"] == found["size"]["count"] == 1
    assert found["size"]["sum"] == len('{"results":["a"]}')
    assert (await counted(world, "breaks", tenant="Acme"))["outcomes"] == {"PERMANENT": 1}
    assert (await counted(world, "", tenant="Acme"))["refusals"] == {"find": 1}


async def test_nothing_of_a_person_is_stored(world):
    session = await world.session(user="anna.private@example.org")
    await session.call("look", {"q": "Annas secret"}, call_id="call-of-anna")
    await session.call("tool_of_anna", {}, call_id="c2")
    await world.runtimes[-1].close()
    await world.store.open()
    text = json.dumps(await world.store.usage.rows())
    assert '"look"' in text
    for word in ("anna", "Anna", session.id, "call-of"):
        assert word not in text


async def test_a_held_call_is_one_call_and_a_declined_one_is_counted_as_such(world):
    session = await world.session()
    runtime = world.runtimes[-1]
    await session.call("pay", {"q": "1"}, call_id="c1")
    request, token = await asked(session)
    assert (await runtime.approve(request, token=token)).ok
    await session.begin_turn("m2")
    await session.call("pay", {"q": "2"}, call_id="c2")
    request, token = await asked(session)
    await runtime.decline(request, token=token)
    found = await counted(world, "pay")
    assert (found["calls"], found["held"], found["declined"], found["executed"]) == (2, 2, 1, 1)
    assert found["outcomes"] == {"ok": 1}


async def test_turns_are_counted_by_how_they_ended_for_each_tool(world):
    session = await world.session()
    await session.call("breaks", {}, call_id="a")
    await session.call("look", {"q": "1"}, call_id="b")
    await session.begin_turn("m2")
    await session.call("look", {"w": "1"}, call_id="c")
    await session.begin_turn("m3")
    await session.call("look", {"q": "1"}, call_id="d")
    await session.interrupt()
    await session.begin_turn("m4")
    await session.call("pay", {"q": "2"}, call_id="e")
    request, token = await asked(session)
    await world.runtimes[-1].decline(request, token=token)
    await session.end_turn()
    await session.close()
    assert (await counted(world, "look"))["turns"] == {"completed": 1, "failed": 1, "interrupted": 1}
    assert (await counted(world, "breaks"))["turns"] == {"failed": 1}
    assert (await counted(world, "pay"))["turns"] == {"declined": 1}
    assert (await counted(world, ""))["turns"] == {"completed": 1, "failed": 1, "interrupted": 1, "declined": 1}


async def test_sessions_leave_sums_and_products_for_statistics_by_session(world):
    runtime = world.runtime()
    for calls in (1, 3):
        session = await world.session(runtime=runtime)
        for number in range(calls):
            await session.call("breaks", {"q": str(number)}, call_id=f"c{number}")
        await session.close()
    found = (await counted(world, "breaks"))["sessions"]
    assert found["n"] == 2
    assert (found["sums"]["calls"], found["sums"]["errors"], found["sums"]["turns"]) == (4, 4, 2)
    assert found["products"]["calls*calls"] == 1 + 9
    assert found["products"]["calls*errors"] == 1 + 9
    assert "completed" not in found["sums"]


async def test_a_store_that_is_away_gets_the_same_batch_later_and_counts_it_once(world):
    session = await world.session()
    runtime = world.runtimes[-1]
    usage, real = runtime.usage, world.store.usage
    await session.call("look", {"q": "a"}, call_id="c1")

    class Unheard:
        """Commits, and is not heard."""

        async def add(self, rows, **facts):
            await real.add(rows, **facts)
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        await usage.store(Unheard())
    await session.call("look", {"q": "b"}, call_id="c2")
    await usage.store(real)
    assert usage.unstored == 0
    assert (await counted(world, "look"))["calls"] == 2


async def test_the_housekeeper_stores_without_anybody_asking(make_tools):
    clock = VirtualClock()
    world = make_tools(TOOLS, clock=clock)
    session = await world.session(clock=clock)
    await session.call("look", {"q": "a"}, call_id="c1")
    assert await world.store.usage.rows() == []
    await clock.advance(6)
    assert [row.tool for row in await world.store.usage.rows()] == ["look"]
    await world.runtimes[-1].close()


async def test_old_statistics_are_deleted_with_what_is_long_over(make_tools):
    clock = VirtualClock()
    world = make_tools(TOOLS, clock=clock)
    await world.session(runtime=world.runtime(clock=clock, policy={"keep_statistics_days": 30}))
    days = [day_of(clock.time() - age * 86_400) for age in (0, 29, 31)]
    await world.store.usage.add([UsageRow(day, "", "look", "1.0.0", {"calls": 1}) for day in days], writer="w", batch=1)
    await clock.advance(700)
    assert [row.day for row in await world.store.usage.rows()] == [days[1], days[0]]
    await world.runtimes[-1].close()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_two_processes_count_into_the_same_rows(make_tools, store):
    world = make_tools(TOOLS, store=store)
    for _ in range(2):
        session = await world.session()
        await session.call("look", {"q": "a"}, call_id="c1")
        await world.runtimes[-1].close()
    assert (await counted(world, "look"))["calls"] == 2


def test_merged_sketches_tell_quantiles_within_one_percent():
    chance = random.Random(7)
    values = [math.exp(chance.gauss(3, 2)) for _ in range(20_000)]
    parts = [{} for _ in range(4)]
    for number, value in enumerate(values):
        add_value(parts[number % 4], value)
    whole = {}
    for part in parts:
        add_counts(whole, json.loads(json.dumps(part)))
    values.sort()
    for share, found in zip((0.5, 0.95, 0.99), quantiles(whole, 0.5, 0.95, 0.99), strict=True):
        assert found == pytest.approx(quantile(values, share), rel=0.0101)
    assert quantiles({}, 0.5) == [0.0]
    assert quantiles({"count": 2, "sum": 0, "zero": 2, "bins": {}}, 0.5) == [0.0]


@pytest.mark.parametrize("number", range(1, 21))
def test_the_percentiles_of_few_values_are_those_of_the_nearest_rank(number):
    chance = random.Random(number)
    values = [chance.choice([0.0, *(math.exp(chance.gauss(4, 3)) for _ in range(4))]) for _ in range(number)]
    tree = {}
    for value in values:
        add_value(tree, value)
    shares = (0.01, 0.5, 0.95, 0.99, 1.0)
    exact = [quantile(sorted(values), share) for share in shares]
    assert quantiles(tree, *shares) == pytest.approx(exact, rel=0.0101)


def test_the_99th_percentile_of_two_values_is_the_greater():
    tree = {}
    for value in (713.0, 32.0):
        add_value(tree, value)
    assert quantiles(tree, 0.5, 0.95, 0.99) == pytest.approx([32.0, 713.0, 713.0], rel=0.0101)


def rows_of_two_days():
    one = {"calls": 3, "executed": 2, "outcomes": {"ok": 1, "TIMEOUT": 1}, "turns": {"completed": 2}}
    other = {"calls": 1, "executed": 1, "outcomes": {"ok": 1}, "turns": {"completed": 1}}
    return [
        UsageRow("2026-11-17", "", "", "", {"turns": {"completed": 2}}),
        UsageRow("2026-11-17", "", "kb_search", "1.0.0", one),
        UsageRow("2026-11-18", "", "kb_search", "2.0.0", other),
        UsageRow("2026-11-18", "acme", "mail_send", "1.0.0", {"calls": 9}),
    ]


def test_reports_are_by_tool_version_day_or_tenant():
    rows = rows_of_two_days()
    assert [(one["tool"], one["calls"]) for one in reports(rows, "tool")] == [("mail_send", 9), ("kb_search", 4)]
    assert [(one["day"], one["calls"]) for one in reports(rows, "day")] == [("2026-11-17", 3), ("2026-11-18", 10)]
    assert [one["tenant"] for one in reports(rows, "tenant")] == ["acme", ""]
    assert list(merged(rows, "version")) == [("kb_search", "1.0.0"), ("kb_search", "2.0.0"), ("mail_send", "1.0.0")]
    assert reports(rows, "day")[0]["turns"] == {"completed": 2}, "a turn of a tool is no further turn of its day"
    assert report(merged(rows, "tool")[("kb_search",)])["errorRate"] == 0.3333


def test_an_age_is_a_number_of_days_before_today():
    assert first_day("7d", date(2026, 11, 18)) == "2026-11-11"
    assert first_day("2026-11-01", date(2026, 11, 18)) == "2026-11-01"


def test_bins_and_their_values_are_those_of_ddsketch():
    from ddsketch.mapping import LogarithmicMapping

    library, chance = LogarithmicMapping(ACCURACY), random.Random(3)
    values = [10 ** chance.uniform(-4, 8) for _ in range(5_000)] + [0.001, 1.0, 2.0, 1e6]
    assert [bin_of(value) for value in values] == [library.key(value) for value in values]
    assert [value_of(one) for one in range(-400, 900)] == pytest.approx(
        [library.value(one) for one in range(-400, 900)]
    )
