"""The definition: what a schema.json may hold, what it becomes, and that nobody can change it afterwards."""

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.definition import ToolDefinition, find_problems
from handrail.contract.errors import DefinitionError
from handrail.contract.fields import FIELDS
from handrail.contract.frozen import FrozenDict, freeze, thaw

SCHEMA = {
    "type": "object",
    "properties": {"room": {"type": "string", "enum": ["kitchen", "hall"]}},
    "required": ["room"],
    "additionalProperties": False,
}
REQUIRED: dict[str, Any] = {
    "toolId": "set_lamp",
    "version": "1.0.0",
    "description": "Set the brightness of one lamp.",
    "category": "action",
    "sideEffects": "writes",
    "idempotent": True,
    "requiresConfirmation": False,
    "allowedModes": ["text", "voice"],
    "latencyBudgetMs": 500,
    "parameters": SCHEMA,
}

words = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=8)
whole = st.integers(1, 10**6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
names = st.lists(words, min_size=1, max_size=3, unique=True)
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "timeoutMs": whole,
    "outputSchema": st.just({}) | st.just(SCHEMA) | st.dictionaries(words, json_values, max_size=3),
    "maxOutputBytes": whole,
    "capabilities": names,
    "tags": names,
    "alwaysOffer": st.just(True),
    "rateLimit": st.fixed_dictionaries(
        {"calls": whole, "windowMs": whole, "scope": st.sampled_from(["session", "user"])}
    ),
    "permissions": st.just({"requiresAuth": True}),
    "availability": st.fixed_dictionaries({"condition": words}),
    "confirmation": st.fixed_dictionaries({"when": words}, optional={"channel": st.just("screen")}),
    "clamp": st.dictionaries(
        st.sampled_from(["text", "voice"]), st.dictionaries(words, whole | names, max_size=2), min_size=1
    ),
    "dedupeFields": names,
    "preview": words,
    "onInterrupt": st.just("finish"),
    "strict": st.just(True),
    "waivers": st.dictionaries(words, words, min_size=1, max_size=2),
    "noSchemaMode": st.sampled_from(["confirm", "refuse"]),
}
AT_THEIR_DEFAULT = {
    "$schema": "./tool.json",
    "capabilities": [],
    "tags": [],
    "alwaysOffer": False,
    "permissions": {"requiresAuth": False},
    "confirmation": {"channel": "any"},
    "clamp": {},
    "onInterrupt": "cancel",
    "strict": False,
    "waivers": {},
}

# Per field: a wrong value, and the pointer at which it is wrong.
WRONG: list[tuple[str, Any, str]] = [
    ("$schema", 5, "/$schema"),
    ("toolId", "1st", "/toolId"),
    ("toolId", "set-lamp", "/toolId"),
    ("toolId", "x" * 65, "/toolId"),
    ("toolId", "set_lamp\n", "/toolId"),
    ("version", "1.0", "/version"),
    ("version", "1.0.1٣", "/version"),
    ("version", 1, "/version"),
    ("description", "  ", "/description"),
    ("description", "x" * 1025, "/description"),
    ("category", "magic", "/category"),
    ("sideEffects", None, "/sideEffects"),
    ("idempotent", "yes", "/idempotent"),
    ("requiresConfirmation", 1, "/requiresConfirmation"),
    ("allowedModes", [], "/allowedModes"),
    ("allowedModes", "text", "/allowedModes"),
    ("allowedModes", ["text", "smoke"], "/allowedModes/1"),
    ("allowedModes", ["text", "text"], "/allowedModes"),
    ("latencyBudgetMs", 0, "/latencyBudgetMs"),
    ("latencyBudgetMs", True, "/latencyBudgetMs"),
    ("parameters", [], "/parameters"),
    ("timeoutMs", 1.5, "/timeoutMs"),
    ("outputSchema", "any", "/outputSchema"),
    ("maxOutputBytes", -1, "/maxOutputBytes"),
    ("capabilities", ["k b"], "/capabilities/0"),
    ("tags", [""], "/tags/0"),
    ("alwaysOffer", "yes", "/alwaysOffer"),
    ("rateLimit", {"calls": 0, "windowMs": 1, "scope": "user"}, "/rateLimit/calls"),
    ("rateLimit", {"calls": 1, "windowMs": 1}, "/rateLimit"),
    ("rateLimit", {"calls": 1, "windowMs": 1, "scope": "user", "a/b": 1}, "/rateLimit/a~1b"),
    ("permissions", {"requiresAuth": "no"}, "/permissions/requiresAuth"),
    ("availability", {}, "/availability"),
    ("confirmation", {"when": 1}, "/confirmation/when"),
    ("confirmation", {"channel": "phone"}, "/confirmation/channel"),
    ("clamp", {"smoke": {}}, "/clamp/smoke"),
    ("clamp", {"voice": {"level": "high"}}, "/clamp/voice/level"),
    ("clamp", {"voice": {"level": []}}, "/clamp/voice/level"),
    ("dedupeFields", [], "/dedupeFields"),
    ("preview", "x" * 2001, "/preview"),
    ("onInterrupt", "maybe", "/onInterrupt"),
    ("strict", "true", "/strict"),
    ("waivers", {"provider-loss": ""}, "/waivers/provider-loss"),
    ("noSchemaMode", "allow", "/noSchemaMode"),
]


