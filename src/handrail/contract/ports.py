"""Small ports through which the runtime reaches the outside: the audit, metrics, and the clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from handrail.contract.store import AuditedFact, AuditPosition, AuditSubject


class CallRecord(NamedTuple):
    """One call, as the metrics and the audit log are told of it. Nothing in it changes, so both may look at it later."""

    session_id: str
    tool_id: str
    duration: float
    """In milliseconds."""
    error_type: str | None
    """None: it succeeded."""
    size: int
    """Of its data as JSON, in bytes."""
    event: str
    """What its audit line is called."""
    time: float
    tool: Mapping[str, Any]
    """The fields that the lines of all calls of the tool have in common."""
    turn: int
    connection: int
    mode: str
    provider: str | None
    call_id: str | None
    key: str
    args: bytes
    """In canonical form."""
    defaulted: tuple[str, ...]
    """The pointers of the arguments that were filled in."""
    redact: Callable[[Any], Any] | None
    """Hides what the arguments hold of secrets."""
    more: Mapping[str, Any] | None
    """Further fields of the line."""
    subject: AuditSubject | None
    """Whose words are sealed in the line; None: nobody's."""


class AuditPort(Protocol):
    """Where every decision is written down. `emit` neither blocks nor raises."""

    @property
    def healthy(self) -> bool:
        """False while lines cannot be written; writing tools are refused then."""
        ...

    def emit(self, event: str, fields: Mapping[str, Any]) -> None: ...
    @property
    def clock(self) -> Callable[[], float]:
        """The time that lines are written with, in seconds since 1970."""
        ...

    @property
    def note(self) -> Callable[[CallRecord], object]:
        """`emit` for a call, in no time."""
        ...

    def flush(self) -> bool:
        """Write what is buffered; whether everything is written."""
        ...

    def close(self) -> object: ...


@runtime_checkable
class DurableAudit(Protocol):
    """What an audit log offers beside `AuditPort` if its lines may outlive the process."""

    @property
    def is_durable(self) -> bool: ...
    @property
    def position(self) -> AuditPosition | None:
        """The last line that was written."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether something waits to be written."""
        ...

    def flush(self, *, to_disk: bool = False) -> bool:
        """Write what waits, and with `to_disk` wait until the disk has it; whether it has."""
        ...

    def leads_to_here(self, known: AuditPosition) -> bool:
        """Whether the line of an earlier checkpoint of this chain is still there."""
        ...

    def seal(self, data: bytes) -> str:
        """The hash of `data`, keyed as those of the lines are."""
        ...

    def emit_for(
        self, subject: AuditSubject, event: str, fields: Mapping[str, Any], *, private: Collection[str] = ()
    ) -> None:
        """`AuditPort.emit` of an event in which a user's words are sealed, the fields in `private` too."""
        ...

    def audited(self, keys: Collection[str], since: float) -> set[str]:
        """Those of the ledger keys whose execution has a line, in whatever was written since then."""
        ...

    def newest_facts(self) -> list[AuditedFact]:
        """What the newest lines say that the store must know."""
        ...

    def end(self) -> bool:
        """Write everything and close the log; whether everything is written."""
        ...


class MetricsPort(Protocol):
    def record(self, tool_id: str, duration_ms: float, ok: bool, error_type: str | None, size_chars: int) -> None: ...
    def held(self, tool_id: str) -> None:
        """A call waits for a person. It is one call, however it goes on."""
        ...

    def ran_held(
        self, session_id: str, tool_id: str, duration_ms: float, error_type: str | None, size_chars: int
    ) -> None:
        """How a call ended that was held before."""
        ...

    def straggling(self, tool_id: str, running: int) -> None:
        """So many handlers of a tool go on after their deadlines now."""
        ...

    def refused_held(self, tool_id: str, duration_ms: float, error_type: str) -> None: ...
    def session_opened(self, session_id: str) -> None: ...
    def session_closed(self, session_id: str) -> None: ...
    def turn_started(self, session_id: str) -> None: ...
    def session_call(self, session_id: str) -> None: ...
    @property
    def note(self) -> Callable[[CallRecord], object]:
        """`record` and `session_call` for one call that ran, in no time."""
        ...

    def fold(self) -> None:
        """Count what was noted."""
        ...


class Clock(Protocol):
    """Time as the runtime sees it: `time` in seconds since 1970, `monotonic` for durations."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
