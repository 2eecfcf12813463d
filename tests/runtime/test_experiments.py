"""Experiments: a known difference between two versions is found in what the store has of their sessions, and where there is none,
none is claimed more often than the level says, although the calls of one session are alike."""

import random
from math import sqrt

import pytest

from handrail.contract.usage import SESSION_COUNTS, SESSION_PRODUCTS
from handrail.observe.version_comparison import LEVEL, MEASURES, compare, comparisons, estimate, rendered
from handrail.registry import Registry
from handrail.registry.host_policy import HostPolicy
from handrail.registry.version_rules import VersionRules

CHANCE = """
async def execute(args, ctx):
    if args["dice"] < {chance}:
        raise ToolError("PERMANENT", "It did not work.")
    return {{"ok": True, "data": {{"done": args["dice"]}}}}
"""
DICE = {
    "type": "object",
    "properties": {"dice": {"type": "number", "description": "What chance said."}},
    "required": ["dice"],
    "additionalProperties": False,
}
SHARED = HostPolicy(
    versions={"try": VersionRules.from_dict("try", {"default": "1", "rules": [{"version": "2", "share": 50}]})}
)


async def play(make_tools, sessions: int, chances: tuple[float, float]):
    """So many sessions through the real runtime, each with a bent that its calls share; what the store has of them."""
    fields = {"category": "utility", "sideEffects": "none", "idempotent": True, "parameters": DICE}
    tools = {
        f"try@{number}": ({**fields, "toolId": "try", "version": f"{number}.0.0"}, CHANCE.format(chance=chance))
        for number, chance in enumerate(chances, 1)
    }
    world = make_tools(tools)
    world.registry = Registry.load(world.tools.artifact, host=SHARED)
    world.registry.lock()
    rng = random.Random(sessions)
    runtime = world.runtime(policy={"text": {"retrieval_calls": 0}})
    async with runtime:
        for _ in range(sessions):
            session = await runtime.open_session()
            bent = rng.random()
            for call in range(rng.randint(1, 3)):
                dice = bent if rng.random() < 0.5 else rng.random()
                await session.call("try", {"dice": dice}, call_id=f"c{call}")
            await session.close()
    await world.store.open()
    rows = await world.store.usage.rows()
    await world.store.close()
    return rows


@pytest.mark.parametrize(
    "sessions",
    [pytest.param(1_600, id="some"), pytest.param(20_000, id="twenty_thousand", marks=pytest.mark.long)],
)
async def test_a_known_difference_is_found_in_stored_data(make_tools, sessions):
    second = 0.20 if sessions < 20_000 else 0.13
    rows = await play(make_tools, sessions, (0.10, second))
    (found,) = comparisons(rows)
    assert (found.tool, found.versions) == ("try", ("1.0.0", "2.0.0"))
    assert sum(found.sessions.values()) == sessions
    assert abs(found.sessions["2.0.0"] / sessions - 0.5) < 3 / sqrt(sessions)
    claims = {one.measure: one for one in found.contrasts if one.claimed}
    assert "failed calls" in claims
    assert claims["failed calls"].low < second - 0.10 < claims["failed calls"].high
    assert found.estimates["failed calls"]["1.0.0"].low < 0.10 < found.estimates["failed calls"]["1.0.0"].high
    assert "calls per session" not in claims, "the versions are called alike"
    assert "failed calls of 2.0.0 higher" in rendered(found)


@pytest.mark.parametrize(
    "sessions",
    [pytest.param(1_000, id="some"), pytest.param(20_000, id="twenty_thousand", marks=pytest.mark.long)],
)
async def test_no_difference_is_claimed_where_there_is_none(make_tools, sessions):
    rows = await play(make_tools, sessions, (0.10, 0.10))
    (found,) = comparisons(rows)
    measured = [one for one in found.contrasts if one.measure != "ms in the tool per call"]
    assert len(measured) >= 2
    assert not any(one.claimed for one in measured), rendered(found)


# ------------------------------------------------------------------------------------ many repeats, without a runtime
PAIRS = [
    (one, other)
    for one, other in SESSION_PRODUCTS
    if any({one, other} <= {measure.counted, measure.per} for measure in MEASURES)
]
"""Those that some measure needs."""


