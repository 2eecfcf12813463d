"""The published JSON Schema of the envelope says what `ToolResponse.to_dict()` writes, no more and no less."""

import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator, meta

from handrail.contract.envelope import RESPONSE_SCHEMA_VERSION, ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, ToolError
from handrail.contract.intents import Intent, IntentType

SCHEMA = json.loads((files("handrail") / "schemas" / "envelope.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA, validate_formats=True)

text = st.text(st.characters(codec="utf-8"), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, values, max_size=3)
intents = st.builds(
    Intent, st.sampled_from(list(IntentType)) | text.filter(bool), st.dictionaries(text, values, max_size=2)
)
metas = st.builds(
    lambda known, more: {**more, **known},
    st.fixed_dictionaries(
        {},
        optional={
            "toolId": text,
            "toolVersion": text,
            "registryVersion": text,
            "duration": st.floats(0, 1e9) | st.integers(0, 10**9),
            "responseSchemaVersion": st.just(RESPONSE_SCHEMA_VERSION),
            "replayed": st.booleans(),
            "duplicateOf": text,
            "clamped": values,
            "defaulted": values,
            "repaired": st.booleans(),
            "unvalidated": st.booleans(),
            "attempts": st.integers(1, 9),
            "budget": values,
            "truncated": values,
            "external": values,
        },
    ),
    st.dictionaries(text.map("x-".__add__), values, max_size=2),
)
details = st.lists(st.builds(lambda more: {**more, "pointer": "/a", "message": "wrong"}, objects), max_size=2)
failures = st.builds(
    ToolFailure,
    st.sampled_from(list(ErrorType)),
    text,
    retryable=st.booleans(),
    partial_side_effects=st.booleans(),
    details=details,
    retry_after=st.none() | st.floats(0, 1e6),
    idempotency_required=st.none() | st.booleans(),
    suggestion=st.none() | text,
    confirmation_request=st.none()
    | st.fixed_dictionaries({"id": text, "tool": text, "args": objects, "preview": text, "expires_at": text}),
)
lists_of_intents = st.lists(intents, max_size=2).map(tuple)
responses = st.builds(ToolResponse, st.just(True), values, st.none(), lists_of_intents, metas) | st.builds(
    ToolResponse, st.just(False), st.none(), failures, lists_of_intents, metas
)

SUCCESS: dict[str, Any] = {"ok": True, "data": {}, "intents": [], "meta": {}}
ERROR = {"type": "NOT_FOUND", "message": "No such order.", "retryable": False, "partialSideEffects": False}
FAILURE: dict[str, Any] = {"ok": False, "error": ERROR, "intents": [], "meta": {}}

BROKEN: dict[str, Any] = {
    "not an object": [],
    "ok is text": {**SUCCESS, "ok": "true"},
    "ok is missing": {name: value for name, value in SUCCESS.items() if name != "ok"},
    "a success without data": {name: value for name, value in SUCCESS.items() if name != "data"},
    "a success with an error": {**SUCCESS, "error": ERROR},
    "a failure without an error": {name: value for name, value in FAILURE.items() if name != "error"},
    "a failure with data": {**FAILURE, "data": {}},
    "a success that says it failed": {**SUCCESS, "ok": False},
    "an unknown field": {**SUCCESS, "result": 1},
    "no intents": {name: value for name, value in SUCCESS.items() if name != "intents"},
    "no meta": {name: value for name, value in FAILURE.items() if name != "meta"},
    "intents are an object": {**SUCCESS, "intents": {}},
    "an intent without a type": {**SUCCESS, "intents": [{"value": True}]},
    "an intent with an empty type": {**SUCCESS, "intents": [{"type": ""}]},
    "meta is a list": {**SUCCESS, "meta": []},
    "another version": {**SUCCESS, "meta": {"responseSchemaVersion": "2.0.0"}},
    "a duration below zero": {**SUCCESS, "meta": {"duration": -1}},
    "attempts are no number": {**SUCCESS, "meta": {"attempts": "two"}},
}
BROKEN_ERRORS: dict[str, Any] = {
    "an unknown type": {**ERROR, "type": "OOPS"},
    "a type in lower case": {**ERROR, "type": "not_found"},
    "a message that is no text": {**ERROR, "message": None},
    "retryable is a number": {**ERROR, "retryable": 1},
    "a detail without a pointer": {**ERROR, "details": [{"message": "wrong"}]},
    "details are text": {**ERROR, "details": "wrong"},
    "a wait below zero": {**ERROR, "retryAfter": -1},
    "a wait in words": {**ERROR, "retryAfter": "soon"},
    "a suggestion that is no text": {**ERROR, "suggestion": ["look"]},
    "a confirmation request that is text": {**ERROR, "confirmation_request": "please"},
    "an unknown field": {**ERROR, "code": 404},
    **{f"without {name}": {key: value for key, value in ERROR.items() if key != name} for name in ERROR},
}


@given(responses)
def test_every_response_is_valid_on_the_wire(response: ToolResponse):
    wire = json.loads(json.dumps(response.to_dict()))
    assert [error.message for error in VALIDATOR.iter_errors(wire)] == []


@given(responses)
def test_what_was_written_is_read_back_the_same(response: ToolResponse):
    wire = json.loads(json.dumps(response.to_dict()))
    assert ToolResponse.from_dict(wire).to_dict() == wire


@pytest.mark.parametrize("wire", [SUCCESS, FAILURE], ids=["success", "failure"])
def test_the_smallest_envelopes_are_valid_and_written_as_the_contract_shows_them(wire: dict[str, Any]):
    assert VALIDATOR.is_valid(wire)
    assert list(ToolResponse.from_dict(wire).to_dict()) == list(wire)


@pytest.mark.parametrize("wire", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_envelope_is_not_valid(wire: Any):
    assert not VALIDATOR.is_valid(wire)


@pytest.mark.parametrize("error", BROKEN_ERRORS.values(), ids=BROKEN_ERRORS.keys())
def test_a_broken_error_is_not_valid(error: dict[str, Any]):
    assert not VALIDATOR.is_valid({**FAILURE, "error": error})


def test_the_error_types_are_those_of_the_code():
    assert SCHEMA["$defs"]["errorType"]["enum"] == [kind.value for kind in ErrorType]


def test_the_version_is_that_of_the_code():
    assert SCHEMA["$id"].endswith(RESPONSE_SCHEMA_VERSION)
    assert SCHEMA["$defs"]["meta"]["properties"]["responseSchemaVersion"]["const"] == RESPONSE_SCHEMA_VERSION


def test_the_schema_is_one_and_tells_people_what_each_part_is():
    assert meta.is_valid(SCHEMA)
    for name, part in SCHEMA["$defs"].items():
        assert part["title"], name
        assert part["description"], name
        for field, described in part.get("properties", {}).items():
            assert "$ref" in described or described["description"], f"{name}.{field}"


# ---------------------------------------------------------------------------- what a handler gives is checked or mended


errors_of_handlers = st.fixed_dictionaries(
    {"type": st.sampled_from(["NOT_FOUND", "OOPS"]), "message": text},
    optional={
        "retryable": values,
        "partialSideEffects": values,
        "details": values | details | st.lists(st.just({"message": "too long"})),
        "retryAfter": values,
        "idempotencyRequired": values,
        "suggestion": values,
        "confirmation_request": values.filter(lambda value: not value),
    },
)


@given(errors_of_handlers)
def test_a_failure_that_is_taken_from_a_handler_is_valid_on_the_wire(error: dict[str, Any]):
    try:
        taken = ToolResponse.from_dict({"ok": False, "error": error})
    except ValueError:
        return
    wire = json.loads(json.dumps(taken.to_dict()))
    assert [problem.message for problem in VALIDATOR.iter_errors(wire)] == []


def test_a_detail_without_a_pointer_is_about_the_arguments_as_a_whole():
    failure = ToolFailure.from_error(ToolError("VALIDATION", "No.", details=[{"message": "too long"}]))
    assert failure.to_dict()["details"] == [{"pointer": "", "message": "too long"}]


def test_a_response_is_a_success_or_a_failure_and_never_both():
    with pytest.raises(ValueError, match="a failure has one"):
        ToolResponse(ok=False)
    with pytest.raises(ValueError, match="a failure has one"):
        ToolResponse(ok=True, error=ToolFailure(ErrorType.INTERNAL, "It broke."))


def test_the_type_of_an_intent_cannot_be_overwritten_by_its_fields():
    assert Intent("SUPPRESS_AUDIO", {"type": "BLOCK_USER", "value": True}).to_dict() == {
        "type": "SUPPRESS_AUDIO",
        "value": True,
    }
