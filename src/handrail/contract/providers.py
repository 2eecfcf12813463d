"""The names of the providers' formats: what callers, settings and artifacts may call them, in one place."""

from __future__ import annotations

PROVIDERS = (
    "openai-chat",
    "openai-responses",
    "openai-realtime",
    "gemini",
    "gemini-live",
    "anthropic",
    "ollama",
    "mcp",
)

ALIASES = {
    "openai": "openai-chat",
    "geminiNative": "gemini",
}
"""Names from before there was more than one format per vendor."""


def without_alias(provider: str) -> str:
    """The name that an alias stands for; any other name as it is, known or not."""
    return ALIASES.get(provider, provider)
