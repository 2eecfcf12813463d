"""Strict JSON: the one door through which text and objects from outside become plain data, and the form that keys are made of.

`read_arguments` is step 2 of the pipeline. Nearly every call brings short text or a small object in which nothing is unusual. One
walk proves that, and answers for strictness and for the canonical form (RFC 8785) together. What it is in doubt about goes to the
exact reader (`parse_arguments`) and the exact writer (`canonical`), whose answers are the rule. A property test compares them.

Text costs the exact reader one `orjson.loads` and one walk. Only what is wrong, or could be, is read again token by token, which
finds the reason and its place. Objects are taken in by `plain_copy`. Nothing recurses, so no input can exhaust the stack. Every
refusal is a `JsonError` that shows at most a key or a character.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias, cast

import orjson

from handrail.contract.errors import JsonError
from handrail.contract.frozen import FrozenDict
from handrail.schema.pointer import short_pointer

MAX_SAFE_INTEGER = 2**53 - 1
MAX_CANONICAL_DEPTH = 128
_SMALL = 2**53
_SORTED = orjson.OPT_SORT_KEYS
_SAFE = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
"""Refuses integers from 2^53 on, so that the walk need not look at them."""
_loads, _dumps, _join = orjson.loads, orjson.dumps, b"".join
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
# Whole tokens up to a comma, each comma after what may end a value. What stands before it is a comma too: `[1,]` is wrong.
_SPACE = r"[ \t\n\r]*+"
_STRETCH = re.compile(
    rf'(?!{_SPACE}[]}}])(?:(?:(?:{_SPACE}[\[{{:])*+{_SPACE}(?:{_NUMBER}|{_STRING}"|[]}}]|true|false|null))++{_SPACE},)++'
)
_ANY_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_LONG_NUMBER = re.compile(r"[-+.0-9eE]{16,}+")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_CLOSING = {"[": "]", "{": "}"}
MAX_STRETCH = 2048
"""Characters that are proved at once: fewer cost more proofs, more are read token by token where one fails."""
_PART_OF_STRING = re.compile(_STRING)
_NOT_SPACE = re.compile(r"[^ \t\n\r]")
_SPACED_COLON = re.compile(r'"[ \t\n\r]+:')
_NAMES = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_MARKS = bytes.maketrans(b"123456789e[", b"0" * 9 + b".{")
"""Makes `0.` of whatever a float has and an integer has not, and one bracket of both that open."""
_SCANNED = 512
"""Characters of text that are searched faster than gone through value by value."""
MAX_CONTAINERS = MAX_DEPTH
"""Of objects and lists in what the walk takes. It bounds their depth too."""
MAX_TEXT = 16 * 1024
"""Characters of arguments as text: in UTF-8 they cannot exceed the limit of the exact reader."""
MAX_MEMBERS, MAX_STRING = 256, 4096
"""Of an object: it may share its parts, so that writing it could take more memory than it has itself."""

_WRITTEN_ALIKE = frozenset({str, int, bool, type(None)})
"""Of these, orjson and RFC 8785 write every value that orjson takes in the same way."""

Arguments = tuple[dict[str, Any], bytes, bool]
"""The arguments, their canonical form, and whether orjson wrote that: then it also writes them with plain defaults filled in."""
_UNREAD: tuple[dict[str, Any], bytes, int] = ({}, b"", -1)
"""No arguments yet, their text, and how many whole floats they have: -1 in doubt."""

# A container that is being copied: its source, the copy, its depth, its key in the one around it, and that one.
_Branch: TypeAlias = "tuple[Any, Any, int, Any, _Branch | None]"


def read_arguments(raw: object) -> Arguments:
    """The arguments of a call as plain data that shares nothing with `raw`; `JsonError` with the reason if they are none."""
    args, text, whole = _UNREAD
    try:
        if type(raw) is str:
            if raw[:1] == "{" and len(raw) <= MAX_TEXT:
                args = _loads(raw)
                text = _dumps(args, None, _SAFE)
                is_ascii = text.isascii()
                # No key may have come twice. Written again, ASCII text without floats is never longer than it was, and shorter
                # by such a key: equal lengths prove that there is none. Where white space makes it longer, colons do: every key
                # that was written has one, and without escapes both texts have the same strings. Brackets bound the depth.
                # RFC 8785 writes floats otherwise than orjson; a string that looks like one is in doubt.
                alike = len(text) == len(raw) or ("\\" not in raw and raw.count(":") == text.count(b":"))
                if alike and is_ascii and len(raw) <= _SCANNED:
                    marks = text.translate(_MARKS)
                    # `find`, because `in` asks bytes for an index first, and pays for the exception.
                    if marks.count(b"{") < MAX_DEPTH and marks.find(b"0.") < 0:
                        return args, _join((text, b"")), True  # `trimmed`, as it is kept
                keys, whole = _count_keys(args, is_ascii)
                # Every key that was written has its colon, and what was read holds the distinct ones. Where strings hold colons
                # too, those that follow a quote are counted.
                if keys != raw.count(":") and (keys != raw.count('":') or _SPACED_COLON.search(raw) is not None):
                    whole = -1
        elif type(raw) is dict:
            args, whole = _copy_plain(raw)
            text = _dumps(args, None, _SAFE) if whole >= 0 else b""
            if len(text) > MAX_ARGUMENT_BYTES:
                whole = -1
    except (ValueError, TypeError):
        # No JSON, nested too deeply to be written, a large integer, a key that is no text, or half a surrogate pair: the exact
        # reader names its place.
        whole = -1
    if whole == 0:
        return args, _join((text, b"")), True
    # RFC 8785 leaves out the `.0` of a whole float. Where it stands as often as there are such floats, it stands nowhere else.
    if whole > 0 and text.count(b".0") == whole:
        return args, text.replace(b".0", b""), False
    return _read_exactly(raw)


def is_plain_value(value: object) -> bool:
    """Whether orjson writes this value in canonical form wherever it stands."""
    return read_arguments({"value": value})[2]


def _read_exactly(raw: object) -> Arguments:
    args = parse_arguments(raw)
    # What was read is plain already: writing it needs no copy.
    alike = _is_written_alike(args, MAX_CANONICAL_DEPTH)
    return args, trimmed(orjson.dumps(args, option=_SORTED) if alike else _write(args)), False


def _count_keys(root: dict[str, Any], is_ascii: bool) -> tuple[int, int]:
    """How many keys and whole floats a parsed object has; -1 keys in doubt whether it is acceptable, or written canonically."""
    keys = whole = 0
    containers: list[Any] = [root]
    for container in containers:  # grows while it is gone through
        if type(container) is dict:
            keys += len(container)
            if not is_ascii:
                for key in container:
                    # Below the surrogates, the order of code points is that of UTF-16 code units.
                    if not key.isascii() and max(key) >= "\ud800":
                        return -1, 0
            container = container.values()
        for value in container:
            kind = type(value)
            if kind in _WRITTEN_ALIKE:
                continue
            if kind is not float:
                containers.append(value)
            # Exponents are written otherwise than orjson writes them, and so is zero with a sign.
            elif not 1e-4 <= abs(value) < 1e15:
                return -1, 0
            elif value.is_integer():
                whole += 1
    return (keys if len(containers) <= MAX_CONTAINERS else -1), whole


def _copy_plain(raw: dict[Any, Any]) -> tuple[dict[str, Any], int]:
    """A copy of an object from a host, and how many whole floats it has; -1 in doubt, as for parsed ones."""
    whole = 0
    room = MAX_MEMBERS - len(raw)
    root: dict[str, Any] = raw.copy()
    if room < 0:
        return root, -1
    containers: list[Any] = [root]
    for container in containers:  # grows while it is gone through
        members: Iterable[tuple[Any, Any]]
        if type(container) is dict:
            # A key that is no text, or a subclass of it, raises here or when it is written.
            keys = "".join(container)
            if len(keys) > MAX_STRING or not (keys.isascii() or max(keys) < "\ud800"):
                return root, -1
            members = container.items()
        else:
            members = enumerate(container)
        for place, value in members:
            kind = type(value)
            if kind is str:
                if len(value) > MAX_STRING:
                    return root, -1
            elif kind is int or kind is bool or value is None:
                continue
            elif kind is dict or kind is list:
                room -= len(value)
                if room < 0:
                    return root, -1
                container[place] = inner = value.copy()
                containers.append(inner)
            elif kind is not float or not 1e-4 <= abs(value) < 1e15:  # NaN and infinity, too
                return root, -1
            elif value.is_integer():
                whole += 1
    return root, whole if len(containers) <= MAX_CONTAINERS else -1


def parse(raw: object, *, max_bytes: int = MAX_ARGUMENT_BYTES, max_depth: int = MAX_DEPTH) -> Any:
    """Plain JSON data from text, UTF-8 bytes or an object. The outermost container has depth 1; nothing is shared."""
    text = raw if type(raw) is str else _text_of(raw, max_bytes)
    if text is None:
        return plain_copy(raw, max_bytes=max_bytes, max_depth=max_depth)
    if len(text) * 4 > max_bytes:  # no character has more than four bytes, so short text needs no counting
        _check_size(text, max_bytes)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        _Reader(text, max_depth).read()
        raise JsonError("invalid_json", "The text is not JSON that can be read.") from None
    # The text has a colon for every key that was written, the value holds the distinct ones: equal numbers prove that
    # no key came twice. Where strings hold colons too, those that follow a quote are counted.
    keys = _count_distinct_keys(value, max_depth)
    if not (keys == text.count(":") or (keys == text.count('":') and not _SPACED_COLON.search(text))):
        _Reader(text, max_depth).read()
    return value


def parse_arguments(raw: object, *, max_bytes: int = MAX_ARGUMENT_BYTES, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """The arguments of a call, as an object or as text in one of the wrappings that models give it.

    None, `null` and blank text mean no arguments: providers send them for tools that take none.
    """
    text = raw if type(raw) is str else _text_of(raw, max_bytes)
    if text is None:
        value = plain_copy(raw, max_bytes=max_bytes, max_depth=max_depth)
    elif text[:1] == "{" and text[-1:] == "}":
        value = parse(text, max_bytes=max_bytes, max_depth=max_depth)
    else:
        value = parse(_unwrap(text, max_bytes), max_bytes=max_bytes, max_depth=max_depth)
        if type(value) is str and value.lstrip()[:1] == "{":
            value = _decode_again(value, max_bytes, max_depth)
    if type(value) is dict:
        return value
    if value is None:
        return {}
    raise JsonError("invalid_json", f"Arguments must be a JSON object, not {_NAMES[type(value)]}.", is_json=True)


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
        return parse(text, max_bytes=max_bytes, max_depth=max_depth)
    except JsonError as error:
        raise JsonError(error.code, f"Inside the doubly encoded text: {error.message}", pointer=error.pointer) from None


def _count_distinct_keys(root: Any, max_depth: int) -> int:
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
    """Raises for the first thing that is wrong with a text.

    Long text is proved stretch by stretch, with little work for a token. The first stretch that is wrong is read token by token,
    which finds the place, and so is short text.
    """

    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.max_depth = text, max_depth
        self.start = 0  # of the token that is looked at
        self.path: list[str | int | None] = []  # the index or key in each open list or object; None before a key
        self.keys: list[set[str]] = []  # those seen in each open container
        self.is_long = len(text) > MAX_STRETCH

    def read(self) -> None:
        if self.text.startswith("\ufeff"):
            raise self.error("invalid_json", "The text starts with a byte order mark; leave it out")
        expected, end = self.skip(_VALUE, 0)
        while token := _TOKEN.match(self.text, end):
            kind = str(token.lastgroup)
            self.start, end = token.span(kind)
            expected = self.take(kind, token[kind], expected)
            if token[kind] == ",":
                expected, end = self.skip(expected, end)
        rest = _NOT_SPACE.search(self.text, end)
        self.start = rest.start() if rest else len(self.text)
        if rest or expected != _END:
            raise self.unexpected(expected)

    def skip(self, expected: str, end: int) -> tuple[str, int]:
        """Go past the stretches in which nothing is wrong; what is expected then, and where."""
        while self.is_long and (stretch := _STRETCH.match(self.text, end, end + MAX_STRETCH)):
            self.is_long = self.prove(stretch[0])  # whatever is wrong with the text is in the first stretch that fails
            if self.is_long:
                expected, end = _KEY if self.path[-1] is None else _VALUE, stretch.end()
        return expected, end

    def prove(self, stretch: str) -> bool:
        """Whether nothing is wrong up to the comma that ends a stretch; then all of it has been taken."""
        bare = _ANY_STRING.sub("", stretch)
        opened = ["[" if isinstance(part, int) else "{" for part in self.path]
        for bracket in bare.encode().translate(None, _NOT_BRACKETS).decode():
            if bracket in _CLOSING:
                opened.append(bracket)
                if len(opened) > self.max_depth:
                    return False
            elif opened:
                opened.pop()
        if not opened or any(map(_is_unsafe, _LONG_NUMBER.findall(bare))):
            return False
        # The containers around the stretch are opened and closed, so that it is read where it stands.
        opening, closing = "".join(map(_opening, self.path)), "".join(map(_CLOSING.__getitem__, reversed(opened)))
        try:
            root = orjson.loads(opening + stretch[:-1] + closing)
        except orjson.JSONDecodeError:
            return False
        # Every key has its colon. One that came twice is read once.
        written = bare.count(":") + sum(isinstance(part, str) for part in self.path)
        if written != _ANY_STRING.sub("", orjson.dumps(root).decode()).count(":"):
            return False
        before: list[Any] = []
        inside = root
        for part, seen in zip(self.path, self.keys, strict=True):
            before.append(inside)
            if isinstance(part, int):
                inside = inside[0]
            elif len(seen.intersection(inside)) > (part is not None):
                return False
            elif part is not None:
                inside = inside[part]
        self.take_stretch(root, before, len(opened))
        return True

    def take_stretch(self, root: Any, before: list[Any], depth: int) -> None:
        """Follow a stretch to its end, where `depth` containers are open: `root` is what it says, in the ones open `before`."""
        path: list[str | int | None] = []
        keys: list[set[str]] = []
        inside = root
        for level in range(depth):
            is_old = level < len(before) and inside is before[level]
            keys.append(self.keys[level] if is_old else set())
            if type(inside) is dict:
                keys[level].update(inside)
                path.append(key := next(reversed(inside)))
                inside = inside[key]
            else:
                path.append(len(inside) - 1 + (cast(int, self.path[level]) if is_old else 0))
                inside = inside[-1]
        last = path[-1]
        path[-1] = last + 1 if isinstance(last, int) else None
        self.path, self.keys = path, keys

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
        if kind == "string":
            self.decode(token)
        elif kind == "number" and _is_unsafe(token):
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


def _opening(part: str | int | None) -> str:
    return "[" if isinstance(part, int) else "{" if part is None else f"{{{orjson.dumps(part).decode()}:"


def _is_unsafe(number: str) -> bool:
    """Whether a number of sixteen characters or more is an integer that not every reader keeps exact."""
    digits = number.lstrip("-")
    return digits.isdigit() and (len(digits) > 16 or int(digits) > MAX_SAFE_INTEGER)


class CanonicalRefusal:
    """What a refusal says, whether the value came as text or as an object; without full stop, as a place may follow."""

    TOO_DEEP = "The JSON is nested deeper than {} levels"
    UNSAFE_INTEGER = "An integer is 2^53 or more, beyond what every reader keeps exact; send it as a string"
    NOT_A_NUMBER = "NaN and Infinity are not JSON numbers; use null or leave the field out"
    LONE_SURROGATE = "A string has half of a surrogate pair, which is no character"


def canonical(value: object, *, max_depth: int = MAX_CANONICAL_DEPTH) -> bytes:
    """The RFC 8785 bytes of a JSON value. A value that is shared within it is written out at every place."""
    if type(value) is dict:
        # An object of plain texts and small integers, as most arguments are: `_is_written_alike` in short.
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                break
            kind = type(item)
            if (
                kind is not str
                and kind is not bool
                and item is not None
                and (kind is not int or not -_SMALL < item < _SMALL)
            ):
                break
        else:
            try:
                return orjson.dumps(value, option=_SORTED)
            except orjson.JSONEncodeError:
                pass  # a lone surrogate: making the copy finds its place
    if _is_written_alike(value, max_depth):
        try:
            return orjson.dumps(value, option=_SORTED)
        except orjson.JSONEncodeError:
            pass
    return _write(plain_copy(value, max_bytes=sys.maxsize, max_depth=max_depth))


def digest(value: object) -> str:
    """The SHA-256 of the canonical bytes, in hexadecimal."""
    return sha256(canonical(value)).hexdigest()


def plain_copy(root: object, *, max_bytes: int, max_depth: int) -> Any:
    """A copy of dicts, lists and JSON scalars only, made depth first: a cycle meets the limit before it can spread."""
    branch: _Branch = ([root], [], 0, None, None)
    top, work, key = branch[1], [branch], None
    room = max_bytes + 1  # what is left if every part takes no more than the least it can, as text with its comma
    try:
        while work:
            branch = work.pop()
            source, copy, depth, key, _ = branch
            key, is_dict = None, type(copy) is dict
            count = dict.__len__(source) if is_dict else len(source)
            if depth > max_depth:
                raise JsonError("too_deep", CanonicalRefusal.TOO_DEEP.format(max_depth) + ".")
            if count > room:
                raise too_large(max_bytes)
            if not is_dict:
                copy += [None] * count
            for name, value in dict.items(source) if is_dict else enumerate(source):
                key = None  # a key has no place in a pointer before it is known to be good
                if is_dict:
                    name = name if type(name) is str else _plain_key(name)
                    room -= 3 + (len(name) if name.isascii() else _utf8_size(name, room))
                key, kind = name, type(value)
                if issubclass(kind, str):
                    copy[key] = value = value if kind is str else str.__str__(value)
                    room -= 3 + (len(value) if value.isascii() else _utf8_size(value, room))
                elif kind is bool or value is None:
                    copy[key] = value
                    room -= 5
                elif issubclass(kind, (int, float)):
                    copy[key] = _plain_number(value, kind)
                    room -= 2
                else:
                    if kind is list or kind is dict:  # the two that text can hold, without the cost of a call
                        inner, copy[key] = value, [] if kind is list else {}
                    else:
                        inner, copy[key] = _open_container(value, kind, room)
                    work.append((inner, copy[key], depth + 1, key, branch))
                    room -= 2
                if room < 0:
                    raise too_large(max_bytes)
            if len(copy) != count:
                key = None
                raise JsonError("duplicate_key", "Two keys of one object are the same text.")
    except JsonError as error:
        raise _placed(error, branch, key) from None
    if (max_bytes + 1 - room) * 13 > max_bytes:  # no text is longer than 13 times the least it could be
        _check_exact_size(top[0], max_bytes)
    return top[0]


def too_large(max_bytes: int) -> JsonError:
    return JsonError("args_too_large", f"The JSON is larger than the limit of {max_bytes:,} bytes.")


def quote(text: str) -> str:
    """At most 40 characters of a text from outside, in quotes and safe to show anywhere."""
    return orjson.dumps(text[:40].encode(errors="replace").decode()).decode()


def _placed(error: JsonError, branch: _Branch, key: str | int | None) -> JsonError:
    path, sources, above = [key], [], branch
    while above[4] is not None:
        path.append(above[3])
        sources.append(id(above[0]))
        above = above[4]
    error.pointer = short_pointer(path[-2::-1])  # the last one is the index in the list around the root
    if error.code == "args_too_large" and len(set(sources)) < len(sources):
        return JsonError("too_deep", "The object contains itself.", pointer=error.pointer)
    return error


def _open_container(value: Any, kind: type, room: int) -> tuple[Any, Any]:
    """What the items are read from, without calling methods of a subclass, and the empty copy they go into."""
    if issubclass(kind, dict):
        return value, {}
    if issubclass(kind, (list, tuple)):
        base: Any = list if issubclass(kind, list) else tuple
        return value if kind is base else base.__getitem__(value, slice(room + 1)), []
    if not issubclass(kind, Mapping):
        raise JsonError("invalid_json", f"A value of the type {quote(kind.__name__)} is not JSON.")
    try:
        pairs = list(islice(value.items(), min(room + 1, sys.maxsize)))
        source = dict(pairs)
    except Exception:  # noqa: BLE001 - a foreign class: whatever it raises, there is nothing to read
        raise JsonError("invalid_json", f"A mapping of the type {quote(kind.__name__)} cannot be read.") from None
    if len(source) != len(pairs):
        raise JsonError("duplicate_key", "A key occurs twice in a mapping.")
    return source, {}


def _plain_key(key: Any) -> str:
    if not issubclass(type(key), str):
        raise JsonError("invalid_json", f"Keys must be strings; one is of the type {quote(type(key).__name__)}.")
    return str.__str__(key)


def _plain_number(value: Any, kind: type) -> int | float:
    if issubclass(kind, int):
        number = int.__int__(value)
        if not -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER:
            raise JsonError("invalid_number", CanonicalRefusal.UNSAFE_INTEGER + ".")
        return number
    real = float.__float__(value)
    if not isfinite(real):
        raise JsonError("invalid_number", CanonicalRefusal.NOT_A_NUMBER + ".")
    return real


def _utf8_size(text: str, room: int) -> int:
    if len(text) > room:  # too large already, and maybe far too large to encode
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise JsonError("invalid_unicode", CanonicalRefusal.LONE_SURROGATE + ".") from None


def _check_exact_size(value: Any, max_bytes: int) -> None:
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:  # beyond 254 levels, where the caller allows that many
        raise JsonError("too_deep", "The object is nested too deeply to be written as JSON.") from None
    if size > max_bytes:
        raise too_large(max_bytes)


def _is_written_alike(root: object, max_depth: int) -> bool:
    """Whether orjson with sorted keys writes what the RFC wants; no for everything that is unusual or refused."""
    work: list[tuple[Any, int]] = [((root,), 0)]
    while work:
        container, depth = work.pop()
        if depth > max_depth:
            return False
        if type(container) is dict or type(container) is FrozenDict:
            for key in container:
                # Below the surrogates, the order of code points is that of UTF-16 code units.
                if type(key) is not str or not (key.isascii() or max(key) < "\ud800"):
                    return False
            container = container.values()
        for value in container:
            kind = type(value)
            if kind is int:
                if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
                    return False
            elif kind is dict or kind is list or kind is FrozenDict or kind is tuple:
                work.append((value, depth + 1))
            elif kind is float:
                if value.is_integer() or not 1e-4 <= abs(value) < 1e15:  # the others differ, or have exponents
                    return False
            elif kind is not str and kind is not bool and value is not None:
                return False
    return True


def _write(root: Any) -> bytes:
    """The canonical bytes of a plain copy."""
    written: list[bytes] = []
    work: list[Any] = [root]  # from the last to the first: values, and bytes that are ready
    while work:
        item = work.pop()
        kind = type(item)
        if kind is bytes:
            written.append(item)
        elif kind is dict:
            written.append(b"{")
            work.append(b"}")
            for key in sorted(item, key=lambda key: key.encode("utf-16-be"), reverse=True):
                work += (item[key], orjson.dumps(key) + b":", b",")
            if item:
                work.pop()
        elif kind is list:
            written.append(b"[")
            work.append(b"]")
            if _FLOAT_ONLY.issuperset(map(type, item)):
                written.append(b",".join(map(_number, item)))
                continue
            for element in reversed(item):
                work += (element, b",")
            work.pop()
        else:
            written.append(_number(item) if kind is float else orjson.dumps(item))
    return b"".join(written)


_FLOAT_ONLY = frozenset({float})
_FIRST_ALIKE, _LAST_ALIKE = 9e-10, 1e21


def _number(value: float) -> bytes:
    """A number as ECMAScript writes it: Python has the same shortest digits, but puts the exponent elsewhere."""
    if value.is_integer() and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return b"%d" % int(value)  # zero too, whose sign is not written
    text = repr(value)
    if "e" not in text:
        return text.removesuffix(".0").encode()
    if not _FIRST_ALIKE < abs(value) < _LAST_ALIKE:
        return text.encode()  # exponents of two digits are written alike
    mantissa, _, exponent = text.lstrip("-").partition("e")  # one digit, and maybe a point with those that follow
    digits = mantissa.replace(".", "")
    point = 1 + int(exponent)  # where the decimal point is, counted from the first digit
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = f"{digits[0]}.{digits[1:]}".rstrip(".") + f"e{point - 1:+d}"
    return (text if value > 0 else "-" + text).encode()


def trimmed(data: bytes) -> bytes:
    """The same bytes in no more memory than they need, for JSON that is kept.

    What `orjson.dumps` returns keeps the whole buffer that it was written in, 4 KiB at the least and twice its own size or more,
    whatever `len` and `sys.getsizeof` say. Kept by the thousand it is most of the memory.
    """
    return _join((data, b""))  # with one part alone, `join` would give it back as it is
