"""What `handrail build` can be asked for: to check, to be strict, to compare, to watch, to write elsewhere."""

import json
import logging
import shutil
from contextlib import suppress

import pytest

from handrail.build import watch
from handrail.build.compiler import BuildPlan, build
from handrail.cli import main
from handrail.contract.errors import UsageError


@pytest.fixture
def run(workshop, monkeypatch, capsys):
    """Runs `handrail build` in the workshop; exit code, output, errors."""
    monkeypatch.chdir(workshop.root)

    def run(*options):
        code = main(["build", *options])
        return (code, *capsys.readouterr())

    return run


def test_check_fails_while_the_artifact_is_stale_and_never_writes(workshop, run):
    folder = workshop.new()
    assert run("--check")[0] == 1
    assert not workshop.artifact.exists()
    assert run()[0] == 0
    assert run("--check")[0] == 0
    before = workshop.artifact.read_bytes()
    workshop.edit(folder, tags=["new"])

    code, _, errors = run("--check")

    assert code == 1
    assert "stale" in errors
    assert "handrail build" in errors
    assert workshop.artifact.read_bytes() == before


def test_strict_turns_a_warning_into_a_failure_that_writes_nothing(workshop, run):
    workshop.edit(workshop.new(), latencyBudgetMs=9000)

    code, _, errors = run("--strict")
    assert code == 1
    assert "--strict" in errors
    assert not workshop.artifact.exists()

    code, output, errors = run()
    assert code == 0
    assert "Built 1 tool" in output
    assert "[voice-latency]" in errors


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('[versions.{name}]\ndefault = "9"\n', 'names version "9"'),
        ('[versions.nobody]\ndefault = "1"\n', "which there is not"),
    ],
)
def test_a_rule_for_a_version_that_is_missing_stops_the_build(workshop, run, lines, words):
    workshop.new()
    assert run()[0] == 0
    (entry,) = json.loads(workshop.artifact.read_bytes())["tools"]
    workshop.artifact.unlink()
    (workshop.root / "handrail.toml").write_text(lines.format(name=entry["toolId"]), "utf-8")
    code, _, errors = run()
    assert code == 2
    assert words in errors
    assert not workshop.artifact.exists()


def test_a_build_is_logged_with_its_commit_and_the_names_of_its_tools(workshop, run, caplog):
    caplog.set_level(logging.INFO, "handrail.build")
    workshop.new()
    workshop.new("lookup_customer")
    assert run()[0] == 0
    (line,) = [record.getMessage() for record in caplog.records if record.name == "handrail.build"]
    assert line.startswith("Built registry 1.0.")
    assert "commit" in line
    assert line.endswith(": lookup_customer, lookup_order")


def test_strict_passes_a_waived_warning(workshop, run):
    workshop.edit(workshop.new(), latencyBudgetMs=9000, waivers={"voice-latency": "It is announced."})

    assert run("--strict")[0] == 0


def test_against_an_older_artifact_a_breaking_change_needs_a_major_version(workshop, run, tmp_path):
    folder = workshop.new()
    assert run()[0] == 0
    released = tmp_path / "released.json"
    shutil.copy(workshop.artifact, released)
    workshop.change(folder, lambda schema: schema["parameters"]["properties"].update(why={"type": "string"}))
    workshop.change(folder, lambda schema: schema["parameters"]["required"].append("why"))
    guide = (folder / "guide.md").read_text()
    (folder / "guide.md").write_text(guide.replace('{ "id": "A-1001" }', '{ "id": "A-1001", "why": "asked" }'))

    code, _, errors = run("--against", str(released))
    assert code == 1
    assert "lookup_order" in errors
    assert json.loads(run("--against", str(released), "--json")[1])["breaking"]
    assert workshop.artifact.read_bytes() == released.read_bytes()

    workshop.edit(folder, version="2.0.0")
    assert run("--against", str(released))[0] == 0


def test_against_an_older_artifact_a_widening_passes(workshop, run, tmp_path):
    folder = workshop.new()
    assert run()[0] == 0
    released = shutil.copy(workshop.artifact, tmp_path / "released.json")
    workshop.change(folder, lambda schema: schema["parameters"]["properties"].update(why={"type": "string"}))

    assert run("--against", str(released))[0] == 0


