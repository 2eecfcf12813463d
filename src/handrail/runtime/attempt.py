"""One attempt to run a call: what the gates look at on its way through the pipeline, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from handrail.contract.call import Call
from handrail.contract.errors import ErrorType

if TYPE_CHECKING:
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session
    from handrail.runtime.turn import Turn


class Refusal(NamedTuple):
    """Why a gate does not let a call pass: for the model (type, message) and for the operator (gate, rule, value, limit)."""

    gate: str
    type: ErrorType
    message: str
    rule: str = ""
    value: Any = None
    limit: Any = None
    retry_after: float | None = None
    suggestion: str | None = None
    details: Sequence[Mapping[str, Any]] = ()
    retryable: bool = False


class Attempt:
    """The state of one call while it passes the pipeline."""

    __slots__ = (
        "args",
        "call",
        "canonical",
        "charged",
        "clamped",
        "defaulted",
        "digest",
        "interrupted",
        "key",
        "loop_key",
        "ordinal",
        "plan",
        "raw_digest",
        "repaired",
        "session",
        "started",
        "turn",
    )

    def __init__(self, session: Session, call: Call, plan: ToolPlan, turn: Turn, started: float) -> None:
        self.session = session
        self.call = call
        self.plan = plan
        self.turn = turn
        self.started = started
        self.args: dict[str, Any] = {}
        self.canonical = b""
        self.digest = ""
        self.raw_digest: bytes = b""
        self.key = ""
        self.ordinal = 1
        self.loop_key = b""
        self.defaulted: tuple[str, ...] = ()
        self.clamped: tuple[str, ...] = ()
        self.repaired = False
        self.charged = False
        self.interrupted = False


Gate = Callable[[Attempt], "Refusal | None"]
"""One policy check: a refusal, or None to let the call pass."""
