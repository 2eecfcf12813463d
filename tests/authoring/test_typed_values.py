"""A decorated function receives the values that its hints ask for, and what it returns becomes JSON."""

import dataclasses
import enum
import sys
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import ToolResponse, tool
from handrail.authoring.decorator import definition_of
from handrail.authoring.hints import HintReader
from handrail.authoring.json_values import to_json
from handrail.authoring.signature import parameters_of
from handrail.contract.errors import DefinitionError
from handrail.schema.validator import compile_schema


class Grade(enum.Enum):
    GOOD = "good"
    BAD = "bad"
    NUMBERED = 3


@dataclasses.dataclass(frozen=True)
class Leaf:
    day: date
    grade: Grade
    price: Decimal = Decimal("1.50")
    at: datetime | None = None
    key: uuid.UUID | None = None


class Bag(TypedDict, total=False):
    leaves: list[Leaf]
    named: dict[str, Leaf]


@dataclasses.dataclass(frozen=True)
class Branch:
    name: str
    bag: Bag
    pair: tuple[date, int]
    grades: frozenset[Grade]
    below: "list[Branch]"
    either: Leaf | date | None = None


LEAVES = st.builds(
    Leaf,
    day=st.dates(),
    grade=st.sampled_from(Grade),
    price=st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9),
    at=st.none() | st.datetimes(timezones=st.just(UTC), min_value=datetime(1000, 1, 1)),
    key=st.none() | st.uuids(),
)
BAGS = st.fixed_dictionaries(
    {}, optional={"leaves": st.lists(LEAVES, max_size=3), "named": st.dictionaries(st.text(), LEAVES, max_size=3)}
)
BRANCHES = st.recursive(
    st.just([]),
    lambda below: st.lists(
        st.builds(
            Branch,
            name=st.text(),
            bag=BAGS,
            pair=st.tuples(st.dates(), st.integers(-(2**53) + 1, 2**53 - 1)),
            grades=st.frozensets(st.sampled_from(Grade)),
            below=below,
            either=st.none() | LEAVES | st.dates(),
        ),
        max_size=2,
    ),
    max_leaves=6,
)
READER = HintReader()
CONVERTER = READER.read(list[Branch], "value")
SCHEMA = compile_schema({**CONVERTER.schema, "$defs": READER.definitions})
RESULT = HintReader("result")
RESULT_SCHEMA = compile_schema({**RESULT.read(list[Branch], "value").schema, "$defs": RESULT.definitions})


@given(BRANCHES)
def test_nested_values_come_back_from_their_json_as_they_were(branches):
    data = to_json(branches)

    assert SCHEMA.violations(data) == []
    assert RESULT_SCHEMA.violations(data) == []
    assert CONVERTER.decode(data) == branches


NUMBERS = """
from dataclasses import dataclass
from handrail import tool

@dataclass
class Point:
    x: int

@tool
async def look(a: int, b: int | None, c: list[int], d: Point, e: int | str, f: float, g: float | int) -> str:
    "Look."
    return repr((a, b, c, d, e, f, g))
"""


def test_a_whole_number_that_is_written_as_a_fraction_is_an_int_where_one_is_asked_for(project):
    text = '{"a": 1.0, "b": 2.0, "c": [3.0, 4], "d": {"x": 5.0}, "e": 6.0, "f": 7.0, "g": 8.0}'
    with project.tools(NUMBERS) as tools:
        response = tools.call("look", text)

    assert response.data == "(1, 2, [3, 4], Point(x=5), 6, 7.0, 8.0)"


# ----------------------------------------------------------------------------------------------------------- refusals

REFUSING = '''
from dataclasses import dataclass
from datetime import datetime
from pydantic import BaseModel, field_validator
from handrail import tool

SEEN = []

@dataclass
class Range:
    low: int
    high: int = 10

    def __post_init__(self):
        if self.low > self.high:
            raise ValueError("low is above high")

class Even(BaseModel):
    numbers: list[int]

    @field_validator("numbers")
    @classmethod
    def only_even(cls, numbers):
        if any(number % 2 for number in numbers):
            raise ValueError("odd numbers are not taken")
        return numbers

@tool(side_effects="writes", category="action", requires_confirmation=True)
def set_ranges(ranges: list[Range], even: Even | None = None) -> None:
    """Set ranges."""
    SEEN.append(ranges)

@tool
async def fail(range: Range) -> Range:
    """Fail when the result is made."""
    made = Range(range.low)
    made.high = object()
    return made

@tool
def leap(when: datetime) -> str:
    """Say when."""
    return when.isoformat()
'''