def a_definition(**changes: Any) -> ToolDefinition:
    return ToolDefinition.from_dict({**REQUIRED, **changes})


# ------------------------------------------------------------------------------------------------------- there and back


@given(st.fixed_dictionaries({}, optional=OPTIONAL))
def test_a_definition_goes_to_a_dict_and_back_unchanged(optional: dict[str, Any]):
    data = {**REQUIRED, **optional}
    definition = ToolDefinition.from_dict(data)
    assert definition.to_dict() == data
    assert ToolDefinition.from_dict(definition.to_dict()) == definition
    assert ToolDefinition.from_dict(json.loads(json.dumps(definition.to_dict()))) == definition


def test_the_round_trip_is_tried_with_every_optional_field():
    optional = {field.name for field in FIELDS if not field.required}
    assert OPTIONAL.keys() == optional - {"$schema"} | {"noSchemaMode"}
    assert {name for name, _, _ in WRONG} == {field.name for field in FIELDS} | {"noSchemaMode"}


@pytest.mark.parametrize("name", AT_THEIR_DEFAULT)
def test_an_optional_field_at_its_default_says_nothing(name: str):
    definition = a_definition(**{name: AT_THEIR_DEFAULT[name]})
    assert definition == a_definition()
    assert definition.to_dict() == REQUIRED


def test_what_is_read_off_a_definition():
    definition = a_definition(rateLimit={"calls": 3, "windowMs": 1000, "scope": "user"}, noSchemaMode="confirm")
    assert definition.writes
    assert definition.unvalidated
    assert definition.allowed_modes == ("text", "voice")
    assert definition.rate_limit is not None
    assert definition.rate_limit.window_ms == 1000
    assert not a_definition(sideEffects="read_only").writes
    assert not a_definition().unvalidated


# -------------------------------------------------------------------------------------------------------------- frozen


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ToolDefinition)])
def test_no_attribute_can_be_set(name: str):
    definition = a_definition()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(definition, name, None)


