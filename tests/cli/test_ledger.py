"""`handrail ledger prune`: what has expired gives its space back, and nothing that may be asked for again does."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from handrail.contract.store import StoreUnavailable
from handrail.runtime.retention import Pruning

_DAY_MS = 86_400_000


@pytest.fixture
def called(built, handrail):
    """A project in which one writing call ran; tells how many calls are recorded, with or without their results."""
    args = json.dumps({"id": "A-1001", "status": "shipped"})
    assert handrail("call", "cancel_order", "--args", args, "--yes").code in (0, 1)
    assert len(json.loads(handrail("ledger", "list", "--json").out)) == 1

    def rows():
        return [row["envelope"] is not None for row in json.loads(handrail("ledger", "list", "--json").out)]

    return rows


def _older(project, days):
    with closing(sqlite3.connect(project / "handrail.db")) as db, db:
        db.execute("UPDATE ledger SET finished_at = finished_at - ?", (days * _DAY_MS,))
        db.execute("UPDATE session SET saved_at = saved_at - ?", (days * _DAY_MS,))


def _pruned(handrail, *words):
    said = handrail("ledger", "prune", "--json", *words)
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_what_is_new_is_kept(called, handrail):
    assert _pruned(handrail) == {"results": 0, "rows": 0}
    assert called() == [True]


def test_an_old_result_is_given_back_and_its_call_stays_recorded(called, built, handrail):
    _older(built, 8)
    assert _pruned(handrail, "--results", "10") == {"results": 0, "rows": 0}
    assert _pruned(handrail) == {"results": 1, "rows": 0}
    assert called() == [False]


def test_a_call_of_a_session_that_was_closed_long_ago_is_given_back(called, built, handrail):
    _older(built, 40)
    assert _pruned(handrail, "--rows", "60") == {"results": 1, "rows": 0}
    assert handrail("ledger", "prune").out == "0 results and 1 calls of closed sessions were given back.\n"
    assert called() == []


@pytest.mark.parametrize("error", [StoreUnavailable("The store is away."), KeyboardInterrupt()])
def test_what_was_given_back_before_it_broke_off_is_audited(called, built, handrail, monkeypatch, error):
    step = Pruning.step

    async def breaks_off(pruning, store):
        if pruning.results:
            raise error
        await step(pruning, store)
        pruning.is_over = False

    _older(built, 8)
    monkeypatch.setattr(Pruning, "step", breaks_off)
    assert handrail("ledger", "prune").code != 0
    audited = json.loads(handrail("audit", "show", "--event", "pruned", "--json").out)
    assert (audited["results"], audited["rows"]) == (1, 0)


def test_an_unknown_outcome_is_never_given_back(called, built, handrail):
    with closing(sqlite3.connect(built / "handrail.db")) as db, db:
        db.execute("UPDATE ledger SET state = 'unknown', finished_at = NULL, created_at = 1")
    assert _pruned(handrail, "--results", "1", "--rows", "1") == {"results": 0, "rows": 0}
    assert len(called()) == 1


@pytest.mark.parametrize("days", ["0", "-1", "soon", "1.5", "36501", "٣"])
def test_no_number_of_days_is_wrong_usage(called, handrail, days):
    said = handrail("ledger", "prune", f"--rows={days}")
    assert said.code == 2
    assert "is no number of days" in said.err
    assert called() == [True]


def test_show_prints_json_and_times_that_a_person_can_read(called, handrail):
    (row,) = json.loads(handrail("ledger", "list", "--json").out)
    shown = handrail("ledger", "show", row["key"][:8]).out
    when = datetime.fromisoformat(row["createdAt"])
    assert abs((datetime.now(UTC) - when).total_seconds()) < 3_600
    assert f"createdAt        {row['createdAt']}" in shown
    assert "'id'" not in shown
    assert '"id": "A-1001"' in shown
    assert "None" not in shown


def test_an_unknown_outcome_is_called_so(called, built, handrail):
    with closing(sqlite3.connect(built / "handrail.db")) as db, db:
        db.execute("UPDATE ledger SET state = 'unknown', finished_at = NULL, envelope = NULL")
    assert "unknown outcome" in handrail("ledger", "list").out
    (row,) = json.loads(handrail("ledger", "list", "--json").out)
    shown = handrail("ledger", "show", row["key"]).out
    assert "unknown outcome" in shown
    assert "it may have taken effect" in shown
