"""What is let in as JSON and what is refused, with which word, in which sentence, and at which place."""

from __future__ import annotations

import enum
import json
import math
import time
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, NoReturn
from unittest.mock import MagicMock

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handrail.contract.errors import JsonError
from handrail.contract.frozen import freeze
from handrail.schema.pointer import pointer, short_pointer
from handrail.schema.strict_json import (
    MAX_ARGUMENT_BYTES,
    MAX_DEPTH,
    MAX_REPAIR_LENGTH,
    MAX_SAFE_INTEGER,
    parse,
    parse_arguments,
    parse_document,
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"query":"hello world","top_k":5}', {"query": "hello world", "top_k": 5}),
        ('{"at": "10:30", "ratio": "\\":1"}', {"at": "10:30", "ratio": '":1'}),
        ('{"at" : "10:30"}', {"at": "10:30"}),
        ('[{"a":1},{"a":1}]', [{"a": 1}, {"a": 1}]),
        ('{"a":{"a":{"a":":"}}}', {"a": {"a": {"a": ":"}}}),
        (" \n[1, -0, 1.0, -0.0, true, null] \t", [1, 0, 1.0, -0.0, True, None]),
        ('"\\ud83d\\ude00"', "😀"),
        ("{}", {}),
        ("[]", []),
        ("1e21", 1e21),
        ("123456789012345678901234567890.0", 123456789012345678901234567890.0),
        ("9007199254740991", 2**53 - 1),
        ("-9007199254740991", -(2**53) + 1),
        ("1" + "0" * 300 + "e-300", 1.0),
        ("1e-999", 0.0),
    ],
    ids=short,
)
def test_acceptable_text_becomes_plain_data(text: str, value: object) -> None:
    assert same(parse(text), value)
    assert same(parse(text.encode()), value)
    assert same(parse(bytearray(text.encode())), value)


@given(JSON)
def test_what_orjson_wrote_is_read_back_as_it_was(value: Any) -> None:
    written = orjson.dumps(value)
    assert same(parse(written), value)
    assert same(parse(written.decode()), value)


@given(JSON)
def test_what_json_wrote_with_spaces_and_escapes_is_read_back_as_it_was(value: Any) -> None:
    assert same(parse(json.dumps(value)), value)
    assert same(parse(json.dumps(value, indent=1, separators=(" ,", " : "))), value)


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON))
def test_an_object_becomes_an_equal_one_that_shares_no_container(value: Any) -> None:
    copy = parse(value)
    assert same(copy, value)
    assert not container_ids(copy) & container_ids(value)


def container_ids(value: Any) -> set[int]:
    if not isinstance(value, (dict, list)):
        return set()
    inner = value.values() if isinstance(value, dict) else value
    return {id(value)}.union(*map(container_ids, inner))


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Liar(dict[str, Any]):
    """A dict that misuses every method that a reader could call."""

    def items(self) -> NoReturn:
        raise RuntimeError

    def __iter__(self) -> NoReturn:
        raise RuntimeError

    def __len__(self) -> int:
        return 10**9


def test_relatives_of_json_types_become_the_plain_types() -> None:
    value = {
        Colour.RED: Colour.RED,
        "level": Level.HIGH,
        "tuple": (1, (2,)),
        "frozen": freeze({"a": [1, {"b": 2}]}),
        "proxy": MappingProxyType({"a": 1}),
        "ordered": OrderedDict(a=1),
        "liar": Liar(a=1),
    }
    copy = parse(value)
    assert copy == {
        "red": "red",
        "level": 3,
        "tuple": [1, [2]],
        "frozen": {"a": [1, {"b": 2}]},
        "proxy": {"a": 1},
        "ordered": {"a": 1},
        "liar": {"a": 1},
    }
    kinds = [type(copy[key]) for key in ("red", "level", "tuple", "frozen", "proxy", "ordered", "liar")]
    assert kinds == [str, int, list, dict, dict, dict, dict]
    assert {type(key) for key in copy} == {str}


def test_the_order_of_keys_is_kept() -> None:
    assert list(parse({"b": {}, "a": 1, "c": []})) == ["b", "a", "c"]
    assert list(parse('{"b":{},"a":1,"c":[]}')) == ["b", "a", "c"]


# ------------------------------------------------------------------------------------------------- refused: the text


