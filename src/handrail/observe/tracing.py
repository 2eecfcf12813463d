"""OpenTelemetry spans of tool calls, by the GenAI conventions, when `handrail[otel]` is installed. Without it
`tracer_or_none` gives None and nothing is imported. No argument, result or exception text goes into a span.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_SCOPE = "handrail"


class ToolSpan:
    """The span of one call. `settle` says how it ended; one that is not settled ended well."""

    __slots__ = ("_error", "_span")

    def __init__(self, span: Any, error: Any) -> None:
        self._span = span
        self._error = error

    def settle(
        self, *, error_type: str | None = None, gate: str | None = None, replayed: bool = False, held: bool = False
    ) -> None:
        """How the call ended: its error type, the gate that refused it, whether it was answered from an earlier run."""
        facts: dict[str, Any] = {}
        if gate is not None:
            facts["handrail.gate"] = gate
        if replayed:
            facts["handrail.replayed"] = True
        if held:
            facts["handrail.held"] = True
        if error_type is not None:
            facts["error.type"] = str(error_type)
            self._span.set_status(self._error)
        self._span.set_attributes(facts)


class ToolTracer:
    """Makes the spans of tool calls."""

    __slots__ = ("_error", "_internal", "_tracer")

    def __init__(self, trace: Any, provider: Any = None) -> None:
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=provider)
        self._error = trace.Status(trace.StatusCode.ERROR)
        self._internal = trace.SpanKind.INTERNAL

    @contextmanager
    def execute_tool(
        self,
        tool: str,
        *,
        call_id: str | None = None,
        description: str | None = None,
        session_id: str | None = None,
        turn: int | None = None,
        connection: int | None = None,
        mode: str | None = None,
        provider: str | None = None,
    ) -> Iterator[ToolSpan]:
        """A span around one call; what the handler traces becomes its child."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.description": description,
            "gen_ai.conversation.id": session_id,
            "handrail.turn": turn,
            "handrail.connection": connection,
            "handrail.mode": mode,
            "handrail.provider": provider,
        }
        known = {name: value for name, value in attributes.items() if value is not None}
        with self._tracer.start_as_current_span(
            f"execute_tool {tool}",
            kind=self._internal,
            attributes=known,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            wrapped = ToolSpan(span, self._error)
            try:
                yield wrapped
            except BaseException as error:
                # Its name only: the text may hold arguments.
                wrapped.settle(error_type=type(error).__qualname__)
                raise


def tracer_or_none(provider: Any = None) -> ToolTracer | None:
    """The tracer, bound to `provider` or to the global one; None where OpenTelemetry is not installed."""
    try:
        trace = import_module("opentelemetry.trace")
    except ImportError:
        return None
    return ToolTracer(trace, provider)