def test_what_a_class_refuses_is_refused_like_a_violation_of_the_schema_before_anybody_is_asked(project):
    with project.tools(REFUSING) as tools:
        refused = tools.call("set_ranges", {"ranges": [{"low": 1}, {"low": 11}]}, approved=True)
        by_model = tools.call("set_ranges", {"ranges": [], "even": {"numbers": [2, 3]}}, approved=True)
        taken = tools.call("set_ranges", {"ranges": [{"low": 1}]}, approved=True)

    assert (refused.error.type, refused.error.details[0]["pointer"]) == ("VALIDATION", "/ranges/1")
    assert "low is above high" in refused.error.message
    assert (by_model.error.type, by_model.error.details[0]["pointer"]) == ("VALIDATION", "/even/numbers")
    assert "odd numbers are not taken" in by_model.error.message
    assert taken.ok
    module = sys.modules[project.module]
    assert [[module.Range(1)]] == module.SEEN


def test_a_result_that_is_no_json_is_the_tools_own_fault(project):
    with project.tools(REFUSING) as tools:
        response = tools.call("fail", {"range": {"low": 1}})

    assert response.error.type == "INTERNAL"
    assert "result that cannot be used" in response.error.message


def test_a_second_that_no_clock_has_is_refused(project):
    with project.tools(REFUSING) as tools:
        response = tools.call("leap", {"when": "2016-12-31T23:59:60Z"})
        lower = tools.call("leap", {"when": "2016-12-31t23:59:59.123456789z"})

    assert (response.error.type, response.error.details[0]["pointer"]) == ("VALIDATION", "/when")
    assert lower.data == "2016-12-31T23:59:59.123456+00:00"


SECRETIVE = '''
from dataclasses import dataclass
from typing import Annotated
from handrail import tool

@dataclass
class Login:
    password: Annotated[str, {"writeOnly": True}]

    def __post_init__(self):
        raise ValueError(f"{self.password} is too short")

@tool
def sign_in(login: Login) -> None:
    """Sign in."""
'''


def test_the_words_of_a_class_with_secrets_are_kept_from_the_model(project):
    with project.tools(SECRETIVE) as tools:
        response = tools.call("sign_in", {"login": {"password": "hunter2"}})

    assert response.error.type == "VALIDATION"
    assert response.error.message == '"login" cannot be accepted.'


# ------------------------------------------------------------------------------------------------------------ results

RETURNING = '''
from dataclasses import dataclass
from datetime import date
from enum import Enum
from uuid import UUID
from handrail import ToolResponse, tool

class Colour(Enum):
    RED = "red"

@dataclass
class Paint:
    colour: Colour
    made: date

PAINT = Paint(Colour.RED, date(2026, 1, 2))

@tool
def envelope() -> Paint | ToolResponse:
    """Return an envelope."""
    return ToolResponse(True, PAINT, meta={"note": "x"})

@tool
async def as_dict() -> Paint:
    """Return an envelope as a dict."""
    return {"ok": True, "data": PAINT}

@tool
async def failing() -> Paint:
    """Return a failure."""
    return {"ok": False, "error": {"type": "NOT_FOUND", "message": "None left."}}

@tool
async def untyped():
    """Return what no annotation tells of."""
    return {"paint": [PAINT], "days": {date(2026, 1, 2)}, "key": UUID(int=1)}

@tool
def numbers() -> list[int]:
    """Return a list."""
    return [1, 2]

@tool
async def lying() -> int:
    """Return something else."""
    return "three"

@tool(output_schema={"type": "object", "required": ["colour"]})
async def described() -> Paint:
    """Return what the author has described."""
    return PAINT

@tool(parameters={"type": "object", "additionalProperties": False, "properties": {}}, description="Run.", guide="Runs.")
class Component:
    async def run(self, params=None) -> Paint:
        return PAINT
'''
PAINT = {"colour": "red", "made": "2026-01-02"}


def test_typed_results_become_json_in_every_form(project):
    with project.tools(RETURNING) as tools:
        found = {name: tools.call(name) for name in tools.snapshot.tools}
        schemas = {name: tools.registry.metadata(name).get("outputSchema") for name in tools.snapshot.tools}

    assert [found[name].data for name in ("envelope", "as_dict", "described", "component")] == [PAINT] * 4
    assert found["envelope"].meta["note"] == "x"
    assert found["failing"].error.type == "NOT_FOUND"
    assert found["untyped"].data["paint"] == [PAINT]
    assert found["untyped"].data["days"] == ["2026-01-02"]
    assert found["numbers"].data == [1, 2]
    assert found["lying"].error.type == "INTERNAL"
    paint = {
        "type": "object",
        "properties": {"colour": {"type": "string", "enum": ["red"]}, "made": {"type": "string", "format": "date"}},
        "required": ["colour", "made"],
    }
    assert [schemas[name] for name in ("envelope", "as_dict", "component")] == [paint] * 3
    assert schemas["numbers"] == {"type": "array", "items": {"type": "integer"}}
    assert schemas["described"] == {"type": "object", "required": ["colour"]}
    assert schemas["untyped"] is None


