"""`handrail stats`: how tools were used, from the store."""

import json
import sqlite3
from contextlib import closing

import pytest


@pytest.fixture
def used(built, handrail):
    """A project in which a tool was called twice, once with arguments that it does not take."""
    assert handrail("call", "count_words", "--args", '{"text": "one two"}').code in (0, 1)
    assert handrail("call", "count_words", "--args", '{"nothing": 1}').code == 1
    return built


def stats(handrail, *words):
    said = handrail("stats", "--json", *words)
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_calls_of_earlier_processes_are_listed_by_tool(used, handrail):
    (row,) = stats(handrail)["rows"]
    assert (row["tool"], row["calls"], sum(row["refused"].values())) == ("count_words", 2, row["refusals"]["validate"])
    table = handrail("stats").out.splitlines()
    assert table[0].split()[:4] == ["tool", "calls", "ok", "errors"]
    assert table[1].split()[:2] == ["count_words", "2"]


def test_the_tables_have_replays_and_how_turns_ended_and_which_gate_refused(used, handrail):
    with closing(sqlite3.connect(used / "handrail.db")) as db, db:
        db.execute("UPDATE tool_usage SET counts = json_set(counts, '$.replayed', 7) WHERE tool != ''")
    for by, named in (("tool", ["count_words"]), ("version", ["count_words", "1.0.0"])):
        (row,) = stats(handrail, "--by", by)["rows"]
        assert (sum(row["turns"].values()), row["turns"]["failed"]) == (2, 1)
        calls, turns, gates = (
            [line.split() for line in part.splitlines()]
            for part in handrail("stats", "--by", by)
            .out.replace(" ms", "_ms")
            .replace("p95 bytes", "p95_bytes")
            .replace("refused by ", "by_")
            .replace(" %", "%")
            .split("\n\n")
        )
        assert calls[1][calls[0].index("replayed")] == "7"
        wanted = ["turns", "completed", "failed", "held", "declined", "interrupted"]
        assert turns[0][-6:] == wanted
        assert turns[1] == [*named, "2", "50.0%", "50.0%", "0.0%", "0.0%", "0.0%"]
        assert (gates[0][-1], gates[1]) == ("by_validate", [*named, "1"])


def test_rows_are_by_day_tenant_or_version_too(used, handrail):
    (row,) = stats(handrail, "--by", "version")["rows"]
    assert (row["tool"], row["version"], row["calls"]) == ("count_words", "1.0.0", 2)
    with closing(sqlite3.connect(used / "handrail.db")) as db, db:
        db.execute("UPDATE tool_usage SET day = '2026-01-02'")
    assert stats(handrail, "--by", "day")["rows"] == []
    (row,) = stats(handrail, "--by", "day", "--since", "2026-01-01")["rows"]
    assert (row["day"], row["calls"]) == ("2026-01-02", 2)
    (row,) = stats(handrail, "--by", "tenant", "--since", "2026-01-01", "--tool", "count_words")["rows"]
    assert (row["tenant"], row["calls"]) == ("", 2)
    assert stats(handrail, "--tool", "other", "--since", "2026-01-01")["rows"] == []


def test_a_tool_that_was_never_called_is_named_with_the_nearest_that_was(used, handrail):
    said = handrail("stats", "--tool", "count_wrods", "--since", "2026-01-01").out
    assert said == 'No call of "count_wrods" is counted since 2026-01-01; did you mean "count_words"?\n'
    assert handrail("stats", "--tool", "x", "--since", "2026-01-01").out == (
        'No call of "x" is counted since 2026-01-01.\n'
    )


def test_what_never_ran_has_no_time(built, handrail):
    assert handrail("call", "count_words", "--args", '{"nothing": 1}').code == 1
    heads, row = (
        line.split()
        for line in handrail("stats").out.replace("p50 ms  p95 ms  p99 ms  p95 bytes", "a b c d").splitlines()[:2]
    )
    assert dict(zip(heads, row, strict=False)) | dict.fromkeys("abcd", "–") == dict(zip(heads, row, strict=False))


def test_a_project_without_calls_says_so_and_makes_no_store(project, handrail):
    assert handrail("stats", "--since", "2026-11-01").out == "No call is counted since 2026-11-01.\n"
    assert not (project / "handrail.db").exists()


@pytest.mark.parametrize("since", ["yesterday", "2026-13-01", "d", "99999d9", ""])
def test_a_day_that_is_none_is_named(project, handrail, since):
    said = handrail("stats", "--since", since)
    assert (said.code, said.out) == (2, "")
    assert f'"{since}" is no day' in said.err
    assert len(said.err.splitlines()) == 1
