"""Values as data: the checked, plain copy of an object, and the canonical bytes (RFC 8785) that keys and digests need.

`plain_copy` is how `strict_json` takes in what is already parsed. `canonical` is called for all arguments: where a look
at the value shows that orjson writes it as the RFC wants, orjson does, and all else is written here, exactly.
Nothing recurses, so no value can exhaust the stack, and every refusal is a `JsonError`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from hashlib import sha256
from itertools import islice
from math import isfinite
from typing import Any, TypeAlias

import orjson

from handrail.contract.errors import JsonError
from handrail.contract.frozen import FrozenDict
from handrail.schema.pointer import short_pointer

MAX_SAFE_INTEGER = 2**53 - 1
MAX_CANONICAL_DEPTH = 128
_SMALL = 2**53
_SORTED = orjson.OPT_SORT_KEYS

# A container that is being copied: its source, the copy, its depth, its key in the one around it, and that one.
_Branch: TypeAlias = "tuple[Any, Any, int, Any, _Branch | None]"


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
            for element in reversed(item):
                work += (element, b",")
            if item:
                work.pop()
        else:
            written.append(_number(item) if kind is float else orjson.dumps(item))
    return b"".join(written)


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
    _, numerals, exponent = Decimal(repr(abs(value))).as_tuple()
    point = len(numerals) + int(exponent)  # where the decimal point is, counted from the first digit
    digits = "".join(map(str, numerals)).rstrip("0")
    if len(digits) <= point <= 21:
        text = digits.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = f"{digits[0]}.{digits[1:]}".rstrip(".") + f"e{point - 1:+d}"
    return (text if value > 0 else "-" + text).encode()
