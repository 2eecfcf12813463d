"""The one repair attempt: what it mends, what it leaves refused, and what it costs at most."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import json_repair
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.errors import JsonError
from handrail.schema.strict_json import (
    MAX_REPAIR_LENGTH,
    MAX_SAFE_INTEGER,
    parse,
    parse_arguments,
    repair,
)

CODES = {"args_too_large", "invalid_json", "duplicate_key", "invalid_number", "invalid_unicode", "too_deep"}

INTEGERS = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates and control characters, too
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary() | st.decimals() | st.datetimes(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(ANY_TEXT | st.integers() | st.binary(), inner, max_size=4)
        | st.dictionaries(ANY_TEXT, inner, max_size=4).map(MappingProxyType)
    ),
    max_leaves=20,
)

# Pieces that make JSON, or something that nearly is.
PIECES = [
    *'{}[],:"\\- \n\t',
    '"a":',
    '"a" :',
    '"b":',
    '"a"',
    '"\\u0061":',
    '"x:y"',
    '"\\":"',
    '"\\ud83d"',
    '"\\ud83d\\ude00"',
]
PIECES += [
    "0",
    "1",
    "01",
    "-0",
    "1.5",
    "1e2",
    "1e999",
    "1e21",
    "9007199254740991",
    "9007199254740992",
    "9" * 30,
    "9" * 400,
]
PIECES += [
    "true",
    "false",
    "null",
    "NaN",
    "-Infinity",
    "tru",
    "'",
    "\x00",
    "\ud800",
    "\ufeff",
    "é",
    "[1]",
    '{"a":1}',
    "//",
]


def refusal(raw: object, **limits: int) -> JsonError:
    with pytest.raises(JsonError) as caught:
        parse(raw, **limits)
    return caught.value


def arguments_refusal(raw: object) -> JsonError:
    with pytest.raises(JsonError) as caught:
        parse_arguments(raw)
    return caught.value


def short(value: object) -> str | None:
    """The name of a test case; left to pytest where the value is no text."""
    return ascii(value[:30]) if isinstance(value, (str, bytes)) else None


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are three values."""
    return json.dumps(left) == json.dumps(right)


# ------------------------------------------------------------------------------------------------------ plain values


def outcome(reader: Callable[[Any], Any], raw: object) -> Any:
    """What was read, or the refusal; any other exception ends the test."""
    try:
        return reader(raw)
    except JsonError as error:
        return error


@pytest.mark.parametrize("raw", ["{'a':[[" * 22, "{'a':" + "(" * 64, "{'a':'" + "x" * MAX_REPAIR_LENGTH], ids=short)
def test_text_on_which_a_repair_could_take_long_is_not_given_to_it(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_repair, "loads", lambda *args, **options: pytest.fail("it was tried"))
    with pytest.raises(JsonError, match="could not be repaired"):
        repair(raw)


@given(st.text(st.sampled_from("{}[]:,\"'ab1 \\")) | ANY_TEXT)
def test_repair_gives_acceptable_arguments_or_a_refusal(raw: str) -> None:
    mended = outcome(repair, raw)
    if isinstance(mended, JsonError):
        assert mended.code in CODES
    else:
        assert same(parse_arguments(orjson.dumps(mended)), mended)


# --------------------------------------------------------------------------------------------------------- pointers
