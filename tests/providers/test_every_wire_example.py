"""None of the reference's examples is left out: each is opened by a test of the format that it belongs to."""

import ast
import json
from pathlib import Path

import pytest
from tests.providers.wire_examples import EXAMPLES

TESTS = Path(__file__).parents[1]
FILES = sorted(EXAMPLES.glob("*.json"))
REASON = f"the reference's examples are not beside this checkout ({EXAMPLES}): NOT TESTED against them"


def opened_by_tests() -> set[str]:
    """The texts in the modules that open examples, as far as they could be an example's name."""
    found: set[str] = set()
    for module in (*TESTS.glob("providers/**/test_*.py"), *TESTS.glob("clients/**/test_*.py")):
        source = module.read_text("utf-8")
        if module != Path(__file__) and ("example" in source or "wire_examples" in source):
            values = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
            found |= {value.removesuffix(".json") for value in values if isinstance(value, str)}
    return found


@pytest.mark.skipif(not FILES, reason=REASON)
def test_every_example_is_parsed_or_produced_by_a_test():
    opened = opened_by_tests()
    assert [file.name for file in FILES if file.stem != "index" and file.stem not in opened] == []


@pytest.mark.skipif(not FILES, reason=REASON)
def test_the_index_names_every_example():
    index = json.loads((EXAMPLES / "index.json").read_text("utf-8"))
    assert {one["file"] for one in index["files"]} == {file.name for file in FILES} - {"index.json"}
