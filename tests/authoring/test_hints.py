"""From type hints and docstring to a parameter schema, and a clear refusal for what JSON cannot carry."""

import dataclasses
import enum
import inspect
import sys
import typing
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict, Union

import pydantic
import pytest
from pydantic import BaseModel, Field

from handrail import tool
from handrail.authoring.converters import UnsupportedHint
from handrail.authoring.decorator import definition_of, guide_of
from handrail.authoring.hints import HintReader
from handrail.authoring.signature import function_signature, parameters_of
from handrail.build.compiler import BuildPlan, build
from handrail.contract.errors import DefinitionError


class Place(TypedDict):
    """Somewhere."""

    street: str
    number: NotRequired[int]


class Loose(TypedDict, total=False):
    city: Required[str]
    zip: Annotated[str, "Five digits."]


class Shades(enum.Enum):
    RED = (255, 0, 0)


class Rights(enum.Flag):
    READ = 1


@dataclasses.dataclass
class Hidden:
    seed: dataclasses.InitVar[int]


@dataclasses.dataclass
class Raw:
    content: bytes


def schema_of(hint, name):
    return HintReader().read(hint, name).schema


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (type(None), {"type": "null"}),
        (Any, {}),
        (list, {"type": "array"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (typing.List[int], {"type": "array", "items": {"type": "integer"}}),  # noqa: UP006
        (list[list[bool]], {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}),
        (dict, {"type": "object"}),
        (typing.Dict, {"type": "object"}),  # noqa: UP006
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", 1, True, None], {"enum": ["a", 1, True, None]}),
        (int | None, {"type": ["integer", "null"]}),
        (Optional[str], {"type": ["string", "null"]}),  # noqa: UP045
        (Union[int, str], {"type": ["integer", "string"]}),  # noqa: UP007
        (list[str] | None, {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (Annotated[int, {"minimum": 1}, "How many."], {"type": "integer", "minimum": 1, "description": "How many."}),
        (Annotated[str | None, {"pattern": "^a"}], {"type": ["string", "null"], "pattern": "^a"}),
        (list[Annotated[str, "A name."]], {"type": "array", "items": {"type": "string", "description": "A name."}}),
        (
            Place,
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
                "required": ["street"],
            },
        ),
        (
            Loose,
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"city": {"type": "string"}, "zip": {"type": "string", "description": "Five digits."}},
                "required": ["city"],
            },
        ),
    ],
    ids=str,
)
def test_a_hint_becomes_its_schema(hint, schema):
    assert schema_of(hint, "x") == schema


@pytest.mark.parametrize(
    "hint",
    [
        bytes,
        complex,
        set,
        set[list[int]],
        tuple[int, bytes],
        dict[int, str],
        Shades,
        Rights,
        object,
        timedelta,
        Literal[b"x"],
        list[bytes],
        typing.Callable[[], int],
        typing.TypeVar("T"),
        Annotated[bytes, "x"],
    ],
    ids=str,
)
def test_a_hint_that_json_cannot_carry_is_refused_by_name(hint):
    def look(x, plain: int):
        """Look."""

    look.__annotations__["x"] = hint

    with pytest.raises(DefinitionError) as caught:
        tool(look)

    (problem,) = caught.value.problems
    assert (problem.rule, problem.pointer) == ("function-hints", "/x")
    assert '"x' in problem.message


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (Hidden, '"x" is hinted as Hidden, which has the InitVar "seed".'),
        (Raw, '"x.content" is hinted as bytes, which JSON cannot carry.'),
        (Path, '"x" is hinted as Path, which is no supported hint, and no configured service returns it.'),
    ],
)
def test_a_class_that_may_still_be_a_service_is_refused_when_its_definition_is_asked_for(hint, message):
    def look(x, plain: int):
        """Look."""

    look.__annotations__["x"] = hint

    with pytest.raises(DefinitionError) as caught:
        tool(look).get_definition()

    (problem,) = caught.value.problems
    assert (problem.rule, problem.pointer, problem.message) == ("function-hints", "/x", message)
    assert f'Annotated[{hint.__name__}, service("NAME")]' in problem.fix


