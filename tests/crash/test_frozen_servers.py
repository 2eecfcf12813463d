"""Three servers on one store that are frozen, cut off from the database and killed lose, steal, double and take back nothing.

The controls are the same servers without one of their guards: what is in memory is shown without a look at who has the session,
or the end of a turn is reported before it is stored. Were nothing stale in them, the run could not have seen it in the real ones.
"""

import os
import random

import pytest
from tests.crash.frozen_servers import Step, run

FROZEN_AND_CUT_OFF = [
    Step(at=1, place=0, trouble="freeze", seconds=11),
    Step(at=1.5, place=1, trouble="cut", seconds=5),
    Step(at=8, place=1, trouble="silence", seconds=1),
    Step(at=10, place=2, trouble="kill"),
]
FROZEN = [
    Step(at=1, place=0, trouble="freeze", seconds=3),
    Step(at=1.5, place=1, trouble="freeze", seconds=1),
    Step(at=3, place=2, trouble="kill"),
]
CUT_OFF = [Step(at=1.5 * place + 1, place=place, trouble="cut", seconds=2.5) for place in range(3)]


def _seed(usual: int) -> int:
    return int(os.environ.get("HANDRAIL_CRASH_SEED", str(usual)))


def test_servers_that_are_frozen_and_cut_off_lose_double_and_take_back_nothing(postgres, record_figures):
    figures = run(_seed(20260601), 12, clients=12, think=0.3, steps=FROZEN_AND_CUT_OFF, server=postgres)
    record_figures(figures)
    assert figures.faults == {}, figures
    assert figures.effects > 0


def test_frozen_servers_on_one_file_lose_double_and_take_back_nothing(record_figures):
    figures = run(_seed(20260611), 5, clients=8, think=0.3, steps=FROZEN)
    record_figures(figures)
    assert figures.faults == {}, figures
    assert figures.effects > 0


def test_the_run_sees_what_servers_show_that_do_not_look(record_figures):
    for seed in range(20260621, 20260631):
        figures = run(seed, 4, clients=8, think=0.1, steps=FROZEN, looks=False)
        record_figures(f"control: {figures}")
        if figures.stale:
            return
    raise AssertionError("nothing stale was shown, so this test would not see it")


@pytest.mark.long
def test_the_run_sees_what_servers_tell_that_do_not_wait(postgres, record_figures):
    for seed in range(20260631, 20260641):
        figures = run(seed, 8, clients=20, think=0.2, steps=CUT_OFF, server=postgres, waits=False)
        record_figures(f"control: {figures}")
        if figures.stale or figures.doubled:
            return
    raise AssertionError("no end was reported before it was stored, so this test would not see it")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_servers_in_trouble_for_five_minutes_lose_double_and_take_back_nothing(kind, request, record_figures):
    server = request.getfixturevalue("postgres") if kind == "postgres" else None
    seed = int(os.environ.get("HANDRAIL_CRASH_SEED", random.SystemRandom().getrandbits(31)))
    figures = run(seed, 300, clients=20, think=1, server=server)
    record_figures(figures)
    assert figures.faults == {}, figures
