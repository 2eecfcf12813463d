"""The long run is played in pieces, and a run that was stopped continues with the next."""

import os
import shutil
import subprocess

import pytest
from tests.crash.long_run import (
    GOALS,
    STOPS,
    OnStore,
    Progress,
    _control,
    _kill,
    _next,
    advance,
    current_commit,
)


def _done() -> Progress:
    sqlite, postgres = (OnStore(controls=1, **goals) for goals in GOALS.values())
    postgres.stops = STOPS
    return Progress(commit="c1", pieces=9, seconds=1.5, sqlite=sqlite, postgres=postgres)


def test_the_long_run_continues_where_it_was_stopped_at_the_same_commit(tmp_path):
    path = tmp_path / "build" / "long-run.json"
    assert Progress.read(path, "c1") == Progress(commit="c1")
    _done().write(path)
    assert Progress.read(path, "c1") == _done()
    assert Progress.read(path, "c2") == Progress(commit="c2")


def _code(folder, text):
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "ledger.py").write_text(text)
    return current_commit(folder)


def test_pieces_of_other_code_do_not_count_although_it_was_not_committed(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        reason = "There is no git on this machine; install it to try a repository."
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    bare = {_code(tmp_path, text) for text in ("a", "b", "a")}
    assert len(bare) == 2, "without a commit"
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean, changed, otherwise, again = (_code(tmp_path, text) for text in ("a", "b", "c", "b"))
    assert len(clean) == 40
    assert changed.startswith(f"{clean} with changes ")
    assert changed == again
    assert len({clean, changed, otherwise} | bare) == 5


def test_the_figures_of_an_earlier_form_of_the_run_do_not_count(tmp_path):
    (tmp_path / "long-run.json").write_text('{"commit": "c1", "pieces": 40, "kills_sqlite": 10000, "stops": 500}')
    assert Progress.read(tmp_path / "long-run.json", "c1") == Progress(commit="c1")


def test_controls_come_first_then_what_is_furthest_from_its_end():
    progress = Progress()
    assert _next(progress)[1:] == (_control, "sqlite")
    progress = _done()
    assert _next(progress)[0] >= 1.0, "everything is done"
    progress.postgres.kills -= 1
    share, play, store = _next(progress)
    assert share < 1.0
    assert (play, store) == (_kill, "postgres")


def test_the_goal_is_what_was_promised_and_the_table_has_every_figure():
    both = [sum(goals[name] for goals in GOALS.values()) for name in ("kills", "deliveries", "deliveries_by_id")]
    assert both[0] >= 10_000
    assert both[1] + both[2] >= 1_000_000
    table = _done().table()
    assert "commit c1" in table
    assert "100% of the goal" in table
    assert all(item.replace("_", " ") in table for item in OnStore.__slots__)


@pytest.mark.long
def test_everything_again_and_again_in_pieces(record_figures):
    """Ten minutes of it; the next run of the long tests continues where this one ends."""
    progress, faults = advance(600.0)
    record_figures(progress.table())
    assert faults == {}
