"""Reference tools in a project's build: taken in by name, marked as Handrail's, judged like any other."""

import json
import re

import pytest

from handrail.authoring import reference
from handrail.authoring.directory import tool_folders
from handrail.build.compiler import BuildStamp
from handrail.build.writer import stamp_for, write
from handrail.contract.errors import ConfigError, UsageError

STAMP = BuildStamp(git_commit=None, timestamp="2026-01-01T00:00:00Z")


def ids(result):
    assert not result.errors, result.errors
    return [entry["toolId"] for entry in result.entries]


def test_a_project_has_no_reference_tools_unless_it_names_them(workshop):
    workshop.new("lookup_order")
    assert ids(workshop.build()) == ["lookup_order"]


def test_named_reference_tools_are_built_with_the_projects_own(workshop):
    workshop.new("lookup_order")
    assert ids(workshop.build(reference=("rank_results", "format_datetime"))) == [
        "format_datetime",
        "lookup_order",
        "rank_results",
    ]


def test_a_star_takes_all_of_them(workshop):
    roots = [reference.collection_root(name) for name in ("handrail", "reference")]
    everything = [folder.replace("-", "_") for root in roots for folder in tool_folders(root)]
    assert len(everything) >= 4
    assert ids(workshop.build(reference=("*",))) == sorted(everything)
    assert ids(workshop.build(reference=("rank_results", "*"))) == sorted(everything)


def test_a_name_may_be_written_as_the_folders_and_counts_once(workshop):
    assert ids(workshop.build(reference=("rank-results", "rank_results"))) == ["rank_results"]


def test_the_entry_says_whose_it_is_and_names_no_path_of_this_machine(workshop):
    own = workshop.new("lookup_order")
    result = workshop.build(reference=("rank_results",))
    handlers = {entry["toolId"]: entry["handler"] for entry in result.entries}
    assert handlers["rank_results"]["origin"] == "reference"
    assert (handlers["rank_results"]["kind"], handlers["rank_results"]["path"]) == (
        "directory",
        "rank-results/handler.py",
    )
    assert "origin" not in handlers["lookup_order"]
    document = result.document(STAMP).decode()
    assert str(reference.collection_root("reference")) not in document
    assert str(own.parent) not in document


def test_a_projects_own_tools_have_the_hashes_that_they_had(workshop):
    workshop.new("lookup_order")
    (alone,) = workshop.build().entries
    beside = next(
        entry for entry in workshop.build(reference=("rank_results",)).entries if entry["toolId"] == "lookup_order"
    )
    assert beside == alone


def test_the_version_covers_what_was_taken_in(workshop):
    workshop.new("lookup_order")
    versions = {workshop.build(reference=names).version for names in ((), ("rank_results",), ("format_datetime",))}
    assert len(versions) == 3
    assert (
        workshop.build(reference=("rank_results", "format_datetime")).version
        == workshop.build(reference=("format_datetime", "rank_results")).version
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rank_result", r'did you mean "rank_results"\?$'),
        ("Format-Datetime", r'did you mean "format_datetime"\?$'),
        ("weather", r"there are .*format_datetime.*\.$"),
        ("../tools/rank-results", r"which is no reference tool; "),
        ("/etc", r"which is no reference tool; "),
    ],
)
def test_an_unknown_name_is_one_sentence_with_the_nearest(workshop, name, hint):
    with pytest.raises(ConfigError, match=hint) as raised:
        workshop.build(reference=("format_datetime", name))
    assert str(raised.value).startswith(f'"reference" in [tools] names "{name}"')
    assert "\n" not in str(raised.value)


def test_a_tool_of_the_same_name_is_one_clear_finding(workshop):
    workshop.new("rank_results")
    (finding,) = workshop.build(reference=("format_datetime", "rank_results")).errors
    assert (finding.rule, finding.file, finding.place) == ("duplicate-tool", "rank-results/schema.json", "/toolId")
    assert finding.message == '"rank_results" is also a reference tool that `reference` in [tools] takes in.'


def test_a_tool_of_the_same_name_as_one_that_is_left_out_is_no_matter(workshop):
    workshop.new("rank_results")
    assert ids(workshop.build(reference=("format_datetime",))) == ["format_datetime", "rank_results"]


def test_a_project_of_reference_tools_alone_needs_no_folder(workshop):
    workshop.tools.rmdir()
    assert ids(workshop.build(reference=("rank_results",), tools_optional=True)) == ["rank_results"]
    with pytest.raises(UsageError, match="There is no tools directory"):
        workshop.build(reference=("rank_results",))


def test_a_finding_in_a_reference_tool_names_the_package(workshop, monkeypatch, tmp_path):
    broken = tmp_path / "package"
    (broken / "rank-results").mkdir(parents=True)
    monkeypatch.setattr(reference, "tools_folder", lambda name: broken)
    files = {finding.file for finding in workshop.findings(reference=("rank_results",))}
    assert "reference/tools/rank-results/schema.json" in files


def test_an_artifact_is_written_the_same_twice(workshop):
    workshop.new("lookup_order")
    first = workshop.build(reference=("*",))
    assert first.document(STAMP) == workshop.build(reference=("*",)).document(STAMP)
    path = write(first, stamp_for(first, {"SOURCE_DATE_EPOCH": "0"}))
    assert not re.search(
        r'"/[a-z]+/', json.dumps([entry["handler"] for entry in json.loads(path.read_text())["tools"]])
    )
