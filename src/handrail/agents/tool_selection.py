"""Which tools a model is offered: all of them, or, of a large catalogue, those that this conversation needs.

Text asks the model anew for every answer, so each request gets the tools that fit it. A live session begins before anybody has
spoken: it gets the tools marked `alwaysOffer`, those that fit what was said before, the most used ones, and others as far as the
budget goes. What is left out, the model finds with `find_tools`. Where the provider can change the tools of a session, one that
was found is declared then; where it cannot, the model calls it through `call_tool`. That is a form of words between this module
and the model, and no tool: `unwrapped_call` makes the call that it names out of it before the runtime sees anything, so the call
passes every gate, budget and record under its own name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from itertools import islice, zip_longest
from typing import Any, TypeAlias

from handrail.agents.conversation import tokens_of_json
from handrail.agents.policy import AgentPolicy
from handrail.agents.prompts import (
    CALL_TOOL,
    Prompt,
    Prompts,
    offered,
    offered_in_text_only,
)
from handrail.agents.tool_usage import ToolUsageRanking
from handrail.contract.call import Call
from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import JsonError
from handrail.contract.offer import BUILT_IN_TOOLS, FIND_TOOL, places_for_always
from handrail.providers import adapt
from handrail.providers.catalogue import get_provider
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.session import Session
from handrail.schema.strict_json import read_arguments

Picker: TypeAlias = Callable[[str, Sequence[ToolDefinition], int], Sequence[ToolDefinition]]
_LOG = logging.getLogger("handrail.agent")
_MAX_COMPOSED = 32
_MAX_IN_LOOP = 50
"""Above this number of tools, choosing is done in a thread: declarations may have to be read and an index be made first."""
_SMALLEST_DECLARATION = 20
"""Tokens. With less than this left of the budget, nothing more is tried."""


class ToolSelection:
    """Chooses tools and makes the prompt for them. A prompt is composed once for the same tools."""

    def __init__(
        self, prompts: Prompts, policy: AgentPolicy, picker: Picker | None, use: ToolUsageRanking | None = None
    ) -> None:
        self._prompts = prompts
        self._policy = policy
        self._picker = picker
        self._use = use
        self._composed: dict[tuple[object, ...], Prompt] = {}
        self._has_warned = False

    async def prompt(
        self, session: Session, provider: str, query: str, used: Sequence[str], now: datetime, time_zone: str
    ) -> Prompt:
        """For one request: all tools, or those that fit `query` if there are too many; tools that were used stay."""
        tools = offered(session)
        return (await self._chosen(len(tools), self._for_request, session, provider, tools, query, used)).at(
            now, time_zone
        )

    async def live_prompt(
        self,
        session: Session,
        provider: str,
        query: str,
        used: Sequence[str],
        now: datetime,
        time_zone: str,
        *,
        changes_tools: bool,
        kept: Sequence[str] = (),
    ) -> Prompt:
        """For a live session: as many tools as the budget takes. `kept` are those that it has now and may keep."""
        tools = offered(session)
        by_use = await self._use.by_calls(session.tenant) if self._use and self._every_tool(tools) is None else ()
        choose = partial(self._for_session, kept=kept, by_use=by_use, changes_tools=changes_tools)
        return (await self._chosen(len(tools), choose, session, provider, tools, query, used)).at(now, time_zone)

    async def _chosen(self, count: int, choose: Callable[..., Prompt], *facts: Any) -> Prompt:
        return await asyncio.to_thread(choose, *facts) if count > _MAX_IN_LOOP else choose(*facts)

    def _for_request(
        self, session: Session, provider: str, tools: Sequence[LoadedTool], query: str, used: Sequence[str]
    ) -> Prompt:
        every = self._every_tool(tools)
        if every is not None:
            return self._compose(session, provider, every, 0)
        self._check_search(tools)
        there = {tool.tool_id for tool in tools}
        first = (name for name in (*BUILT_IN_TOOLS, *_always(tools, self._policy.max_tools)) if name in there)
        # In turn, so that neither what was found nor what fits the message is left out where there are few places.
        pairs = zip_longest((name for name in reversed(used) if name in there), self._picked(query, tools))
        wanted = dict.fromkeys([*first, *(name for pair in pairs for name in pair if name)])
        names = set(islice(wanted, get_provider(provider).max_tools))
        chosen = [tool for tool in tools if tool.tool_id in names]
        return self._compose(session, provider, chosen, len(tools) - len(chosen))

    def _for_session(
        self,
        session: Session,
        provider: str,
        tools: Sequence[LoadedTool],
        query: str,
        used: Sequence[str],
        *,
        kept: Sequence[str],
        by_use: Sequence[str],
        changes_tools: bool,
    ) -> Prompt:
        every = self._every_tool(tools)
        if every is not None:
            return self._compose(session, provider, every, 0)
        self._check_search(tools)
        # What was used, what fits the words, what is declared already (another choice costs a new declaration), what
        # others use.
        wanted = [*reversed(used), *self._picked(query, tools), *kept, *by_use, *(tool.tool_id for tool in tools)]
        # Where tools are called through `call_tool`, it is one of those that the provider takes.
        limit = get_provider(provider).max_tools
        max_tools = (
            self._policy.max_tools if limit is None else min(self._policy.max_tools, limit - (not changes_tools))
        )
        first = [*_always(tools, max_tools), *BUILT_IN_TOOLS]
        names = self._within_budget(session, provider, tools, first, wanted, max_tools)
        chosen = [tool for tool in tools if tool.tool_id in names]
        through_call = not changes_tools and FIND_TOOL in names
        return self._compose(session, provider, chosen, len(tools) - len(chosen), through_call=through_call)

    def _within_budget(
        self,
        session: Session,
        provider: str,
        tools: Sequence[LoadedTool],
        first: Sequence[str],
        wanted: Iterable[str],
        max_tools: int,
    ) -> set[str]:
        """Those of `first`, and of `wanted` as many as there is room for, in their order; what is too large is passed over."""
        schemas = _schemas(session, provider)
        there = {tool.tool_id for tool in tools}
        names = {name for name in first if name in there}
        left = self._policy.declaration_tokens - sum(tokens_of_json(schemas[name]) for name in names)
        for name in wanted:
            if len(names) >= max_tools or left < _SMALLEST_DECLARATION:
                break
            if name in there and name not in names:
                size = tokens_of_json(schemas[name])
                if size <= left:
                    names.add(name)
                    left -= size
        return names

    def _check_search(self, tools: Sequence[LoadedTool]) -> None:
        if not self._has_warned and not any(tool.tool_id == FIND_TOOL for tool in tools):
            self._has_warned = True
            _LOG.warning(
                'There are %d tools, and a model is offered some of them; build again with this "max_tools" in [agent], which '
                "takes in `%s`, so that it finds the others",
                len(tools),
                FIND_TOOL,
            )

    def _every_tool(self, tools: Sequence[LoadedTool]) -> list[LoadedTool] | None:
        """All of them but the search, as none has to be looked for then; None if there are too many to declare all."""
        every = [tool for tool in tools if tool.tool_id != FIND_TOOL]
        return None if self._picker is not None and len(every) > self._policy.max_tools else every

    def _picked(self, query: str, tools: Sequence[LoadedTool]) -> list[str]:
        if self._picker is None or not query.strip():
            return []
        picked = self._picker(query, [tool.definition for tool in tools], self._policy.picked_tools)
        return [definition.tool_id for definition in picked]

    def _compose(
        self,
        session: Session,
        provider: str,
        tools: Sequence[LoadedTool],
        more: int,
        *,
        through_call: bool = False,
    ) -> Prompt:
        snapshot, mode = session.snapshot, session.mode
        text_only = offered_in_text_only(session) if mode == "voice" else ()
        key = snapshot.key, provider, mode, more, through_call, *(tool.tool_id for tool in (*tools, *text_only))
        prompt = self._composed.get(key)
        if prompt is None:
            schemas = _schemas(session, provider)
            declarations = [schemas[tool.tool_id] for tool in tools]
            if through_call:
                declarations.append(_call_declaration(provider))
            prompt = self._prompts.compose(
                mode,
                tools,
                version=snapshot.version,
                declarations=declarations,
                more=more,
                written=text_only,
                through_call=through_call,
            )
            while len(self._composed) >= _MAX_COMPOSED:
                # With a default, because prompts of large catalogues are composed in threads, and two may drop the same
                # one.
                self._composed.pop(next(iter(self._composed)), None)
            self._composed[key] = prompt
        return prompt


def unwrapped_call(call: Call) -> Call:
    """The call that a `call_tool` names, under that name; any other call as it is.

    Its arguments are not looked at here: the pipeline reads them as strictly as those of any call. Where no tool is named, it is
    a call without a name, which is answered so.
    """
    if call.name != CALL_TOOL:
        return call
    try:
        named = read_arguments(call.args)[0]
    except JsonError:
        named = None
    if not isinstance(named, Mapping):
        return call._replace(name="", args={})
    name, args = named.get("tool_id"), named.get("arguments")
    return call._replace(name=name if isinstance(name, str) else "", args={} if args is None else args)


def found_tools(envelope: Mapping[str, Any]) -> list[str]:
    """The names in a result of `find_tools`."""
    data = envelope.get("data")
    tools = data.get("tools", ()) if isinstance(data, Mapping) else ()
    return [tool["tool_id"] for tool in tools]


@cache
def _call_declaration(provider: str) -> Mapping[str, Any]:
    """`call_tool` in the provider's format. The arguments are text: not every format has objects of any shape."""
    definition = ToolDefinition.from_dict(
        {
            "toolId": CALL_TOOL,
            "version": "1.0.0",
            "description": f"Calls a tool that {FIND_TOOL} has found and that is not declared here.",
            "category": "utility",
            "sideEffects": "none",
            "idempotent": True,
            "requiresConfirmation": False,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 1,
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "required": ["tool_id", "arguments"],
                "properties": {
                    "tool_id": {"type": "string", "description": f"The name of the tool, as {FIND_TOOL} gave it."},
                    "arguments": {
                        "type": "string",
                        "description": 'Its arguments as a JSON object, written as text, such as {"city": "Split"}.',
                    },
                },
            },
        }
    )
    return adapt(definition, provider).schema


def _schemas(session: Session, provider: str) -> dict[str, Mapping[str, Any]]:
    """The declaration of each tool of the session's mode."""
    snapshot, mode = session.snapshot, session.mode
    names = [tool.tool_id for tool in snapshot.by_mode[mode]]
    return dict(zip(names, snapshot.provider_schemas(provider, mode), strict=True))


def _always(tools: Sequence[LoadedTool], max_tools: int) -> list[str]:
    """Those that have a place among `max_tools`, by name."""
    names = [tool.tool_id for tool in tools if tool.definition.always_offer and tool.tool_id not in BUILT_IN_TOOLS]
    return names[: places_for_always(max_tools)]
