"""OpenTelemetry: turns, model calls and tool calls as spans by the GenAI conventions, and the duration of tool calls as a
histogram. It needs `handrail[otel]` and an SDK, which the host has configured or `OTEL_*` describes; otherwise nothing of
OpenTelemetry is imported and the runtime has no tracing at all. No argument, result, prompt or exception text goes into a span.

The conventions are still in development, so their names stand here as they are used.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import install_command
from handrail.contract.ports import CallFacts, ChatOutcome
from handrail.observe.otel_metrics import TOOL_VERSION, MetricSource, observe

_SCOPE = "handrail"
_LOG = logging.getLogger("handrail.tracing")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Tracing:
    """The port `TracingPort` on OpenTelemetry. `owned` are providers that it made itself, and shuts down."""

    def __init__(self, tracer_provider: Any = None, meter_provider: Any = None, owned: tuple[Any, ...] = ()) -> None:
        self._trace = trace = import_module("opentelemetry.trace")
        self._propagate = import_module("opentelemetry.propagate")
        self._context = import_module("opentelemetry.context")
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._error = trace.Status(trace.StatusCode.ERROR)
        self._metrics = import_module("opentelemetry.metrics")
        self._meter = meter = self._metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="Duration of tool calls.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._owned = owned

    def observe(self, source: MetricSource) -> None:
        """Send what `/metrics` tells, too. Its numbers are asked for by a thread of the SDK, as long as it is there."""
        observe(self._meter, self._metrics.Observation, source)

    # ----------------------------------------------------------------------------------------------------- turns
    def begin_turn(self, session_id: str, turn: int, mode: str) -> object:
        """The span of a turn, under whatever is current: a request that named its trace, or a span of the host."""
        return self._tracer.start_span(
            "invoke_agent",
            kind=self._trace.SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.conversation.id": session_id,
                "handrail.turn": turn,
                "handrail.mode": mode,
            },
        )

    def end_turn(self, span: Any, calls: int, tool_ms: float, refusals: int) -> None:
        span.set_attributes({"handrail.calls": calls, "handrail.tool_ms": tool_ms, "handrail.refusals": refusals})
        span.end()

    # ----------------------------------------------------------------------------------------------------- calls
    @contextmanager
    def execute_tool(self, parent: Any, facts: CallFacts) -> Iterator[ToolSpan]:
        """A span around one call, under the span of its turn; what the handler traces becomes its child."""
        name = facts.tool if facts.is_known else "(unknown)"
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": facts.call_id,
            "gen_ai.tool.description": facts.description,
            "gen_ai.conversation.id": facts.session_id,
            TOOL_VERSION: facts.version,
            "handrail.turn": facts.turn,
            "handrail.connection": facts.connection,
            "handrail.mode": facts.mode,
            "handrail.provider": facts.provider,
        }
        started = facts.clock()
        span = ToolSpan(name, facts.version, self._error)
        with self._tracer.start_as_current_span(
            f"execute_tool {name}",
            context=None if parent is None else self._trace.set_span_in_context(parent),
            kind=self._trace.SpanKind.INTERNAL,
            attributes={name: value for name, value in attributes.items() if value is not None},
            record_exception=False,
            set_status_on_exception=False,
        ) as span.span:
            try:
                yield span
            except BaseException as error:
                span.fail(type(error).__qualname__)  # its name only: the text may hold arguments
                raise
            finally:
                self._durations.record(facts.clock() - started, span.measured)

    def refused_by(self, gate: str) -> None:
        """The call that is current was refused by this gate."""
        self._trace.get_current_span().set_attribute("handrail.gate", gate)

    # ---------------------------------------------------------------------------------------------------- models
    def begin_chat(self, parent: Any, provider: str, model: str, *, began: int | None = None) -> object:
        """The span of one request to a model, under that of its turn."""
        return self._tracer.start_span(
            f"chat {model}",
            context=None if parent is None else self._trace.set_span_in_context(parent),
            kind=self._trace.SpanKind.CLIENT,
            start_time=began,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": model,
            },
        )

    def end_chat(self, span: Any, outcome: ChatOutcome, *, ended: int | None = None) -> None:
        if outcome.input_tokens or outcome.output_tokens:
            span.set_attribute("gen_ai.usage.input_tokens", outcome.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", outcome.output_tokens)
        if outcome.finish_reason is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [outcome.finish_reason])
        if outcome.error is not None:
            span.set_attribute("error.type", outcome.error)
            span.set_status(self._error)
        span.end(ended)

    # --------------------------------------------------------------------------------------------------- context
    @contextmanager
    def received(self, headers: Mapping[str, str]) -> Iterator[None]:
        """What begins in here belongs to the trace that a request names (`traceparent`), if it names one."""
        token = self._context.attach(self._propagate.extract(headers))
        try:
            yield
        finally:
            self._context.detach(token)

    def headers(self) -> dict[str, str]:
        """What a request to a service carries, so that it belongs to the current trace."""
        return trace_headers()

    def close(self) -> None:
        """Send what waits, and stop the providers that were made here."""
        for provider in self._owned:
            provider.shutdown()


class ToolSpan:
    """The span of one call, and what its duration is counted by."""

    __slots__ = ("_error", "measured", "span")

    def __init__(self, tool: str, version: str | None, error: Any) -> None:
        self.span: Any = None
        self.measured: dict[str, str] = {"gen_ai.tool.name": tool}
        if version is not None:
            self.measured[TOOL_VERSION] = version
        self._error = error

    def settle(self, answer: ToolResponse) -> None:
        """How the call ended: its error type, whether it is held, whether it was answered from an earlier run."""
        for name in ("replayed", "clamped", "repaired", "truncated"):
            if answer.meta.get(name):
                self.span.set_attribute(f"handrail.{name}", True)
        error = answer.error
        if error is not None and error.confirmation_request is not None:
            self.span.set_attribute("handrail.held", True)
        elif error is not None:
            self.fail(error.type.value)

    def fail(self, error_type: str) -> None:
        self.measured["error.type"] = error_type
        self.span.set_attribute("error.type", error_type)
        self.span.set_status(self._error)


def trace_headers() -> dict[str, str]:
    """What a service adds to the headers of a request, so that it belongs to the trace of the call that it works for; empty
    without tracing. In a thread of one's own, the context has to be copied there (`contextvars`)."""
    propagate = sys.modules.get("opentelemetry.propagate")
    carrier: dict[str, str] = {}
    if propagate is not None:
        propagate.inject(carrier)
    return carrier


