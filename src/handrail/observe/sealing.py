"""What a person said, in audit lines that can never be changed: sealed under a key of that user's own, which the store keeps.

A line that is part of a chain of hashes cannot be taken back. So what a named user said to tools stands in it only as a
ciphertext. Whoever reads the log through the store sees it; when the user is forgotten, the key is erased, and the words with
it, while every hash still fits. The lines themselves name a pseudonym.

The cipher is SHAKE-256 of key and nonce, as a stream; the chain of hashes guards against changes.
"""

from __future__ import annotations

import json
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from hashlib import shake_256
from typing import Any

from handrail.contract.store import AuditSubject

_NONCE_BYTES = 12
SEALED = "sealed"
ERASED = "erased"
PUBLIC = frozenset(
    {
        *("sessionId", "turnId", "connection", "registryVersion", "mode", "user", "tenant", "provider"),
        *("callId", "idempotencyKey", "ledgerKey", "confirmationId", "duplicateOf", "approver", "approvedVia"),
        *("toolId", "toolVersion", "category", "duration", "ok", "errorType", "gate", "rule", "limit"),
        *("defaulted", "clamped", "repaired", "recovered", "finishedAt", "state", "previousVersion"),
        *("calls", "retrieval", "refusals", "validator", "validatorMs"),
    }
)
"""Fields that Handrail itself fills, never with what somebody said. Every other field of a named user's line is sealed."""
_MODEL_MADE = frozenset({"callId", "idempotencyKey", "duplicateOf", "provider"})
"""Of these, those that come from a model or its provider, who may put words into them."""
_HOST_MADE = PUBLIC - _MODEL_MADE
_ID = re.compile(r"(?:provider:)?[\w:.-]{1,64}", re.ASCII)


def looks_like_id(value: object) -> bool:
    """Whether a model's or a provider's name for something holds no words that have to be sealed."""
    return value is None or (isinstance(value, str) and _ID.fullmatch(value) is not None)


def take_words(fields: dict[str, Any], private: Collection[str] = ()) -> dict[str, Any]:
    """Take out of a named user's line, and return, what may not stand in it as it is: `private`, and what may hold words."""
    doubtful = fields.keys() - _HOST_MADE
    doubtful.update(private)
    names = [
        name
        for name in fields
        if name in doubtful and (name in private or name not in _MODEL_MADE or not looks_like_id(fields[name]))
    ]
    return {name: fields.pop(name) for name in names}


def seal_text(subject: AuditSubject, body: bytes) -> bytes:
    """The text of the field `sealed`: `<pseudonym>.<nonce and ciphertext in base64>`."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return b"%b.%b" % (subject.pseudonym.encode(), b64encode(nonce + _mixed(subject.secret, nonce, body)))


def pseudonym_of(event: Mapping[str, Any]) -> str | None:
    """Whose words are sealed in an event."""
    text = event.get(SEALED)
    return text.partition(".")[0] if isinstance(text, str) else None


def open_event(event: Mapping[str, Any], keys: Mapping[str, bytes]) -> dict[str, Any]:
    """The event with what was sealed in it; `erased` stands where the key is gone."""
    whose = pseudonym_of(event)
    if whose is None:
        return dict(event)
    rest = {name: value for name, value in event.items() if name != SEALED}
    key = keys.get(whose)
    try:
        data = b64decode(event[SEALED].partition(".")[2], validate=True)
        words = json.loads(_mixed(key, data[:_NONCE_BYTES], data[_NONCE_BYTES:])) if key else None
    except ValueError:
        words = None
    return {**rest, **words} if isinstance(words, dict) else {**rest, ERASED: True}


APPROVER = "approver"


def with_names(event: dict[str, Any], users: Mapping[str, str]) -> dict[str, Any]:
    """The event with the name of the approver, of whom the line has a pseudonym, as far as it is known."""
    named = users.get(str(event.get(APPROVER)))
    return {**event, APPROVER: named} if named is not None else event


def _mixed(key: bytes, nonce: bytes, data: bytes) -> bytes:
    stream = shake_256(key + nonce).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))
