"""What is told of a held call: to the user's channel while it is open, and to whoever answers it too late."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType
from handrail.contract.events import ConfirmationWanted
from handrail.contract.store import Hold, HoldState
from handrail.runtime.known_calls import args_digest
from handrail.runtime.turns import TurnRecord

if TYPE_CHECKING:
    from handrail.runtime.session import Session

OPEN = (HoldState.PENDING, HoldState.APPROVED)
REPLACED_MARK = "A newer request has replaced this one. Approve it only if you want both."
"""What a person is told of an open request with `replacedBy`."""


def request_of(hold: Hold) -> dict[str, Any]:
    """What everyone may see of a held call; the secret is not in it."""
    return {
        "id": hold.hold_id,
        "tool": hold.tool,
        "args": orjson.loads(hold.args),
        "preview": hold.preview,
        "expires_at": hold.expires_at,
    }


def shown_to_user(hold: Hold, token: str) -> dict[str, Any]:
    """What the user's channel is shown of it: the secret, where it may be answered, and the newer request that replaced it."""
    return {**request_of(hold), "token": token, "channel": hold.channel, "replacedBy": hold.replaced_by}


def confirmation_event(shown: Mapping[str, Any]) -> ConfirmationWanted:
    """What `shown_to_user` gives, as an event."""
    named = {name: value for name, value in shown.items() if name != "replacedBy"}
    return ConfirmationWanted(**named, replaced_by=shown["replacedBy"])


def shown_digest(hold: Hold, facts: str) -> str:
    """Stands for what a person sees of it. A token keeps it, so that its approval is for this and nothing else.

    `facts` are those of the tool's own `preview`, uncut: the preview may show only their beginning.
    """
    mark = b"replaced" if hold.replaced_by is not None else b""
    parts = (mark, hold.preview.encode("utf-8", "surrogatepass"), facts.encode("utf-8", "surrogatepass"))
    return sha256(b"\0".join(sha256(part).digest() for part in parts)).hexdigest()


def take_ordinal_of(session: Session, turn: TurnRecord, hold: Hold) -> None:
    """A held call that the model still knows takes its ordinal in its turn, as one that ran does."""
    plan = session.plans.find(hold.tool)
    if plan is not None and hold.turn == turn.number:
        digest = args_digest(plan.definition, orjson.loads(hold.args), hold.args.encode())
        turn.ordinals.setdefault((hold.tool, digest), {}).setdefault(hold.ordinal, None)


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
