"""Experiments: a known difference between two versions is found in what the store has of their sessions, and where there is none,
none is claimed more often than the level says, although the calls of one session are alike."""

import random
import secrets
from math import log, sqrt
from time import perf_counter

import pytest

from handrail.contract.usage import SESSION_COUNTS, SESSION_PRODUCTS
from handrail.observe.significance import Arm, chance_of_difference
from handrail.observe.version_comparison import LEVEL, MEASURES, _arm, compare, comparisons, estimate, rendered
from handrail.registry import Registry
from handrail.registry.host_policy import HostPolicy
from handrail.registry.version_rules import VersionRules
from handrail.runtime import envelopes, pipeline

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


async def play(make_tools, monkeypatch, sessions: int, chances: tuple[float, float]):
    """A number of sessions through the real runtime, each with a bent that its calls share; what the store has of them."""
    fields = {"category": "utility", "sideEffects": "none", "idempotent": True, "parameters": DICE}
    tools = {
        f"try@{number}": ({**fields, "toolId": "try", "version": f"{number}.0.0"}, CHANCE.format(chance=chance))
        for number, chance in enumerate(chances, 1)
    }
    world = make_tools(tools)
    world.registry = Registry.load(world.tools.artifact, host=SHARED)
    world.registry.lock()
    rng = random.Random(sessions)
    took = random.Random(sessions + 2)
    now = perf_counter()

    def ticking() -> float:
        """Each look at the clock is a long-tailed while after the last one: the durations of calls, each time the same."""
        nonlocal now
        now += took.lognormvariate(-7, 1)
        return now

    for module in (pipeline, envelopes):
        monkeypatch.setattr(module, "perf_counter", ticking)
    drawn_ids = random.Random(sessions + 1)
    monkeypatch.setattr(
        secrets, "token_hex", lambda size: drawn_ids.randbytes(size).hex()
    )  # the arms, each time the same
    runtime = world.runtime(policy={"text": {"retrieval_calls": 0}})
    async with runtime:
        for _ in range(sessions):
            session = await runtime.open_session()
            bent = rng.random()
            for call in range(rng.randint(1, 3)):
                dice = bent if rng.random() < 0.5 else rng.random()
                dice += call * 1e-9  # another call, which no earlier one answers
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
async def test_a_known_difference_is_found_in_stored_data(make_tools, monkeypatch, sessions):
    second = 0.20 if sessions < 20_000 else 0.13
    rows = await play(make_tools, monkeypatch, sessions, (0.10, second))
    (found,) = comparisons(rows)
    assert (found.tool, found.versions) == ("try", ("1.0.0", "2.0.0"))
    assert sum(found.sessions.values()) == sessions
    assert abs(found.sessions["2.0.0"] / sessions - 0.5) < 3 / sqrt(sessions)
    claims = {one.measure: one for one in found.contrasts if one.claimed}
    assert "failed calls" in claims
    assert claims["failed calls"].low < second - 0.10 < claims["failed calls"].high
    assert found.estimates["failed calls"]["1.0.0"].low < 0.10 < found.estimates["failed calls"]["1.0.0"].high
    assert claims.keys() <= {"failed calls", "completed turns"}, "the versions are called alike, and take the same time"
    assert "failed calls of 2.0.0 higher" in rendered(found)


@pytest.mark.parametrize(
    "sessions",
    [pytest.param(1_000, id="some"), pytest.param(20_000, id="twenty_thousand", marks=pytest.mark.long)],
)
async def test_no_difference_is_claimed_where_there_is_none(make_tools, monkeypatch, sessions):
    rows = await play(make_tools, monkeypatch, sessions, (0.10, 0.10))
    (found,) = comparisons(rows)
    assert len(found.contrasts) == 4
    assert not any(one.claimed for one in found.contrasts), rendered(found)


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


def drawn_rarely(rng: random.Random, sessions: int, chance: float, together: int = 1):
    """Sessions of four calls each, of which few have failures, and those `together`: only these are drawn, by the gaps."""
    sums = {"calls": 4.0 * sessions, "turns": 4.0 * sessions}
    failed = 0
    place = log(1 - rng.random()) / log(1 - chance)
    while place < sessions:
        failed += 1
        place += 1 + log(1 - rng.random()) // log(1 - chance)
    sums["errors"] = float(failed * together)
    sums["completed"] = sums["turns"] - sums["errors"]
    squares = float(failed * together * together)
    done = 16.0 * (sessions - failed) + (4.0 - together) ** 2 * failed
    products = {
        "calls*calls": 16.0 * sessions, "turns*turns": 16.0 * sessions,
        "errors*errors": squares, "calls*errors": 4 * sums["errors"],
        "completed*completed": done, "turns*completed": 4 * sums["completed"],
    }  # fmt: skip
    return {"n": sessions, "sums": sums, "products": products}


