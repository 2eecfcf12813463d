"""What is told of a held call: to the user's channel while it is open, and to whoever answers it too late."""

from __future__ import annotations

from typing import Any

import orjson

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.store import Hold, HoldState
from handrail.runtime.keys import exact_digest
from handrail.runtime.pipeline import failure_from
from handrail.runtime.recorded import declined
from handrail.runtime.turn import Pair

OPEN = (HoldState.PENDING, HoldState.APPROVED)


def pair_of(hold: Hold) -> Pair:
    """What a session finds it by. Made from the arguments: older versions have stored the digest of `dedupeFields`."""
    return hold.tool, exact_digest(hold.args.encode())


def request_of(hold: Hold) -> dict[str, Any]:
    """What everyone may see of a held call; the secret is not in it."""
    return {
        "id": hold.hold_id,
        "tool": hold.tool,
        "args": orjson.loads(hold.args),
        "preview": hold.preview,
        "expires_at": hold.expires_at,
    }


def call_id_of(hold: Hold) -> str | None:
    return hold.alias.call_id.removeprefix("provider:") if hold.alias else None


def declined_answer(hold: Hold) -> ToolResponse:
    return ToolResponse(False, None, failure_from(declined(hold.tool)), (), {"toolId": hold.tool})


def closed_answer(hold: Hold) -> ToolResponse:
    words = {
        HoldState.EXPIRED: (ErrorType.CONFLICT, "This request has expired; nothing was run."),
        HoldState.DECLINED: (ErrorType.DECLINED, "This request was declined; nothing was run."),
        HoldState.SUPERSEDED: (
            ErrorType.CONFLICT,
            "This request was replaced, because the tool or its arguments changed; nothing was run.",
        ),
    }
    kind, message = words.get(hold.state, (ErrorType.CONFLICT, "This request can no longer be answered."))
    return ToolResponse.failure(kind, message)
