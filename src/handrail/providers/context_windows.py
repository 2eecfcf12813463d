"""How many tokens fit into one request of a model, by provider and name. The one table of it; [Models](docs/models.md) shows it.

A row counts for the model of its name and for those of this name with something after a hyphen, as a date or a size; the longest
name first. A row without a name counts for every model of the provider. The next generation, `gpt-5.9` beside `gpt-5`, is another
model: what is not here has no known window, and the log says so once, because nothing is measured by a guess. `context_window` in
`[agent]` and `[voice]` overrides the table, and has to be used for a server that gives a model less room than it has. Ollama says
itself how much that is (`handrail.providers.ollama.client`).
"""

from __future__ import annotations

import logging
from functools import cache
from typing import NamedTuple

from handrail.contract.errors import UsageError
from handrail.providers.catalogue import canonical_name

_LOG = logging.getLogger("handrail.model")
OPENAI = "https://platform.openai.com/docs/models"
GOOGLE = "https://ai.google.dev/gemini-api/docs/models"
ANTHROPIC = "https://platform.claude.com/docs/en/build-with-claude/context-windows"


class WindowRow(NamedTuple):
    providers: tuple[str, ...]
    name: str
    tokens: int
    source: str


_OTHER_KINDS = frozenset({"image", "tts"})
"""After a model's name they make another model of it, which has less room."""
_CHAT = ("openai-chat", "openai-responses")
WINDOWS: tuple[WindowRow, ...] = (
    WindowRow(_CHAT, "gpt-5", 400_000, OPENAI),
    WindowRow(_CHAT, "gpt-5.1", 400_000, OPENAI),
    WindowRow(_CHAT, "gpt-5.2", 400_000, OPENAI),
    WindowRow(_CHAT, "gpt-5-chat", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-5.1-chat", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-5.2-chat", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-4.1", 1_047_576, OPENAI),
    WindowRow(_CHAT, "gpt-4o", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-4-turbo", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-4-1106", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-4-0125", 128_000, OPENAI),
    WindowRow(_CHAT, "gpt-4-32k", 32_768, OPENAI),
    WindowRow(_CHAT, "gpt-4", 8_192, OPENAI),
    WindowRow(_CHAT, "gpt-3.5-turbo", 16_385, OPENAI),
    WindowRow(_CHAT, "o1", 200_000, OPENAI),
    WindowRow(_CHAT, "o1-mini", 128_000, OPENAI),
    WindowRow(_CHAT, "o1-preview", 128_000, OPENAI),
    WindowRow(_CHAT, "chatgpt-4o", 128_000, OPENAI),
    WindowRow(_CHAT, "o3", 200_000, OPENAI),
    WindowRow(_CHAT, "o4-mini", 200_000, OPENAI),
    WindowRow(("openai-realtime",), "gpt-realtime", 32_000, OPENAI),
    WindowRow(("openai-realtime",), "gpt-4o-realtime", 32_000, OPENAI),
    WindowRow(("openai-realtime",), "gpt-4o-mini-realtime", 16_000, OPENAI),
    WindowRow(("gemini",), "gemini-flash", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-pro-latest", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-3.1-pro", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-3.1-flash-lite", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-3-pro", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-3-flash", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-2.5-pro", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-2.5-flash", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-2.0-flash", 1_048_576, GOOGLE),
    WindowRow(("gemini",), "gemini-1.5-pro", 2_097_152, GOOGLE),
    WindowRow(("gemini",), "gemini-1.5-flash", 1_048_576, GOOGLE),
    WindowRow(("gemini-live",), "", 128_000, "https://firebase.google.com/docs/ai-logic/live-api/sessions"),
    WindowRow(("anthropic",), "claude-opus-4", 200_000, ANTHROPIC),
    WindowRow(("anthropic",), "claude-sonnet-4", 200_000, ANTHROPIC),
    WindowRow(("anthropic",), "claude-haiku-4", 200_000, ANTHROPIC),
    WindowRow(("anthropic",), "claude-3", 200_000, ANTHROPIC),
)


def context_window(provider: str, model: str) -> int | None:
    """The tokens that fit into one request of this model; None if that is not known."""
    try:
        name = canonical_name(provider)
    except UsageError:
        return None
    bare = model.removeprefix("models/")
    if bare.startswith(
        "ft:"
    ):  # a model of one's own has the window of the one that it was made of: ft:MODEL:OWNER:NAME:ID
        bare = bare.split(":")[1]
    fitting = [row for row in WINDOWS if name in row.providers and _names(row.name, bare)]
    if not fitting:
        say_unknown(provider, model)
        return None
    return max(fitting, key=lambda row: len(row.name)).tokens


def _names(name: str, model: str) -> bool:
    rest = model.removeprefix(name)
    return not name or (model.startswith(name) and rest[:1] in ("", "-") and _OTHER_KINDS.isdisjoint(rest.split("-")))


@cache
def say_unknown(provider: str, model: str) -> None:
    """Once for each model."""
    _LOG.warning(
        'The context window of the model "%s" (%s) is not known, so no alarm is raised when it is nearly full; '
        "set `context_window` in [agent] or [voice]",
        model,
        provider,
    )
