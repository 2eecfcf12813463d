"""The long run is played in pieces, and a run that was stopped continues with the next."""

import pytest
from tests.crash.long_run import DELIVERIES, KILLS, STOPS, OnStore, Progress, _control, _kill, _next, advance


def _done() -> Progress:
    sqlite, postgres = (OnStore(controls=1, kills=KILLS, deliveries=count) for count in DELIVERIES.values())
    postgres.stops = STOPS
    return Progress(pieces=9, seconds=1.5, sqlite=sqlite, postgres=postgres)


def test_the_long_run_continues_where_it_was_stopped(tmp_path):
    path = tmp_path / "build" / "long-run.json"
    assert Progress.read(path) == Progress()
    _done().write(path)
    assert Progress.read(path) == _done()


def test_the_figures_of_an_earlier_form_of_the_run_do_not_count(tmp_path):
    (tmp_path / "long-run.json").write_text('{"pieces": 40, "kills_sqlite": 10000, "stops": 500}')
    assert Progress.read(tmp_path / "long-run.json") == Progress()


def test_controls_come_first_then_what_is_furthest_from_its_end():
    progress = Progress()
    assert _next(progress)[1:] == (_control, "sqlite")
    progress = _done()
    assert _next(progress)[0] >= 1.0, "everything is done"
    progress.postgres.kills -= 1
    share, play, store = _next(progress)
    assert share < 1.0
    assert (play, store) == (_kill, "postgres")


@pytest.mark.long
def test_everything_again_and_again_in_pieces():
    """Ten minutes of it; the next run of the long tests continues where this one ends."""
    progress, faults = advance(600.0)
    print(f"\n{progress}")
    assert faults == {}
