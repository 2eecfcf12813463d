"""The arguments of a call: plain data and its canonical form, from one look at what the provider sent.

Nearly every call brings short text or a small object in which nothing is unusual. One walk proves that: it answers for strictness
and for the canonical form together, so that no value is looked at twice. Whatever the walk is in doubt about goes to the exact
reader (`strict_json`) and the exact writer (`canonical`), whose answers are the rule. A property test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from handrail.schema.canonical import canonical
from handrail.schema.strict_json import MAX_ARGUMENT_BYTES, MAX_DEPTH, SPACED_COLON, parse_arguments
from handrail.schema.trimmed import trimmed

MAX_CONTAINERS = MAX_DEPTH
"""Of objects and lists in what the walk takes. It bounds their depth too."""
MAX_TEXT = 16 * 1024
"""Characters of arguments as text: in UTF-8 they cannot exceed the limit of the exact reader."""
MAX_MEMBERS, MAX_STRING = 256, 4096
"""Of an object: it may share its parts, so that writing it could take more memory than it has itself."""
_SAFE = 2**53
_SORTED = orjson.OPT_SORT_KEYS
_loads, _dumps, _join = orjson.loads, orjson.dumps, b"".join

Arguments = tuple[dict[str, Any], bytes, bool]
"""The arguments, their canonical form, and whether orjson wrote that: then it also writes them with plain defaults filled in."""


def read_arguments(raw: object) -> Arguments:
    """The arguments of a call as plain data that shares nothing with `raw`; `JsonError` with the reason if they are none."""
    if type(raw) is str:
        if raw[:1] == "{" and len(raw) <= MAX_TEXT:
            try:
                args = _loads(raw)
                text = _dumps(args, None, _SORTED)
            except (ValueError, TypeError):  # no JSON, or nested too deeply to be written again
                return _read_exactly(raw)
            keys = _count_keys(args, text.isascii())
            # Every key that was written has its colon, and `args` holds the distinct ones: equal numbers prove that none came
            # twice. Where strings hold colons too, those that follow a quote are counted.
            if keys == raw.count(":") or (keys == raw.count('":') and SPACED_COLON.search(raw) is None):
                return args, _join((text, b"")), True  # `trimmed`, as it is kept
    elif type(raw) is dict:
        copy = _copy_plain(raw)
        if copy is not None:
            try:
                text = _dumps(copy, None, _SORTED)
            except TypeError:  # half a surrogate pair: the exact reader names its place
                return _read_exactly(raw)
            if len(text) <= MAX_ARGUMENT_BYTES:
                return copy, _join((text, b"")), True
    return _read_exactly(raw)


def is_plain_value(value: object) -> bool:
    """Whether orjson writes this value in canonical form wherever it stands."""
    return read_arguments({"value": value})[2]


def _read_exactly(raw: object) -> Arguments:
    args = parse_arguments(raw)
    return args, trimmed(canonical(args)), False


def _count_keys(root: Any, is_ascii: bool) -> int:
    """The keys in a value that was parsed; -1 in doubt whether it is acceptable, or written by orjson as RFC 8785 wants it."""
    keys = 0
    containers = [root]
    for container in containers:  # grows while it is gone through
        if type(container) is dict:
            keys += len(container)
            if not is_ascii:
                for key in container:
                    # Below the surrogates, the order of code points is that of UTF-16 code units.
                    if not key.isascii() and max(key) >= "\ud800":
                        return -1
            container = container.values()
        for value in container:
            kind = type(value)
            if kind is str or kind is bool or value is None:
                continue
            if kind is int:
                if not -_SAFE < value < _SAFE:
                    return -1
            elif kind is float:
                # RFC 8785 writes whole numbers without a point, and exponents otherwise than orjson.
                if value.is_integer() or not 1e-4 <= abs(value) < 1e15:
                    return -1
            elif len(containers) < MAX_CONTAINERS:
                containers.append(value)
            else:
                return -1
    return keys


def _copy_plain(raw: dict[Any, Any]) -> dict[str, Any] | None:
    """A copy of an object from a host; None in doubt whether it is acceptable, or written by orjson as RFC 8785 wants it."""
    room = MAX_MEMBERS - len(raw)
    if room < 0:
        return None
    root: dict[str, Any] = raw.copy()
    containers: list[Any] = [root]
    for container in containers:  # grows while it is gone through
        has_keys = type(container) is dict
        members: Iterable[tuple[Any, Any]] = container.items() if has_keys else enumerate(container)
        for place, value in members:
            if has_keys and (
                type(place) is not str or len(place) > MAX_STRING or not (place.isascii() or max(place) < "\ud800")
            ):
                return None
            kind = type(value)
            if kind is str:
                if len(value) > MAX_STRING:
                    return None
            elif kind is bool or value is None:
                continue
            elif kind is int:
                if not -_SAFE < value < _SAFE:
                    return None
            elif kind is float:
                if value.is_integer() or not 1e-4 <= abs(value) < 1e15:  # NaN and infinity, too
                    return None
            elif kind is dict or kind is list:
                room -= len(value)
                if room < 0 or len(containers) == MAX_CONTAINERS:
                    return None
                container[place] = inner = value.copy()
                containers.append(inner)
            else:
                return None
    return root
