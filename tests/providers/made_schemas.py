"""Schemas that nobody thought of, made by hypothesis, each with arguments that are valid for it."""

from typing import Any

from hypothesis import strategies as st

from handrail.contract.definition import ToolDefinition

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


NODE = an_object(["label"], label=TEXT, next={"$ref": "#/$defs/node"})
COLOUR = {"type": "string", "enum": ["red", "blue"], "description": "A colour"}
DEFS = {"node": NODE, "colour": COLOUR, "maybe": {"type": ["string", "null"]}, "linked": {"$ref": "#/$defs/colour"}}
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


# For formats that take what strict mode does not: open maps, anything at all, conditions. The values are not exhaustive.
LOOSE_SCALARS: list[Made] = [
    ({"type": "integer", "enum": [1, 2, 3]}, alike(st.integers(1, 3))),
    ({"const": 3, "title": "Three"}, alike(st.just(3))),
    ({"type": "number", "enum": [0.5, 1]}, alike(st.sampled_from([0.5, 1]))),
    ({"type": "boolean", "const": True}, alike(st.just(True))),
    ({"type": "boolean", "enum": [True, False]}, alike(st.booleans())),
    ({"type": ["string", "null"], "enum": ["a", None]}, alike(st.sampled_from(["a", None]))),
    ({"type": ["string", "null"], "enum": ["a", "b"]}, alike(st.sampled_from(["a", "b"]))),
    ({"enum": ["a", 1, None]}, alike(st.sampled_from(["a", 1, None]))),
    ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, alike(st.integers(1, 9))),
    ({"type": "integer", "exclusiveMinimum": 0.5, "minimum": 0}, alike(st.integers(1, 9))),
    ({"type": "number", "exclusiveMinimum": 0}, alike(st.floats(1, 9))),
    ({"type": "number", "multipleOf": 0.5, "default": 1}, alike(st.sampled_from([0.5, 1, 2]))),
    ({"type": ["string", "integer"], "maxLength": 3, "minimum": 1}, alike(st.sampled_from(["a", 2]))),
    ({"type": "string", "format": "date", "default": "2026-01-01"}, alike(st.just("2026-03-29"))),
    ({"type": "string", "maxLength": 3, "examples": ["a", "b"]}, alike(st.just("abc"))),
    ({"type": "string", "not": {"const": "root"}}, alike(letters)),
    ({"type": "string", "if": {"const": "a"}, "then": {"maxLength": 3}}, alike(letters)),
    ({"type": "array", "items": TEXT, "minItems": 1, "uniqueItems": True}, alike(st.just(["a", "b"]))),
    ({"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 2}, alike(st.just([1, 2]))),
    ({"type": "array"}, alike(st.sampled_from([[], ["a", 1]]))),
    ({"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "items": False}, alike(st.just(["a", 1]))),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, alike(st.sampled_from([{}, {"a": 1}]))),
    ({"type": "object", "properties": {"a": TEXT}, "unevaluatedProperties": False}, alike(st.just({"a": "b"}))),
    (
        {"type": "object", "properties": {"a": TEXT}, "unevaluatedProperties": {"type": "integer"}},
        alike(st.just({"z": 1})),
    ),
    ({"type": "object", "additionalProperties": {"type": "integer", "multipleOf": 2}}, alike(st.just({"z": 2}))),
    ({"type": "object", "patternProperties": {"^x-": TEXT}}, alike(st.sampled_from([{}, {"x-a": "b"}]))),
    ({"type": "object", "properties": {"a": TEXT}, "minProperties": 1}, alike(st.just({"a": "b"}))),
    ({"type": "object", "properties": {"a": False, "b": TEXT}}, alike(st.just({"b": "x"}))),
    ({"properties": {"a": TEXT}}, alike(st.sampled_from([{"a": "b"}, 3]))),
    ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]}, alike(st.sampled_from([3, None]))),
    ({"type": "null"}, alike(st.none())),
    ({}, alike(st.sampled_from([1, "a", None, [], {}]))),
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
def made_objects(draw: st.DrawFn, depth: int = 2, fixed: dict[str, Made] | None = None, *, loose: bool = False) -> Made:
    count = draw(st.integers(0, 3))
    members = {f"p{index}": draw(made(depth - 1, loose=loose)) for index in range(count)} | (fixed or {})
    required = {name for name in members if name in (fixed or {}) or draw(st.booleans())}
    nullable = {name for name, (schema, _) in members.items() if any(schema is one for one, _ in NULLABLE_SCALARS)}
    schema = {"type": "object", "properties": {name: one for name, (one, _) in members.items()}}
    schema |= draw(st.sampled_from([{}, {"additionalProperties": False}, {"description": "An object"}]))
    halves = draw(st.booleans()) and "additionalProperties" not in schema
    schema |= {"allOf": [{"required": sorted(required)}]} if halves else {"required": sorted(required)}
    return schema, object_values(members, required, nullable)


@st.composite
def made_lists(draw: st.DrawFn, depth: int, *, loose: bool = False) -> Made:
    schema, values = draw(made(depth - 1, loose=loose))
    lists = st.lists(values, max_size=3).map(
        lambda triples: tuple([one[place] for one in triples] for place in range(3))
    )
    return {"type": "array", "items": schema}, lists


@st.composite
def made_alternatives(draw: st.DrawFn, depth: int, *, loose: bool = False) -> Made:
    """Objects told apart by their kind; the same property may be nullable in one and not in the other."""
    fixed = [{"kind": ({"const": kind}, alike(st.just(kind)))} for kind in ("a", "b")]
    kinds = [draw(made_objects(depth - 1, kind, loose=loose)) for kind in fixed]
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


def made(depth: int, *, loose: bool = False) -> st.SearchStrategy[Made]:
    flat = st.sampled_from(SCALARS) | st.sampled_from(NULLABLE_SCALARS) | made_choices() | made_nodes()
    if loose:
        flat |= st.sampled_from(LOOSE_SCALARS)
    if depth <= 0:
        return flat
    return (
        flat | made_objects(depth, loose=loose) | made_lists(depth, loose=loose) | made_alternatives(depth, loose=loose)
    )


@st.composite
def cases(draw: st.DrawFn, *, loose: bool = False) -> tuple[dict[str, Any], Any, Any, Any]:
    schema, values = draw(made_objects(3, loose=loose))
    return ({**schema, "$defs": DEFS}, *draw(values))


# What a model may send instead of what it was asked for.
POOL: list[Any] = [
    None, True, False, 0, 1, 2, 3, 9, 10, -1, 0.5, 2.0, 2.25, "", "a", "b", "red", "root", "abcxyz", "abcdefghijk", "1",
    "https://example.com/x", "2026-03-29", [], ["a"], ["a", "a"], [1], [0, 1, 2], [None], ["a", 1], ["a", 1, 2], {},
    {"a": 1}, {"a": "b"}, {"b": "x"}, {"x-a": "b"}, {"x-a": 1}, {"kind": "a"}, {"kind": "c"}, {"label": "x"},
]  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn, value: Any) -> Any:
    """The value with one thing in it changed, left out or put in."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 3)) == 0:
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: draw(spoilt(value[name]))}
    if isinstance(value, list) and value and draw(st.booleans()):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(spoilt(value[place])), *value[place + 1 :]]
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(st.sampled_from(["other", "p0", "x-a"])): draw(st.sampled_from(POOL))}
    return draw(st.sampled_from(POOL))


def resolve(value: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        value = value[int(token)] if isinstance(value, list) else value[token]
    return value