def test_every_argument_that_cannot_be_is_named():
    def look(a: bytes, b, /, *rest: int, **more: int):
        """Look."""

    with pytest.raises(DefinitionError) as caught:
        tool(look)

    assert [problem.pointer for problem in caught.value.problems] == ["/a", "/b", "/rest", "/more"]


def test_a_field_as_a_default_is_refused():
    def look(x: int = Field(3, ge=1)):
        """Look."""

    with pytest.raises(DefinitionError, match=r'"x" has a Field as its default.*Annotated'):
        tool(look)


def test_a_hint_that_does_not_exist_is_refused_with_its_name():
    def look(x: "NoSuchThing"):  # noqa: F821
        """Look."""

    with pytest.raises(DefinitionError, match="NoSuchThing"):
        tool(look)


def test_hints_that_are_text_are_read_too():
    def look(x: "int", y: "list[str] | None" = None):
        """Look."""

    assert parameters_of(look) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {"x": {"type": "integer"}, "y": schema_of(list[str] | None, "y")},
        "required": ["x"],
    }


POSTPONED = '''
from __future__ import annotations

from typing import NotRequired, Required, TypedDict
from handrail import tool

class Place(TypedDict):
    street: str
    number: NotRequired[int]

class Loose(TypedDict, total=False):
    city: Required[str]
    zip: str

@tool
def look(place: Place, loose: Loose):
    """Look."""
'''


def test_required_and_not_required_count_in_a_module_with_postponed_annotations(tmp_path):
    (tmp_path / "postponed_hints.py").write_text(POSTPONED)
    (tmp_path / "tools").mkdir()
    plan = BuildPlan(
        tools=tmp_path / "tools", artifact=tmp_path / "r.json", modules=("postponed_hints",), project=tmp_path
    )

    (entry,) = build(plan).entries

    properties = entry["jsonSchema"]["properties"]
    assert (properties["place"]["required"], properties["loose"]["required"]) == (["street"], ["city"])


def test_defaults_and_descriptions_come_from_signature_and_docstring():
    @tool
    def book(room: str, hours: int = 2, guests: list[str] | None = None, quiet: bool = False, ctx: Any = None):
        """Book a room. At once.

        :param room: Which room,
            by its name.
        :param hours: For how long.
        """

    made = definition_of(book)

    assert made.description == "Book a room. At once."
    assert made.parameters["required"] == ("room",)
    assert made.parameters["properties"]["room"]["description"] == "Which room, by its name."
    assert made.parameters["properties"]["hours"] == {"type": "integer", "default": 2, "description": "For how long."}
    assert "default" not in made.parameters["properties"]["guests"]
    assert made.parameters["properties"]["quiet"]["default"] is False
    assert "ctx" not in made.parameters["properties"]


def test_a_default_that_json_cannot_carry_is_refused():
    with pytest.raises(DefinitionError, match=r"/parameters/properties/x/default"):

        @tool
        def look(x: str = date(2026, 1, 1)):
            """Look."""


def test_an_idempotent_tool_is_what_does_not_write_unless_said():
    def look(x: int):
        """Look."""

    assert definition_of(tool(side_effects="read_only")(look)).idempotent
    assert not definition_of(tool(side_effects="writes")(look)).idempotent
    assert definition_of(tool(side_effects="writes", idempotent=True)(look)).idempotent


# ------------------------------------------------------------------------------------------------------- definitions


@dataclasses.dataclass
class Tree:
    left: "Tree | None" = None
    right: "Tree | None" = None


@dataclasses.dataclass
class Folder:
    files: "list[File]"


@dataclasses.dataclass
class File:
    links: list[Folder]


class Money(BaseModel):
    cents: int


class Price(BaseModel):
    net: Money
    tax: Money


