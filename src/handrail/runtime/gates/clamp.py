"""Step 8: arguments are brought within what the mode allows, and the model is told which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handrail.contract.definition import ToolDefinition

Clamp = Callable[[dict[str, Any]], tuple[dict[str, Any], tuple[str, ...]]]


def clamps_for(definition: ToolDefinition) -> Mapping[str, Clamp]:
    """For each mode that clamps something: arguments → (clamped copy, names of what was clamped)."""
    return {mode: _clamp(limits) for mode, limits in definition.clamp.items() if limits}


def _clamp(limits: Mapping[str, Any]) -> Clamp:
    def clamp(args: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        clamped: dict[str, Any] | None = None
        names: list[str] = []
        for name, limit in limits.items():
            if name not in args:
                continue
            better = _within(args[name], limit)
            if better != args[name]:
                clamped = clamped or dict(args)
                clamped[name] = better
                names.append(name)
        return (args, ()) if clamped is None else (clamped, tuple(names))

    return clamp


def _within(value: Any, limit: Any) -> Any:
    if not isinstance(limit, tuple):
        return min(value, limit) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    if isinstance(value, list):
        if not value:
            return value
        # Nothing left of the list means that everything allowed is meant, as an empty list might not be valid.
        return [item for item in value if item in limit] or list(limit)
    return value if value in limit else limit[0]
