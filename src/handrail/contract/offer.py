"""What the build and the agents agree on about the tools that a model is offered where there are too many to offer all."""

from __future__ import annotations

GUIDE_TOOL = "get_tool_guide"
FIND_TOOL = "find_tools"
BUILT_IN_TOOLS = (GUIDE_TOOL, FIND_TOOL)


def places_for_always(max_tools: int) -> int:
    """How many tools marked `alwaysOffer` are offered: the rest is for those that a conversation needs or finds."""
    return max_tools * 2 // 3