class Offer(BaseModel):
    prices: list[Price]
    total: Money


def test_a_type_that_contains_itself_is_defined_once_however_often_it_is_used():
    def look(a: Tree, b: list[Tree], c: Tree | None = None):
        """Look."""

    schema = parameters_of(look)

    assert list(schema["$defs"]) == ["Tree"]
    assert schema["properties"]["b"] == {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    assert schema["$defs"]["Tree"]["properties"]["left"] == {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement is new in Python 3.12")
def test_an_alias_is_read_and_one_that_contains_itself_is_refused():
    namespace = {}
    exec("type Ids = list[int]\ntype Json = dict[str, Json] | str", namespace)

    assert schema_of(namespace["Ids"], "x") == {"type": "array", "items": {"type": "integer"}}
    with pytest.raises(DefinitionError, match='"x" is hinted as Json, which contains itself'):
        tool(_look_at(x=namespace["Json"]))


@pytest.mark.parametrize(
    ("hint", "sent", "received"),
    [
        (tuple | None, [1], (1,)),
        (tuple | str, [1], (1,)),
        (pydantic.SecretStr | None, "x", pydantic.SecretStr("x")),
        (dict[str, tuple] | None, {"a": [1]}, {"a": (1,)}),
    ],
    ids=str,
)
def test_a_union_converts_what_its_members_convert(hint, sent, received):
    assert HintReader().read(hint, "x").decode(sent) == received


def test_types_that_contain_each_other_are_read():
    decode = function_signature(_look_at(folder=Folder, file=File)).decode

    made = decode({"folder": {"files": [{"links": [{"files": []}]}]}, "file": {"links": []}})

    assert made == {"folder": Folder([File([Folder([])])]), "file": File([])}


def test_models_that_share_a_model_share_its_definition():
    schema = parameters_of(_look_at(price=Price, offer=Offer))

    assert sorted(schema["$defs"]) == ["Money", "Price"]
    assert schema["properties"]["price"]["properties"]["net"] == {"$ref": "#/$defs/Money"}


def test_two_models_of_one_name_have_two_definitions():
    class Other(BaseModel):
        class Money(BaseModel):
            amount: str

        first: Money
        second: Money

    schema = parameters_of(_look_at(price=Price, other=Other))

    assert sorted(schema["$defs"]) == ["Money", "Money2"]
    assert schema["properties"]["other"]["properties"]["first"] == {"$ref": "#/$defs/Money2"}
    assert list(schema["$defs"]["Money2"]["properties"]) == ["amount"]


def _look_at(**hints):
    def look(**arguments):
        """Look."""

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in hints]
    look.__signature__ = inspect.Signature(parameters)
    look.__annotations__ = hints
    return look


T = typing.TypeVar("T")
K = typing.TypeVar("K", bound=str)
NUMBER = typing.TypeVar("NUMBER", int, float)


@dataclasses.dataclass
class Box(typing.Generic[T]):
    content: T
    label: Annotated[T | None, "A label."] = None


@dataclasses.dataclass
class Pair(Box[int], typing.Generic[T]):
    """It uses the base's variable for something else."""

    other: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Plain(Pair[str]):
    more: int = 0


@dataclasses.dataclass
class Chain(typing.Generic[T]):
    value: T
    rest: typing.Optional["Chain[T]"] = None


@dataclasses.dataclass
class Widening(typing.Generic[T]):
    value: T
    rest: typing.Optional["Widening[list[T]]"] = None


@dataclasses.dataclass
class Named(typing.Generic[K, NUMBER]):
    key: K
    amount: NUMBER


class Entry(typing.TypedDict, typing.Generic[T]):
    value: T
    note: typing.NotRequired[list[T]]


class DatedEntry(Entry[date]):
    day: date


DATE = {"type": "string", "format": "date"}


def members(hint):
    return schema_of(hint, "x")["properties"]


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [
        (
            Box[date],
            {"content": DATE, "label": {"anyOf": [DATE, {"type": "null"}], "description": "A label."}},
        ),
        (Box[list[int]], {"content": {"type": "array", "items": {"type": "integer"}}}),
        (Box, {"content": {}}),
        (Pair[date], {"content": {"type": "integer"}, "other": {"type": "array", "items": DATE}}),
        (Plain, {"content": {"type": "integer"}, "other": {"type": "array", "items": {"type": "string"}}}),
        (Named, {"key": {"type": "string"}, "amount": {"type": ["integer", "number"]}}),
        (Entry[int], {"value": {"type": "integer"}, "note": {"type": "array", "items": {"type": "integer"}}}),
        (DatedEntry, {"value": DATE, "note": {"type": "array", "items": DATE}, "day": DATE}),
    ],
    ids=str,
)
def test_a_generic_class_has_its_arguments_in_the_place_of_its_variables(hint, wanted):
    made = members(hint)
    assert {name: made[name] for name in wanted} == wanted


