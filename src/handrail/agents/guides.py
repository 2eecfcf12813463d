"""The capability `guides`: the guides of the tools that a session may use, for the tool that gives them to a model.

Read-only, and no wider than the session: what its user may not use, or its mode does not have, does not exist here either.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from handrail.runtime.availability import hidden_tools

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt


class Guides:
    """Made for each call, from the snapshot that its session is pinned to."""

    __slots__ = ("_session",)

    def __init__(self, attempt: Attempt) -> None:
        self._session = attempt.session

    def get(self, tool_id: str) -> tuple[str, str] | None:
        """Summary and guide of a tool; None if this session has no such tool."""
        tool = self._session.snapshot.get(tool_id)
        if tool is None or tool_id not in self._names():
            return None
        return tool.summary, tool.documentation

    def nearest(self, tool_id: str) -> str | None:
        """The name that was probably meant."""
        near = get_close_matches(tool_id, self._names(), n=1)
        return near[0] if near else None

    def _names(self) -> list[str]:
        session = self._session
        hidden = hidden_tools(session)
        names = (tool.tool_id for tool in session.snapshot.by_mode[session.mode])
        return [name for name in names if name in session.plans.allowed and name not in hidden]
