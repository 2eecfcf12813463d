"""Names that a provider refuses are sent under others, reported, and undone when a call comes back."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.made_schemas import TEXT, a_definition, an_object, resolve

from handrail.contract.fields import TOOL_ID
from handrail.contract.frozen import thaw
from handrail.contract.portable_name import PORTABLE_NAME
from handrail.providers import adapt, as_meant, provider_names
from handrail.schema.subschemas import walk

TOOL_NAMES = {
    "openai-chat": r"[A-Za-z0-9_-]{1,64}",
    "openai-responses": r"[A-Za-z0-9_-]{1,64}",
    "openai-realtime": r"[A-Za-z0-9_-]{1,64}",
    "gemini": r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
    "gemini-live": r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
    "anthropic": r"[A-Za-z0-9_-]{1,64}",
    "ollama": r".+",
    "mcp": r"[A-Za-z0-9_.-]{1,128}",
}
PARAMETER_NAMES = {
    "gemini": r"[A-Za-z_][A-Za-z0-9_]{0,63}",
    "gemini-live": r"[A-Za-z_][A-Za-z0-9_]{0,63}",
    "anthropic": r"[A-Za-z0-9_.-]{1,64}",
}
ODD = ["größe", "a b", "a-b", "2nd", "", "x" * 80, "x" * 90, "per/cent~%", "$id", "日本"]


def parameters_of(sent: dict[str, Any]) -> dict[str, Any]:
    return sent.get("parametersJsonSchema") or sent.get("parameters") or sent.get("input_schema") or {}


def property_names(schema: Any) -> list[str]:
    """The names of all properties, wherever they stand."""
    return [name for _, part in walk(schema) if isinstance(part, dict) for name in part.get("properties", ())]


def renamed(definition: Any, provider: str) -> dict[str, str]:
    """What the losses say is sent under another name."""
    found = {}
    for loss in adapt(definition, provider).losses:
        if loss.done.startswith("sent as "):
            own = loss.pointer.rsplit("/", 1)[1].replace("~1", "/").replace("~0", "~")
            found[own] = loss.done.split('"')[1]
            assert loss.minor
            assert own in resolve(thaw(definition.parameters), loss.pointer.rsplit("/", 1)[0])
    return found


def sent_as(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(name, name): sent_as(one, names) for name, one in value.items()}
    return [sent_as(one, names) for one in value] if isinstance(value, list) else value


def test_every_tool_has_a_name_that_every_provider_takes():
    assert set(TOOL_NAMES) == set(provider_names())
    assert TOOL_ID.strip("^$") == PORTABLE_NAME.pattern
    for name in ("a", "_", "A9_", "_" * 64, "z" * 64):
        assert PORTABLE_NAME.fullmatch(name)
        assert all(re.fullmatch(pattern, name) for pattern in TOOL_NAMES.values())
    assert not any(map(PORTABLE_NAME.fullmatch, (*ODD, "a.b", "z" * 65, "ä")))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("provider", PARAMETER_NAMES)
def test_what_is_sent_has_names_that_the_provider_takes(provider, strict):
    inner = an_object(**dict.fromkeys(ODD, TEXT))
    definition = a_definition(
        an_object(**dict.fromkeys(ODD, TEXT), list={"type": "array", "items": inner}), strict=strict
    )
    sent = adapt(definition, provider)
    names = property_names(parameters_of(sent.schema))

    assert len(names) == 2 * len(ODD) + 1
    assert all(re.fullmatch(PARAMETER_NAMES[provider], name) for name in names)
    assert sorted(parameters_of(sent.schema)["required"]) == sorted({*names})
    args = {**dict.fromkeys(ODD, "v"), "list": [dict.fromkeys(ODD, "w")]}
    told = sent_as(args, renamed(definition, provider))
    assert told != args
    assert as_meant(definition, provider, told) == args
    assert as_meant(definition, provider, json.dumps(told)) == args
    assert as_meant(definition, provider, args) == args, "a model that uses the tool's own names is understood"


@pytest.mark.parametrize("provider", sorted(set(provider_names()) - set(PARAMETER_NAMES)))
def test_where_nothing_is_refused_nothing_is_renamed(provider):
    definition = a_definition(an_object(**dict.fromkeys(ODD, TEXT)))
    assert renamed(definition, provider) == {}
    assert as_meant(definition, provider, dict.fromkeys(ODD, "v")) == dict.fromkeys(ODD, "v")


@pytest.mark.parametrize("provider", PARAMETER_NAMES)
def test_names_that_would_become_the_same_stay_apart_and_no_own_name_is_taken(provider):
    definition = a_definition(an_object(**dict.fromkeys(["a b", "a%b", "a_b", "a_b_2"], TEXT)))
    names = renamed(definition, provider)

    assert names == {"a b": "a_b_3", "a%b": "a_b_4"}
    args = {"a b": "1", "a%b": "2", "a_b": "3", "a_b_2": "4"}
    assert as_meant(definition, provider, sent_as(args, names)) == args


def test_two_names_for_one_argument_are_left_for_the_validator_to_refuse():
    definition = a_definition(an_object(**{"a b": TEXT}))
    assert as_meant(definition, "gemini", {"a b": "1", "a_b": "2"}) == {"a b": "1", "a_b": "2"}


def test_an_open_map_keeps_the_keys_that_a_model_made():
    maps = {"type": "object", "additionalProperties": an_object(["x-y"], **{"x-y": TEXT})}
    definition = a_definition(an_object(map=maps, other={"type": "object", "additionalProperties": TEXT}))

    told = {"map": {"x_y": {"x_y": "v"}}, "other": {"x_y": "w"}}
    assert as_meant(definition, "gemini", told) == {"map": {"x_y": {"x-y": "v"}}, "other": {"x_y": "w"}}


def test_references_and_dependencies_follow_their_names_and_losses_keep_their_places():
    parameters = {
        **an_object(
            ["a-b"],
            **{"a-b": {"type": "string", "minLength": 2}, "twin": {"$ref": "#/properties/a-b"}, "properties": TEXT},
        ),
        "dependentRequired": {"a-b": ["twin"]},
        "$defs": {"a-b": TEXT},
    }
    sent = adapt(a_definition(parameters), "gemini")
    places = {(loss.keyword, loss.pointer) for loss in sent.losses}
    assert {("properties", "/properties/a-b"), ("minLength", "/properties/a-b/minLength")} & places
    for loss in sent.losses:
        resolve(parameters, loss.pointer)

    plain = adapt(a_definition({**parameters, "$defs": {"a-b": TEXT, "é": TEXT}}), "anthropic").schema["input_schema"]
    assert plain["properties"]["twin"] == {"$ref": "#/properties/a-b"}, "Anthropic takes this name"
    odd = json.loads(json.dumps(parameters).replace("a-b", "a b").replace("#/properties/a b", "#/properties/a%20b"))
    plain = adapt(a_definition(odd), "anthropic").schema["input_schema"]
    assert plain["properties"]["twin"] == {"$ref": "#/properties/a_b"}
    assert plain["dependentRequired"] == {"a_b": ["twin"]}
    assert plain["$defs"] == {"a b": TEXT}, "only properties are renamed"


NAMES = st.one_of(st.sampled_from([*ODD, "a_b", "_2nd", "properties", "items"]), st.text(max_size=6))
TREES = st.recursive(
    st.just("leaf"),
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, max_size=4), st.tuples(st.sampled_from(["list", "either", "map", "ref"]), inner)
    ),
    max_leaves=12,
)


def schema_and_value(tree: Any, defs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    if tree == "leaf":
        return {"type": "string"}, "v"
    if isinstance(tree, dict):
        made = {name: schema_and_value(one, defs) for name, one in tree.items()}
        return an_object(**{name: one for name, (one, _) in made.items()}), {
            name: one for name, (_, one) in made.items()
        }
    kind, inner = tree
    schema, value = schema_and_value(inner, defs)
    if kind == "list":
        return {"type": "array", "items": schema}, [value, value]
    if kind == "map":
        return {"type": "object", "additionalProperties": schema}, {"any key": value}
    if kind == "ref":
        defs[f"d{len(defs)}"] = schema
        return {"$ref": f"#/$defs/d{len(defs) - 1}"}, value
    return {"anyOf": [{"type": "integer"}, schema]}, value


@given(st.dictionaries(NAMES, TREES, min_size=1, max_size=4))
def test_arguments_of_any_shape_come_back_under_their_own_names(tree):
    defs: dict[str, Any] = {}
    schema, value = schema_and_value(tree, defs)
    schema = {**schema, "$defs": defs} if defs else schema
    definition = a_definition(schema)
    for provider, pattern in PARAMETER_NAMES.items():
        sent = adapt(definition, provider)
        assert all(re.fullmatch(pattern, name) for name in property_names(parameters_of(sent.schema)))
        for loss in sent.losses:
            resolve(schema, loss.pointer)
        told = sent_as(value, renamed(definition, provider))
        assert as_meant(definition, provider, told) == value
