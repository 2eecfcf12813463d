"""The build: everything at once, the same bytes everywhere, a version that follows content, an old artifact that stays whole."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.build.compiler import BuildPlan, BuildStamp, build
from handrail.build.findings import Catalogue
from handrail.build.writer import GENERATIONS, is_current, stamp_for, write
from handrail.cli import main
from handrail.contract.errors import BuildError
from handrail.registry import Registry

STAMP = BuildStamp(git_commit=None, timestamp="2026-01-01T00:00:00Z")
EPOCH = {"SOURCE_DATE_EPOCH": "1767225600"}


def spoil_in_eight_ways(workshop):
    folder = workshop.new()
    workshop.change(folder, lambda schema: schema.pop("idempotent"))
    workshop.edit(folder, version="1", category="retrieval", sideEffects="writes", latencyBudget=5)
    workshop.change(folder, lambda schema: schema["parameters"].pop("additionalProperties"))
    workshop.change(folder, lambda schema: schema["parameters"]["properties"].update(x={"type": "strnig"}))
    (folder / "guide.md").write_text("# Nothing but a heading\n")
    (folder / "handler.py").write_text("def run(args, ctx): ...\n")
    return {
        "required-field",
        "field-value",
        "retrieval-pure",
        "unknown-field",
        "parameters-object",
        "json-schema",
        "guide-summary",
        "handler-execute",
    }


def test_eight_different_mistakes_in_one_folder_are_eight_findings_of_one_run(workshop):
    expected = spoil_in_eight_ways(workshop)

    found = workshop.findings()

    assert {finding.rule for finding in found} == expected
    assert len(found) == len(expected) == 8


def test_the_json_of_a_failed_build_lists_every_finding(workshop, capsys, monkeypatch):
    expected = spoil_in_eight_ways(workshop)
    monkeypatch.chdir(workshop.root)

    assert main(["build", "--json"]) == 1

    output = capsys.readouterr()
    report = json.loads(output.out)
    assert "Traceback" not in output.err
    assert {finding["rule"] for finding in report["findings"]} == expected
    for finding in report["findings"]:
        assert {"rule", "file", "place", "message", "fix"} <= set(finding)
        assert all(isinstance(value, str) for value in finding.values())
    assert (report["written"], report["version"]) == (False, None)
    assert not workshop.artifact.exists()


def test_a_failed_build_writes_nothing_and_keeps_the_old_artifact(workshop, monkeypatch, capsys):
    folder = workshop.new()
    monkeypatch.chdir(workshop.root)
    assert main(["build"]) == 0
    before = {path: path.read_bytes() for path in workshop.root.glob("tool_registry*")}
    workshop.edit(folder, version="1")

    assert main(["build"]) == 1

    assert {path: path.read_bytes() for path in workshop.root.glob("tool_registry*")} == before
    assert "nothing was written" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- same bytes


def test_two_builds_in_two_folders_give_identical_bytes(workshop, tmp_path):
    for name, category in (("lookup_order", "retrieval"), ("cancel_order", "action"), ("count_words", "utility")):
        workshop.new(name, category)
    (workshop.tools / "lookup-order" / "words.py").write_text("x = 1\n")
    other = type(workshop)(tmp_path / "another place" / "below")
    for folder in sorted(workshop.tools.iterdir(), reverse=True):
        for path in sorted(folder.iterdir(), reverse=True):
            (other.tools / folder.name).mkdir(exist_ok=True)
            (other.tools / folder.name / path.name).write_bytes(path.read_bytes())

    results = [workshop.build(), other.build()]
    artifacts = [write(result, stamp_for(result, EPOCH)) for result in results]

    assert results[0].version == results[1].version
    assert artifacts[0].read_bytes() == artifacts[1].read_bytes()
    names = [{path.name for path in artifact.parent.glob("tool_registry*")} for artifact in artifacts]
    assert names[0] == names[1]
    for name in names[0]:
        assert (artifacts[0].parent / name).read_bytes() == (artifacts[1].parent / name).read_bytes()


def test_processes_with_other_hash_seeds_and_clocks_build_the_same_bytes(workshop):
    workshop.new("lookup_order")
    workshop.new("cancel_order", "action")
    outputs = []
    for seed in ("1", "2"):
        environment = {**os.environ, **EPOCH, "PYTHONHASHSEED": seed, "TZ": f"UTC-{seed}"}
        code = (
            "import os; from pathlib import Path;"
            "from handrail.build.compiler import BuildPlan, build; from handrail.build.writer import stamp_for, write;"
            "r = build(BuildPlan(tools=Path('tools'), artifact=Path('tool_registry.json')));"
            "write(r, stamp_for(r, os.environ))"
        )
        subprocess.run([sys.executable, "-c", code], cwd=workshop.root, env=environment, check=True)
        outputs.append({path.name: path.read_bytes() for path in workshop.root.glob("tool_registry*")})

    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 2


def test_the_stamp_is_the_given_second_and_stands_outside_the_version(workshop):
    workshop.new()
    result = workshop.build()

    assert stamp_for(result, EPOCH).timestamp == "2026-01-01T00:00:00Z"
    documents = {result.document(BuildStamp(git_commit=commit, timestamp="2026")) for commit in ("aaaa", "bbbb")}
    assert len(documents) == 2
    assert {json.loads(document)["version"] for document in documents} == {result.version}


@pytest.mark.parametrize("epoch", ["", "now", "1.5", "9" * 30])
def test_an_epoch_that_is_no_second_is_named(workshop, epoch):
    with pytest.raises(BuildError, match="SOURCE_DATE_EPOCH"):
        stamp_for(workshop.build(), {"SOURCE_DATE_EPOCH": epoch})


def test_the_commit_is_that_of_the_project(workshop, tmp_path):
    workshop.new()
    assert stamp_for(workshop.build(), EPOCH).git_commit is None
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)

    assert re.fullmatch("[0-9a-f]{8}", stamp_for(workshop.build(), EPOCH).git_commit)


def test_no_absolute_path_is_in_the_artifact(workshop):
    workshop.new()
    (workshop.root / "decorated_without_paths.py").write_text(
        "from handrail import tool\n\n@tool\ndef look(x: int):\n    '''Look.'''\n"
    )
    result = workshop.build(modules=("decorated_without_paths",))
    artifact = write(result, STAMP)

    text = "".join(path.read_text() for path in workshop.root.glob("tool_registry*"))
    assert str(workshop.root) not in text
    assert not re.search(r'"/(tmp|home|work|root|usr)', text)
    head = json.loads(artifact.read_text())
    assert head["toolsRoot"] == "tools"
    assert {tool["toolId"]: tool["handler"]["kind"] for tool in head["tools"]} == {
        "look": "function",
        "lookup_order": "directory",
    }


def test_an_artifact_elsewhere_finds_its_tools_relatively(workshop, tmp_path):
    workshop.new()
    result = build(BuildPlan(tools=workshop.tools, artifact=tmp_path / "out" / "deep" / "r.json", project=tmp_path))

    registry = Registry.load(write(result, STAMP), tools_root=workshop.tools)

    assert json.loads((tmp_path / "out/deep/r.json").read_text())["toolsRoot"] == "../../tools"
    assert len(registry) == 1


def test_tools_are_in_the_order_of_their_names_whatever_their_folders_are_called(workshop):
    source = 'from handrail import tool\n\n@tool\ndef a_look(x: int):\n    """Look."""\n'
    (workshop.root / "decorated_and_sorted.py").write_text(source)
    workshop.new("b_z")  # in b-z, which comes before b_a
    workshop.new("b_a").rename(workshop.tools / "b_a")

    result = workshop.build(modules=("decorated_and_sorted",))

    assert [entry["toolId"] for entry in result.entries] == ["a_look", "b_a", "b_z"]


# ---------------------------------------------------------------------------------------------------------- version


def version_of(workshop):
    result = workshop.build()
    assert not result.errors, result.errors
    return result.version


def test_the_version_is_one_point_nought_and_eight_hex_digits(workshop):
    workshop.new()

    assert re.fullmatch(r"1\.0\.[0-9a-f]{8}", version_of(workshop))


CHANGES = {
    "guide": lambda folder: (folder / "guide.md").open("a").write("\nMore.\n"),
    "handler": lambda folder: (folder / "handler.py").open("a").write("\n# a comment\n"),
    "file beside it": lambda folder: (folder / "words.py").write_text("x = 2\n"),
    "another file beside it": lambda folder: (folder / "letters.py").write_text(""),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_any_file_changes_the_version_and_undoing_it_restores_it(workshop, change):
    folder = workshop.new()
    (folder / "words.py").write_text("x = 1\n")
    copy = workshop.root / "copy"
    shutil.copytree(folder, copy)
    before = version_of(workshop)

    CHANGES[change](folder)
    changed = version_of(workshop)
    shutil.rmtree(folder)
    copy.rename(folder)

    assert changed != before
    assert version_of(workshop) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"description": "Another."},
        {"version": "1.0.1"},
        {"latencyBudgetMs": 501},
        {"allowedModes": ["text"]},
        {"allowedModes": ["voice", "text"]},
        {"tags": ["x"]},
        {"timeoutMs": 1},
        {"strict": True},
        {"requiresConfirmation": True},
        {"rateLimit": {"calls": 1, "windowMs": 1000, "scope": "user"}},
        {"maxOutputBytes": 4096},
        {"availability": {"condition": "true"}},
        {"clamp": {"voice": {"id": ["x"]}}},
    ],
    ids=str,
)
def test_a_change_of_any_field_changes_the_version(workshop, fields):
    folder = workshop.new()
    workshop.change(folder, lambda schema: schema["parameters"]["properties"].update(id={"enum": ["A-1001", "x"]}))
    before = version_of(workshop)

    workshop.edit(folder, **fields)

    assert version_of(workshop) != before


def test_a_better_adapter_or_guide_changes_the_version_but_no_tools_own_hash(workshop, monkeypatch):
    folder = workshop.new()
    before = workshop.build()
    guide = (folder / "guide.md").read_text()
    (folder / "guide.md").write_text(guide + "\nOne more note.\n")
    noted = workshop.build()
    (folder / "guide.md").write_text(guide)
    adapt = Catalogue.adapted

    def better(self, source):
        return {
            name: replace(made, schema={**made.schema, "better": True}) for name, made in adapt(self, source).items()
        }

    monkeypatch.setattr(Catalogue, "adapted", better)
    adapted = workshop.build()
    (folder / "handler.py").write_text((folder / "handler.py").read_text() + "\n# changed\n")
    changed = workshop.build()

    assert len({before.version, noted.version, adapted.version, changed.version}) == 4
    own = [result.entries[0]["hash"] for result in (before, noted, adapted, changed)]
    assert own[0] == own[1] == own[2] != own[3]


def test_a_tool_more_or_less_changes_the_version(workshop):
    workshop.new("one")
    alone = version_of(workshop)
    workshop.new("two")
    both = version_of(workshop)
    shutil.rmtree(workshop.tools / "two")

    assert alone != both
    assert version_of(workshop) == alone


def test_a_touched_timestamp_and_other_white_space_in_the_json_change_nothing(workshop):
    folder = workshop.new()
    before = version_of(workshop)
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    schema = json.loads((folder / "schema.json").read_text())
    (folder / "schema.json").write_text(json.dumps(dict(reversed(schema.items()))))

    assert version_of(workshop) == before


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXT, st.binary(max_size=20)), min_size=2, max_size=2, unique=True))
def test_the_version_follows_the_content_and_nothing_else(tmp_path_factory, contents):
    versions = []
    for note, data in (*contents, contents[0]):
        root = tmp_path_factory.mktemp("project")
        folder = root / "tools" / "a-tool"
        folder.mkdir(parents=True)
        (folder / "handler.py").write_text(f"DATA = {data!r}\ndef execute(args, ctx): ...\n")
        (folder / "guide.md").write_bytes(f"Does it.\n\n{note}".encode())
        (folder / "schema.json").write_text(
            '{"toolId": "a_tool", "version": "1.0.0", "description": "A", "category": "utility", "sideEffects": "none",'
            '"idempotent": true, "requiresConfirmation": false, "allowedModes": ["text"], "latencyBudgetMs": 1,'
            '"parameters": {"type": "object", "additionalProperties": false}}'
        )
        result = build(BuildPlan(tools=root / "tools", artifact=root / "r.json", project=root))
        assert not result.errors, result.errors
        versions.append(result.version)

    first, second, again = versions
    assert first == again
    same_text = contents[0][0].replace("\r\n", "\n") == contents[1][0].replace("\r\n", "\n")
    assert (first == second) is (same_text and contents[0][1] == contents[1][1])


# ---------------------------------------------------------------------------------------------------- on the disk


def test_the_artifact_carries_what_a_registry_needs(workshop):
    folder = workshop.new()
    artifact = json.loads(write(workshop.build(), STAMP).read_text())

    (tool,) = artifact["tools"]
    schema = json.loads((folder / "schema.json").read_text())
    assert tool["jsonSchema"] == schema["parameters"]
    assert tool["summary"] == "Looks a record up by its id and gives its current state."
    assert tool["documentation"] == (folder / "guide.md").read_text()
    assert tool["handler"]["path"] == "lookup-order/handler.py"
    assert re.fullmatch("[0-9a-f]{64}", tool["hash"])
    assert (artifact["gitCommit"], artifact["buildTimestamp"]) == (None, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize("obstacle", ["a directory", "below a file"])
def test_an_unwritable_target_is_an_error_and_leaves_nothing_behind(workshop, obstacle):
    workshop.new()
    if obstacle == "a directory":
        workshop.artifact.mkdir()
        (workshop.artifact / "precious").write_text("x")
    else:
        (workshop.root / "file").write_text("x")
        workshop.artifact = workshop.root / "file" / "tool_registry.json"
    before = sorted(workshop.root.rglob("*"))

    with pytest.raises(BuildError, match="cannot be written"):
        write(workshop.build(), STAMP)

    assert sorted(workshop.root.rglob("*")) == before


def test_an_old_artifact_stays_whole_when_the_new_one_cannot_take_its_place(workshop):
    folder = workshop.new()
    result = workshop.build()
    write(result, STAMP)
    kept = workshop.artifact.rename(workshop.root / "kept.json")
    workshop.artifact.mkdir()
    (workshop.artifact / "in the way").write_text("x")
    (folder / "guide.md").open("a").close()
    workshop.edit(folder, description="Another.")

    with pytest.raises(BuildError):
        write(workshop.build(), STAMP)

    shutil.rmtree(workshop.artifact)
    kept.rename(workshop.artifact)
    assert is_current(result)


@pytest.mark.parametrize("moment", ["before the artifact", "while the artifact is written"])
def test_a_build_that_is_killed_half_way_leaves_the_old_artifact_loadable(workshop, moment):
    folder = workshop.new()
    write(workshop.build(), STAMP)
    before = workshop.artifact.read_bytes()
    workshop.edit(folder, description="Another description, and so another provider schema.")
    code = (
        "import os, signal, sys; from pathlib import Path;"
        "from handrail.build import writer; from handrail.build.compiler import BuildPlan, BuildStamp, build;"
        "r = build(BuildPlan(tools=Path('tools'), artifact=Path('tool_registry.json')));"
        "die = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        + (
            "type(r).document = die;"
            if moment == "before the artifact"
            else "plain = os.fsync; left = [plain]; os.fsync = lambda handle: (left.pop() if left else die)(handle);"
        )
        + "writer.write(r, BuildStamp(git_commit=None, timestamp='x'))"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=workshop.root, check=False)

    assert done.returncode == -signal.SIGKILL
    assert workshop.artifact.read_bytes() == before
    registry = Registry.load(workshop.artifact)
    assert registry.provider_schemas("openai-chat")[0]["function"]["name"] == "lookup_order"


def test_schemas_of_providers_are_kept_for_some_builds_and_not_for_ever(workshop):
    folder = workshop.new()
    seen = []
    for number in range(GENERATIONS + 3):
        workshop.edit(folder, description=f"Number {number}.")
        result = workshop.build()
        write(result, STAMP)
        seen.append(result.provider_file)
        os.utime(workshop.root / result.provider_file, (number, number))
    (workshop.root / "tool_registry.providers.txt").write_text("not ours")
    write(result, STAMP)

    left = {path.name for path in workshop.root.glob("tool_registry.providers.*")}

    assert left == {*seen[-GENERATIONS:], "tool_registry.providers.txt"}


def test_an_artifact_with_an_odd_name_clears_up_only_its_own(workshop):
    folder = workshop.new()
    for number in range(GENERATIONS + 1):
        (workshop.root / f"x.providers.{number}.jsonl").write_text("another artifact's")
    workshop.artifact = workshop.root / "[xy].json"
    for number in range(GENERATIONS + 2):
        workshop.edit(folder, description=f"Number {number}.")
        write(workshop.build(), STAMP)

    assert len(list(workshop.root.glob("x.providers.*.jsonl"))) == GENERATIONS + 1
    assert len([path for path in workshop.root.iterdir() if path.name.startswith("[xy].providers.")]) == GENERATIONS


def test_an_artifact_is_current_until_anything_changes(workshop):
    folder = workshop.new()
    assert not is_current(workshop.build())
    result = workshop.build()
    write(result, STAMP)
    assert is_current(workshop.build())

    workshop.artifact.with_name(result.provider_file).unlink()
    assert not is_current(workshop.build())
    write(result, STAMP)
    (folder / "handler.py").write_text((folder / "handler.py").read_text() + "\n")
    assert not is_current(workshop.build())