def by_each_arm(first, second) -> bool:
    """The test that takes the variance of each arm for itself, as a control: whether it claims a difference in failed calls."""
    failed = MEASURES[0]
    arms = [_arm(failed, one) for one in (first, second)]
    return abs(arms[0].value - arms[1].value) > 1.96 * sqrt(sum(one.variance for one in arms))


@pytest.mark.parametrize("repeats", [120, pytest.param(2_000, id="many", marks=pytest.mark.long)])
@pytest.mark.parametrize(("second", "together"), [(50, 1), (10, 1), (10, 3), (2, 1)])
def test_false_claims_are_rare_however_unequal_the_arms_and_rare_the_failures(second, together, repeats):
    rng = random.Random(13)
    error = 1 - LEVEL
    slack = 3 * sqrt(error * (1 - error) / repeats)
    by_arm = 0.0
    for sessions, failures in ((5_000, 10), (20_000, 40), (20_000, 200)):
        chance, smaller = failures / sessions, sessions * second // 100
        pairs = [
            (drawn_rarely(rng, sessions - smaller, chance, together), drawn_rarely(rng, smaller, chance, together))
            for _ in range(repeats)
        ]
        claims = sum(any(c.claimed for c in compare("try", {"1": one, "2": two}).contrasts) for one, two in pairs)
        assert claims / repeats < error + slack, (sessions, failures)
        by_arm = max(by_arm, sum(by_each_arm(one, two) for one, two in pairs) / repeats)
    assert by_arm > error + slack or second == 50, "a variance from a small arm alone claims too much"


def test_a_difference_in_a_small_arm_and_of_rare_failures_is_found():
    rng = random.Random(17)
    for sessions, smaller, chances in (
        (18_000, 2_000, (0.002, 0.012)),
        (900, 100, (0.01, 0.15)),
        (500, 500, (0.0, 0.05)),
    ):
        first, second = (
            drawn_rarely(rng, size, c or 1e-9) for size, c in zip((sessions, smaller), chances, strict=True)
        )
        claims = {one.measure: one for one in compare("try", {"1": first, "2": second}).contrasts if one.claimed}
        assert set(claims) == {"failed calls", "completed turns"}
        assert claims["failed calls"].low > 0 > claims["completed turns"].high


def test_versions_of_which_one_always_fails_and_one_never_differ():
    arms = [
        {
            "n": 200,
            "sums": {"calls": 200, "errors": errors},
            "products": {"calls*calls": 200, "calls*errors": errors, "errors*errors": errors},
        }
        for errors in (0, 200)
    ]
    (claim,) = (one for one in compare("try", dict(zip("12", arms, strict=True))).contrasts if one.claimed)
    assert (claim.measure, claim.difference) == ("failed calls", 1)
    assert claim.low > 0.9


def test_more_declined_than_held_is_no_share_to_claim_by():
    odd = {"n": 200, "sums": {"held": 200, "declined": 200},
           "products": {"held*held": 200, "declined*held": 200, "held*declined": 200, "declined*declined": 400}}  # fmt: skip
    found = compare("try", {"1": odd, "2": odd})
    assert not any(one.claimed for one in found.contrasts)
    assert found.estimates["declined confirmations"]["1"].value == 1
    likely, too_many = Arm(20, 18, 20, 18, 18, 20), Arm(20, 21, 20, 23, 21, 20)
    chances = [chance_of_difference(*arms, is_share=True) for arms in ((likely, too_many), (too_many, likely))]
    assert all(chance > 0.1 for chance in chances)


def test_false_claims_of_a_latency_with_a_long_tail_are_rare_in_a_small_arm():
    rng = random.Random(19)
    repeats, claims = 100, 0
    for _ in range(repeats):
        arms = []
        for sessions in (900, 100):
            times = [rng.lognormvariate(3, 1) for _ in range(sessions)]
            sums = {"calls": sessions, "latency": sum(times)}
            products = {
                "calls*calls": sessions,
                "calls*latency": sum(times),
                "latency*latency": sum(t * t for t in times),
            }
            arms.append({"n": sessions, "sums": sums, "products": products})
        claims += any(one.claimed for one in compare("try", {"1": arms[0], "2": arms[1]}).contrasts)
    error = 1 - LEVEL
    assert claims / repeats < error + 3 * sqrt(error * (1 - error) / repeats)


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


@pytest.mark.parametrize(("longer", "claimed"), [(0.05, False), (0.2, True)])
def test_a_difference_in_time_that_is_sure_and_tiny_is_not_claimed(longer, claimed):
    arms = []
    for mean in (1.0, 1.0 + longer):
        times = [mean + 0.01 * (number % 10) for number in range(400)]
        sums = {"calls": 400, "latency": sum(times)}
        products = {"calls*calls": 400, "calls*latency": sum(times), "latency*latency": sum(t * t for t in times)}
        arms.append({"n": 400, "sums": sums, "products": products})
    (found,) = (
        one for one in compare("try", {"1": arms[0], "2": arms[1]}).contrasts if one.measure.startswith("ms in")
    )
    assert found.low > 0
    assert found.p < 1e-6
    assert found.claimed is claimed


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
