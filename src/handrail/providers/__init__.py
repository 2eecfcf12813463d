"""Providers: one folder per format, with an adapter (definition → the provider's form, pure, at build time) and a
transport. This is the table of them and the way in; an adapter is imported when it is first asked for.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Protocol, cast

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import UsageError
from handrail.providers.adapted import Adapted, Loss

__all__ = ["ADAPTERS", "ALIASES", "Adapted", "Loss", "adapt", "canonical_name", "provider_names"]

ADAPTERS = {
    "openai-chat": "handrail.providers.openai_chat.adapter",
}
"""Provider → the module whose `adapt(definition)` speaks its format."""

ALIASES = {
    "openai": "openai-chat",
    "geminiNative": "gemini",
}
"""Names from before there was more than one format per vendor."""


class _Adapter(Protocol):
    def adapt(self, definition: ToolDefinition) -> Adapted: ...


def adapt(definition: ToolDefinition, provider: str) -> Adapted:
    """The tool as `provider` wants it, with what could not be said in its format; `UsageError` for an unknown name."""
    module = cast(_Adapter, import_module(ADAPTERS[canonical_name(provider)]))
    return module.adapt(definition)


def provider_names() -> tuple[str, ...]:
    """The providers that there are, without their aliases."""
    return tuple(ADAPTERS)


def canonical_name(provider: str) -> str:
    """The name of the provider that `provider` means, be it that name or an alias; `UsageError` if there is none."""
    name = ALIASES.get(provider, provider)
    if name in ADAPTERS:
        return name
    near = get_close_matches(provider, (*ADAPTERS, *(alias for alias in ALIASES if ALIASES[alias] in ADAPTERS)), n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    raise UsageError(f'There is no provider "{provider}"; there is {", ".join(ADAPTERS)}.{hint}')
