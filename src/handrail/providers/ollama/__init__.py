"""Ollama's chat API, on this machine or elsewhere."""

from __future__ import annotations

from handrail.providers.provider import ModelClient, Provider

CLIENT = ModelClient(
    opener="handrail.providers.ollama.client:open_ollama",
    packages=("httpx2",),
    distribution="httpx2",
    versions=("2.16", None),
    extra="ollama",
    keys=("OLLAMA_API_KEY",),
    needs_key=False,
    address_variable="OLLAMA_HOST",
    default_address="http://127.0.0.1:11434",
    problem="handrail.providers.ollama.probe:ollama_problem",
)
OLLAMA = Provider(
    name="ollama",
    vendor="Ollama",
    adapter="handrail.providers.ollama.adapter",
    transport="handrail.providers.ollama.transport",
    client=CLIENT,
)
