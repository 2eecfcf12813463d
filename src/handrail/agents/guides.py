"""The capability `guides`: the guides of the tools that a session may use, for the tool that gives them to a model.

Read-only, and no wider than the session: what its user may not use, or its mode does not have, does not exist here either.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

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
        if tool is None or self._session.mode not in tool.modes or tool_id not in self._session.plans.allowed:
            return None
        return tool.summary, tool.documentation

    def nearest(self, tool_id: str) -> str | None:
        """The name that was probably meant."""
        session = self._session
        names = [
            tool.tool_id for tool in session.snapshot.by_mode[session.mode] if tool.tool_id in session.plans.allowed
        ]
        near = get_close_matches(tool_id, names, n=1)
        return near[0] if near else None
