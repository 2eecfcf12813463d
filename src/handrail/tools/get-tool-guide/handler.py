"""Gives a tool's guide to the model. The guides are those of the registry that the session is pinned to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The guide, or the nearest name if there is no such tool in this conversation."""
    name = args["tool_id"]
    found = ctx.guides.get(name)
    if found is None:
        near = ctx.guides.nearest(name)
        raise ToolError(
            ErrorType.NOT_FOUND,
            f'There is no tool "{name}" in this conversation.',
            suggestion=f'Did you mean "{near}"?' if near else "Use one of the tools in the list.",
        )
    summary, guide = found
    return {"ok": True, "data": {"tool_id": name, "summary": summary, "guide": guide}}
