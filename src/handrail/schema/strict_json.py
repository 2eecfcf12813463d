"""Strict JSON: the one door through which text and objects from outside become plain data (step 2 of the pipeline).

Plain text costs one `orjson.loads` and one walk over the result. Only what is wrong, or could be, is read a second
time, token by token, by a reader that finds the exact reason and place. Objects are taken in by `plain_copy`. Nothing
recurses, so no input can exhaust the stack, and every refusal is a `JsonError` that shows at most a key or a character.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, cast

import orjson

from handrail.contract.errors import JsonError
from handrail.schema.canonical import MAX_SAFE_INTEGER as MAX_SAFE_INTEGER
from handrail.schema.canonical import CanonicalRefusal, plain_copy, quote, too_large
from handrail.schema.pointer import short_pointer

MAX_ARGUMENT_BYTES = 64 * 1024
MAX_DOCUMENT_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_DOCUMENT_DEPTH = 64
# json_repair needs minutes for 64 KiB of nested brackets; the worst text found within both of these takes 0.4 s.
MAX_REPAIR_LENGTH = 4 * 1024
MAX_REPAIR_BRACKETS = 64

# What the reader expects next, in the words of its messages.
_VALUE, _VALUE_OR_END, _KEY, _KEY_OR_END = "a value", 'a value or "]"', "a quoted key", 'a quoted key or "}"'
_COLON, _MORE_KEYS, _MORE_VALUES, _END = '":"', '"," or "}"', '"," or "]"', "the end of the text"

_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_TOKEN = re.compile(
    rf'[ \t\n\r]*+(?:(?P<mark>[][{{}},:])|(?P<string>{_STRING}")|(?P<number>{_NUMBER})|(?P<word>true|false|null))'
)
_PART_OF_STRING = re.compile(_STRING)
_NOT_SPACE = re.compile(r"[^ \t\n\r]")
SPACED_COLON = re.compile(r'"[ \t\n\r]+:')
_NAMES = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def parse(raw: object, *, max_bytes: int = MAX_ARGUMENT_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """Plain JSON data from text, UTF-8 bytes or an object. The outermost container has depth 1; nothing is shared."""
    text = raw if type(raw) is str else _text_of(raw, max_bytes)
    if text is None:
        return plain_copy(raw, max_bytes=max_bytes, max_depth=max_depth)
    return _parse_text(text, max_bytes, max_depth)


def parse_arguments(raw: object, *, max_bytes: int = MAX_ARGUMENT_BYTES, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The arguments of a call, as an object or as text in one of the wrappings that models give it.

    None, `null` and blank text mean no arguments: providers send them for tools that take none.
    """
    text = raw if type(raw) is str else _text_of(raw, max_bytes)
    if text is None:
        value = plain_copy(raw, max_bytes=max_bytes, max_depth=max_depth)
    elif text[:1] == "{" and text[-1:] == "}":
        value = _parse_text(text, max_bytes, max_depth)
    else:
        value = _parse_text(_unwrap(text, max_bytes), max_bytes, max_depth)
        if type(value) is str and value.lstrip()[:1] == "{":
            value = _decode_again(value, max_bytes, max_depth)
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise JsonError("invalid_json", f"Arguments must be a JSON object, not {_NAMES[type(value)]}.")


