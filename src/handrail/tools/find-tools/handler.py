"""Finds tools of this conversation by what they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The tools that fit best, with what is needed to call them."""
    found = await ctx.tool_search.find(args["task"], args["limit"])
    tools = [{"tool_id": one.tool_id, "description": one.description, "parameters": one.parameters} for one in found]
    if tools:
        return {"ok": True, "data": {"tools": tools}}
    suggestion = "Describe the task in other words, or tell the user that there is no tool for it."
    return {"ok": True, "data": {"tools": [], "suggestion": suggestion}}
