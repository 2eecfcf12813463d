"""`make mutants`: its table names files that are there, and its report hides no survivor."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from scripts.mutants import (
    MAX_SECONDS,
    Figures,
    Survivor,
    Target,
    chosen,
    missing,
    quickest_of_each_file,
    read_table,
    report,
    selected,
)

ALIVE = ("give_back", "used -= 1", "used -= 2")
LISTED = Survivor(function="give_back", before="used -= 1", after="used -= 2", reason="An example.")
GOOD = Figures(target="budget", mutants=10, tried=10, killed=9, seconds=1.0, survivors=(ALIVE,))


def test_the_table_names_files_and_functions_that_are_there():
    targets, survivors = read_table()
    assert missing(targets) == []
    assert all(each.reason.endswith(".") for each in survivors)
    sources = [target.source for target in targets]
    assert [each.before for each in survivors if not any(each.before in source for source in sources)] == []


def test_a_file_a_function_or_a_test_that_is_gone_is_named():
    gone = Target(
        name="budget", file="src/handrail/gone.py", tests=("tests/test_gone.py",), functions=("f",), max_mutants=None
    )
    moved = replace(gone, file="scripts/mutants.py", tests=("tests/test_mutants.py",), functions=("report", "no_such"))
    complaints = missing([gone, moved])
    assert len(complaints) == 3
    assert all(name in line for name, line in zip(("gone.py", "test_gone.py", "no_such"), complaints, strict=True))


def test_listed_survivors_pass_and_others_do_not():
    assert report([GOOD], [LISTED], whole=True)[1] == []
    (complaint,) = report([GOOD], [], whole=True)[1]
    assert "used -= 2" in complaint
    assert report([GOOD], [replace(LISTED, after="*")], whole=True)[1] == []
    assert len(report([GOOD], [replace(LISTED, before="used -= 3", after="*")], whole=False)[1]) == 1


def test_a_survivor_that_was_killed_since_leaves_the_list():
    killed = replace(GOOD, killed=10, survivors=())
    (complaint,) = report([killed], [LISTED], whole=True)[1]
    assert "none any more" in complaint
    assert report([killed], [LISTED], whole=False)[1] == []


def test_a_listed_survivor_that_the_sample_does_not_have_stays_listed():
    sampled = replace(GOOD, killed=10, survivors=(), left_out=(ALIVE,))
    assert report([sampled], [LISTED], whole=True)[1] == []


def test_four_fifths_must_be_killed_and_all_tried():
    weak = replace(GOOD, killed=7)
    assert "70 %" in report([weak], [LISTED], whole=True)[1][0]
    unfinished = replace(GOOD, tried=9, killed=8)
    assert "not tried (1)" in report([unfinished], [LISTED], whole=True)[1][0]


def test_the_quickest_tests_come_first_and_no_file_is_left_to_the_end():
    tests = {"a.py::slow": 3.0, "a.py::quick": 0.1, "b.py::only": 2.0, "a.py::middling": 0.2}
    assert quickest_of_each_file(tests) == ["a.py::quick", "b.py::only", "a.py::middling", "a.py::slow"]


def test_the_tests_that_run_the_very_line_are_chosen_before_quicker_ones():
    tests = {"a.py::quick": 1.0, "a.py::long": MAX_SECONDS - 2, "b.py::on_the_line": 3.0}
    assert list(selected(tests)) == ["a.py::quick", "b.py::on_the_line"]
    assert list(selected(tests, {"a.py::long"})) == ["a.py::long", "a.py::quick"]
    killers = Counter({"a.py::quick": 2})
    assert list(selected(tests, {"a.py::long"}, killers)) == ["a.py::quick", "a.py::long"]


def test_an_edit_draws_no_new_sample_of_what_it_left_alone():
    target = Target(name="budget", file="src/handrail/gone.py", tests=(), functions=(), max_mutants=20)
    mutants: list[Any] = [
        SimpleNamespace(name=f"spend: used += {n} -> used -= {n}", function="spend") for n in range(60)
    ]
    added: list[Any] = [SimpleNamespace(name="refuse: if full: -> if not full:", function="refuse")]
    before, after = ({each.name for each in chosen(target, every)} for every in (mutants, [*added, *reversed(mutants)]))
    assert len(before) == len(after) == 20
    assert len(before & after) >= 19
