"""Secrets are masked wherever a schema or the configuration says so, and tools without any pay nothing."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.work import calls_of

from handrail.contract.frozen import freeze
from handrail.observe.redaction import MAX_STEPS, REDACTED, compile_redactor
from handrail.schema.explain import Steps
from handrail.schema.strict_json import MAX_ARGUMENT_BYTES, parse_arguments

SECRET = {"type": "string", "writeOnly": True}
NODE = {"$ref": "#/$defs/node"}


def closed(properties, **more):
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


@pytest.mark.parametrize(
    ("schema", "args", "expected"),
    [
        (closed({"pin": SECRET, "id": {}}), {"pin": "1", "id": 2}, {"pin": REDACTED, "id": 2}),
        (closed({"a": closed({"pin": SECRET})}), {"a": {"pin": {"x": 1}}}, {"a": {"pin": REDACTED}}),
        (
            closed({"l": {"type": "array", "items": closed({"pin": SECRET, "n": {}})}}),
            {"l": [{"pin": "1"}, {"n": 2}]},
            {"l": [{"pin": REDACTED}, {"n": 2}]},
        ),
        (closed({"l": {"type": "array", "items": SECRET}}), {"l": ["1", "2"]}, {"l": [REDACTED, REDACTED]}),
        (closed({"l": {"prefixItems": [{}, SECRET]}}), {"l": ["1", "2", "3"]}, {"l": ["1", REDACTED, "3"]}),
        (
            closed({"a": {"$ref": "#/$defs/pin"}}, **{"$defs": {"pin": SECRET}}),
            {"a": "1"},
            {"a": REDACTED},
        ),
        (
closed({"a": NODE}, **{"$defs": {"node": {"properties": {"pin": SECRET, "next": NODE}}}}),
            {"a": {"pin": "1", "next": {"next": {"pin": "2", "n": 3}}}},
            {"a": {"pin": REDACTED, "next": {"next": {"pin": REDACTED, "n": 3}}}},
        ),
        (closed({"a": {"anyOf": [{"type": "integer"}, SECRET]}}), {"a": "1"}, {"a": REDACTED}),
        ({"allOf": [{"properties": {"pin": SECRET}}]}, {"pin": "1", "n": 1}, {"pin": REDACTED, "n": 1}),
        ({"if": {}, "then": {"properties": {"pin": SECRET}}}, {"pin": "1"}, {"pin": REDACTED}),
        ({"patternProperties": {"^s_": SECRET}}, {"s_a": "1", "t_a": "2"}, {"s_a": REDACTED, "t_a": "2"}),
        ({"patternProperties": {"(?<bad": SECRET}}, {"a": "1"}, {"a": REDACTED}),
        ({"properties": {"n": {}}, "additionalProperties": SECRET}, {"n": 1, "x": "1"}, {"n": 1, "x": REDACTED}),
    ],
)  # fmt: skip
def test_what_the_schema_marks_is_masked(schema, args, expected):
    before = copy.deepcopy(args)
    assert compile_redactor(freeze(schema), ())(args) == expected
    assert args == before


def test_names_are_masked_at_any_depth_whatever_their_case():
    args = {"Token": "1", "a": [{"API_KEY": {"x": 1}, "n": 2}], "n": 3}
    masked = {"Token": REDACTED, "a": [{"API_KEY": REDACTED, "n": 2}], "n": 3}
    assert compile_redactor(closed({}), ["token", "api_key"])(args) == masked


def test_a_tool_without_secrets_gets_no_redactor():
    assert compile_redactor(closed({"a": {"type": "string"}}), ()) is None
    assert compile_redactor(None, ()) is None


def test_a_name_that_validated_arguments_cannot_hold_needs_no_redactor():
    shut = closed({"a": {"type": "string"}, "l": {"type": "array", "items": {"type": "integer"}}, "e": {"enum": [1]}})
    assert compile_redactor(shut, ["token"], validated=True) is None
    assert compile_redactor(shut, ["token"]) is not None


@pytest.mark.parametrize(
    "schema",
    [
        closed({"Token": {"type": "string"}}),
        closed({"a": {}}),
        closed({"a": {"type": "object"}}),
        closed({"a": {"type": "array"}}),
        closed({"a": {"type": ["string", "object"]}}),
        closed({"a": {"$ref": "#/$defs/open"}}, **{"$defs": {"open": {"type": "object"}}}),
        {"type": "object"},
        None,
    ],
)
def test_a_name_that_validated_arguments_may_hold_keeps_its_redactor(schema):
    assert compile_redactor(schema, ["token"], validated=True) is not None


def test_text_that_cannot_be_looked_into_is_masked_whole():
    redactor = compile_redactor(closed({"pin": SECRET}), ())
    assert redactor('{"pin": "1234') == REDACTED
    assert redactor(None) is None


def test_arguments_that_are_too_deep_are_masked_not_raised():
    deep = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert "redacted" in repr(compile_redactor(None, ["token"])(deep))


VALUES = st.recursive(
    st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["pin", "PIN", "a", "b"]), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["pin", "a", "b"]), VALUES))
def test_no_secret_is_left_and_nothing_else_is_changed(args):
    def secrets_in(value):
        if isinstance(value, dict):
            for key, item in value.items():
                if key.lower() == "pin":
                    yield item
                else:
                    yield from secrets_in(item)
        elif isinstance(value, list):
            for item in value:
                yield from secrets_in(item)

    def without(value):
        if isinstance(value, dict):
            return {key: without(item) for key, item in value.items() if key.lower() != "pin"}
        return [without(item) for item in value] if isinstance(value, list) else value

    masked = compile_redactor(None, ["pin"])(args)
    assert all(secret == REDACTED for secret in secrets_in(masked))
    assert without(masked) == without(args)


def steps_for(schema, args):
    """What redacting makes of the arguments, and how many steps that takes."""
    redact = compile_redactor(schema, [])
    assert redact is not None
    steps = Steps(MAX_STEPS)
    masked = redact.redact(args, steps)
    assert steps.taken <= MAX_STEPS
    return masked, steps.taken


@pytest.mark.parametrize(
    ("pattern", "secret"), [("^(a+)+$", "aaa"), ("^(a|aa)+$", "aaa"), ("(x+x+)+y", "axxy"), (r"^(\w+\s?)*$", "a b")]
)
def test_a_pattern_that_backtracks_is_matched_in_few_steps(pattern, secret):
    schema = {"patternProperties": {pattern: SECRET}, "additionalProperties": {}}
    masked, steps = steps_for(schema, {"a" * 32 + "!": "1", secret: "2", "-": "3"})
    assert masked == {"a" * 32 + "!": "1", secret: REDACTED, "-": "3"}
    assert steps < 100


def test_a_pattern_that_the_validator_does_not_take_counts_as_matching():
    schema = {"patternProperties": {"(?=secret)": SECRET}, "additionalProperties": {}}
    assert compile_redactor(schema, [])({"other": "1"}) == {"other": REDACTED}


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        (
            {"patternProperties": {f"^k{i}": {"items": {}} for i in range(300)} | {"z": SECRET}},
            {f"n{i}": 1 for i in range(4_000)},
        ),
        (
            {"additionalProperties": {"anyOf": [{"properties": {f"p{i}": SECRET}} for i in range(3_000)]}},
            {f"n{i}": {} for i in range(4_000)},
        ),
        ({"properties": {"pin": SECRET}, "items": {"$ref": "#"}}, [[]] * 30_000),
    ],
    ids=["patterns", "alternatives", "items"],
)
def test_redacting_is_bounded_and_masks_what_it_does_not_get_to(schema, args):
    masked, steps = steps_for(schema, args)
    assert len(masked) == len(args)
    if steps == MAX_STEPS:
        assert REDACTED in (masked.values() if isinstance(masked, dict) else masked)


def test_as_many_values_as_arguments_can_have_are_looked_at():
    args = {"list": [0] * (MAX_ARGUMENT_BYTES // 2 - 20), "pin": "1"}
    assert parse_arguments(json.dumps(args, separators=(",", ":"))) == args
    redact = compile_redactor(closed({"list": {"items": {"type": "integer"}}, "pin": SECRET}), [])
    assert redact(args) == {**args, "pin": REDACTED}


def test_a_secret_is_masked_although_the_steps_are_used_up():
    schema = {"patternProperties": {f"^k{i}": {} for i in range(300)}, "properties": {"pin": SECRET}}
    masked, _ = steps_for(schema, {**{f"n{i}": 1 for i in range(4_000)}, "pin": "1"})
    assert masked["pin"] == REDACTED
    assert masked["n0"] == 1


def test_the_work_is_bounded_and_not_only_its_count():
    schema = closed({}, patternProperties={f"^[a-z]{{0,60}}{i}$": SECRET for i in range(900)})
    redact = compile_redactor(schema, ["pin"])
    args = {"a" * 50 + str(i): "s3cr3t" for i in range(900)}
    assert set(redact(args).values()) == {REDACTED}
    assert calls_of(lambda: redact(args)) < 2 * MAX_STEPS


@pytest.mark.parametrize("auth", [{"properties": {"token": SECRET}}, {"additionalProperties": SECRET}])
def test_names_that_no_schema_has_are_looked_up_once(auth):
    schema = {"properties": {"pin": SECRET}, "additionalProperties": auth}
    redact = compile_redactor(schema, ["pin"])
    args = {f"name{i}": {"token": "s3cr3t"} for i in range(1_000)}
    assert all(one == {"token": REDACTED} for one in redact(args).values())
    assert calls_of(lambda: redact(args)) < 20 * len(args)


HOLDER = {"properties": {"token": SECRET}}


@pytest.mark.parametrize(
    ("auth", "names"),
    [
        (HOLDER, ()),
        ({"items": SECRET}, ()),
        ({"items": HOLDER}, ()),
        ({"anyOf": [HOLDER, {"type": "string"}]}, ()),
        ({"$ref": "#/$defs/auth"}, ()),
        ({"additionalProperties": SECRET}, ()),
        ({"properties": {"Token": {"type": "string"}}}, ("token",)),
        ({"properties": {"login": {"properties": {"token": {}}}}}, ("token",)),
    ],
)
def test_a_bare_value_in_the_place_of_what_holds_a_secret_is_masked(auth, names):
    schema = {"properties": {"auth": auth, "id": {}}, "$defs": {"auth": HOLDER}}
    redact = compile_redactor(schema, names)
    assert redact({"auth": "s3cr3t", "id": "x"}) == {"auth": REDACTED, "id": "x"}
    assert redact({"auth": 4711}) == {"auth": REDACTED}
    assert redact({"auth": None, "id": 1}) == {"auth": None, "id": 1}
