"""What the audit log says of a refused call. It is noted when the call is refused, and put together when its line is written, for
which no call waits. So what is noted here cannot change in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.call import Call
from handrail.contract.frozen import freeze
from handrail.contract.provenance import INPUT_BYTES, REDACTED, cut_input
from handrail.runtime.policy import GateName

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt, Refusal
    from handrail.runtime.plan import ToolPlan

Input = str | bytes | Mapping[str, Any]
"""What was sent: text as it came, JSON of an object, or the fields of the line where it is neither, or is long."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
_JSON_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def input_of(attempt: Attempt) -> Input:
    """What exactly was refused, for debugging. Where a tool has secrets, only what could be read and so be looked into."""
    return attempt.raw_digest if attempt.plan.redact is not None else _unchanging(attempt.call.args)


def unplanned_input(raw: Any, *, hides: bool) -> Input:
    """The same where no tool says what is secret. The log masks names in objects; in other text it cannot find them."""
    if hides and isinstance(raw, str):
        try:
            raw = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return {"input": REDACTED}
    return _unchanging(raw)


def _unchanging(raw: Any) -> Input:
    if type(raw) is str:
        return raw if len(raw) <= INPUT_BYTES else cut_input(raw)
    try:
        data = orjson.dumps(raw, option=_JSON_ONLY)
    except TypeError:
        data = b""
    if 0 < len(data) <= INPUT_BYTES:
        return data
    kept = cut_input(raw)
    return {**kept, "input": freeze(kept["input"])}


def message_of(attempt: Attempt, refusal: Refusal) -> str:
    """What the model has got; without values, which messages about arguments quote, where some of them must not be shown."""
    redact = attempt.plan.redact
    repeated = refusal.rule == "refusals"
    if redact is None or not (repeated or refusal.gate in (GateName.PARSE, GateName.VALIDATE)):
        return refusal.message
    if refusal.gate is GateName.VALIDATE and redact(attempt.args) == attempt.args:
        return refusal.message
    where = [f"{one.get('pointer') or '/'} ({one.get('keyword') or one.get('code')})" for one in refusal.details[:5]]
    what = f"{refusal.value} calls of this turn" if repeated else "The arguments"
    return (
        f"{what} were refused{' at ' + ', '.join(where) if where else ''}; why is not shown, because values are hidden."
    )


def unchanging(refusal: Refusal) -> Refusal:
    """The refusal, if nobody else can change what it is about; a copy otherwise."""
    if type(refusal.value) in _PLAIN and type(refusal.limit) in _PLAIN:
        return refusal
    return refusal._replace(value=freeze(refusal.value), limit=freeze(refusal.limit))


def refusal_fields(refusal: Refusal, message: str) -> dict[str, Any]:
    return {
        "ok": False,
        "errorType": refusal.type.value,
        "gate": str(refusal.gate),
        "rule": str(refusal.rule),
        "value": refusal.value,
        "limit": refusal.limit,
        "message": message,
    }


def refused_call(
    who: Mapping[str, Any],
    plan: ToolPlan,
    call: Call,
    key: str,
    refusal: Refusal,
    message: str,
    sent: Input,
    validation: float,
    duration: float,
) -> dict[str, Any]:
    """The fields of the line of a call that a gate has refused."""
    if plan.redact is not None and isinstance(sent, bytes):
        sent = cut_input(plan.redact(orjson.loads(sent) if sent else ""))
    return {
        **who,
        "callId": call.call_id,
        "idempotencyKey": key,
        "toolId": plan.tool_id,
        "toolVersion": plan.version,
        "category": plan.definition.category,
        "provider": call.provider,
        "duration": duration,
        **refusal_fields(refusal, message),
        **_input_fields(sent),
        "validator": plan.audit_fields["validator"],
        **({"validatorMs": round(validation * 1000, 4)} if validation else {}),
    }


def refused_name(who: Mapping[str, Any], call: Call, refusal: Refusal, sent: Input, duration: float) -> dict[str, Any]:
    """The same of a call for which no tool was found, or none was looked for."""
    return {
        **who,
        "callId": call.call_id,
        "toolId": call.name[:128] if isinstance(call.name, str) else None,
        "provider": call.provider,
        "duration": duration,
        **_input_fields(sent),
        **refusal_fields(refusal, refusal.message),
    }


def _input_fields(sent: Input) -> Mapping[str, Any]:
    if isinstance(sent, Mapping):
        return sent
    return cut_input(orjson.loads(sent) if isinstance(sent, bytes) else sent)
