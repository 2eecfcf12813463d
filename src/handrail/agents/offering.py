"""What a model is offered: the tools of the mode that this user may use and that are switched on, picked where they are many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from handrail.agents.policy import AgentPolicy
from handrail.agents.prompts import GUIDE_TOOL, Prompt, Prompts
from handrail.contract.definition import Mode, ToolDefinition
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.runtime.session import Session

Picker: TypeAlias = Callable[[str, Sequence[ToolDefinition], int], Sequence[ToolDefinition]]
_MAX_CACHED = 8
_MAX_IN_LOOP = 50
"""Above this number of tools, choosing is done in a thread: declarations may have to be read and an index be made first."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The tools for one turn, and how many there are beside them."""

    tools: tuple[LoadedTool, ...]
    more: int


class Offering:
    """Chooses tools for a turn and makes the prompt for them."""

    def __init__(self, prompts: Prompts, policy: AgentPolicy, picker: Picker | None) -> None:
        self._prompts = prompts
        self._policy = policy
        self._picker = picker
        self._declarations: dict[tuple[str, str, Mode], Mapping[str, dict[str, Any]]] = {}

    async def choose(self, session: Session, provider: str, query: str, used: Sequence[str]) -> Choice:
        """All tools on offer, or those that fit `query` if there are too many; tools that were used stay."""
        tools = offered(session)
        if len(tools) > _MAX_IN_LOOP:
            return await asyncio.to_thread(self._choose, session, provider, tools, query, used)
        return self._choose(session, provider, tools, query, used)

    def _choose(
        self, session: Session, provider: str, tools: list[LoadedTool], query: str, used: Sequence[str]
    ) -> Choice:
        self._schemas(session.snapshot, provider, session.mode)  # read here, where it may take its time
        if len(tools) <= self._policy.max_tools or self._picker is None:
            return Choice(tuple(tools), 0)
        picked = self._picker(query, [tool.definition for tool in tools], self._policy.picked_tools)
        wanted = {*used, GUIDE_TOOL, *(definition.tool_id for definition in picked)}
        chosen = tuple(tool for tool in tools if tool.tool_id in wanted)
        return Choice(chosen, len(tools) - len(chosen))

    def prompt(self, session: Session, provider: str, choice: Choice, now: datetime, time_zone: str) -> Prompt:
        schemas = self._schemas(session.snapshot, provider, session.mode)
        return self._prompts.compose(
            session.mode,
            choice.tools,
            version=session.snapshot.version,
            declarations=[schemas[tool.tool_id] for tool in choice.tools],
            more=choice.more,
            written=_only_written(session),
            now=now,
            time_zone=time_zone,
        )

    def _schemas(self, snapshot: Snapshot, provider: str, mode: Mode) -> Mapping[str, dict[str, Any]]:
        key = (snapshot.version, provider, mode)
        known = self._declarations.get(key)
        if known is None:
            names = [tool.tool_id for tool in snapshot.in_mode(mode)]
            known = dict(zip(names, snapshot.provider_schemas(provider, mode), strict=True))
            while len(self._declarations) >= _MAX_CACHED:
                del self._declarations[next(iter(self._declarations))]
            self._declarations[key] = known
        return known


def offered(session: Session) -> list[LoadedTool]:
    """The tools of the session's mode that its user may use and that are switched on, by name."""
    return _usable(session, session.mode)


def _only_written(session: Session) -> list[LoadedTool]:
    """In voice, what the same user could use in text and cannot use here."""
    if session.mode != "voice":
        return []
    here = {tool.tool_id for tool in session.snapshot.in_mode("voice")}
    return [tool for tool in _usable(session, "text") if tool.tool_id not in here]


def _usable(session: Session, mode: Mode) -> list[LoadedTool]:
    plans, switches = session.plans, session.switches
    return [
        tool for tool in session.snapshot.in_mode(mode) if plans.allows(tool.tool_id) and tool.tool_id not in switches
    ]
