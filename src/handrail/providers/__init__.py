"""Providers: one folder per format, with an adapter (definition → the provider's form, pure, at build time) and a
transport. This is the table of them and the way in; an adapter is imported when it is first asked for.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol, cast

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import UsageError
from handrail.contract.providers import ALIASES, PROVIDERS, without_alias
from handrail.providers.adapted import Adapted, Loss

__all__ = ["ADAPTERS", "ALIASES", "Adapted", "Loss", "adapt", "as_meant", "canonical_name", "provider_names"]

_FOLDERS = {
    "openai-chat": "openai.chat",
    "openai-responses": "openai.responses",
    "openai-realtime": "openai.realtime",
    "gemini": "gemini.http",
    "gemini-live": "gemini.live",
}
ADAPTERS = {name: f"handrail.providers.{_FOLDERS.get(name, name)}.adapter" for name in PROVIDERS}
"""Provider → the module whose `adapt(definition)` speaks its format."""


class _Adapter(Protocol):
    def adapt(self, definition: ToolDefinition) -> Adapted: ...


def adapt(definition: ToolDefinition, provider: str) -> Adapted:
    """The tool as `provider` wants it, with what could not be said in its format; `UsageError` for an unknown name."""
    module = cast(_Adapter, import_module(ADAPTERS[canonical_name(provider)]))
    return module.adapt(definition)


def as_meant(definition: ToolDefinition, provider: str, args: Any) -> Any:
    """A model's arguments (text or an object, not yet validated) without what only the provider's form asked for.

    Where a strict mode has no optional arguments a model must send null for what it leaves out; that null goes. An argument
    whose name the provider refuses comes under another one, and gets its own. `args` are not changed, and come back as they
    are where there is nothing to undo, or they are no JSON.
    """
    module = import_module(ADAPTERS[canonical_name(provider)])
    return module.as_meant(definition, args) if hasattr(module, "as_meant") else args


def provider_names() -> tuple[str, ...]:
    """The providers that there are, without their aliases."""
    return tuple(ADAPTERS)


def canonical_name(provider: str) -> str:
    """The name of the provider that `provider` means, be it that name or an alias; `UsageError` if there is none."""
    name = without_alias(provider)
    if name in ADAPTERS:
        return name
    near = get_close_matches(provider, (*ADAPTERS, *ALIASES), n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    raise UsageError(f'There is no provider "{provider}"; there is {", ".join(ADAPTERS)}.{hint}')
