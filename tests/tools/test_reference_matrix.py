"""The reference tools are what the matrix says: categories, effects, modes, budgets, who is asked, and what they need."""

import json
from pathlib import Path

import pytest
from tests.tools.reference import TOOLS, place_of

from handrail.build.compiler import BuildPlan, build
from handrail.build.guide import summary_of

# tool | category | side effects | idempotent | modes | latency ms | confirmation | needs
MATRIX = """
kb_search                 | retrieval | read_only | yes | text, voice | 800  | no     | kb
kb_get                    | retrieval | read_only | yes | text, voice | 500  | no     | kb
linkedin_lookup           | retrieval | read_only | yes | text, voice | 500  | no     | kb
calendar_get_availability | retrieval | read_only | yes | text        | 1500 | no     | calendar, secrets
calendar_create_event     | action    | writes    | no  | text        | 3000 | yes    | calendar, secrets
calendar_update_event     | action    | writes    | no  | text        | 3000 | yes    | calendar, secrets
calendar_cancel_event     | action    | writes    | no  | text        | 3000 | yes    | calendar, secrets
image_draft_prompt        | utility   | none      | yes | text        | 1500 | no     |
image_generate            | action    | writes    | no  | text        | 5000 | when   | images
send_image                | action    | writes    | no  | text, voice | 1000 | waived | messaging
ignore_user               | action    | writes    | no  | text, voice | 1000 | waived | messaging
start_voice_session       | action    | writes    | no  | text        | 500  | waived | messaging
end_voice_session         | action    | writes    | no  | voice       | 500  | waived | voice
extract_contacts          | utility   | none      | yes | text        | 200  | no     |
format_datetime           | utility   | none      | yes | text, voice | 100  | no     |
validate_email            | utility   | none      | yes | text, voice | 100  | no     |
rank_results              | utility   | none      | yes | text        | 100  | no     |
get_tool_guide            | utility   | none      | yes | text, voice | 100  | no     | guides
find_tools                | utility   | none      | yes | text, voice | 500  | no     | tool_search
"""
ROWS = {cells[0]: cells[1:] for line in MATRIX.strip().splitlines() for cells in [[*map(str.strip, line.split("|"))]]}


def _definition(tool):
    return json.loads((place_of(tool.replace("_", "-")) / "schema.json").read_text("utf-8"))


def _confirmation(definition):
    if definition["requiresConfirmation"]:
        return "yes"
    if "when" in definition.get("confirmation", {}):
        return "when"
    return "waived" if "action-unconfirmed" in definition.get("waivers", {}) else "no"


@pytest.mark.parametrize("tool", ROWS)
def test_a_schema_says_what_the_matrix_says(tool):
    definition = _definition(tool)
    assert [
        definition["category"],
        definition["sideEffects"],
        "yes" if definition["idempotent"] else "no",
        ", ".join(definition["allowedModes"]),
        str(definition["latencyBudgetMs"]),
        _confirmation(definition),
        ", ".join(definition.get("capabilities", [])),
    ] == ROWS[tool]


def test_the_page_on_reference_tools_has_the_same_matrix():
    page = (Path(__file__).parents[2] / "docs" / "reference-tools.md").read_text("utf-8")
    table = [[*map(str.strip, line.strip("|").split("|"))] for line in page.splitlines() if line.count("|") == 9]
    assert {row[0].strip("`"): row[1:] for row in table[2:]} == ROWS


def test_there_is_no_reference_tool_beside_the_matrix():
    assert {path.parent.name.replace("-", "_") for root in TOOLS for path in root.glob("*/schema.json")} == set(ROWS)


@pytest.mark.parametrize("tool", ROWS)
def test_arguments_and_data_are_described_and_closed(tool):
    definition = _definition(tool)
    assert definition["parameters"]["additionalProperties"] is False
    assert definition["outputSchema"]["type"] == "object"
    described = definition["parameters"]["properties"].values()
    assert all(argument.get("description") or "$ref" in argument for argument in described)


@pytest.mark.parametrize("tool", [tool for tool in ROWS if "voice" in ROWS[tool][3]])
def test_the_summary_of_a_voice_tool_fits_a_voice_prompt(tool):
    text = (place_of(tool.replace("_", "-")) / "guide.md").read_text("utf-8")
    summary, _ = summary_of(text)
    assert 0 < len(summary) <= 250
    assert not set(summary) & set("`*[]{}#|")


@pytest.mark.parametrize("tool", ROWS)
def test_a_guide_tells_when_what_how_and_what_to_watch_out_for(tool):
    text = (place_of(tool.replace("_", "-")) / "guide.md").read_text("utf-8")
    wanted = ["## When to use", "## Parameters", "## Examples", "## Watch out"]
    assert [line for line in text.splitlines() if line in wanted] == wanted
    parameters = text.split("## Parameters")[1].split("## Examples")[0]
    assert [name for name in _definition(tool)["parameters"]["properties"] if f"`{name}`" not in parameters] == []


def test_the_reference_tools_build_without_a_warning(tmp_path):
    result = build(
        BuildPlan(tools=tmp_path, artifact=tmp_path / "tool_registry.json", project=tmp_path, reference=("*",))
    )
    assert [str(finding) for finding in (*result.errors, *result.warnings)] == []
    assert {entry["toolId"] for entry in result.entries} == set(ROWS)
