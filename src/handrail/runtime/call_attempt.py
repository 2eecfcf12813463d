"""One attempt to run a call: what the gates look at on its way through the pipeline, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from handrail.contract.call import Call
from handrail.contract.envelope import ToolFailure
from handrail.contract.errors import ErrorType
from handrail.contract.frozen import FrozenDict
from handrail.contract.intents import Intent
from handrail.runtime.policy import GateName

if TYPE_CHECKING:
    from handrail.contract.store import LedgerRow
    from handrail.runtime.plan import ToolPlan
    from handrail.runtime.session import Session
    from handrail.runtime.turns import Ordinals, TurnRecord


@dataclass(frozen=True, slots=True)
class ConnectionReplaced(ToolFailure):
    """Nobody started the call, because its connection is no longer the session's. The call may be made on the next one."""


class RefusalRule(StrEnum):
    """The rules by which the writing path refuses. Validation refuses by the schema's own keywords, which are texts."""

    CONNECTION = "connection"
    """The call's connection was replaced."""
    ACTIVE = "active"
    """The session must be active."""
    BLOCK = "block"
    SWITCH = "switch"
    RATE_LIMIT = "rateLimit"
    REFUSALS = "refusals"
    """Too many refusals in one turn."""
    CALL_ID_REUSED = "call_id_reused"
    RUNNING = "running"
    """An earlier execution still runs."""
    UNKNOWN = "unknown"
    """It is not known whether an earlier execution has run."""
    STORE = "store"
    """The call could not be recorded."""
    INTERRUPT = "interrupt"
    LOAD = "load"
    """The handler could not be loaded."""
    DECLINED = "declined"
    GRANT = "grant"
    """There is no approval that this claim may use."""
    SUPERSEDED = "superseded"
    """The tool or its arguments have changed since a person was asked."""
    EXPIRED = "expired"
    """The request for a confirmation is no longer kept."""


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

    def failure(self) -> ToolFailure:
        """The refusal as the model reads it."""
        kind = ConnectionReplaced if self.rule is RefusalRule.CONNECTION else ToolFailure
        return kind(
            self.type,
            self.message,
            self.retryable,
            False,
            self.details,
            self.retry_after,
            None,
            self.suggestion,
        )


def replaced_connection(connection: int | None = None) -> Refusal:
    """The refusal whose failure is `ConnectionReplaced`."""
    message = "This connection was replaced by a newer one."
    return Refusal(GateName.SESSION, ErrorType.CONFLICT, message, rule=RefusalRule.CONNECTION, value=connection)


@dataclass(slots=True, eq=False)
class Write:
    """What only a writing or held call needs to know on its way."""

    interruptions: int
    """The user's interruptions before this call."""
    key: str = ""
    """The ledger key."""
    hold_id: str | None = None
    """The confirmation that a person gave for it."""
    fence: int = 0
    claimed: LedgerRow | None = None
    """The row that the claim has made."""
    taken: Ordinals = field(default_factory=dict)
    """Where its ordinal was taken, and is given back to if the call does not come to a claim."""
    takeover: LedgerRow | None = None
    """The execution that a dead process left, which this call continues."""
    left: bool = False
    """The caller has gone away."""
    uncertain: bool = False
    """The handler did not end in a way that tells what it has done."""


class _SeldomKnown:
    """What few calls come to know, as defaults of the class: the others do not even set it."""

    digest: str = ""
    exact: str = ""
    """The digest of all arguments; `digest` is that of the tool's `dedupeFields`, where it names some."""
    ordinal: int = 1
    requested: Mapping[str, Any] = FrozenDict()
    """The arguments before some of them were clamped; empty if none was."""
    asked_by: str | None = None
    """The gate of the host that wants a person to approve it."""
    rate_slot: int = 0
    """Where the unit of its rate limit was counted."""
    interrupted: bool = False


@dataclass(slots=True, eq=False)
class Attempt(_SeldomKnown):
    """The state of one call while it passes the pipeline."""

    session: Session
    call: Call
    plan: ToolPlan
    turn: TurnRecord
    started: float
    connection: int | None = None
    """The one that the call came on; None for an approval, which a person gives on none."""
    args: dict[str, Any] = field(default=FrozenDict(), init=False)
    raw_digest: bytes = field(default=b"", init=False)
    """The arguments in canonical form, as they came."""
    is_plain: bool = field(default=False, init=False)
    """orjson writes them so; see `read_arguments`."""
    canonical: bytes = field(default=b"", init=False)
    """The arguments in canonical form: validated, with defaults, clamped."""
    loop_key: bytes = field(default=b"", init=False)
    """The same as the loop detector compares them."""
    key: str = field(default="", init=False)
    has_stable_id: bool = field(default=False, init=False)
    """Whether the key is made of the provider's id, and not of its content."""
    validation: float = field(default=0.0, init=False)
    """How long the validator took, in seconds."""
    defaulted: tuple[str, ...] = field(default=(), init=False)
    clamped: tuple[str, ...] = field(default=(), init=False)
    repaired: bool = field(default=False, init=False)
    charged: bool = field(default=False, init=False)
    held: bool = field(default=False, init=False)
    """A person was asked about it; as a call it was counted then."""
    intents: list[Intent] | None = field(default=None, init=False)
    """What the handler asked for through its capabilities; None if nothing."""
    write: Write | None = field(default=None, init=False)
    handed_out: tuple[str, ...] = field(default=(), init=False, repr=False)
    """Tokens of the user that the handler was given: they leave the call by no way that others can read."""


Check = Callable[[Attempt], "Refusal | None"]
"""What a gate does for one tool: a refusal, or None to let the call pass."""