@pytest.mark.parametrize("hint", [None, Any, dict, dict[str, Any], dict[str, object], ToolResponse, object], ids=str)
def test_a_return_hint_that_says_nothing_gives_no_output_schema(hint):
    def look():
        """Look."""

    look.__annotations__["return"] = hint
    assert definition_of(tool(look)).output_schema is None


def test_a_return_hint_that_json_cannot_carry_is_refused():
    with pytest.raises(DefinitionError, match="It is annotated to return bytes, which JSON cannot carry"):

        @tool
        def look() -> bytes:
            """Look."""


def test_a_time_without_an_offset_may_be_returned(project):
    source = (
        "from dataclasses import dataclass\nfrom datetime import datetime, time\nfrom pydantic import BaseModel\n"
        "from handrail import tool\n"
        "@dataclass\nclass Slot:\n    start: datetime\n    end: time\n"
        "class Meeting(BaseModel):\n    slot: Slot\n    at: datetime\n"
        "@tool\ndef meet() -> Meeting:\n    'Meet.'\n"
        "    return Meeting(slot=Slot(datetime(2026, 1, 2, 3), time(4)), at=datetime(2026, 1, 2, 3))\n"
        "@tool\ndef find_slot() -> Slot:\n    'Find a slot.'\n    return Slot(datetime(2026, 1, 2, 3), time(4))\n"
    )
    with project.tools(source) as tools:
        meeting, slot = tools.call("meet").data, tools.call("find_slot").data

    assert slot == {"start": "2026-01-02T03:00:00", "end": "04:00:00"}
    assert meeting == {"slot": slot, "at": "2026-01-02T03:00:00"}


# ----------------------------------------------------------------------------------------------- defaults, docstrings


def test_a_default_is_given_as_json_and_comes_back_as_it_was():
    @tool
    def book(
        day: date = date(2026, 1, 2),
        grade: Grade = Grade.NUMBERED,
        at: time = time(9, 30),
        leaf: Leaf = Leaf(date(2026, 1, 2), Grade.GOOD),  # noqa: B008
    ):
        """Book."""

    properties = definition_of(book).parameters["properties"]
    assert [properties[name]["default"] for name in ("day", "grade", "at")] == ["2026-01-02", 3, "09:30:00"]
    assert properties["leaf"]["default"]["grade"] == "good"


GOOGLE = """Add.

Args:
    left (int): The first,
        on two lines.
    right: The second.
"""
NUMPY = """Add.

Parameters
----------
left : int
    The first,
    on two lines.
right
    The second.
"""
SPHINX = """Add.

:param left: The first,
    on two lines.
:type left: int
:param int right: The second.
:returns: The sum.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["Google", "NumPy", "Sphinx"])
def test_every_style_of_docstring_describes_parameters(text):
    def add(left: int, right: int):
        pass

    add.__doc__ = text

    properties = parameters_of(add)["properties"]
    assert {name: properties[name]["description"] for name in properties} == {
        "left": "The first, on two lines.",
        "right": "The second.",
    }


def test_numpy_style_may_describe_two_parameters_at_once():
    def add(x: int, y: int):
        """Add.

        Parameters
        ----------
        x, y : int
            What to add.
        """

    assert {part["description"] for part in parameters_of(add)["properties"].values()} == {"What to add."}


@dataclasses.dataclass
class Described:
    """Something.

    Attributes:
        documented: From the docstring.
        both: Not this.
    """

    documented: int
    annotated: Annotated[int, "From the annotation."]
    both: Annotated[int, "From the annotation."]
    noted: int = dataclasses.field(metadata={"description": "From the metadata."})


def test_fields_of_a_dataclass_are_described_wherever_that_is_written():
    schema = HintReader().read(Described, "x").schema

    assert {name: part["description"] for name, part in schema["properties"].items()} == {
        "documented": "From the docstring.",
        "annotated": "From the annotation.",
        "both": "From the annotation.",
        "noted": "From the metadata.",
    }


# ---------------------------------------------------------------------------------------------------------- the names


def test_name_is_another_word_for_tool_id():
    def look(x: int):
        """Look."""

    assert definition_of(tool(name="peek")(look)).tool_id == "peek"
    assert definition_of(tool(name="peek", tool_id="peek")(look)).tool_id == "peek"
    with pytest.raises(DefinitionError, match="It is also called 'peer'"):
        tool(tool_id="peek", name="peer")(look)


def test_pydantic_is_not_imported_for_tools_that_do_not_use_it(tmp_path):
    import subprocess

    program = (
        "import sys\nfrom dataclasses import dataclass\nfrom handrail import tool\n"
        "@dataclass\nclass Point:\n    x: int\n"
        "@tool\ndef look(point: Point) -> Point:\n    'Look.'\n"
        "assert look.get_definition().output_schema\n"
        "sys.exit('pydantic' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
