"""`make compare`: what it plays, and what it says of two trees."""

import asyncio
from pathlib import Path

import pytest
from scripts.compare import ENOUGH_PAIRS, INTENDED, WAITING, report, rows, scenarios

ROOT = Path(__file__).resolve().parents[1]


def test_the_ratio_is_of_pairs_so_that_a_slow_moment_hits_both_sides():
    quick, slow = ((1e-6, 2e-6), (1e-6, 2e-6)), ((9e-6, 8e-6), (9e-6, 8e-6))
    (processor, clock) = rows({"one write": [quick, slow, quick]})
    assert (processor.kind, processor.before, processor.now, processor.ratio) == ("processor", 1.0, 1.0, 1.0)
    assert (clock.kind, clock.ratio) == ("clock", 1.0)


@pytest.mark.parametrize(("now", "is_slower"), [(1.09e-6, False), (1.12e-6, True)])
def test_more_than_a_tenth_is_slower(now, is_slower):
    (row,) = rows({"pick_tools": [((1e-6, 1e-6), (now, now))]})
    assert row.is_slower is is_slower
    assert not row.is_intended


@pytest.mark.parametrize(
    ("pairs", "scenario", "status"),
    [
        (ENOUGH_PAIRS, "pick_tools", 1),
        (ENOUGH_PAIRS, next(iter(INTENDED)), 0),
        (ENOUGH_PAIRS - 1, "pick_tools", 2),
    ],
)
def test_the_verdict_needs_enough_pairs_and_excuses_what_is_intended(pairs, scenario, status):
    lines, found = report(rows({scenario: [((1e-6, 1e-6), (2e-6, 2e-6))] * pairs}), "HEAD", pairs)
    assert found == status
    assert "2.00  slower" in lines[1]


@pytest.mark.long
async def test_every_scenario_is_played_and_every_exception_is_of_one(tmp_path):
    async with scenarios(ROOT, tmp_path) as found:
        for play in found.values():
            processor, clock = await asyncio.wait_for(play(), 120)
            assert processor > 0
            assert clock > 0
    assert set(WAITING) | set(INTENDED) <= set(found)