def test_against_something_that_is_no_artifact_is_told(workshop, run, tmp_path):
    workshop.new()

    code, _, errors = run("--against", str(tmp_path / "nothing.json"))

    assert code == 1
    assert "nothing.json" in errors
    assert not workshop.artifact.exists()


def test_an_output_and_a_directory_can_be_named(workshop, run, tmp_path):
    workshop.new()
    (tmp_path / "out").mkdir()

    assert run("tools", "-o", "out")[0] == 0
    assert run("tools", "-o", "out/other.json")[0] == 0
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".jsonl"}
    assert (tmp_path / "out/tool_registry.json").exists()
    assert (tmp_path / "out/other.json").exists()


def test_the_artifact_lies_beside_the_directory_however_that_is_named(workshop, run, monkeypatch):
    folder = workshop.new()
    monkeypatch.chdir(folder)

    assert run("..")[0] == 0

    assert workshop.artifact.exists()
    assert not (folder / "tool_registry.json").exists()


# ---------------------------------------------------------------------------------------------------------- watching


def test_watching_builds_at_once_and_again_after_every_change(workshop):
    folder = workshop.new()
    (workshop.root / "watched_module.py").write_text("x = 1\n")
    (workshop.root / "watched_package").mkdir()
    (workshop.root / "watched_package" / "__init__.py").write_text("x = 1\n")
    steps = iter(
        [
            lambda: None,
            lambda: (folder / "guide.md").write_text("Changed.\n"),
            lambda: None,
            lambda: (folder / "words.py").write_text("x = 1\n"),
            (folder / "words.py").unlink,
            lambda: shutil.rmtree(folder),
            (workshop.tools / "_draft").mkdir,
            lambda: (workshop.tools / "_draft" / "x.py").write_text("not watched"),
            lambda: (workshop.root / "watched_module.py").write_text("x = 22\n"),
            lambda: (workshop.root / "watched_package" / "__init__.py").write_text("x = 22\n"),
        ]
    )
    slept = []

    class Enough(Exception):
        pass

    def sleep(seconds):
        slept.append(seconds)
        step = next(steps, None)
        if step is None:
            raise Enough
        step()

    seen = []
    with suppress(Enough):
        for _ in watch.changes(workshop.plan(modules=("watched_module", "watched_package")), sleep):
            seen.append(len(slept))

    assert seen == [0, 2, 4, 5, 6, 9, 10]


def test_watching_takes_a_changed_module_in(workshop):
    module = workshop.root / "watched_and_rebuilt.py"
    source = "from handrail import tool\n\n@tool(version={!r})\ndef look(x: int):\n    '''Look.'''\n"
    versions = []
    for version in ("1.0.0", "1.1.0", "1.0.0"):
        module.write_text(source.format(version))
        (entry,) = workshop.build(modules=("watched_and_rebuilt",)).entries
        versions.append(entry["version"])

    assert versions == ["1.0.0", "1.1.0", "1.0.0"]


def test_watch_is_for_people_in_development(workshop, run, monkeypatch):
    workshop.new()
    assert run("--watch", "--json")[0] == 2
    assert run("--watch", "--check")[0] == 2
    monkeypatch.setenv("HANDRAIL_ENV", "production")
    code, _, errors = run("--watch")
    assert code == 2
    assert "production" in errors


def test_progress_tells_of_every_tool(workshop):
    for number in range(3):
        workshop.new(f"tool_{number}")
    told = []

    build(workshop.plan(), lambda done, total: told.append((done, total)))

    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_tools_directory_is_not_needed_for_decorated_tools_unless_it_was_named(tmp_path):
    (tmp_path / "only_decorated.py").write_text(
        "from handrail import tool\n\n@tool\ndef look(x: int):\n    '''Look.'''\n"
    )
    place = {"tools": tmp_path / "tools", "artifact": tmp_path / "r.json", "project": tmp_path}

    result = build(BuildPlan(**place, modules=("only_decorated",), tools_optional=True))

    assert [entry["toolId"] for entry in result.entries] == ["look"]
    with pytest.raises(UsageError, match="no tools directory"):
        build(BuildPlan(**place, modules=("only_decorated",)))
