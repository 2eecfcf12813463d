"""The form of an audit line and of the chain of hashes; the writer and the verifier both speak it from here.

A line is one JSON object that starts with `event`, `ts` and `seq`, then has the event's fields. Lines are sealed in
small groups: the last one of a group ends in `"hash"`, which covers the hash before it and every byte since, up to
the hash itself. A line that was flushed alone is a group of one, so its hash is `H(previous hash + line without its
hash)`. `H` is SHA-256, or HMAC-SHA-256 where there is a key. Groups exist because a hash per line would cost more
than the line.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import orjson

CHECKPOINTS = "checkpoints.jsonl"
FILES = "audit-*.jsonl"
GENESIS = b"0" * 64
"""The hash before the first line."""
GROUP = 16
"""How many lines one hash covers at most: an edit is found within as many lines."""
FORMAT = 1

START = "audit_start"
CHECKPOINT = "checkpoint"
GAP = "audit_gap"
RESERVED = frozenset({"event", "ts", "seq", "hash"})

HEAD = re.compile(rb'\{"event":("(?:[^"\\]|\\.)*"),"ts":"([^"]*)","seq":(\d+)[,}]')
_SEAL = re.compile(rb',"(?:hash|mac)":"([0-9a-f]{64})"\}$')


def seal(key: bytes | None, data: bytes) -> bytes:
    """The hash of `data` in hexadecimal; keyed where there is a key."""
    if key is None:
        return hashlib.sha256(data).hexdigest().encode()
    return hmac.digest(key, data, "sha256").hex().encode()


def split_seal(line: bytes) -> tuple[bytes, bytes | None]:
    """A line as (what its hash covers, its hash); the whole line and None if it has no hash."""
    found = _SEAL.search(line[-76:])
    return (line[: -len(found[0])], found[1]) if found else (line, None)


def sealed(stem: bytes, hash: bytes, name: bytes = b"hash") -> bytes:
    """The line that `split_seal` takes apart; `stem` is a JSON object without its closing brace."""
    return b'%b,"%b":"%b"}\n' % (stem, name, hash)


def stamp(second: int) -> bytes:
    """A UTC time without its milliseconds, as in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()


def encode_name(name: object) -> bytes:
    """A JSON string, whatever is in it."""
    try:
        return orjson.dumps(str(name))
    except TypeError:  # a lone surrogate
        return json.dumps(str(name)).encode()


def encode(fields: Mapping[str, object]) -> bytes:
    """The fields as one JSON object. Never raises: what JSON cannot hold is told by its type, the rest is kept."""
    try:
        if not RESERVED.isdisjoint(fields):
            fields = {f"{name}_" if name in RESERVED else name: value for name, value in fields.items()}
        return orjson.dumps(fields, json_substitute)
    except Exception:  # noqa: BLE001  # an event must not be lost, nor a call fail, because of one odd value
        return _encode_piecemeal(fields)


def _encode_piecemeal(fields: Mapping[str, object]) -> bytes:
    try:
        return b"{%b}" % b",".join(b"%b:%b" % (encode_name(name), _encode_value(fields[name])) for name in fields)
    except Exception:  # noqa: BLE001  # not even a mapping that can be read
        return b'{"unreadable":%b}' % encode_name(type(fields).__name__)


def _encode_value(value: object) -> bytes:
    try:
        return orjson.dumps(value, json_substitute)
    except Exception:  # noqa: BLE001  # the slower encoder takes large integers and lone surrogates
        try:
            return json.dumps(value, default=json_substitute, allow_nan=False).encode()
        except Exception:  # noqa: BLE001  # circular, too deep, odd keys
            return encode_name(f"<{type(value).__name__}>")


def json_substitute(value: object) -> object:
    """What stands for a value that JSON does not know. Of a foreign object only its type: its text may hold secrets."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (Decimal, PurePath)):
        return str(value)
    return f"<{type(value).__name__}>"


def decode(line: bytes) -> dict[str, Any] | None:
    """The event on a line; None if it is torn or not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("ts"), str) else None