def tracing_or_none() -> Tracing | None:
    """Tracing for a host that has configured an SDK; None if it has not. Nothing is imported to find out."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    return Tracing()


def tracing_of(environment: Mapping[str, str]) -> Tracing | None:
    """Traces and metrics as `OTEL_*` describes them, sent by OTLP over HTTP, each unless its exporter is `none`. None if there is
    no endpoint for either, or the packages are missing."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    traced, measured = (not is_off and _is_sent(environment, signal) for signal in ("TRACES", "METRICS"))
    if not (traced or measured):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415  # an extra
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.metrics import NoOpMeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import NoOpTracerProvider  # noqa: PLC0415
    except ImportError:
        _LOG.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is traced: "
            f'tracing needs the extra "otel"; run {install_command("handrail[otel]")}.'
        )
        return None
    owned: list[Any] = []
    spans: Any = NoOpTracerProvider()
    if traced:
        spans = TracerProvider(shutdown_on_exit=False)
        spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        owned.append(spans)
    numbers: Any = NoOpMeterProvider()
    if measured:
        numbers = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], shutdown_on_exit=False)
        owned.append(numbers)
    return Tracing(spans, numbers, tuple(owned))


def _is_sent(environment: Mapping[str, str], signal: str) -> bool:
    named = [environment.get(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT", "") for part in ("", f"{signal}_")]
    return any(named) and environment.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"
