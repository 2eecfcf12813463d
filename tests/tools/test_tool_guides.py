"""Every example in the guides of tools that only compute is run, and has to give what the guide shows."""

import json
from pathlib import Path

import pytest
from tests.tools.reference import TOOLS

from handrail.build.guide import SUMMARY_LIMIT, Example, examples_in, summary_of

GUIDES = sorted(guide for root in TOOLS for guide in root.glob("*/guide.md"))


def _is_pure(guide: Path) -> bool:
    """Tools that reach a service are run by tests that have one; of their examples the build checks the form."""
    definition = json.loads((guide.parent / "schema.json").read_text(encoding="utf-8"))
    return definition["sideEffects"] == "none" and not definition.get("capabilities")


def _pairs(guide: Path) -> list[tuple[Example, Example | None]]:
    """Each block of arguments, with the response that follows it, if one does."""
    pairs: list[tuple[Example, Example | None]] = []
    for example in examples_in(guide.read_text(encoding="utf-8")):
        if example.kind == "arguments":
            pairs.append((example, None))
        else:
            pairs[-1] = (pairs[-1][0], example)
    return pairs


CASES = [
    pytest.param(guide.parent.name.replace("-", "_"), *pair, id=f"{guide.parent.name}:{pair[0].line}")
    for guide in GUIDES
    if _is_pure(guide)
    for pair in _pairs(guide)
]


@pytest.mark.parametrize(("tool_id", "arguments", "response"), CASES)
def test_an_example_gives_what_the_guide_shows(run_tool, tool_id, arguments, response):
    envelope = run_tool(tool_id, json.loads(arguments.text))
    shown = json.loads(response.text) if response else {}
    if "ok" not in shown:
        assert envelope["ok"] is True
        assert response is None or envelope["data"] == shown
    elif shown["ok"]:
        assert (envelope["ok"], envelope["data"]) == (True, shown["data"])
    else:
        assert envelope["ok"] is False
        assert {name: envelope["error"].get(name) for name in shown["error"]} == shown["error"]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.parent.name)
def test_a_guide_has_a_short_summary_and_at_least_one_example(guide):
    text = guide.read_text(encoding="utf-8")
    assert 0 < len(summary_of(text)[0]) <= SUMMARY_LIMIT
    assert _pairs(guide)


def test_the_guides_of_the_computing_tools_are_among_those_that_are_run():
    assert {"extract_contacts", "format_datetime", "rank_results", "validate_email"} <= {
        case.values[0] for case in CASES
    }
