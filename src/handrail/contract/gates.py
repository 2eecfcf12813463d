"""Gates of a host's own: what they see of a call, and what they may say to it. docs/gates.md has the rules and an example.

A host's gate runs after Handrail has validated and clamped the arguments, and before a person is asked or anything is claimed.
It can stop a call or send it to a person. It cannot change one, and nothing it says lets a call pass that would be refused
without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from handrail.contract.definition import Mode
from handrail.contract.errors import ErrorType


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCall:
    """A call as a gate sees it. Nothing in it can be changed, the arguments to their last member."""

    tool_id: str
    tool_version: str
    category: str
    writes: bool
    idempotent: bool
    args: Mapping[str, Any]
    """Validated, with defaults filled in, clamped: what the handler will be given."""
    call_id: str | None
    provider: str | None
    session_id: str
    user: str | None
    tenant: str
    mode: Mode
    attributes: Mapping[str, Any]
    """What the host says of the session."""
    turn: int
    held: bool = False
    """A person was asked about the call, and it is checked again."""


REFUSALS = frozenset(
    {
        *(ErrorType.UNAVAILABLE, ErrorType.AUTH, ErrorType.RATE_LIMIT, ErrorType.BUDGET_EXCEEDED),
        *(ErrorType.VALIDATION, ErrorType.MODE_RESTRICTED, ErrorType.CONFLICT, ErrorType.NOT_FOUND),
    }
)
"""What a gate may answer with. The other types say something about an execution, or a person, that no gate knows."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call does not run. `message` is for the model: it says what is wrong and what to do instead."""

    message: str
    type: ErrorType = ErrorType.UNAVAILABLE
    suggestion: str | None = None
    retry_after: float | None = None
    """Seconds after which the same call may pass."""
    rule: str = ""
    """For the operator, in the audit line: which of the gate's rules it was."""

    def __post_init__(self) -> None:
        if not isinstance(self.message, str) or not self.message.strip():
            raise ValueError("A refusal needs a message that the model can act on.")
        if self.type not in REFUSALS:
            raise ValueError(f"A gate refuses with {', '.join(sorted(REFUSALS))}; {self.type!r} is none of them.")
        object.__setattr__(self, "type", ErrorType(self.type))


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A person has to approve the call. `reason` is for the operator, in the audit line."""

    reason: str = ""


@runtime_checkable
class Gate(Protocol):
    """A host's own policy check, given by `Runtime(gates=[…])` or `[gates]` in `handrail.toml`."""

    @property
    def name(self) -> str:
        """What the audit calls it: small letters, digits and underscores, and the name of no other gate."""
        ...

    def check(self, call: GatedCall) -> Refuse | AskPerson | None:
        """None lets the call continue to the next gate. It must not wait; an exception refuses the call."""
        ...
