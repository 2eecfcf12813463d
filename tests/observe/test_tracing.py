"""Spans of tool calls follow the GenAI conventions, and hold no argument, result or exception text."""

import subprocess
import sys

import pytest

from handrail.observe.tracing import tracer_or_none


@pytest.fixture
def exporter():
    return pytest.importorskip(
        "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason="opentelemetry-sdk is not installed"
    ).InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    yield made
    made.shutdown()


def test_a_call_is_a_span_with_the_attributes_of_the_conventions(provider, exporter):
    tracer = tracer_or_none(provider)
    with tracer.execute_tool(
        "kb_search", call_id="c1", session_id="s1", turn=3, mode="voice", provider="gemini"
    ) as span:
        span.settle(replayed=True)
    (told,) = exporter.get_finished_spans()
    assert told.name == "execute_tool kb_search"
    assert told.kind.name == "INTERNAL"
    assert dict(told.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "kb_search",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.conversation.id": "s1",
        "handrail.turn": 3,
        "handrail.mode": "voice",
        "handrail.provider": "gemini",
        "handrail.replayed": True,
    }
    assert told.status.is_unset


def test_a_refused_call_has_its_error_type_and_gate(provider, exporter):
    with tracer_or_none(provider).execute_tool("kb_search") as span:
        span.settle(error_type="BUDGET_EXCEEDED", gate="budget")
    (told,) = exporter.get_finished_spans()
    assert told.attributes["error.type"] == "BUDGET_EXCEEDED"
    assert told.attributes["handrail.gate"] == "budget"
    assert told.status.status_code.name == "ERROR"


def test_an_exception_is_named_but_not_quoted(provider, exporter):
    with pytest.raises(ValueError, match="secret"), tracer_or_none(provider).execute_tool("kb_search"):
        raise ValueError("a secret")
    (told,) = exporter.get_finished_spans()
    assert told.attributes["error.type"] == "ValueError"
    assert told.status.status_code.name == "ERROR"
    assert "secret" not in told.to_json()


def test_what_a_handler_traces_is_a_child(provider, exporter):
    with tracer_or_none(provider).execute_tool("kb_search"):
        provider.get_tracer("handler").start_span("query").end()
    child, parent = exporter.get_finished_spans()
    assert child.parent.span_id == parent.context.span_id


def test_without_opentelemetry_there_is_no_tracer(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert tracer_or_none() is None


def test_importing_the_module_imports_no_opentelemetry():
    program = (
        "import sys, handrail.observe.tracing; print([name for name in sys.modules if name.startswith('opentele')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
