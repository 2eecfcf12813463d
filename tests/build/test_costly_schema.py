"""The rule `costly-schema` warns of exactly the schemas whose explanations are cut, seen on real explanations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from handrail.build.rules.costly_schema import WRONG_VALUES
from handrail.schema.validator import compile_schema

BARE: list[Any] = [None, False, 1.5, "x", [], {}]


def single_values(number: int) -> dict[str, Any]:
    return {"anyOf": [{"const": i} for i in range(number)]}


def kinds(number: int) -> dict[str, Any]:
    return {
        "oneOf": [
            {
                "type": "object",
                "required": ["kind", "size"],
                "properties": {"kind": {"const": f"k{i}"}, "size": {"type": "integer"}},
            }
            for i in range(number)
        ]
    }


class Shape(NamedTuple):
    """A property "n" that grows with a number, and wrong values of it."""

    of: Callable[[int], dict[str, Any]]
    wrong: list[Any]


SHAPES = {
    "one value": Shape(single_values, BARE),
    "items": Shape(lambda number: {"items": single_values(number)}, [[value] * WRONG_VALUES for value in BARE]),
    "items by reference": Shape(
        lambda number: {"$defs": {"n": single_values(number)}, "items": {"$ref": "#/properties/n/$defs/n"}},
        [[value] * WRONG_VALUES for value in BARE],
    ),
    "members": Shape(
        lambda number: {"additionalProperties": single_values(number)},
        [{f"m{i}": value for i in range(WRONG_VALUES)} for value in BARE],
    ),
    "objects of a kind": Shape(
        lambda number: {"items": kinds(number)},
        [[value] * WRONG_VALUES for value in [*BARE, *({"kind": value, "size": value} for value in BARE)]],
    ),
    "several properties": Shape(
        lambda number: {"properties": {f"p{i}": single_values(20) for i in range(number)}},
        [{f"p{i}": value for i in range(100)} for value in BARE],
    ),
    "patterns": Shape(
        lambda number: {"allOf": [{"pattern": f"^a{{1,{10 * number}}}{i}$"} for i in range(4)]},
        BARE,
    ),
}


def parameters(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": schema}}


def is_cut(schema: dict[str, Any], wrong: list[Any]) -> bool:
    """Whether an explanation of one of the wrong values says that it ends too early."""
    compiled = compile_schema(parameters(schema))
    explanations = [compiled.explain({"n": value}) for value in wrong]
    assert all(violation.keyword != "size" for one in explanations for violation in one.violations), (
        "they are explained"
    )
    return any(
        not one.complete or any("as it would take too long" in violation.message for violation in one.violations)
        for one in explanations
    )


def first_cut(shape: Shape) -> int:
    """The least number at which explanations are cut."""
    whole, cut = 1, 1
    while not is_cut(shape.of(cut), shape.wrong):
        whole, cut = cut, 2 * cut
    while cut - whole > 1:
        middle = (whole + cut) // 2
        whole, cut = (whole, middle) if is_cut(shape.of(middle), shape.wrong) else (middle, cut)
    return cut


@pytest.mark.parametrize("name", SHAPES)
def test_the_warning_begins_where_explanations_are_cut(workshop, name):
    shape = SHAPES[name]
    number = first_cut(shape)
    folder = workshop.new()

    def warnings(schema: dict[str, Any]) -> list[str]:
        workshop.edit(folder, parameters=parameters(schema))
        return [finding.message for finding in workshop.findings() if finding.rule == "costly-schema"]

    assert warnings(shape.of(number - 1)) == []
    assert len(warnings(shape.of(number))) == 1
