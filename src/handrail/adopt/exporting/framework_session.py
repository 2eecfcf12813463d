"""The door that a framework's calls come through: one session, and the order that a model's message asks for.

Frameworks start the calls of one message together. Here a writing call waits for all that came before it and is waited
for by all after it, as `Session.call_many` does it; reading neighbours run side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import orjson

from handrail.agents.prompts import offered
from handrail.contract.call import IdScope
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.frozen import thaw
from handrail.runtime.session import Session

_INSIDE: ContextVar[frozenset[int]] = ContextVar("handrail_adopt_inside", default=frozenset())
"""The doors that the running code is behind: a handler that calls through its own door must not wait for itself."""


class FrameworkSession:
    """Calls of one framework into one session."""

    def __init__(self, session: Session, framework: str, only: Collection[str] | None, id_scope: IdScope) -> None:
        """A framework does not say which model it asks, so that ids count for one message unless the host knows better."""
        self._framework = framework
        self._id_scope = id_scope
        self._loop = _running_loop()
        self._connection = session.connection
        """The one that the tools were handed over on: once it is replaced, an agent that still lives calls nothing."""
        self._under_way: list[tuple[asyncio.Future[None], bool]] = []
        self.definitions = _chosen(session, only)
        self._writing = {definition.tool_id for definition in self.definitions if definition.writes}

    async def call(self, name: str, args: Any, call_id: str | None) -> ToolResponse:
        """One call, through the pipeline. Every call is answered with an envelope."""
        if id(self) in _INSIDE.get():
            return await self._through(name, args, call_id)
        writes = name in self._writing
        before = [done for done, wrote in self._under_way if writes or wrote]
        with self._counted(writes):
            if before:
                await asyncio.wait(before)
            return await self._through(name, args, call_id)

    def call_from_thread(self, name: str, args: Any, call_id: str | None) -> ToolResponse:
        """The same for a framework that runs without a loop, in a thread beside the session's."""
        if asyncio._get_running_loop() is self._loop:
            raise UsageError("A governed tool is called with `await` where its session's loop runs; use `ainvoke`.")
        return asyncio.run_coroutine_threadsafe(self.call(name, args, call_id), self._loop).result()

    async def _through(self, name: str, args: Any, call_id: str | None) -> ToolResponse:
        token = _INSIDE.set(_INSIDE.get() | {id(self)})
        try:
            return await self._connection.call(
                name, args, call_id=call_id, provider=self._framework, id_scope=self._id_scope
            )
        finally:
            _INSIDE.reset(token)

    @contextmanager
    def _counted(self, writes: bool) -> Iterator[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        entry = (done, writes)
        self._under_way.append(entry)
        try:
            yield
        finally:
            self._under_way.remove(entry)
            done.set_result(None)


def envelope_text(response: ToolResponse) -> str:
    """The full envelope as JSON text, as models are given it."""
    return orjson.dumps(response.to_dict()).decode()


def parameters(definition: ToolDefinition) -> dict[str, Any]:
    """The parameter schema as data that a framework may change."""
    schema: dict[str, Any] = thaw(definition.parameters)
    return schema


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("A session's tools are handed over where its event loop runs: in a coroutine.") from None


def _chosen(session: Session, only: Collection[str] | None) -> list[ToolDefinition]:
    found = {tool.tool_id: tool.definition for tool in offered(session)}
    for name in only or ():
        if name not in found:
            there = ", ".join(found) or "none"
            raise UsageError(f'This session has no tool "{name}" on offer; there are {there}.')
    return [definition for name, definition in found.items() if only is None or name in only]
