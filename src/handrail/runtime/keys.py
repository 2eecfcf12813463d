"""Keys: what makes two calls the same call.

The *call key* names a call within its session: by the provider's id where that is stable, by content otherwise. The
*ledger key* names one execution of a writing tool: the same call issued again under a new id after a reconnect has the
same one, two identical calls that the model really asked for do not.

Keys are joined from texts that others choose, so each form says where one part ends: no two different calls have one key.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from handrail.contract.call import Call
from handrail.contract.definition import ToolDefinition
from handrail.schema.strict_json import canonical

_KEY = re.compile(r"provider:(?::(?=[0-9]*:)|[0-9]+:)?(.*)", re.DOTALL)
_HELD_KEY = re.compile(r"message:[^:]*:(.*)", re.DOTALL)


def id_in_message(call: Call) -> str | None:
    """The provider's id where it counts for the calls of one model message; None for any other."""
    return call.call_id if call.id_scope == "message" and call.call_id and is_text(call.call_id) else None


def held_key(hold_id: str, call_id: str) -> str:
    """What a held call is stored under if its id counts for one message: the id is shown, and nothing is looked up by it."""
    return f"message:{hold_id}:{call_id}"


def id_of_key(key: str) -> str:
    """The provider's id in a key that was made of one."""
    found = _KEY.fullmatch(key) or _HELD_KEY.fullmatch(key)
    return found[1] if found is not None else key


def is_text(call_id: object) -> bool:
    """Whether an id can be kept: a number, or half a surrogate, cannot, and so is no stable id."""
    if not isinstance(call_id, str):
        return False
    return call_id.isascii() or call_id == call_id.encode(errors="replace").decode()


def hash_key(tool: str, args: Mapping[str, Any], turn: int) -> str:
    """The key by content, for calls without a stable id."""
    return f"hash:{turn}:{sha256(canonical({'tool': tool, 'args': args, 'turn': turn})).hexdigest()[:16]}"


def args_digest(definition: ToolDefinition, args: Mapping[str, Any], canonical_args: bytes) -> str:
    """What two writing calls are compared by: their validated arguments, or the tool's `dedupeFields` of them."""
    if definition.dedupe_fields:
        return sha256(canonical({name: args[name] for name in definition.dedupe_fields if name in args})).hexdigest()
    return exact_digest(canonical_args)


def exact_digest(canonical_args: bytes) -> str:
    """What a person's yes or no is bound to: all of the validated arguments, whatever makes two calls the same booking."""
    return sha256(canonical_args).hexdigest()


def ledger_key(tenant: str, session: str, turn: int, tool: str, digest: str, ordinal: int) -> str:
    return sha256(canonical(["call-v1", tenant, session, turn, tool, digest, ordinal])).hexdigest()


def loop_key(canonical_args: bytes) -> bytes:
    """Arguments as the loop detector compares them: ways of writing the same letters count as the same."""
    if canonical_args.isascii():
        return canonical_args
    return unicodedata.normalize("NFC", canonical_args.decode()).encode()
