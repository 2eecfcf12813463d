"""Chat Completions, strict mode, for schemas that nobody thought of: what is valid stays valid, there and back."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers import adapt
from handrail.providers.openai_chat.strict import FORMATS, strip_nulls, to_strict

STRICT_KEYWORDS = {
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "description", "title",
    "$ref", "$defs", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minItems", "maxItems",
}  # fmt: skip
TEXT = {"type": "string"}


def an_object(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    """An object with these properties, all of them required unless told otherwise."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def a_definition(parameters: Any, *, strict: bool = False, description: str = "Look up one order.") -> ToolDefinition:
    return ToolDefinition.from_dict(
        {
            "toolId": "lookup_order",
            "version": "1.0.0",
            "description": description,
            "category": "retrieval",
            "sideEffects": "read_only",
            "idempotent": True,
            "requiresConfirmation": False,
            "allowedModes": ["text"],
            "latencyBudgetMs": 500,
            "parameters": parameters,
            "strict": strict,
        }
    )


def resolve(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        value = value[int(token)] if isinstance(value, list) else value[token]
    return value


NODE = an_object(["label"], label=TEXT, next={"$ref": "#/$defs/node"})
COLOUR = {"type": "string", "enum": ["red", "blue"], "description": "A colour"}
DEFS = {"node": NODE, "colour": COLOUR, "maybe": {"type": ["string", "null"]}, "linked": {"$ref": "#/$defs/colour"}}
REFUSED_AT_ROOT: list[dict[str, Any]] = [
    {"oneOf": [{"required": ["p0"]}, {"required": ["p1"]}]},
    {"anyOf": [{"properties": {"p0": {"type": "string"}}}]},
    {"not": {"required": ["p0"]}},
    {"if": {"required": ["p0"]}, "then": {"required": ["p1"]}},
    {"enum": [{}]},
]

# A made schema, and for it: a value that is valid, the same as a strict model sends it, and what must come back. The
# last differs from the first where an optional property may itself be null: strict mode cannot leave it out.
Made = tuple[dict[str, Any], st.SearchStrategy[tuple[Any, Any, Any]]]

letters = st.text("abcxyz", min_size=2, max_size=5)


def alike(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any, Any]]:
    return values.map(lambda value: (value, value, value))


SCALARS: list[Made] = [
    ({"type": "string", "minLength": 2, "description": "Text"}, alike(letters)),
    ({"type": "string", "format": "uri"}, alike(letters.map("https://example.com/".__add__))),
    ({"allOf": [TEXT, {"pattern": "^[a-z]"}, {"maxLength": 9}]}, alike(letters)),
    ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9}, alike(st.integers(0, 8))),
    ({"type": "number"}, alike(st.floats(-9, 9))),
    ({"type": "boolean", "default": True}, alike(st.booleans())),
    ({"enum": ["a", 1, True]}, alike(st.sampled_from(["a", 1, True]))),
    ({"const": "x"}, alike(st.just("x"))),
    ({"$ref": "#/$defs/colour"}, alike(st.sampled_from(["red", "blue"]))),
    ({"$ref": "#/$defs/colour", "description": "Its colour"}, alike(st.sampled_from(["red", "blue"]))),
    ({"oneOf": [TEXT, {"type": "integer"}]}, alike(letters | st.integers(-9, 9))),
    (
        {"type": "array", "prefixItems": [TEXT], "items": {"type": "integer"}},
        alike(letters.map(lambda text: [text, 1])),
    ),
]
NULLABLE_SCALARS: list[Made] = [
    ({"type": ["string", "null"]}, alike(st.none() | letters)),
    ({"anyOf": [{"$ref": "#/$defs/colour"}, {"type": "null"}]}, alike(st.sampled_from(["red", None]))),
    ({"$ref": "#/$defs/maybe"}, alike(st.none() | letters)),
    ({"type": ["integer", "null"], "default": 3}, alike(st.none() | st.integers(0, 9))),
]


def object_values(
    members: dict[str, Made], required: set[str], nullable: set[str]
) -> st.SearchStrategy[tuple[Any, Any, Any]]:
    @st.composite
    def values(draw: st.DrawFn) -> tuple[Any, Any, Any]:
        valid, sent, back = {}, {}, {}
        for name, (_, member) in members.items():
            if name in required or draw(st.booleans()):
                valid[name], sent[name], back[name] = draw(member)
            else:
                sent[name] = None
                if name in nullable:
                    back[name] = None
        return valid, sent, back

    return values()


@st.composite
def made_objects(draw: st.DrawFn, depth: int = 2, fixed: dict[str, Made] | None = None) -> Made:
    members = {f"p{index}": draw(made(depth - 1)) for index in range(draw(st.integers(0, 3)))} | (fixed or {})
    required = {name for name in members if name in (fixed or {}) or draw(st.booleans())}
    nullable = {name for name, (schema, _) in members.items() if any(schema is one for one, _ in NULLABLE_SCALARS)}
    schema = {"type": "object", "properties": {name: one for name, (one, _) in members.items()}}
    schema |= draw(st.sampled_from([{}, {"additionalProperties": False}, {"description": "An object"}]))
    halves = draw(st.booleans()) and "additionalProperties" not in schema
    schema |= {"allOf": [{"required": sorted(required)}]} if halves else {"required": sorted(required)}
    return schema, object_values(members, required, nullable)