def drawn(rng: random.Random, sessions: int, extra: float = 0.0):
    """What a version's sessions count, drawn at random: calls of a session fail together more often than by chance alone."""
    sums, products = dict.fromkeys(SESSION_COUNTS, 0.0), {f"{one}*{other}": 0.0 for one, other in PAIRS}
    for _ in range(sessions):
        calls = rng.randint(1, 6)
        chance = (0.6 if rng.random() < 0.2 else 0.02) + extra
        errors = sum(rng.random() < chance for _ in range(calls))
        held = calls if rng.random() < 0.3 else 0
        declined = sum(rng.random() < 0.2 for _ in range(held))
        counts = {
            "calls": calls, "errors": errors, "held": held, "declined": declined, "turns": calls,
            "completed": calls - errors, "latency": calls * rng.lognormvariate(3, 0.8), "refused": 0,
        }  # fmt: skip
        for name, value in counts.items():
            sums[name] += value
        for one, other in PAIRS:
            products[f"{one}*{other}"] += counts[one] * counts[other]
    return {"n": sessions, "sums": sums, "products": products}


def by_calls(first, second) -> bool:
    """The test that takes calls for independent, as a control: whether it claims a difference in failed calls."""
    rates, spread = [], 0.0
    for one in (first, second):
        calls, errors = one["sums"]["calls"], one["sums"]["errors"]
        rates.append(errors / calls)
        spread += errors / calls * (1 - errors / calls) / calls
    return abs(rates[0] - rates[1]) > 1.96 * sqrt(spread)


@pytest.mark.parametrize(
    ("repeats", "sessions"),
    [pytest.param(250, 200, id="some"), pytest.param(4_000, 400, id="many", marks=pytest.mark.long)],
)
def test_false_claims_are_as_rare_as_the_level_says(repeats, sessions):
    rng = random.Random(7)
    any_claim = naive = 0
    alone = dict.fromkeys((measure.name for measure in MEASURES), 0)
    for _ in range(repeats):
        first, second = drawn(rng, sessions), drawn(rng, sessions)
        found = compare("try", {"1": first, "2": second})
        any_claim += any(one.claimed for one in found.contrasts)
        naive += by_calls(first, second)
        for one in found.contrasts:
            alone[one.measure] += one.p < 1 - LEVEL
    error = 1 - LEVEL
    slack = 3 * sqrt(error * (1 - error) / repeats)
    assert any_claim / repeats < error + slack
    assert {name: times / repeats < error + slack for name, times in alone.items()} == dict.fromkeys(alone, True)
    assert alone["failed calls"] / repeats > error - slack, "the level is what it says, not less"
    assert naive / repeats > error + slack, "calls that are taken for independent would claim too much"


@pytest.mark.parametrize("extra", [0.0, 0.1])
def test_intervals_hold_the_truth_as_often_as_they_say(extra):
    rng = random.Random(11)
    truth = 0.2 * 0.6 + 0.8 * 0.02 + extra
    failed = next(measure for measure in MEASURES if measure.name == "failed calls")
    held = sum(one.low <= truth <= one.high for one in (estimate(failed, drawn(rng, 250, extra)) for _ in range(200)))
    assert held / 200 > LEVEL - 3 * sqrt(LEVEL * (1 - LEVEL) / 200)


def test_a_difference_is_found_in_nearly_every_repeat():
    rng = random.Random(3)
    found = [compare("try", {"1": drawn(rng, 400), "2": drawn(rng, 400, 0.12)}) for _ in range(40)]
    claims = [{one.measure for one in each.contrasts if one.claimed} for each in found]
    assert sum({"failed calls", "completed turns"} <= one for one in claims) > 34


def test_few_sessions_are_said_and_nothing_is_claimed():
    rng = random.Random(5)
    found = compare("try", {"1": drawn(rng, 99), "2": drawn(rng, 400, 0.5)})
    assert not found.contrasts
    assert "Fewer than 100 ended sessions" in rendered(found)
    assert "1 (99 sessions)" in rendered(found)
    assert "1 (1 session) " in rendered(compare("try", {"1": drawn(rng, 1), "2": drawn(rng, 2)}))


def test_nothing_counted_has_no_estimate_and_no_failure_an_interval():
    nothing = {"n": 200, "sums": {"calls": 200}, "products": {"calls*calls": 200}}
    failed, declined = MEASURES[0], MEASURES[2]
    assert estimate(declined, nothing) is None
    one = estimate(failed, nothing)
    assert (one.value, one.low) == (0, 0)
    assert 0.01 < one.high < 0.03, "no failure in 200 sessions does not say that there will be none"
    found = compare("try", {"1": nothing, "2": nothing})
    assert not any(one.claimed for one in found.contrasts)