def test_a_generic_class_is_made_with_its_arguments_converted():
    seen = []

    @tool
    def look(x: Box[Pair[date]], y: Chain[date], z: Entry[date]):
        """Look."""
        seen.extend((x, y, z))

    day = "2026-12-24"
    made = Pair(content=1, other=[date(2026, 12, 24)])
    arguments = {
        "x": {"content": {"content": 1, "other": [day]}},
        "y": {"value": day, "rest": {"value": day}},
        "z": {"value": day},
    }
    decode = function_signature(look).decode
    look(**decode(arguments))
    assert seen == [
        Box(made),
        Chain(date(2026, 12, 24), Chain(date(2026, 12, 24))),
        {"value": date(2026, 12, 24)},
    ]


def test_a_class_that_contains_itself_with_other_arguments_is_refused():
    with pytest.raises(UnsupportedHint, match="Widening, which contains itself with ever other arguments"):
        HintReader().read(Widening[int], "x")


GOOGLE = """Find an order.

Use the number on the invoice.

Args:
    order_id: The number,
        such as A-1.

    day: The day.

Returns:
    The order.

Never guess a number.
"""
NUMPY = """Find an order.

Use the number on the invoice.

Parameters
----------
order_id : str
    The number, such as A-1.
day
    The day.

Returns
-------
str
    The order.

Notes
-----
Never guess a number.
"""
SPHINX = """Find an order.

Use the number on the invoice.

:param order_id: The number,
    such as A-1.
:type order_id: str
:param day: The day.
:returns: The order.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_what_a_docstring_says_of_parameters_is_in_the_schema_and_not_in_the_guide(text):
    def find(order_id: str, day: str = "", ctx=None):
        return None

    find.__doc__ = text
    made = tool(find)
    described = {
        name: one["description"] for name, one in definition_of(made).to_dict()["parameters"]["properties"].items()
    }
    assert described == {"order_id": "The number, such as A-1.", "day": "The day."}
    guide = guide_of(made)
    assert guide.startswith("Find an order.\n\nUse the number on the invoice.\n\n")
    assert not any(words in guide for words in ("order_id", "day", "Args", "Parameters", "param", "A-1", "\n\n\n"))
    kept = [
        line
        for line in text.splitlines()
        if line.strip() in ("The order.", ":returns: The order.", "Returns", "Returns:")
    ]
    kept += ["Never guess a number."] if "Never" in text else []
    assert kept
    assert all(line in guide.splitlines() for line in kept)


def test_a_docstring_whose_parameters_the_schema_does_not_have_stays_whole():
    text = "Find.\n\nArgs:\n    order_id: The number.\n    shape: It is no parameter."

    def find(order_id: str):
        return None

    def given(args):
        return None

    find.__doc__ = given.__doc__ = text
    schema = {"type": "object", "additionalProperties": False, "properties": {"order_id": {"type": "string"}}}
    assert guide_of(tool(find)) == guide_of(tool(parameters=schema)(given)) == text
