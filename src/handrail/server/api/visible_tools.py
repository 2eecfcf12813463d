"""Which tools somebody may use: those that the policy gives this user, in the mode, where the tool's own conditions hold.

What a user may not use does not exist for that user, neither in the catalogue nor under its name. Operators see everything: they
switch tools on and off.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from handrail.contract.definition import Mode
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.availability import hidden_tools, is_available
from handrail.runtime.policy import Policy
from handrail.runtime.session import Session
from handrail.schema.condition import user_facts
from handrail.server.key_ring import Key

MODES: tuple[Mode, ...] = ("text", "voice")


def tools_in(session: Session) -> list[LoadedTool]:
    """The tools that the user of a session may use in it now, those that are switched off included."""
    hidden = hidden_tools(session)
    return [
        tool
        for tool in session.snapshot.by_mode[session.mode]
        if tool.tool_id in session.plans.allowed and tool.tool_id not in hidden
    ]


def tools_for(key: Key, tools: Iterable[LoadedTool], policy: Policy, mode: Mode | None) -> list[LoadedTool]:
    """The tools for whom a key speaks, before there is a session; in any mode if none is named."""
    modes = MODES if mode is None else (mode,)
    if key.is_operator:
        return [tool for tool in tools if any(one in tool.modes for one in modes)]
    # A key that names no user may speak for anybody, and for somebody who has not signed in.
    patterns = policy.tools_of(key.user) + (policy.user_tools if key.user is None else ())
    return [
        tool
        for tool in tools
        if any(fnmatchcase(tool.tool_id, pattern) for pattern in patterns)
        and tool.is_for(key.roles)
        and any(one in tool.modes and is_available(tool, policy, _facts(key, one)) for one in modes)
    ]


def nearest(name: str, tools: Iterable[LoadedTool]) -> str:
    """A sentence for a tool that is not among these."""
    near = get_close_matches(name, [tool.tool_id for tool in tools], n=1)
    return f'There is no tool "{name}"' + (f'; did you mean "{near[0]}"?' if near else ".")


def _facts(key: Key, mode: Mode) -> dict[str, Any]:
    """What conditions see where there is no session yet: one that asks for something of a session does not hold. A key that
    names no user may name one when it opens a session, so that its user counts as signed in."""
    return {"mode": mode, "user": user_facts(key.user, key.roles, signed_in=True), "session": {}}
