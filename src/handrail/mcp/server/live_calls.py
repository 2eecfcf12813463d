"""A call that outlives its request: its handler shows content, asks its client, or takes so long that it becomes a task.

In the handshake era a question is a request to the client. In 2026-07-28 the request that made the call ends with the
questions, the handler waits here, and the retry that brings the answers continues where it stopped: it is started once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any
from warnings import catch_warnings, simplefilter

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, ToolError
from handrail.mcp.server.client_notes import ClientNote, ClientNotes

TASKS = "io.modelcontextprotocol/tasks"
_LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})
_REQUESTS: Mapping[str, tuple[Any, Any]] = {
    "elicitation/create": (ElicitRequest, ElicitResult),
    "sampling/createMessage": (CreateMessageRequest, CreateMessageResult),
    "roots/list": (ListRootsRequest, ListRootsResult),
}

RequestContext = ServerRequestContext[Any, Any]


def is_modern(ctx: RequestContext) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def abilities(ctx: RequestContext) -> frozenset[str]:
    """What the client of a request can be asked, by what it has declared."""
    declared: ClientCapabilities | None = ctx.session.client_capabilities
    if declared is None:
        return frozenset()
    can = {name for name in ("sampling", "roots") if getattr(declared, name) is not None}
    asked = declared.elicitation
    # The older form of the capability is an empty object, and means forms.
    if asked is not None and (asked.form is not None or asked.url is None):
        can.add("elicitation")
    if is_modern(ctx) and TASKS in (declared.extensions or {}):
        can.add("tasks")
    return frozenset(can)


class LiveCall:
    """The bridge of one call to its client, and what became of the call."""

    def __init__(self, call_id: str, ctx: RequestContext, answers: Mapping[str, Any] | None = None) -> None:
        self.call_id = call_id
        self.can = abilities(ctx)
        self.blocks: list[Mapping[str, Any]] = []
        self.deferred = False
        self.is_named = False
        """Whether its client has been given something by which it can ask for it."""
        self.missing: str | None = None
        """What the handler wanted to ask and the client does not take."""
        self.task: asyncio.Task[ToolResponse] | None = None
        self.questions: dict[str, Mapping[str, Any]] = {}
        """Those that wait for an answer."""
        self._ctx: RequestContext | None = ctx
        self._given = dict(answers or {})
        self._waiting: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._number = 0.0
        self._notes = ClientNotes(self._loop)

    def start(self, work: Awaitable[ToolResponse]) -> None:
        # `create_task` takes a coroutine; what is called may be any awaitable.
        async def run() -> ToolResponse:
            return await work

        self.task = self._loop.create_task(run())
        self.task.add_done_callback(lambda _: self._changed.set())

    def attach(self, ctx: RequestContext) -> None:
        """The request over which the client is reached now."""
        self._notes.resume()
        self._ctx = ctx

    def answer(self, answers: Mapping[str, Any]) -> None:
        """What a retry or an update brought. Names that nobody asked for are ignored."""
        for name, value in answers.items():
            future = self._waiting.get(name)
            if future is not None and not future.done() and isinstance(value, Mapping):
                self.questions.pop(name, None)
                future.set_result(value)
        self._changed.clear()

    async def changed(self, seconds: float | None = None) -> None:
        """Wait until it has ended, asks something, or says that it takes long; or for so long."""
        if not (self.is_done or self.questions):
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), seconds)
            except TimeoutError:
                self.deferred = True

    @property
    def is_done(self) -> bool:
        return self.task is not None and self.task.done()

    # The bridge: called by handlers, also from threads

    def show(self, block: Mapping[str, Any]) -> None:
        self.blocks.append(block)

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self._say(True, self._progress, done, total, message)

    def progress_text(self, text: str) -> None:
        self._say(True, self._progress, None, None, text)

    def log(self, level: str, text: str) -> None:
        self._say(False, self._send_log, level if level in _LEVELS else "info", text)

    def defer(self) -> None:
        self._loop.call_soon_threadsafe(self._defer)

    def note_missing(self, kind: str) -> None:
        self.missing = kind

    async def ask(self, questions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        ctx = self._ctx
        if ctx is not None and not is_modern(ctx):
            return {name: await _request(ctx, question) for name, question in questions.items()}
        futures = {}
        for name, question in questions.items():
            future = futures[name] = self._loop.create_future()
            given = self._given.pop(name, None)
            # An answer came with the request already: its client was asked this in an earlier try, which is made again
            # from the start.
            if isinstance(given, Mapping) and _fits(question, given):
                future.set_result(given)
            else:
                self.questions[name], self._waiting[name] = question, future
        if self.questions:
            self._changed.set()
        try:
            return {name: await future for name, future in futures.items()}
        finally:
            for name in futures:
                self.questions.pop(name, None)
                self._waiting.pop(name, None)

    def _defer(self) -> None:
        self.deferred = True
        self._changed.set()

    def _say(self, is_progress: bool, send: Callable[..., Awaitable[None]], *facts: Any) -> None:
        ctx = self._ctx
        if ctx is not None:
            self._notes.say(ClientNote(partial(send, ctx, *facts), is_progress))

    async def detach(self) -> None:
        """The request ends: what was said before its answer is sent, as far as its client takes it in time."""
        # First: a request that ends takes nothing more, and what is said from now on has nobody to go to.
        self._ctx = None
        await self._notes.flush()

    async def _progress(
        self, ctx: RequestContext, done: float | None, total: float | None, message: str | None
    ) -> None:
        # The protocol wants numbers that grow; words alone have none.
        self._number = self._number + 1 if done is None else done
        await ctx.session.report_progress(self._number, total, message)

    async def _send_log(self, ctx: RequestContext, level: Any, text: str) -> None:
        with catch_warnings():
            simplefilter("ignore", MCPDeprecationWarning)  # clients of the handshake era still read them
            await ctx.session.send_log_message(level, text, related_request_id=ctx.request_id)  # type: ignore[deprecated]


async def _request(ctx: RequestContext, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask the client of a connection, and wait."""
    request_type, result_type = _REQUESTS[question["method"]]
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    try:
        request = request_type.model_validate(dict(question))
        result = await ctx.session.send_request(request, result_type, metadata=related)
    except (MCPError, ValidationError) as error:
        raise ToolError(ErrorType.UNAVAILABLE, "The client did not answer what it was asked.") from error
    dumped: Mapping[str, Any] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _fits(question: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Whether this has the shape of an answer to that."""
    _, result_type = _REQUESTS[question["method"]]
    try:
        result_type.model_validate(dict(answer))
    except ValidationError:
        return False
    return True
