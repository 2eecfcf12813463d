"""Small ports through which the runtime reaches the outside: the audit, metrics, and the clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from handrail.contract.envelope import ToolResponse
from handrail.contract.store import AuditedFact, AuditPosition, AuditSubject
from handrail.contract.usage import UsageStore


class CallRecord(NamedTuple):
    """One call, as the metrics and the audit log get it. Nothing in it changes, so both may look at it later."""

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
    tenant: str = ""
    raw: Any = None
    """The arguments as the provider sent them, where that was text."""
    parsed: bytes = b""
    """As they were read, before defaults, clamps and repaired types, in canonical form."""
    validation: float = 0.0
    """How long the validator took, in seconds."""


CallParts = tuple[Any, ...]
"""A `CallRecord` as a plain tuple, which is made in half the time: every call makes one. `CallRecord._make` names its parts."""


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
    def note(self) -> Callable[[CallParts], object]:
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

    def emit_later(
        self,
        event: str,
        fields: Callable[[], dict[str, Any]],
        subject: AuditSubject | None,
        *,
        private: Collection[str] = (),
        size: int = 0,
    ) -> None:
        """An event whose fields are asked for when its line is written, on another thread; so they are made of what does not
        change. A subject's words are sealed as by `emit_for`. `size`: about how long the fields are."""
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
    @property
    def refused(self) -> Callable[[tuple[str, float, str]], object]:
        """A call of this tool was refused after these milliseconds, as this error."""
        ...

    def held(self, tool_id: str) -> None:
        """A call waits for a person. It is one call, however it continues."""
        ...

    def ran_held(
        self, session_id: str, tool_id: str, duration_ms: float, error_type: str | None, size_chars: int
    ) -> None:
        """How a call ended that was held before."""
        ...

    def straggling(self, tool_id: str, running: int) -> None:
        """How many handlers of a tool still run after their deadlines now."""
        ...

    def refused_held(self, tool_id: str, duration_ms: float, error_type: str) -> None: ...
    def session_opened(self, session_id: str) -> None: ...
    def session_closed(self, session_id: str) -> None: ...
    def turn_started(self, session_id: str) -> None: ...
    @property
    def turn_ended(self) -> Callable[[tuple[str, float]], object]:
        """A turn of this mode has ended, in which tools ran for this time in milliseconds."""
        ...

    def session_call(self, session_id: str) -> None: ...
    @property
    def note(self) -> Callable[[CallParts], object]:
        """`record` and `session_call` for one call that ran, in no time."""
        ...

    def fold(self) -> None:
        """Count what was noted."""
        ...


class UsageKind(Enum):
    """What the statistics by day count beside executions."""

    REFUSED = "refused"
    HELD = "held"
    """A call waits for a person."""
    DECLINED = "declined"
    """A person has said no."""
    REPLAYED = "replayed"
    TURN_ENDED = "turn ended"
    SESSION_CLOSED = "session closed"


class UsageEvent(NamedTuple):
    """Something that is counted. The tool is empty where there is none, or where its name was made up by a model."""

    kind: UsageKind
    time: float
    session_id: str
    tenant: str = ""
    turn: int = 0
    tool: str = ""
    version: str = ""
    gate: str = ""
    error_type: str = ""
    was_held: bool = False
    """As a call it was counted before."""
    interrupted: bool = False


class UsagePort(Protocol):
    """Where the statistics by day are counted. Executions reach it when the metrics are folded."""

    @property
    def note(self) -> Callable[[UsageEvent], object]: ...
    def executed(self, record: CallRecord, *, was_held: bool = False) -> None: ...
    async def store(self, store: UsageStore, *, now: float | None = None) -> None:
        """Store what was counted, if it is time for it; without `now`, in any case."""
        ...

    async def close(self, store: UsageStore) -> None:
        """Store everything, also what is counted when a session ends."""
        ...


class CallFacts(NamedTuple):
    """A call as its span gets it. Nothing of what was said is among it."""

    tool: str
    is_known: bool
    """False where no tool has that name: a name that a model made up may hold anything."""
    version: str | None
    description: str | None
    call_id: str | None
    session_id: str
    turn: int
    connection: int
    mode: str
    provider: str | None
    clock: Callable[[], float]
    """Gives seconds."""


class ChatOutcome(NamedTuple):
    """How a request to a model ended."""

    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None
    error: str | None = None
    """The kind of failure, without its text."""


class CallSpan(Protocol):
    """The span of a call that is under way."""

    def settle(self, answer: ToolResponse) -> None: ...


class TracingPort(Protocol):
    """Where turns, model calls and tool calls are traced. A span is whatever `begin_turn` and `begin_chat` give."""

    def begin_turn(self, session_id: str, turn: int, mode: str) -> object: ...
    def end_turn(self, span: Any, calls: int, tool_ms: float, refusals: int) -> None: ...
    def execute_tool(self, parent: Any, facts: CallFacts) -> AbstractContextManager[CallSpan]: ...
    def refused_by(self, gate: str) -> None: ...
    def begin_chat(self, parent: Any, provider: str, model: str, *, began: int | None = None) -> object:
        """`began` and `ended` are nanoseconds since 1970, where that was before now."""
        ...

    def end_chat(self, span: Any, outcome: ChatOutcome, *, ended: int | None = None) -> None: ...
    def received(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """What begins in here belongs to the trace that these headers of a request name."""
        ...

    def headers(self) -> dict[str, str]:
        """What a request to a service carries, so that it belongs to the current trace."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Time as the runtime sees it: `time` in seconds since 1970, `monotonic` for durations."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
