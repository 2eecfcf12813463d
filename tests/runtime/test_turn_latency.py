"""The turn's budget of time in tools: counted once, told to the model, and written down."""

import asyncio

import pytest
from tests.runtime.kit import FOUND, audited, confirmed, reading, utility

from handrail.runtime.turns import TurnRecord

SLOW = """
import time

async def execute(args, ctx):
    time.sleep(0.03)
    return {"ok": True, "data": {"results": [args["q"]]}}
"""
WAITING = SLOW.replace("import time", "import asyncio").replace("time.sleep", "await asyncio.sleep")
SHORT = {"voice": {"turn_ms": 20}}
LONG = {"voice": {"turn_ms": 60_000}}


async def test_every_answer_says_how_much_time_is_left_for_tools(make_tools):
    async with make_tools({"look": (reading(), SLOW), "pay": (confirmed(), FOUND)}) as world:
        session = await world.runtime(policy=LONG).open_session(mode="voice")
        left = [(await session.call("look", {"q": "a"}, call_id="c1")).meta["budget"]["latencyMs"]]
        left.append((await session.call("pay", {"q": "a"}, call_id="c2")).meta["budget"]["latencyMs"])
        left.append((await session.call("look", {"q": 1}, call_id="c3")).meta["budget"]["latencyMs"])
        left.append((await session.call("nothing", {}, call_id="c4")).meta["budget"]["latencyMs"])
        assert left == [left[0]] * 4, "a held call and a refused one spend no time in tools"
        assert left[0] <= 60_000 - 30
        await session.call("look", {"q": "b"}, call_id="c5")
        replayed = await session.call("look", {"q": "a"}, call_id="c1")
        assert replayed.meta["replayed"]
        assert replayed.meta["budget"]["latencyMs"] <= 60_000 - 60, "what is left now"


async def test_an_answer_after_the_time_is_spent_suggests_to_answer_now(make_tools):
    async with make_tools({"look": (reading(), SLOW), "note": (utility(), FOUND)}) as world:
        session = await world.runtime(policy=SHORT).open_session(mode="voice")
        assert "suggestion" not in (await session.call("note", {"q": "a"})).meta["budget"]
        for tool in ("look", "note"):
            answer = await session.call(tool, {"q": "b"})
            assert answer.ok, "the budget of time is soft: nothing is refused"
            assert answer.meta["budget"]["latencyMs"] == 0
            assert "Answer now" in answer.meta["budget"]["suggestion"]
        await session.begin_turn("m2")
        fresh = (await session.call("note", {"q": "b"})).meta["budget"]
        assert fresh["latencyMs"] > 0
        assert "suggestion" not in fresh


async def test_where_a_turn_has_no_limit_of_time_none_is_told_and_the_time_is_counted(make_tools):
    async with make_tools({"look": (reading(), SLOW)}) as world:
        session = await world.runtime().open_session()
        assert (await session.call("look", {"q": "a"})).meta["budget"] == {"retrieval": 4}
        await session.end_turn()
        (summary,) = audited(session.core, "turn_summary")
        assert summary["toolMs"] >= 30
        assert "toolBudgetMs" not in summary


async def test_the_summary_of_a_turn_and_the_metrics_have_its_time_in_tools(make_tools, caplog):
    async with make_tools({"look": (reading(), SLOW)}) as world:
        runtime = world.runtime(policy=SHORT)
        session = await runtime.open_session(mode="voice")
        with caplog.at_level("INFO"):
            await session.begin_turn("m1")
            await session.call("look", {"q": "a"})
            await session.begin_turn("m2")
            await session.end_turn()
        first, second = audited(session.core, "turn_summary")
        assert first["toolMs"] >= 30
        assert first["toolBudgetMs"] == 20
        assert second["toolMs"] == 0
        assert [line for line in caplog.messages if "The tools of a turn took" in line and "is 20 ms" in line]
        told = runtime.metrics.to_json()["turnToolTime"]["voice"]
        assert told["count"] == 2
        assert told["buckets"]["0.05"] >= 1
        text = runtime.metrics.to_prometheus()
        assert "# TYPE handrail_turn_tool_seconds histogram" in text
        assert 'handrail_turn_tool_seconds_bucket{mode="voice",le="+Inf"} 2' in text
        assert 'handrail_turn_tool_seconds_count{mode="voice"} 2' in text


async def test_calls_that_run_at_the_same_time_share_it(make_tools):
    async with make_tools({"look": (reading(), WAITING)}) as world:
        session = await world.runtime().open_session()
        answers = await asyncio.gather(*(session.call("look", {"q": str(n)}) for n in range(4)))
        assert session.turn.tool_ms < sum(answer.meta["duration"] for answer in answers)
        assert session.turn.tool_ms >= max(answer.meta["duration"] for answer in answers) - 1


async def test_the_time_outlives_the_process_that_counted_it(make_tools):
    async with make_tools({"look": (reading(), SLOW)}, store="sqlite") as world:
        session = await world.runtime(policy=LONG).open_session(mode="voice")
        await session.begin_turn("m1")
        await session.call("look", {"q": "a"})
        spent = session.turn.tool_ms
        await session.begin_turn("m2")
        other = world.runtime(policy=LONG)
        again = await other.resume_session(session.id, token=session.token)
        await again.begin_turn("m1")
        assert again.turn.tool_ms == pytest.approx(spent, abs=1)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(0, 100), (100, 200)], 200),
        ([(0, 100), (50, 150)], 150),
        ([(100, 150), (0, 1000)], 1000),
        ([(100, 150), (900, 950), (0, 1000)], 1000),
        ([(0, 100), (200, 300), (50, 250 + 100)], 350),
        ([(0, 100), (0, 100), (0, 100)], 100),
    ],
)
def test_time_is_counted_once_however_calls_overlap(calls, expected):
    turn = TurnRecord(1, 0.0)
    for started, ended in calls:  # in the order in which they end
        turn.tool_ms += turn.uncounted(started / 1000, ended - started)
    assert turn.tool_ms == pytest.approx(expected)
