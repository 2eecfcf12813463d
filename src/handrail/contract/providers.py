"""The names of the providers' formats, what callers may call them, and which names of ours all of them take; in one place."""

from __future__ import annotations

import re

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

PORTABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
"""A name that every provider takes, of a tool and of a parameter. Tools are always called so; parameters may not be."""


def without_alias(provider: str) -> str:
    """The name that an alias stands for; any other name as it is, known or not."""
    return ALIASES.get(provider, provider)