@pytest.mark.parametrize(
    ("text", "code", "place", "where"),
    [
        ('{"a":1,"a":1}', "duplicate_key", "/a", "line 1, column 8"),
        ('{"a":1,"\\u0061":1}', "duplicate_key", "/a", "line 1, column 8"),
        ('{"x": [0,\n {"k~/":1, "k~/" : 2}]}', "duplicate_key", "/x/1/k~0~1", "line 2, column 12"),
        ('{"a":{"b":1},"c":{"b":1},"a":{"b":1}}', "duplicate_key", "/a", "column 26"),
        ('{"a":"x:y","b":1,"b":"p:q"}', "duplicate_key", "/b", "column 18"),
        ('{"a":NaN}', "invalid_json", "/a", "column 6"),
        ("[1, Infinity]", "invalid_json", "/1", "column 5"),
        ("-Infinity", "invalid_json", "", "column 1"),
        ('{"a":1e999}', "invalid_json", "/a", "column 6"),
        ("[-1E400]", "invalid_json", "/0", "column 2"),
        ('{"n":9007199254740992}', "invalid_number", "/n", "column 6"),
        ("-9007199254740992", "invalid_number", "", "column 1"),
        ("[1e21,18446744073709551616]", "invalid_number", "/1", "column 7"),
        ("[100000000000000000000000]", "invalid_number", "/0", "column 2"),
        ("1" * 5_000, "invalid_number", "", "column 1"),
        ("-" + "1" * 400, "invalid_number", "", "column 1"),
        ('{"a":"\\ud800"}', "invalid_unicode", "/a", "column 6"),
        ('{"a":{"\\udc00x":1}}', "invalid_unicode", "/a", "column 7"),
        ('"\\udc00\\ud800"', "invalid_unicode", "", "column 1"),
        ('["\ud800"]', "invalid_unicode", "/0", "column 2"),
        ('{"\udfff":1}', "invalid_unicode", "", "column 2"),
        ("\ufeff{}", "invalid_json", "", "column 1"),
        ("", "invalid_json", "", "column 1"),
        (" \n ", "invalid_json", "", "line 2, column 2"),
        ('{"a":1,}', "invalid_json", "", "column 8"),
        ("[1,]", "invalid_json", "/1", "column 4"),
        ("{'a':1}", "invalid_json", "", "column 2"),
        ("{a:1}", "invalid_json", "", "column 2"),
        ('{"a" 1}', "invalid_json", "/a", "column 6"),
        ('{"a":1 "b":2}', "invalid_json", "/a", "column 8"),
        ('{"a":[1 2]}', "invalid_json", "/a/0", "column 9"),
        ('{\n "a": "x\ny"}', "invalid_json", "/a", "line 2, column 9"),
        ('["\\x"]', "invalid_json", "/0", "column 3"),
        ('["abc', "invalid_json", "/0", "column 6"),
        ('{"a":1', "invalid_json", "/a", "column 7"),
        ("{}{}", "invalid_json", "", "column 3"),
        ("01", "invalid_json", "", "column 2"),
        ("[}", "invalid_json", "/0", "column 2"),
        ("\xa0{}", "invalid_json", "", "column 1"),
        ('{"a":[1, "b,c",true,"d", 1e22 ,9007199254740992]}', "invalid_number", "/a/5", "column 32"),
        ("[1,-2.5e9,12345678901234567,1]", "invalid_number", "/2", "column 11"),
        ("[1,null,1e400,1]", "invalid_json", "/2", "column 9"),
    ],
    ids=short,
)
def test_unacceptable_text_is_refused_with_its_word_and_place(text: str, code: str, place: str, where: str) -> None:
    error = refusal(text)
    assert (error.code, error.pointer) == (code, place)
    assert where in error.message


def test_each_reason_has_its_own_sentence() -> None:
    texts = [
        '{"a":1,"a":1}',
        "NaN",
        "1e999",
        "9" * 20,
        '"\\ud800"',
        "[" * 40,
        "\ufeff1",
        "",
        '"',
        '"\\x"',
        '"\n"',
        "?",
        "[1",
    ]
    sentences = {refusal(text).message.split(" (line")[0] for text in [*texts, " " * 70_000]}
    assert len(sentences) == len(texts) + 1
    assert all(sentence[0].isupper() for sentence in sentences)


