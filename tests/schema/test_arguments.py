"""The one walk over arguments says what the exact reader and the exact writer say, for every text and every object."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st
from tests.schema.test_strict_json import ANY_TEXT, ANYTHING, JSON, PIECES, container_ids

from handrail.contract.errors import JsonError
from handrail.schema.strict_json import (
    MAX_ARGUMENT_BYTES,
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_MEMBERS,
    MAX_STRING,
    MAX_TEXT,
    canonical,
    is_plain_value,
    parse_arguments,
    read_arguments,
)

KEYS = st.sampled_from(
    ["a", "b", "", "\\u0061", "é", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\uffff", "😀", "\ue000", "a:b", '\\":']
)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0", "-0.0", "0.0", "1.0", "1e2", "1E-7", "0.0001", "0.00001", "1e15", "999999999999999.9", "1e999"]
    ),
    st.sampled_from([str(2**53 - 1), str(2**53), str(-(2**53)), str(2**63), str(2**64), "9" * 40, "NaN", "-Infinity"]),
)
LEAVES = st.one_of(
    NUMBERS, st.sampled_from(["true", "false", "null", '""', '"x:y"', '"\\":"', '"\\ud800"', '"😀"', '"\ud800"'])
)


def _object(members: list[tuple[str, str]], colon: str) -> str:
    return "{" + ",".join(f'"{key}"{colon}{value}' for key, value in members) + "}"


WRITTEN = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: "[" + ",".join(items) + "]"),
        st.builds(_object, st.lists(st.tuples(KEYS, inner), max_size=4), st.sampled_from([":", ":", ": ", " : "])),
    ),
    max_leaves=12,
)
ARGUMENTS = st.builds(_object, st.lists(st.tuples(KEYS, WRITTEN), max_size=5), st.sampled_from([":", ": ", " :"]))
"""Objects as text, with keys that come twice, in any of their spellings, and numbers at every border."""


def exactly(raw: object) -> tuple[str, Any, bytes]:
    args = parse_arguments(raw)
    return json.dumps(args), list(args), canonical(args)


def outcome(read: Any, raw: object) -> Any:
    """What was read, or each word of the refusal."""
    try:
        return read(raw)
    except JsonError as error:
        return error.code, error.message, error.pointer


def by_the_door(raw: object) -> tuple[str, Any, bytes]:
    args, text, _ = read_arguments(raw)
    return json.dumps(args), list(args), text


def nested(levels: int, inner: str) -> str:
    return '{"a":' * levels + inner + "}" * levels


@given(ARGUMENTS)
@example('{"a":1,"a":1}')
@example('{"a":1,"\\u0061":2}')
@example('{"a":{"b":1},"a":2,"x":"::"}')
@example('{"\uffff":1,"😀":2}')
@example('{"a":"\\ud800"}')
@example('{"a":-0.0,"b":-0}')
@example('{"a":1.0,"b":[-250.0,3e0],"c":999999999999999.0}')
@example('{"a":1.0,"b":2.05}')
@example('{"a":1.0,"b":"v1.0"}')
@example('{"a.0":1.0}')
@example(nested(MAX_DEPTH, "1"))
@example(nested(MAX_DEPTH + 1, "1"))
@example(nested(MAX_DEPTH - 1, "[]"))
@example(nested(MAX_DEPTH, "[]"))
@example(nested(300, "1"))
@example(nested(2000, "1"))
@example('{"a":"' + "x" * MAX_TEXT + '"}')
@example('{"a":"' + "😀" * (MAX_ARGUMENT_BYTES // 4) + '"}')
def test_text_is_read_as_the_exact_reader_reads_it(text: str) -> None:
    assert outcome(by_the_door, text) == outcome(exactly, text)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | ANY_TEXT | st.binary(max_size=40))
def test_what_is_no_json_is_refused_as_the_exact_reader_refuses_it(raw: str | bytes) -> None:
    assert outcome(by_the_door, raw) == outcome(exactly, raw)


@given(st.dictionaries(ANY_TEXT, ANYTHING, max_size=4) | st.dictionaries(st.text(), JSON, max_size=6) | ANYTHING)
@example({"a": 1.0, "b": -0.0, "c": 0.00001})
@example({"a": 1.0, "b": [-250.0, 999999999999999.0, 2.5]})
@example({"a": 1.0, "b.0": [2.05, "v1.0"]})
@example({"a": math.nan})
@example({"a": 2**53, "b": 1})
@example({"\uffff": 1, "😀": 2})
@example({"\ud800": 1})
@example({"a": ["x" * MAX_STRING] * (MAX_MEMBERS - 1)})
@example({"a": ["x" * (MAX_STRING + 1)]})
@example({str(number): "x" * 300 for number in range(MAX_MEMBERS)})
@example({"a": [[]] * (MAX_CONTAINERS - 2)})
@example({"a": [[]] * MAX_CONTAINERS})
def test_an_object_is_read_as_the_exact_reader_reads_it(raw: Any) -> None:
    assert outcome(by_the_door, raw) == outcome(exactly, raw)


@given(st.dictionaries(st.text(), JSON, max_size=6))
def test_the_canonical_form_is_that_of_the_rfc8785_package(value: dict[str, Any]) -> None:
    assert read_arguments(value)[1] == rfc8785.dumps(value)
    assert read_arguments(json.dumps(value))[1] == rfc8785.dumps(value)


@given(st.dictionaries(st.text(), JSON, max_size=6))
def test_arguments_share_nothing_with_the_object_they_came_as(value: dict[str, Any]) -> None:
    args, _, _ = read_arguments(value)

    assert not container_ids(args) & container_ids(value)


def test_an_object_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["a"] = [value]

    with pytest.raises(JsonError, match="deeper"):
        read_arguments(value)


@pytest.mark.parametrize(
    "raw",
    [
        '{"query":"plain","top_k":3}',
        '{"range":{"start":"2026-01-01","end":"2026-02-01"},"tags":["a","b"]}',
        '{"at":"10:30","weight":0.25,"name":"Zoë","on":true,"off":null}',
        json.dumps({f"key{number}": number for number in range(30)}),
        json.dumps({"a": {"b": {"c": {"d": [{"e": "f"}]}}}}),
    ],
)
def test_what_nearly_every_call_brings_takes_one_walk(raw: str) -> None:
    """The flag says that no second look was needed, so that a change which sends every call to the exact reader is seen."""
    assert read_arguments(raw)[2]
    assert read_arguments(json.loads(raw))[2]


def test_whole_floats_take_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("handrail.schema.strict_json._read_exactly")
    for raw in ('{"b":3.0,"a":[10.0,0.5]}', {"b": 3.0, "a": [10.0, 0.5]}):
        args, text, plain = read_arguments(raw)
        assert (json.dumps(args), text) == ('{"b": 3.0, "a": [10.0, 0.5]}', b'{"a":[10,0.5],"b":3}')
        assert not plain, "orjson would write the points again"


@given(JSON)
def test_a_plain_value_is_written_by_orjson_as_the_rfc_wants_it(value: Any) -> None:
    if is_plain_value(value):
        _, text, plain = read_arguments({"value": value, "other": 1})
        assert plain
        assert text == canonical({"value": value, "other": 1})
