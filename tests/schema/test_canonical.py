"""The canonical form is RFC 8785 to the byte, for every value that JSON has, and for no other."""

from __future__ import annotations

import hashlib
import math
import struct
import time
from types import MappingProxyType
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.errors import JsonError
from handrail.contract.frozen import freeze
from handrail.schema.strict_json import MAX_SAFE_INTEGER, canonical, digest, parse


def from_bits(bits: int) -> float:
    return float(struct.unpack(">d", bits.to_bytes(8))[0])


FINITE = st.integers(0, 2**64 - 1).map(from_bits).filter(math.isfinite) | st.floats(
    allow_nan=False, allow_infinity=False
)
INTEGERS = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
# Letters on both sides of every border that matters for the order: ASCII, the surrogates, and the end of the BMP.
KEYS = st.text(st.sampled_from("aA~\x7f\x80é€\ud7ff\ue000\uffff\U00010000😀\U0010ffff"), max_size=3) | st.text(
    max_size=5
)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


def refusal(value: object, **limits: int) -> JsonError:
    with pytest.raises(JsonError) as caught:
        canonical(value, **limits)
    return caught.value


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7FEFFFFFFFFFFFFF, "1.7976931348623157e+308"),
        (0xFFEFFFFFFFFFFFFF, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xC340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44B52D02C7E14AF5, "9.999999999999997e+22"),
        (0x44B52D02C7E14AF6, "1e+23"),
        (0x44B52D02C7E14AF7, "1.0000000000000001e+23"),
        (0x444B1AE4D6E2EF4E, "999999999999999700000"),
        (0x444B1AE4D6E2EF4F, "999999999999999900000"),
        (0x444B1AE4D6E2EF50, "1e+21"),
        (0x3EB0C6F7A0B5ED8C, "9.999999999999997e-7"),
        (0x3EB0C6F7A0B5ED8D, "0.000001"),
        (0x41B3DE4355555553, "333333333.3333332"),
        (0x41B3DE4355555554, "333333333.33333325"),
        (0x41B3DE4355555555, "333333333.3333333"),
        (0x41B3DE4355555556, "333333333.3333334"),
        (0x41B3DE4355555557, "333333333.33333343"),
        (0xBECBF647612F3696, "-0.0000033333333333333333"),
        (0x43143FF3C1CB0959, "1424953923781206.2"),
    ],
)
def test_the_numbers_of_appendix_b_are_written_as_the_rfc_does(bits: int, text: str) -> None:
    assert canonical(from_bits(bits)) == text.encode()
    assert canonical([from_bits(bits)]) == f"[{text}]".encode()


@pytest.mark.parametrize("bits", [0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000])
def test_the_numbers_of_appendix_b_that_are_none_are_refused(bits: int) -> None:
    error = refusal({"a": [from_bits(bits)]})
    assert (error.code, error.pointer) == ("invalid_number", "/a/0")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (1e16, "10000000000000000"),
        (0.1, "0.1"),
        (-12.5, "-12.5"),
        (MAX_SAFE_INTEGER, "9007199254740991"),
        (True, "true"),
        (None, "null"),
        ('\x00\b\t\n\f\r\x1f"\\/\x7f\u2028é😀', '"\\u0000\\b\\t\\n\\f\\r\\u001f\\"\\\\/\x7f\u2028é😀"'),
        ([], "[]"),
        ({}, "{}"),
        ([[], {}, [{}]], "[[],{},[{}]]"),
        ({"b": 1, "a": {"d": 1.0, "c": []}}, '{"a":{"c":[],"d":1},"b":1}'),
    ],
)
def test_values_are_written_as_the_rfc_does(value: object, text: str) -> None:
    assert canonical(value) == text.encode()


def test_the_example_of_section_3_is_written_as_the_rfc_does() -> None:
    value = orjson.loads(
        r'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],'
        r'"string":"\u20ac$\u000F\u000aA\u0027\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}'
    )
    assert (
        canonical(value)
        == (
            r'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            r'"string":"€$\u000f\nA' + "'" + r'B\"\\\\\"/"}'
        ).encode()
    )


def test_keys_are_in_the_order_of_utf16_code_units() -> None:
    value = {"€": 1, "\r": 2, "\ufb33": 3, "1": 4, "😀": 5, "\x80": 6, "ö": 7}
    assert list(orjson.loads(canonical(value))) == ["\r", "1", "\x80", "ö", "€", "😀", "\ufb33"]
    assert canonical({"\uffff": 1, "\U00010000": 2}) == '{"\U00010000":2,"\uffff":1}'.encode()


