"""The audit line of a call, made when it is written: the call itself only leaves a `CallRecord`, in no time."""

from __future__ import annotations

from typing import Any

import orjson

from handrail.contract.ports import CallRecord


def fields_of(record: CallRecord) -> dict[str, Any]:
    """The fields of the line, in the order in which they stand in it."""
    # Taken apart at once: a name of a tuple costs more than a place.
    session_id, _, duration, error_type, _, _, _, tool, turn, connection, mode, provider, call_id, key = record[:14]
    args, defaulted, redact, more, _ = record[14:]
    fields: dict[str, Any] = {
        "sessionId": session_id,
        "turnId": turn,
        "connection": connection,
        "mode": mode,
        "provider": provider,
        **tool,
        "callId": call_id,
        "idempotencyKey": key,
        "duration": duration,
        "ok": error_type is None,
        "errorType": error_type,
        "args": orjson.Fragment(args) if redact is None else redact(orjson.loads(args)),
    }
    if defaulted:
        fields["defaulted"] = defaulted
    if more is not None:
        fields.update(more)
    return fields