def test_a_byte_order_mark_is_called_by_its_name() -> None:
    assert "byte order mark" in refusal("\ufeff{}").message
    assert "byte order mark" in refusal(b"\xef\xbb\xbf{}").message


def test_a_byte_that_is_not_utf8_is_named_by_its_offset() -> None:
    error = refusal(b'{"a":\n"\xff"}')
    assert error.code == "invalid_unicode"
    assert "byte offset 7 (line 2)" in error.message
    assert refusal(b'"\xed\xa0\x80"').code == "invalid_unicode"


def test_text_beyond_the_limit_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orjson, "loads", lambda text: pytest.fail("it was parsed"))
    for text in ("[" * (MAX_ARGUMENT_BYTES + 1), " " * (MAX_ARGUMENT_BYTES + 1), "é" * (MAX_ARGUMENT_BYTES // 2 + 1)):
        assert refusal(text).code == "args_too_large"
        assert refusal(text.encode()).code == "args_too_large"
        assert arguments_refusal(text).code == "args_too_large"
    assert refusal(b"\xff" * (MAX_ARGUMENT_BYTES + 1)).code == "args_too_large"


def test_the_limit_counts_bytes_of_utf8_not_characters() -> None:
    for letter in "aé€😀":
        room = (MAX_ARGUMENT_BYTES - 2) // len(letter.encode())
        assert parse(f'"{letter * room}"') == letter * room
        assert refusal(f'"{letter * (room + 1)}"').code == "args_too_large"
    assert refusal("\ud800" * MAX_ARGUMENT_BYTES).code == "args_too_large"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_the_deepest_nesting_that_is_allowed_passes_and_one_more_does_not(opening: str, closing: str) -> None:
    times = MAX_DEPTH // (opening.count("[") + opening.count("{"))
    assert parse(opening * times + "1" + closing * times)
    assert refusal(opening * times + "[]" + closing * times).code == "too_deep"
    assert parse(opening * times + "[]" + closing * times, max_depth=MAX_DEPTH + 1)


@pytest.mark.parametrize(
    "text", ["[" * 60_000, '{"a":' * 10_000, "[" * 30_000 + "]" * 30_000, '[{"":' * 9_000], ids=short
)
def test_absurd_nesting_is_too_deep_whether_or_not_it_is_closed(text: str) -> None:
    assert refusal(text).code == "too_deep"


def test_a_refusal_shows_no_more_than_forty_characters_of_the_input() -> None:
    secret = "s3cret" * 1_000
    texts = [
        f'{{"{secret}":1,"{secret}":2}}',
        f'{{"{secret}":NaN}}',
        f'["{secret}',
        f"[{secret}]",
        f'{{"a":"{secret}\n"}}',
    ]
    for text in texts:
        error = refusal(text)
        assert error.message.count("s3cret") <= 7
        assert len(error.pointer) <= 200
    assert "s3cret" not in refusal(f'{{"a":"{secret}\n"}}').message
    assert refusal({secret: {"x": [math.nan]}}).pointer == ""


@given(ANY_TEXT)
def test_message_and_pointer_can_always_be_written_as_utf8(key: str) -> None:
    escaped = json.dumps(key)
    for raw in (f"{{{escaped}:1,{escaped}:1}}", f'{{{escaped}:["\\ud800"]}}', {key: ["\ud800"]}):
        error = refusal(raw)
        assert (error.message + error.pointer).encode()


# ---------------------------------------------------------------------------------------------- refused: the object


class Endless(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, count())


class Broken(Endless):
    def __iter__(self) -> Iterator[str]:
        raise RecursionError


class Twice(Endless):
    def __iter__(self) -> Iterator[str]:
        return iter(["a", "a"])


class Odd(str):
    """A string that is not equal to itself, so that one dict can hold it twice."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize(
    ("value", "code", "place"),
    [
        ({"a": [1, math.nan]}, "invalid_number", "/a/1"),
        ([math.inf], "invalid_number", "/0"),
        (-math.inf, "invalid_number", ""),
        ({"a": {"b": 2**53}}, "invalid_number", "/a/b"),
        ([-(2**53)], "invalid_number", "/0"),
        ([10**5_000], "invalid_number", "/0"),
        ({"a": "\ud800"}, "invalid_unicode", "/a"),
        ({"a": {"\ud800": 1}}, "invalid_unicode", "/a"),
        ({"a": {1: 1}}, "invalid_json", "/a"),
        ({"a": {"good": 1, "\ud800": 1}}, "invalid_unicode", "/a"),
        ({"good": 1, 2: 1}, "invalid_json", ""),
        ({None: 1}, "invalid_json", ""),
        ({"a": b"x"}, "invalid_json", "/a"),
        ({"a": {1, 2}}, "invalid_json", "/a"),
        ([object()], "invalid_json", "/0"),
        ([MagicMock(spec=dict)], "invalid_json", "/0"),
        ([MagicMock(spec=str)], "invalid_json", "/0"),
        (MagicMock(), "invalid_json", ""),
        ({"a": Broken()}, "invalid_json", "/a"),
        ({"a": Endless()}, "args_too_large", ""),
        ({"a": Twice()}, "duplicate_key", "/a"),
        ({Odd("a"): 1, Odd("a"): 2}, "duplicate_key", ""),
        ([["x"] * 40_000], "args_too_large", ""),
        ({"a": "x" * 70_000}, "args_too_large", "/a"),
        ({"x" * 70_000: 1}, "args_too_large", ""),
        (["é" * 40_000], "args_too_large", "/0"),
        ([None] * 10**6, "args_too_large", ""),
    ],
    ids=short,
)
def test_an_unacceptable_object_is_refused_with_its_word_and_place(value: object, code: str, place: str) -> None:
    error = refusal(value)
    assert error.code == code
    assert error.pointer == place or code == "args_too_large"


@pytest.mark.parametrize(
    "value",
    [[1] * 32_767, ["é\n"] * 9_362, [1.1234567890123456e-100] * 2_729, {str(n): None for n in range(4_000)}],
    ids=short,
)
def test_an_object_is_measured_as_the_compact_text_it_would_be(value: Any) -> None:
    size = len(orjson.dumps(value))
    assert parse(value, max_bytes=size) == value
    assert refusal(value, max_bytes=size - 1).code == "args_too_large"
    assert parse(orjson.dumps(value), max_bytes=size) == value


@given(JSON.filter(lambda value: not isinstance(value, str)))  # a string would be text, not an object
def test_object_and_compact_text_have_the_same_size_limit(value: Any) -> None:
    size = len(orjson.dumps(value))
    assert same(parse(value, max_bytes=size), value)
    assert refusal(value, max_bytes=size - 1).code == "args_too_large"


def cyclic(width: int) -> list[Any]:
    value: list[Any] = [1] * width
    value += [value, value, {"again": value}]
    return value


@pytest.mark.parametrize("width", [0, 1, 3_000, 30_000])
def test_an_object_that_contains_itself_is_too_deep(width: int) -> None:
    started = time.process_time()
    assert refusal(cyclic(width)).code == "too_deep"
    assert time.process_time() - started < 1


def test_nesting_of_an_object_is_limited_without_recursion() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert parse(value) == value
    assert refusal({"a": value}).code == "too_deep"
    for _ in range(100_000):
        value = (value,)
    assert refusal(value).code == "too_deep"
    assert refusal(value, max_depth=50_000, max_bytes=10**6).code == "too_deep"


def test_a_huge_object_is_refused_without_memory_in_proportion() -> None:
    values: list[object] = [[None] * 10**6, {"a": (0,) * 10**6}, ["é" * 10**6]]
    tracemalloc.start()
    try:
        for value in values:
            assert refusal(value).code == "args_too_large"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_an_object_that_shares_its_parts_many_times_over_is_too_large() -> None:
    value: Any = ["ha"]
    for _ in range(30):
        value = [value, value]
    assert refusal(value).code == "args_too_large"


# ----------------------------------------------------------------------------------------- whatever comes, a JsonError


def outcome(reader: Callable[[Any], Any], raw: object) -> Any:
    """What was read, or the refusal; any other exception ends the test."""
    try:
        return reader(raw)
    except JsonError as error:
        return error


def only_json_errors(raw: object) -> None:
    for reader in (parse, parse_arguments):
        error = outcome(reader, raw)
        if isinstance(error, JsonError):
            assert error.code in CODES
            assert error.message.endswith(".")
            assert (error.message + error.pointer).encode()


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf{}")
def test_no_bytes_raise_anything_else(raw: bytes) -> None:
    only_json_errors(raw)


@given(ANY_TEXT | st.text(st.sampled_from('{}[]:,"\\ \n0123456789.eE+-truefalsn`')))
def test_no_text_raises_anything_else(raw: str) -> None:
    only_json_errors(raw)


@given(ANYTHING)
def test_no_object_raises_anything_else(raw: object) -> None:
    only_json_errors(raw)


def reference(text: str) -> Any:
    """What the rules say, written once more in the simplest way: `json` with all its doors shut."""

    def refuse(token: str) -> NoReturn:
        raise ValueError(token)

    def integer(token: str) -> int:
        return int(token) if abs(int(token)) < 2**53 else refuse(token)

    def real(token: str) -> float:
        return float(token) if math.isfinite(float(token)) else refuse(token)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(pairs) if len(dict(pairs)) == len(pairs) else refuse("duplicate")

    value = json.loads(text, parse_int=integer, parse_float=real, parse_constant=refuse, object_pairs_hook=unique)
    json.dumps(value, ensure_ascii=False).encode()
    return value


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example('{"a":1,"a" :1}')
@example('{"a":{"b":1},"a":2,"x":"::"}')
def test_text_is_accepted_exactly_where_the_rules_accept_it(text: str) -> None:
    try:
        expected = reference(text)
    except ValueError:
        assert refusal(text).code in CODES - {"args_too_large", "too_deep"}
    else:
        assert same(parse(text), expected)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", '\\":', "\\u0061"]), JSON), max_size=5),
    st.sampled_from(["", " "]),
)
def test_a_key_given_twice_is_always_noticed(pairs: list[tuple[str, Any]], space: str) -> None:
    text = "{" + ",".join(f'"{key}"{space}:{space}{json.dumps(value)}' for key, value in pairs) + "}"
    names = [json.loads(f'"{key}"') for key, _ in pairs]
    if len(set(names)) == len(names):
        assert list(parse(text)) == names
    else:
        assert refusal(text).code == "duplicate_key"


@pytest.mark.parametrize(
    "text",
    ['{"a" :1},' * 7_000, '"' * 65_000, '"\\' * 32_000, '" ' * 32_000, "[1e21," * 10_000, "9" * 65_000],
    ids=short,
)
def test_hostile_text_takes_no_noticeable_time(text: str) -> None:
    started = time.process_time()
    refusal("[" + text)
    assert time.process_time() - started < 1


# -------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("raw", [None, "", " \n\t", "null", b"", bytearray(b"  "), {}, "{}", "\xa0", '"{}"'])
def test_nothing_means_no_arguments(raw: object) -> None:
    assert parse_arguments(raw) == {}


@pytest.mark.parametrize(
    "raw",
    [
        '{"a":1}',
        b'{"a":1}',
        {"a": 1},
        freeze({"a": 1}),
        ' \n{"a":1}\u2003\n',
        '```json\n{"a":1}\n```',
        '```JSON\r\n{"a":1}\r\n```\n',
        '\n```\n{"a":1}\n```',
        '```{"a":1}```',
        '```json {"a":1} ```',
        '"{\\"a\\":1}"',
        ' "\\n {\\"a\\": 1} " ',
        '```\n"{\\"a\\":1}"\n```',
    ],
    ids=short,
)
def test_arguments_come_out_of_their_usual_wrappings(raw: object) -> None:
    assert parse_arguments(raw) == {"a": 1}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("[1]", "a list"),
        ([], "a list"),
        ((1,), "a list"),
        ("3", "a number"),
        (1.5, "a number"),
        ("true", "a boolean"),
        ('"x"', "a string"),
        ('""', "a string"),
        ('"[1]"', "a string"),
        ('"\\"{}\\""', "a string"),
    ],
    ids=short,
)
def test_arguments_that_are_no_object_are_told_what_they_are(raw: object, kind: str) -> None:
    error = arguments_refusal(raw)
    assert (error.code, error.message) == ("invalid_json", f"Arguments must be a JSON object, not {kind}.")


@pytest.mark.parametrize(
    "raw",
    [
        "```json\n```json\n{}\n```\n```",
        "```{}",
        "{}```",
        "``````",
        "`````",
        "```python\n{}\n```",
        "Here you are: {}",
        "{} done",
        "(){}",
        "\ufeff{}",
        "{}\x00",
        "~~~\n{}\n~~~",
    ],
    ids=short,
)
def test_nothing_else_is_taken_off(raw: str) -> None:
    assert arguments_refusal(raw).code == "invalid_json"


def test_places_are_counted_in_what_the_model_wrote() -> None:
    assert "(line 4, column 4)" in arguments_refusal('\n```json\n{"a":\n 1,}\n```').message
    assert "(line 1, column 15)" in arguments_refusal('```json{"a":1,}```').message


@pytest.mark.parametrize(
    ("inner", "code"),
    [
        ('{"a":1,"a":2}', "duplicate_key"),
        ('{"a":NaN}', "invalid_json"),
        ('{"a":' * 33, "too_deep"),
        ('{"a":9007199254740992}', "invalid_number"),
    ],
    ids=short,
)
def test_a_doubly_encoded_text_meets_the_same_rules(inner: str, code: str) -> None:
    error = arguments_refusal(json.dumps(inner))
    assert error.code == code
    assert error.message.startswith("Inside the doubly encoded text: ")
    assert error.pointer.startswith("/a")


# -------------------------------------------------------------------------------------------------------- documents


def test_a_document_may_be_larger_and_deeper_than_arguments() -> None:
    raw = b"[" * 64 + b" " * MAX_ARGUMENT_BYTES + b"]" * 64
    assert parse_document(raw) == json.loads(raw)
    with pytest.raises(JsonError, match="larger than the limit of 1,000 bytes"):
        parse_document(raw, max_bytes=1_000)
    with pytest.raises(JsonError, match="deeper than 64 levels"):
        parse_document(b"[" + raw + b"]")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xef\xbb\xbf{}", "invalid_json"),
        ("{}".encode("utf-16"), "invalid_unicode"),
        (b'{"a":1,"a":2}', "duplicate_key"),
        (b"", "invalid_json"),
    ],
    ids=short,
)
def test_a_document_is_read_as_strictly(raw: bytes, code: str) -> None:
    with pytest.raises(JsonError) as caught:
        parse_document(raw)
    assert caught.value.code == code


# ----------------------------------------------------------------------------------------------------------- repair


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a":1}', {"a": 1}),
        ('{"a":1,}', {"a": 1}),
        ("{'a': 'x'}", {"a": "x"}),
        ("{a: True, b: None}", {"a": True, "b": None}),
        ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}),
        ('```json\n{"a":1,}\n```', {"a": 1}),
        ('{"note": "note: x", "n": [{"note": 1,}]}', {"note": "note: x", "n": [{"note": 1}]}),
    ],
    ids=short,
)
def test_malformed_arguments_are_mended(raw: str, value: object) -> None:
    assert repair(raw) == value


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ('{"to":"ann","to":"bob"}', "duplicate_key"),
        ("{to: 'ann', to: 'bob'}", "invalid_json"),
        ("{'m': {'to': 'ann', 'to': 'bob'}}", "invalid_json"),
        ('{"a":"\\ud800"}', "invalid_unicode"),
        ("{'a':'\\ud800'}", "invalid_unicode"),
        ("{'a':99999999999999999999}", "invalid_number"),
        ('{"a":NaN}', "invalid_number"),
        ('{"a": }', "invalid_json"),
        ('{"a":1}{"b":2}', "invalid_json"),
        ("garbage", "invalid_json"),
        ("{", "invalid_json"),
        ("[1,2", "invalid_json"),
        ("{'a':" * 40, "invalid_json"),
        ("{" * 4_000, "invalid_json"),
        ("(" * 65, "invalid_json"),
        ("{'a': '" + "x" * MAX_REPAIR_LENGTH, "invalid_json"),
        ("[" * 100, "too_deep"),
        (" " * 70_000, "args_too_large"),
    ],
    ids=short,
)
def test_what_cannot_be_mended_without_guessing_stays_refused(raw: str, code: str) -> None:
    with pytest.raises(JsonError) as caught:
        repair(raw)
    assert caught.value.code == code


def test_a_pointer_escapes_tilde_and_slash() -> None:
    assert pointer([]) == ""
    assert pointer(["a", 0, "", "m~n/o", "~1"]) == "/a/0//m~0n~1o/~01"


def test_a_short_pointer_ends_before_an_unknown_key_and_before_it_gets_long() -> None:
    assert short_pointer(["a", None]) == "/a"
    assert short_pointer(["a", "b" * 300, "c"]) == "/a"
    assert short_pointer(["a" * 199]) == "/" + "a" * 199
    assert short_pointer(["a" * 200]) == ""