@st.composite
def made_lists(draw: st.DrawFn, depth: int) -> Made:
    schema, values = draw(made(depth - 1))
    lists = st.lists(values, max_size=3).map(
        lambda triples: tuple([one[place] for one in triples] for place in range(3))
    )
    return {"type": "array", "items": schema}, lists


@st.composite
def made_alternatives(draw: st.DrawFn, depth: int) -> Made:
    """Objects told apart by their kind; the same property may be nullable in one and not in the other."""
    kinds = [draw(made_objects(depth - 1, {"kind": ({"const": kind}, alike(st.just(kind)))})) for kind in ("a", "b")]
    keyword = draw(st.sampled_from(["anyOf", "oneOf"]))
    return {keyword: [schema for schema, _ in kinds]}, st.one_of(*(values for _, values in kinds))


@st.composite
def made_choices(draw: st.DrawFn) -> Made:
    """An object that needs one of two properties."""
    schema = {**an_object([], b=TEXT, c=TEXT), "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}
    valid = draw(st.sampled_from([{"b": "x"}, {"c": "y"}, {"b": "x", "c": "y"}]))
    return schema, st.just((valid, {"b": None, "c": None, **valid}, valid))


@st.composite
def made_nodes(draw: st.DrawFn) -> Made:
    valid, sent = {"label": "x"}, {"label": "x", "next": None}
    for _ in range(draw(st.integers(0, 3))):
        valid, sent = {"label": "x", "next": valid}, {"label": "x", "next": sent}
    beside = draw(st.sampled_from([{}, {"description": "A node"}]))
    return {"$ref": "#/$defs/node", **beside}, st.just((valid, sent, valid))


def made(depth: int) -> st.SearchStrategy[Made]:
    flat = st.sampled_from(SCALARS) | st.sampled_from(NULLABLE_SCALARS) | made_choices() | made_nodes()
    if depth <= 0:
        return flat
    return flat | made_objects(depth) | made_lists(depth) | made_alternatives(depth)


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], Any, Any, Any]:
    schema, values = draw(made_objects(3))
    return ({**schema, "$defs": DEFS}, *draw(values))


def subschemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    for child in [*inside, *([schema["items"]] if "items" in schema else [])]:
        yield from subschemas(child)


def assert_is_strict(schema: dict[str, Any]) -> None:
    assert schema["type"] == "object"
    assert "anyOf" not in schema
    for one in subschemas(schema):
        assert one.keys() <= STRICT_KEYWORDS
        assert one.keys() & {"type", "anyOf", "$ref"}
        assert "$ref" not in one or one.keys() == {"$ref"}
        assert one.get("format", "date") in FORMATS
        if "object" in one.get("type", ()):
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])
        if "array" in one.get("type", ()):
            assert "items" in one


@given(cases())
def test_what_is_valid_stays_valid_in_strict_mode_and_comes_back_valid(case: tuple[dict[str, Any], Any, Any, Any]):
    schema, valid, sent, back = case
    original = Draft202012Validator(schema)
    assert original.is_valid(valid)
    converted = to_strict(schema)
    assert converted.schema is not None, converted.losses
    assert_is_strict(converted.schema)
    strict = Draft202012Validator(converted.schema)
    assert [problem.message for problem in strict.iter_errors(sent)] == []
    assert strip_nulls(schema, sent) == back
    assert original.is_valid(back)


@given(cases())
def test_arguments_without_nulls_to_strip_come_back_as_they_are(case: tuple[dict[str, Any], Any, Any, Any]):
    schema, _, _, back = case
    assert strip_nulls(schema, back) == back


@given(cases(), st.sampled_from([{}, *REFUSED_AT_ROOT]), st.booleans())
def test_every_loss_points_at_a_place_in_the_parameters(
    case: tuple[dict[str, Any], Any, Any, Any], refused: dict[str, Any], strict: bool
):
    parameters = {**case[0], **refused}
    for loss in adapt(a_definition(parameters, strict=strict), "openai-chat").losses:
        resolve(parameters, loss.pointer)
        assert loss.keyword
        assert loss.done
        assert not loss.done.endswith(".")


def spoil(value: Any) -> None:
    """Change everything that can be changed."""
    if isinstance(value, dict):
        for inside in value.values():
            spoil(inside)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inside in value:
            spoil(inside)
        value.append("spoilt")


@given(cases(), st.booleans())
def test_the_definition_is_not_changed_and_shares_nothing_with_what_is_sent(
    case: tuple[dict[str, Any], Any, Any, Any], strict: bool
):
    before = copy.deepcopy(case[0])
    definition = a_definition(case[0], strict=strict)
    first = adapt(definition, "openai-chat")
    sent = json.dumps(first.schema)
    spoil(first.schema)
    assert thaw(definition.parameters) == before == case[0]
    assert json.dumps(adapt(definition, "openai-chat").schema) == sent
    to_strict(case[0])
    assert case[0] == before
