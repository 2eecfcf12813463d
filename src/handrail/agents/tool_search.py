"""The capability `tool_search`: the tools of a session by what they do, for the tool that looks for them in a model's name.

No wider than the session: what its user may not use, its mode does not have, or an operator switched off does not exist here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from handrail.agents.prompts import offered
from handrail.contract.frozen import thaw
from handrail.contract.offer import BUILT_IN_TOOLS
from handrail.picking import pick_tools
from handrail.runtime.session import Session

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt


class FoundTool(NamedTuple):
    """What a model needs to call a tool that is not declared to it."""

    tool_id: str
    description: str
    parameters: dict[str, Any]


class ToolSearch:
    """Made for each call, from the snapshot that its session is pinned to."""

    __slots__ = ("_session",)

    def __init__(self, attempt: Attempt) -> None:
        self._session = attempt.session

    async def find(self, task: str, limit: int) -> list[FoundTool]:
        """The tools that fit the task best, best first. In a thread: the first search of a catalogue makes its index."""
        return await asyncio.to_thread(_find, self._session, task, limit)


def _find(session: Session, task: str, limit: int) -> list[FoundTool]:
    definitions = [tool.definition for tool in offered(session)]
    named = [one for one in definitions if one.tool_id == task.strip()]
    picked = pick_tools(task, definitions, limit + len(BUILT_IN_TOOLS))
    fitting = [one for one in picked if one.tool_id not in BUILT_IN_TOOLS and one not in named]
    return [FoundTool(one.tool_id, one.description, thaw(one.parameters)) for one in [*named, *fitting][:limit]]