@given(JSON)
def test_every_json_value_is_written_as_the_rfc8785_package_does(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(FINITE)
def test_every_float_is_written_as_the_rfc8785_package_does(value: float) -> None:
    assert canonical(value) == rfc8785.dumps(value)
    assert canonical({"a": value}) == rfc8785.dumps({"a": value})


@given(
    st.floats(1e-8, 1e22)
    | st.integers(-1_000, 1_000).map(lambda n: n / 8)
    | st.integers(-30, 30).map(lambda n: 10.0**n)
)
def test_floats_around_the_borders_of_notation_are_written_as_the_rfc8785_package_does(value: float) -> None:
    for near in (value, -value, math.nextafter(value, 0), math.nextafter(value, math.inf)):
        assert canonical([near]) == rfc8785.dumps([near])


@given(st.dictionaries(KEYS, INTEGERS, max_size=8))
def test_keys_are_ordered_as_the_rfc8785_package_does(value: dict[str, int]) -> None:
    assert canonical(value) == rfc8785.dumps(value)


def in_parse_range(value: Any) -> bool:
    """RFC 8785 writes floats from 2^53 up to 10^21 like integers, which the strict reader refuses as such."""
    if isinstance(value, dict):
        return all(map(in_parse_range, value.values()))
    if isinstance(value, list):
        return all(map(in_parse_range, value))
    return not isinstance(value, float) or not MAX_SAFE_INTEGER < abs(value) < 1e21


@given(JSON.filter(in_parse_range))
def test_reading_and_writing_again_changes_nothing(value: Any) -> None:
    once = canonical(value)
    assert canonical(parse(once)) == once


@given(JSON)
def test_the_form_is_the_same_for_frozen_values_and_for_any_order_of_keys(value: Any) -> None:
    assert canonical(freeze(value)) == canonical(value)
    if isinstance(value, dict):
        assert canonical(dict(reversed(value.items()))) == canonical(value)
        assert canonical(MappingProxyType(value)) == canonical(value)


def test_whole_floats_and_integers_are_the_same_number_but_composed_and_decomposed_letters_differ() -> None:
    assert digest({"a": 1.0}) == digest({"a": 1})
    assert digest({"a": True}) != digest({"a": 1})
    assert digest({"a": "\u00e9"}) != digest({"a": "e\u0301"})


def test_a_digest_is_the_sha256_of_the_form() -> None:
    assert digest({"b": 1.0, "a": None}) == hashlib.sha256(b'{"a":null,"b":1}').hexdigest()


@pytest.mark.parametrize(
    ("value", "code", "place"),
    [
        (2**53, "invalid_number", ""),
        ({"a": [-(2**53)]}, "invalid_number", "/a/0"),
        ([1.0, 2**53], "invalid_number", "/1"),
        (10**400, "invalid_number", ""),
        ("\ud800", "invalid_unicode", ""),
        ({"a": ["x", "\udfff"]}, "invalid_unicode", "/a/1"),
        ({"a": {"\ud800": 1}}, "invalid_unicode", "/a"),
        ({"a": {1: 1}}, "invalid_json", "/a"),
        ({"a": b"x"}, "invalid_json", "/a"),
        ([object()], "invalid_json", "/0"),
    ],
)
def test_what_is_not_json_is_refused_with_its_word_and_place(value: object, code: str, place: str) -> None:
    error = refusal(value)
    assert (error.code, error.pointer) == (code, place)


def nested(levels: int, innermost: object) -> object:
    for _ in range(levels):
        innermost = [innermost]
    return innermost


@pytest.mark.parametrize("innermost", [1, 1.0, "\uffff"])
def test_the_deepest_nesting_that_is_allowed_passes_and_one_more_does_not(innermost: object) -> None:
    assert canonical(nested(128, innermost)) == b"[" * 128 + canonical(innermost) + b"]" * 128
    assert refusal(nested(129, innermost)).code == "too_deep"
    assert refusal(nested(100_000, innermost)).code == "too_deep"
    assert refusal([[1]], max_depth=1).code == "too_deep"


def test_a_form_deeper_than_the_stack_can_be_asked_for() -> None:
    assert canonical(nested(20_000, 1.5), max_depth=20_000) == b"[" * 20_000 + b"1.5" + b"]" * 20_000


def test_a_value_that_contains_itself_is_too_deep() -> None:
    value: dict[str, Any] = {"n": 1.0}
    value.update(a=value, b=[value, value])
    started = time.process_time()
    assert refusal(value).code == "too_deep"
    assert time.process_time() - started < 1
