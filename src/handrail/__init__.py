"""Handrail: a tool runtime for agents that speak and type.

The names that callers rely on are exported here. Each is imported when first used, so that `import handrail` stays light:
no provider SDK, web framework or database driver is loaded by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.authoring.decorator import ToolComponent, tool
    from handrail.authoring.injection import service
    from handrail.contract.call import Call
    from handrail.contract.definition import ToolDefinition
    from handrail.contract.envelope import ToolResponse
    from handrail.contract.errors import ErrorType, HandrailError, ToolError
    from handrail.contract.gates import AskPerson, Gate, GatedCall, Refuse
    from handrail.contract.intents import Intent, IntentType
    from handrail.observe.tracing import trace_headers
    from handrail.picking import pick_tools
    from handrail.registry import Registry, Snapshot
    from handrail.runtime.context import Context
    from handrail.runtime.hydrate import HydrationResult, hydrate
    from handrail.runtime.policy import Policy
    from handrail.runtime.session import Session
    from handrail.runtime.state import StateController
    from handrail.standard_runtime import Runtime

__version__ = "0.1.0"

_HOMES = {
    "AskPerson": "handrail.contract.gates",
    "Call": "handrail.contract.call",
    "Connection": "handrail.runtime.session",
    "Context": "handrail.runtime.context",
    "ErrorType": "handrail.contract.errors",
    "Gate": "handrail.contract.gates",
    "GatedCall": "handrail.contract.gates",
    "HandrailError": "handrail.contract.errors",
    "HydrationResult": "handrail.runtime.hydrate",
    "Intent": "handrail.contract.intents",
    "IntentType": "handrail.contract.intents",
    "Policy": "handrail.runtime.policy",
    "Refuse": "handrail.contract.gates",
    "Registry": "handrail.registry",
    "Runtime": "handrail.standard_runtime",
    "Session": "handrail.runtime.session",
    "Snapshot": "handrail.registry",
    "StateController": "handrail.runtime.state",
    "ToolComponent": "handrail.authoring.decorator",
    "ToolDefinition": "handrail.contract.definition",
    "ToolError": "handrail.contract.errors",
    "ToolResponse": "handrail.contract.envelope",
    "hydrate": "handrail.runtime.hydrate",
    "pick_tools": "handrail.picking",
    "service": "handrail.authoring.injection",
    "tool": "handrail.authoring.decorator",
    "trace_headers": "handrail.observe.tracing",
}

__all__ = [
    "AskPerson",
    "Call",
    "Connection",
    "Context",
    "ErrorType",
    "Gate",
    "GatedCall",
    "HandrailError",
    "HydrationResult",
    "Intent",
    "IntentType",
    "Policy",
    "Refuse",
    "Registry",
    "Runtime",
    "Session",
    "Snapshot",
    "StateController",
    "ToolComponent",
    "ToolDefinition",
    "ToolError",
    "ToolResponse",
    "hydrate",
    "pick_tools",
    "service",
    "tool",
    "trace_headers",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'handrail' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # only a first use needs it

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
