"""The frameworks record what their agents do at services of their own, where the environment says so. Not from here."""

import pytest


@pytest.fixture(autouse=True)
def nothing_is_recorded_elsewhere(monkeypatch):
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    for name in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "false")