def parse_document(raw: bytes, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Any:
    """Plain JSON data from the bytes of a file."""
    return parse(bytes(raw), max_bytes=max_bytes, max_depth=MAX_DOCUMENT_DEPTH)


def repair(raw: str, *, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The one attempt to mend malformed arguments; the result is a guess, and the caller marks it so.

    Only malformed text is mended. What is refused for another reason, such as a key given twice, stays refused:
    choosing for the model would not be a repair.
    """
    try:
        return parse_arguments(raw, max_depth=max_depth)
    except JsonError as error:
        if error.code != "invalid_json":
            raise
    import json_repair  # noqa: PLC0415 - repairing is off by default, so most processes never need it

    refusal = JsonError("invalid_json", "The arguments are not JSON and could not be repaired into a JSON object.")
    if len(raw) > MAX_REPAIR_LENGTH or sum(map(raw.count, "{[(")) > MAX_REPAIR_BRACKETS:
        raise refusal
    try:
        # Its strict mode mends commas, quotes and cut-off ends, but makes up no values and drops no second object.
        mended: object = json_repair.loads(_unwrap(raw, MAX_ARGUMENT_BYTES), strict=True)
    except Exception:  # noqa: BLE001 - a foreign, recursive parser: whatever it raises, the text was not mended
        raise refusal from None
    arguments = parse_arguments(mended, max_depth=max_depth) if isinstance(mended, dict) else {}
    if not arguments or _loses_keys(raw, arguments):
        raise refusal
    return arguments


def _loses_keys(raw: str, arguments: dict[str, Any]) -> bool:
    """Whether json_repair seems to have chosen between two values of one key: it keeps the last and says nothing."""
    mended = orjson.dumps(arguments).decode()
    uses = (re.compile(rf"(?<!\w){re.escape(key)}\W?\s*:") for key in set(re.findall(r'"([^"\\]+)":', mended)))
    return any(len(use.findall(raw)) > len(use.findall(mended)) for use in uses)


def _text_of(raw: object, max_bytes: int) -> str | None:
    """The text of a string or of UTF-8 bytes, None for an object."""
    kind = type(raw)  # not `isinstance`, which believes what an object says about itself
    if issubclass(kind, str):
        return str.__str__(cast(str, raw))
    if not issubclass(kind, (bytes, bytearray)):
        return None
    data = memoryview(cast(bytes, raw))
    if data.nbytes > max_bytes:
        raise too_large(max_bytes)
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        offset = error.start
    line = bytes(data[:offset]).count(b"\n") + 1
    raise JsonError("invalid_unicode", f"The text is not UTF-8: byte offset {offset} (line {line}) cannot be decoded.")


def _unwrap(text: str, max_bytes: int) -> str:
    """The text without the white space and the one code fence around it; `null` for blank text.

    What is taken off in front becomes blanks, so that lines and columns still count in what the model wrote.
    """
    _check_size(text, max_bytes)
    body = text.strip()
    if not body:
        return "null"
    start = text.index(body)
    if len(body) >= 6 and body.startswith("```") and body.endswith("```"):
        inside = body[3:-3].rstrip()
        body = (inside[4:] if inside[:4].lower() == "json" else inside).lstrip()
        start += 3 + len(inside) - len(body)
    return re.sub(r"[^\n]", " ", text[:start]) + body


def _decode_again(text: str, max_bytes: int, max_depth: int) -> Any:
    try:
        return _parse_text(text, max_bytes, max_depth)
    except JsonError as error:
        raise JsonError(error.code, f"Inside the doubly encoded text: {error.message}", pointer=error.pointer) from None


def _parse_text(text: str, max_bytes: int, max_depth: int) -> Any:
    if len(text) * 4 > max_bytes:  # no character has more than four bytes, so short text needs no counting
        _check_size(text, max_bytes)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        _Reader(text, max_depth).read()
        raise JsonError("invalid_json", "The text is not JSON that can be read.") from None
    # The text has a colon for every key that was written, the value holds the distinct ones: equal numbers prove that
    # no key came twice. Where strings hold colons too, those that follow a quote are counted.
    keys = _count_keys(value, max_depth)
    if not (keys == text.count(":") or (keys == text.count('":') and not SPACED_COLON.search(text))):
        _Reader(text, max_depth).read()
    return value


def _count_keys(root: Any, max_depth: int) -> int:
    """How many keys parsed text holds; -1 where only its tokens can tell whether it is acceptable."""
    keys = depth = 0
    level: list[Any] = [root] if type(root) is dict or type(root) is list else [[root]]
    while level:
        depth += 1
        if depth > max_depth:
            return -1
        below: list[Any] = []
        for container in level:
            if type(container) is dict:
                keys += len(container)
                container = container.values()
            for value in container:
                kind = type(value)
                if kind is dict or kind is list:
                    below.append(value)
                elif (kind is int or kind is float) and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
                    return -1  # a float, too: orjson makes one of an integer beyond 64 bits
        level = below
    return keys


def _check_size(text: str, max_bytes: int) -> None:
    # The number of characters comes first, because it bounds what encoding may allocate.
    if len(text) > max_bytes or (not text.isascii() and len(text.encode(errors="surrogatepass")) > max_bytes):
        raise too_large(max_bytes)


class _Reader:
    """Reads text token by token and raises for the first thing that is wrong with it."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.max_depth = text, max_depth
        self.start = 0  # of the token that is looked at
        self.path: list[str | int | None] = []  # the index or key in each open list or object; None before a key
        self.keys: list[set[str]] = []  # those seen in each open container

    def read(self) -> None:
        if self.text.startswith("\ufeff"):
            raise self.error("invalid_json", "The text starts with a byte order mark; leave it out")
        expected, end = _VALUE, 0
        while token := _TOKEN.match(self.text, end):
            kind = str(token.lastgroup)
            self.start, end = token.span(kind)
            expected = self.take(kind, token[kind], expected)
        rest = _NOT_SPACE.search(self.text, end)
        self.start = rest.start() if rest else len(self.text)
        if rest or expected != _END:
            raise self.unexpected(expected)

    def take(self, kind: str, token: str, expected: str) -> str:
        """Checks one token and says what is expected after it."""
        if kind == "string" and expected in (_KEY, _KEY_OR_END):
            return self.take_key(token)
        if token in ("{", "[") and expected in (_VALUE, _VALUE_OR_END):
            return self.open(token)
        if kind != "mark" and expected in (_VALUE, _VALUE_OR_END):
            self.check_scalar(kind, token)
            return self.after_value()
        if (token, expected) in (("}", _KEY_OR_END), ("}", _MORE_KEYS), ("]", _VALUE_OR_END), ("]", _MORE_VALUES)):
            del self.path[-1], self.keys[-1]
            return self.after_value()
        if (token, expected) == (",", _MORE_KEYS):
            self.path[-1] = None
        elif (token, expected) == (",", _MORE_VALUES):
            self.path[-1] = cast(int, self.path[-1]) + 1
        elif (token, expected) != (":", _COLON):
            raise self.unexpected(expected)
        return _KEY if expected == _MORE_KEYS else _VALUE

    def take_key(self, token: str) -> str:
        self.path[-1] = key = self.decode(token)
        if key in self.keys[-1]:
            raise self.error("duplicate_key", f"The key {quote(key)} occurs twice in one object")
        self.keys[-1].add(key)
        return _COLON

    def open(self, token: str) -> str:
        if len(self.path) == self.max_depth:
            raise self.error("too_deep", CanonicalRefusal.TOO_DEEP.format(self.max_depth))
        self.path.append(None if token == "{" else 0)
        self.keys.append(set())
        return _KEY_OR_END if token == "{" else _VALUE_OR_END

    def after_value(self) -> str:
        inside = self.path[-1:]
        return _END if not inside else _MORE_VALUES if isinstance(inside[0], int) else _MORE_KEYS

    def check_scalar(self, kind: str, token: str) -> None:
        digits = token.lstrip("-")
        if kind == "string":
            self.decode(token)
        elif kind == "number" and digits.isdigit():
            if len(digits) > 16 or int(digits) > MAX_SAFE_INTEGER:
                raise self.error("invalid_number", CanonicalRefusal.UNSAFE_INTEGER)
        elif kind == "number" and not isfinite(float(token)):
            raise self.error("invalid_json", "A number is too large for a JSON reader")

    def decode(self, token: str) -> str:
        try:
            return str(orjson.loads(token))
        except orjson.JSONDecodeError:  # the token is well-formed, so nothing else can be wrong with it
            raise self.error("invalid_unicode", CanonicalRefusal.LONE_SURROGATE) from None

    def unexpected(self, expected: str) -> JsonError:
        text, start = self.text, self.start
        if start == len(text):
            what = f"The text ends where {expected} is expected" if text.strip() else "The text is empty"
        elif text.startswith(("NaN", "Infinity", "-Infinity"), start):
            what = CanonicalRefusal.NOT_A_NUMBER
        elif text[start] == '"' and not _TOKEN.match(text, start):
            what = self.broken_string()
        else:
            what = f"Expected {expected}, found {quote(text[start])}"
        return self.error("invalid_json", what)

    def broken_string(self) -> str:
        if part := _PART_OF_STRING.match(self.text, self.start):
            self.start = part.end()
        if self.start == len(self.text):
            return "A string is not closed"
        if self.text[self.start] == "\\":
            return "A string has an escape that JSON does not know"
        return "A string has a control character that must be escaped, as a new line is by \\n"

    def error(self, code: str, message: str) -> JsonError:
        line = self.text.count("\n", 0, self.start) + 1
        column = self.start - self.text.rfind("\n", 0, self.start)
        return JsonError(code, f"{message} (line {line}, column {column}).", pointer=short_pointer(self.path))
