"""Every provider, for schemas that nobody thought of: what its form allows is what ours allows, but for what it reports."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from tests.providers.dialects import read
from tests.providers.made_schemas import (
    DEFS,
    LOOSE_SCALARS,
    NULLABLE_SCALARS,
    POOL,
    SCALARS,
    a_definition,
    cases,
    resolve,
    spoilt,
)

from handrail.contract.definition import ToolDefinition
from handrail.contract.frozen import thaw
from handrail.providers import Adapted, Loss, adapt, as_meant, provider_names

STRICT_MODES = ("openai-chat", "openai-responses", "anthropic")
FORMS = [*((name, False) for name in provider_names()), *((name, True) for name in STRICT_MODES)]
FORM_IDS = [f"{name}{' strict' * strict}" for name, strict in FORMS]
some = settings(max_examples=max(20, settings().max_examples // 2))  # each example is played with every form
# Where the provider's form is narrower than ours, or says something else: reported, and then nothing is promised.
OTHERWISE = {"type", "prefixItems", "required", "false"}


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema, validate_formats=True)


def less(parameters: dict[str, Any], losses: tuple[Loss, ...]) -> dict[str, Any] | None:
    """Our schema without what was reported as lost; None where a loss is more than a keyword that went missing."""
    left = json.loads(json.dumps(parameters))  # a copy in which nothing stands twice
    for loss in sorted(losses, key=lambda loss: -len(loss.pointer)):  # what is inside first, while its place is there
        if not loss.minor or loss.keyword in OTHERWISE:
            return None
        if loss.done.startswith("listed as text"):
            continue
        holder = resolve(left, loss.pointer.rsplit("/", 1)[0])
        value = holder.pop(loss.keyword)
        if loss.done.startswith("sent as "):
            holder[loss.done.split(" ")[2].strip(";,")] = value
    return left


def is_strict(adapted: Adapted) -> bool:
    return bool(adapted.schema.get("strict") or adapted.schema.get("function", {}).get("strict"))


def assert_alike(provider: str, strict: bool, parameters: dict[str, Any], values: list[Any]) -> bool:
    """Both sides say the same of every value; False if nothing is promised for this schema."""
    definition = a_definition(parameters, strict=strict)
    adapted = adapt(definition, provider)
    theirs = validator(read(provider, adapted.schema))
    left = less(parameters, adapted.losses)
    if left is None:
        return False
    ours = validator(left)
    for value in values:
        if theirs.is_valid(value):
            assert ours.is_valid(as_meant(definition, provider, value)), (value, adapted)
        elif not is_strict(adapted):  # strict mode closes objects that are open, and asks for nulls
            assert not ours.is_valid(value), (value, adapted)
    return True


EVERY = [*SCALARS, *NULLABLE_SCALARS, *LOOSE_SCALARS]


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
@pytest.mark.parametrize(("provider", "strict"), FORMS, ids=FORM_IDS)
def test_one_argument_of_every_kind_is_the_same_on_both_sides(provider: str, strict: bool, closed: bool):
    promised = 0
    for schema, _ in EVERY:
        for required in ([], ["a"]):
            parameters = {"type": "object", "properties": {"a": schema}, "required": required, "$defs": DEFS}
            parameters |= {"additionalProperties": False} if closed else {}
            values = [{}, {"a": "a", "other": 1}, *({"a": value} for value in POOL)]
            promised += assert_alike(provider, strict, parameters, values)
    assert promised >= len(EVERY)


@some
@given(st.data())
def test_arguments_are_the_same_on_both_sides(data: st.DataObject):
    parameters, valid, sent, _ = data.draw(cases(loose=True))
    values = [valid, sent, *(data.draw(spoilt(sent)) for _ in range(6))]
    for provider, strict in FORMS:
        assert_alike(provider, strict, parameters, values)


@some
@given(cases(loose=True))
def test_what_is_valid_can_be_said_to_every_provider(case: tuple[Any, Any, Any, Any]):
    for provider, strict in FORMS:
        assert_sayable(provider, a_definition(case[0], strict=strict), *case[1:])


def assert_sayable(provider: str, definition: ToolDefinition, valid: Any, sent: Any, back: Any) -> None:
    adapted = adapt(definition, provider)
    theirs = validator(read(provider, adapted.schema))
    if any(not loss.minor or loss.keyword in OTHERWISE for loss in adapted.losses):
        return
    nulls = is_strict(adapted) and provider.startswith("openai")
    assert [problem.message for problem in theirs.iter_errors(sent if nulls else valid)] == [], provider
    assert as_meant(definition, provider, sent if nulls else valid) == (back if nulls else valid)


REFUSED: list[dict[str, Any]] = [
    {},
    {"oneOf": [{"required": ["p0"]}, {"required": ["p1"]}]},
    {"anyOf": [{"properties": {"p0": {"type": "string"}}}, {"properties": {"q": {"type": "string", "minLength": 1}}}]},
    {"not": {"required": ["p0"]}, "minProperties": 1},
    {"if": {"required": ["p0"]}, "then": {"required": ["p1"]}},
    {"enum": [{}], "x-unknown": 1},
    {"allOf": [{"oneOf": [{"required": ["p0"]}]}]},
    {"dependentSchemas": {"p0": {"required": ["p1"]}}, "propertyNames": {"maxLength": 9}},
]


@some
@given(cases(loose=True), st.sampled_from(REFUSED))
def test_losses_are_sentences_with_a_place_and_the_definition_stays_as_it_is(
    case: tuple[Any, Any, Any, Any], refused: dict[str, Any]
):
    parameters = {**case[0], **refused}
    before = copy.deepcopy(parameters)
    for provider, strict in FORMS:
        definition = a_definition(parameters, strict=strict)
        first = adapt(definition, provider)
        sent = json.dumps(first.schema)
        read(provider, first.schema)
        assert_places(parameters, first.losses)
        _spoil(first.schema)
        assert thaw(definition.parameters) == before
        assert json.dumps(adapt(definition, provider).schema) == sent


def assert_places(parameters: dict[str, Any], losses: tuple[Loss, ...]) -> None:
    for loss in losses:
        resolve(parameters, loss.pointer)
        assert loss.keyword
        assert loss.done
        assert not loss.done.endswith(".")
    assert len(set(losses)) == len(losses)


def _spoil(value: Any) -> None:
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    for one in inside:
        _spoil(one)
    if isinstance(value, dict):
        value["spoilt"] = True
    elif isinstance(value, list):
        value.append("spoilt")