CHANGES = {
    "set": lambda schema: schema.__setitem__("x", 1),
    "delete": lambda schema: schema.__delitem__("type"),
    "update": lambda schema: schema.update(x=1),
    "merge in place": lambda schema: schema.__ior__({"x": 1}),
    "setdefault": lambda schema: schema.setdefault("x", 1),
    "pop": lambda schema: schema.pop("type"),
    "popitem": lambda schema: schema.popitem(),
    "clear": lambda schema: schema.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("place", ["parameters", "nested", "output", "clamp"])
def test_nothing_inside_can_be_changed(change, place: str):
    definition = a_definition(outputSchema=SCHEMA, clamp={"voice": {"type": 3}})
    inside = {
        "parameters": definition.parameters,
        "nested": definition.parameters["properties"]["room"],
        "output": definition.output_schema,
        "clamp": definition.clamp["voice"],
    }[place]
    with pytest.raises(TypeError, match="frozen definition"):
        change(inside)
    assert definition == a_definition(outputSchema=SCHEMA, clamp={"voice": {"type": 3}})


def test_lists_inside_become_tuples():
    assert a_definition().parameters["properties"]["room"]["enum"] == ("kitchen", "hall")


def test_the_data_that_it_was_made_from_stays_apart():
    data = copy.deepcopy(REQUIRED)
    definition = ToolDefinition.from_dict(data)
    data["parameters"]["properties"]["room"]["enum"].append("cellar")
    assert definition == a_definition()


@pytest.mark.parametrize("plain", [thaw, copy.deepcopy], ids=["thaw", "deepcopy"])
def test_a_plain_copy_of_the_parameters_may_be_changed(plain):
    definition = a_definition()
    parameters = plain(definition.parameters)
    parameters["properties"]["room"]["enum"].append("cellar")
    assert type(parameters["properties"]) is dict
    assert definition == a_definition()


def test_a_definition_with_other_parameters_is_as_frozen_as_the_first():
    changed = dataclasses.replace(a_definition(), parameters={"type": "object", "required": ["a"]})
    assert isinstance(changed.parameters, FrozenDict)
    assert changed.parameters["required"] == ("a",)


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_a_copy_is_equal_and_as_frozen(copied):
    definition = a_definition(outputSchema=SCHEMA, waivers={"action-unconfirmed": "a lamp"})
    again = copied(definition)
    assert again == definition
    assert hash(again) == hash(definition)
    with pytest.raises(TypeError):
        again.parameters["properties"]["room"]["type"] = "integer"


@given(json_values)
def test_thawing_undoes_freezing(value: Any):
    assert thaw(freeze(value)) == value
    assert json.loads(json.dumps(freeze(value))) == value
    assert hash(freeze(value)) == hash(freeze(copy.deepcopy(value)))


# ------------------------------------------------------------------------------------------------------------ problems


@pytest.mark.parametrize(("name", "value", "pointer"), WRONG, ids=[f"{name}-{value!r:.20}" for name, value, _ in WRONG])
def test_a_wrong_value_is_a_problem_with_its_place_and_a_sentence(name: str, value: Any, pointer: str):
    problems = find_problems({**REQUIRED, name: value})
    assert [problem.pointer for problem in problems] == [pointer]
    assert problems[0].rule == "field-value"
    assert problems[0].message.startswith('"')
    assert f'"{name}"' in problems[0].message
    assert problems[0].message.endswith(".")
    assert "\n" not in problems[0].message
    assert problems[0].fix.endswith(".")


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(name: str):
    problems = find_problems({key: value for key, value in REQUIRED.items() if key != name})
    assert [(problem.rule, problem.pointer) for problem in problems] == [("required-field", "")]
    assert f'"{name}" is missing' in problems[0].message
    assert name in problems[0].fix


def test_an_unknown_field_is_told_the_nearest_one():
    (problem,) = find_problems({**REQUIRED, "timeOutMs": 5})
    assert (problem.rule, problem.pointer) == ("unknown-field", "/timeOutMs")
    assert problem.fix == 'Did you mean "timeoutMs"?'


def test_a_field_like_no_other_is_told_the_known_ones():
    (problem,) = find_problems({**REQUIRED, "q/q": 5})
    assert problem.pointer == "/q~1q"
    assert problem.fix.startswith("Remove it; the known fields are $schema, toolId")


@pytest.mark.parametrize("data", [None, [], "tool", 5])
def test_what_is_no_object_is_no_definition(data: Any):
    with pytest.raises(DefinitionError, match="one JSON object"):
        ToolDefinition.from_dict(data)


def test_every_problem_is_reported_at_once():
    with pytest.raises(DefinitionError, match=r'^Tool "set_lamp" is not a valid tool definition') as caught:
        a_definition(version="one", category="magic", colour="red")
    assert {problem.pointer for problem in caught.value.problems} == {"/version", "/category", "/colour"}
