"""The page on type hints: each row of its table is a tool that is built and called, and its project does what it says."""

import json
import re
import sys
from pathlib import Path

import pytest

from handrail.testing import open_tools

PAGE = (Path(__file__).parents[2] / "docs" / "type-hints.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.M | re.S))
CLASSES = {"PAGE_OF_POINT": "Page[Point]", "POINT": "Point", "PLACE": "Place"}


def table():
    """The cells of each row, without their backticks."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return [
        [cell.strip().strip("`").replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]


ROWS = table()
SCHEMAS = {hint: schema for hint, schema, *_ in ROWS}


def module_of_the_table():
    """A module with a tool per row, whose function notes what it received and returns it."""
    tools = [
        f"@tool\ndef row_{number}(value: {row[0]}) -> {row[0]}:\n"
        f'    """Take a value."""\n    SEEN[{number}] = value\n    return value\n'
        for number, row in enumerate(ROWS)
    ]
    return "\n".join([BLOCKS["table"], "from handrail import tool\nSEEN = {}\n", *tools])


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    (folder / "tools").mkdir()
    (folder / "type_hint_table.py").write_text(module_of_the_table(), encoding="utf-8")
    with open_tools(folder / "tools", modules=("type_hint_table",)) as kit:
        yield kit


def expected_schema(text):
    for short, name in CLASSES.items():
        text = text.replace(short, SCHEMAS[name])
    return json.loads(text)


def each(rows):
    return pytest.mark.parametrize(("number", "row"), rows, ids=[row[0] for _, row in rows])


NUMBERED = list(enumerate(ROWS))


def test_the_table_is_read_whole():
    assert len(ROWS) == PAGE.count("| `/value") + 1 >= 40
    assert all(len(row) == 6 for row in ROWS)


@each(NUMBERED)
def test_a_hint_has_the_schema_of_its_row(tools, number, row):
    parameters = tools.registry.metadata(f"row_{number}")["parameters"]
    assert parameters["properties"]["value"] == expected_schema(row[1])


@each(NUMBERED)
def test_the_function_receives_the_value_of_its_row_and_returns_it_as_json(tools, number, row):
    response = tools.call(f"row_{number}", {"value": json.loads(row[2])})

    module = sys.modules["type_hint_table"]
    assert response.ok, response.error
    wanted = eval(row[3], vars(module))
    received = module.SEEN.pop(number)
    assert (received, type(received)) == (wanted, type(wanted))
    assert response.data == json.loads(row[2])


@each([(number, row) for number, row in NUMBERED if row[4]])
def test_the_wrong_value_of_its_row_is_refused_at_its_place(tools, number, row):
    response = tools.call(f"row_{number}", {"value": json.loads(row[4])})

    assert response.error.type == "VALIDATION"
    assert row[5] in [detail["pointer"] for detail in response.error.details]
    assert number not in sys.modules["type_hint_table"].SEEN


# ------------------------------------------------------------------------------------------------- the page's project


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "tools").mkdir()
    for name in ("hotel.py", "meters.py", "shop_service.py", "refunds.py", "handrail.toml"):
        (folder / name).write_text(BLOCKS[name], encoding="utf-8")
    with open_tools(folder / "tools", modules=("hotel", "meters", "refunds")) as kit:
        yield kit


def test_the_stay_of_the_page_is_planned(project):
    guests = [{"name": "Ana", "born": "1990-01-31"}]
    args = {"room": "double", "arrival": "2026-12-24", "departure": "2026-12-27", "guests": guests}

    assert project.call("plan_stay", args).data == {"room": "double", "nights": 3, "guests": ["Ana"]}

    parameters = project.registry.metadata("plan_stay")["parameters"]["properties"]
    assert [parameters[name]["description"] for name in ("room", "departure")] == [
        "What kind of room.",
        "After the arrival.",
    ]
    assert parameters["guests"]["items"]["properties"]["born"]["description"] == "Day of birth."


def test_the_class_of_the_page_is_given_its_arguments_as_one_object(project):
    assert project.call("round_reading", {"meter": "m", "value": 2.26}).data == {"meter": "m", "value": 2.3}
    assert project.call("round_reading", {"meter": "m"}).meta["defaulted"] == ["/value"]
    assert project.call("round_reading", {"meter": 1}).error.details[0]["pointer"] == "/meter"


def test_the_refunds_of_the_page_are_given_their_shop(project):
    assert project.call("refund", {"order_id": "7"}, approved=True).data == {"order_id": "7", "cents": 1250}
    assert [one["order_id"] for one in project.call("refund_twice", {"order_id": "7"}, approved=True).data] == [
        "7",
        "7+1",
    ]
    for name in ("refund", "refund_twice"):
        metadata = project.registry.metadata(name)
        assert list(metadata["parameters"]["properties"]) == ["order_id"]
        assert metadata["capabilities"] == ["shop"]
    assert project.call("refund", {"order_id": "7", "shop": "mine"}).error.type == "VALIDATION"
