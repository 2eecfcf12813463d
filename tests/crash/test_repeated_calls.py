"""Calls that come again by their ids: each runs once, is told to everybody, and is taken for no other; the control doubles."""

import pytest
from tests.crash.repeated_calls import run
from tests.crash.run import room


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_calls_that_come_again_by_their_ids_double_nothing_and_merge_nothing(request, store):
    database = request.getfixturevalue("postgres").new_database() if store == "postgres" else None
    with room() as folder:
        outcome = run(folder, database, sessions=4, copies=5)
    assert outcome.faults == {}
    assert outcome.starts == 2 * 4 * 6
    assert outcome.deliveries == 2 * 4 * 6 * 5 * 3
    assert outcome.held == 2 * 4 * 5


def test_the_run_sees_what_happens_without_the_ledger():
    with room() as folder:
        outcome = run(folder, None, sessions=1, copies=2, ledger=False)
    assert outcome.doubled
    assert outcome.inconsistent
