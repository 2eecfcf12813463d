"""Small ports through which the runtime reaches the outside: the audit, metrics, and the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Facts = tuple[Any, ...]


class AuditPort(Protocol):
    """Where every decision is written down. `emit` neither blocks nor raises."""

    @property
    def healthy(self) -> bool:
        """False while lines cannot be written; writing tools are refused then."""
        ...

    def emit(self, event: str, fields: Mapping[str, Any]) -> None: ...
    def emit_later(self, event: str, fields: Callable[[Facts], Mapping[str, Any]], facts: Facts) -> None:
        """The same for facts that never change: `fields(facts)` is asked for when the line is written."""
        ...

    def flush(self) -> bool:
        """Write what is buffered; whether everything is written."""
        ...

    def close(self) -> object: ...


class MetricsPort(Protocol):
    def record(self, tool_id: str, duration_ms: float, ok: bool, error_type: str | None, size_chars: int) -> None: ...
    def session_opened(self, session_id: str) -> None: ...
    def session_closed(self, session_id: str) -> None: ...
    def turn_started(self, session_id: str) -> None: ...
    def session_call(self, session_id: str) -> None: ...
    def call(self, session_id: str, tool_id: str, duration_ms: float, error_type: str | None, size_chars: int) -> None:
        """`record` and `session_call` for one call that ran."""
        ...


class Clock(Protocol):
    """Time as the runtime sees it: `time` in seconds since 1970, `monotonic` for durations."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...
