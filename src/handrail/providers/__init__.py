"""Providers: one folder per vendor, with adapter (definition → the provider's format), transport and client.

`catalogue.py` lists them; this module is the way in. Adapters and SDKs are imported when they are first needed.
"""

from __future__ import annotations

from typing import Any

from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted, Loss
from handrail.providers.catalogue import canonical_name, get_provider, provider_names
from handrail.providers.provider import ModelClient, Provider

__all__ = [
    "Adapted",
    "Loss",
    "ModelClient",
    "Provider",
    "adapt",
    "as_meant",
    "canonical_name",
    "provider_names",
]


def adapt(definition: ToolDefinition, name: str) -> Adapted:
    """The tool as the provider of this name wants it, with what its format cannot express; `UsageError` for an unknown name."""
    return get_provider(name).adapter_module().adapt(definition)


def as_meant(definition: ToolDefinition, name: str, args: Any) -> Any:
    """A model's arguments (text or an object, not yet validated) without what only the provider's format asked for.

    Where a strict mode has no optional arguments, a model sends null for what it leaves out; that null is removed. An argument
    whose name the provider refuses comes under another one, and gets its own. `args` are not changed, and come back as they
    are where there is nothing to undo, or they are not JSON.
    """
    module = get_provider(name).adapter_module()
    undo = getattr(module, "as_meant", None)
    return args if undo is None else undo(definition, args)
