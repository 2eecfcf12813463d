"""The methods of MCP over the SDK's low-level server, for both eras: what a client asks for → the runtime → its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Protocol

from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CompleteRequestParams,
    EmptyResult,
    GetPromptRequestParams,
    NotificationParams,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    RequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
)
from pydantic import Field

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import ErrorType
from handrail.mcp.server.catalogue import GUIDE_URI, SUMMARY, McpCatalogue, contents_of
from handrail.mcp.server.governed_calls import CallKey
from handrail.mcp.server.live_calls import TASKS, RequestContext, abilities, is_modern
from handrail.mcp.server.options import TRACE_CONTEXT, McpOptions, Principal
from handrail.mcp.server.request_body import WRITTEN_ARGUMENTS
from handrail.mcp.server.results import RESULT_URI
from handrail.mcp.server.tool_calls import CallRequest, EndedCall, InterimResult, McpToolCalls, unknown_tool
from handrail.mcp.server.upstream_resources import SERVER_URI, UpstreamResources
from handrail.providers.event_stream import as_text
from handrail.runtime.core import RuntimeCore

_PAGE = 2_000
_MAX_CONNECTIONS = 1_000
_TELL_SECONDS = 5.0
"""How long a client may take to read what has changed; the others hear of it meanwhile."""
_HINTS = {
    method: CacheHint(ttl_ms=0, scope="private")
    for method in (
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    )
}


class TaskParams(RequestParams):
    task_id: str = Field(alias="taskId", max_length=200)


class TaskUpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(default_factory=dict, alias="inputResponses")


class Transport(Protocol):
    """What the endpoint has to know of how it is reached."""

    def principal(self, ctx: RequestContext) -> Principal:
        """Who makes a request."""
        ...

    def when_written(self, ctx: RequestContext, key: CallKey, calls: McpToolCalls) -> None:
        """Note that this call was answered once the answer to this request has been written."""
        ...


class McpEndpoint:
    """Answers the methods of MCP for one runtime."""

    def __init__(self, runtime: RuntimeCore, options: McpOptions, transport: Transport) -> None:
        self._runtime = runtime
        self._options = options
        self._transport = transport
        self._catalogue = McpCatalogue(runtime, options)
        self._upstream = UpstreamResources(runtime, self._catalogue)
        self.calls = McpToolCalls(runtime, options, self._note_written)
        self._bus = InMemorySubscriptionBus()
        self._connections: dict[int, ServerSession] = {}
        """Of the handshake era, for what changes."""

    def server(self, name: str = "handrail", version: str = "") -> Server[Any]:
        """The SDK's server."""
        server: Server[Any] = Server(
            name,
            version=version,
            title="Handrail",
            cache_hints=_HINTS,  # type: ignore[arg-type]
            lifespan=self._lifespan,
            get_tool_input_schema=self._input_schema,
            on_list_tools=_finished(self._list_tools),  # type: ignore[arg-type]
            on_call_tool=_finished(self._call_tool),  # type: ignore[arg-type]
            on_list_resources=_finished(self._list_resources),  # type: ignore[arg-type]
            on_list_resource_templates=_finished(self._list_templates),  # type: ignore[arg-type]
            on_read_resource=_finished(self._read_resource),  # type: ignore[arg-type]
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=ListenHandler(self._bus),
            on_list_prompts=_finished(self._list_prompts),  # type: ignore[arg-type]
            on_get_prompt=_finished(self._get_prompt),  # type: ignore[arg-type]
            on_completion=_finished(self._complete),  # type: ignore[arg-type]
        )
        # Clients of the handshake era set a level. It is taken and not kept: only what a handler says to its client is
        # sent.
        server.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        server.add_request_handler("tasks/get", TaskParams, self._get_task)
        server.add_request_handler("tasks/update", TaskUpdateParams, self._update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel_task)
        server.add_notification_handler("notifications/initialized", NotificationParams, self.connected)
        server.extensions[TASKS] = {}
        server.middleware.clear()  # the SDK's own spans: a call has its span in the runtime
        return server

    @staticmethod
    def opening(server: Server[Any]) -> InitializationOptions:
        """What a client of the handshake era gets."""
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return server.create_initialization_options(changes)

    # Tools

    async def _list_tools(self, ctx: RequestContext, params: PaginatedRequestParams | None) -> dict[str, Any]:
        session = await self.calls.governed.session(self._transport.principal(ctx))
        tools = self._catalogue.tools(session, modern=is_modern(ctx))
        start = _start_of(params, len(tools))
        page: dict[str, Any] = {"tools": tools[start : start + _PAGE]}
        if start + _PAGE < len(tools):
            page["nextCursor"] = str(start + _PAGE)
        return page

    def tool(self, name: str) -> ToolDefinition | None:
        """A tool of the newest registry, whoever may use it."""
        tool = self._runtime.registry.snapshot().get(name)
        return tool.definition if tool is not None else None

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self.tool(name)
        return tool.parameters if tool is not None else None

    async def _call_tool(self, ctx: RequestContext, params: CallToolRequestParams) -> dict[str, Any]:
        return await self.call_tool(ctx, params.name, params.arguments or {})

    async def call_tool(self, ctx: RequestContext, name: str, args: Any) -> dict[str, Any]:
        """The result of `tools/call`; the protocol's error for a tool that there is not."""
        who, tracing = self._transport.principal(ctx), self._runtime.tracing
        if ctx.request is not None:
            args = ctx.request.scope.get(WRITTEN_ARGUMENTS, args)
        with tracing.received(_trace_context(ctx)) if tracing is not None else nullcontext():
            outcome = await self._run(ctx, who, "tools/call", name, args)
        if isinstance(outcome, InterimResult):
            return outcome.result
        response = outcome.response
        # A handler may answer NOT_FOUND for a record; only a tool that there is not is an error of the protocol.
        if response.error is not None and response.error.type is ErrorType.NOT_FOUND:
            session = await self.calls.governed.session(who)
            if session.plans[name] is None:
                raise unknown_tool(response)
        return await self.calls.results.of(who, response, outcome.blocks, session=outcome.session_id)

    async def _run(
        self, ctx: RequestContext, who: Principal, method: str, name: str, args: Any
    ) -> EndedCall | InterimResult:
        given = ctx.params or {}
        responses, state = given.get("inputResponses"), given.get("requestState")
        if state is not None and not isinstance(state, str):
            raise MCPError(code=INVALID_PARAMS, message="requestState is text.")
        return await self.calls.run(
            CallRequest(ctx, who, method, name, args, responses if isinstance(responses, Mapping) else {}, state)
        )

    def _note_written(self, ctx: RequestContext, key: CallKey) -> None:
        if key.document is not None:
            self._transport.when_written(ctx, key, self.calls)

    # Resources

    async def _list_resources(self, ctx: RequestContext, params: PaginatedRequestParams | None) -> dict[str, Any]:
        session = await self.calls.governed.session(self._transport.principal(ctx))
        return {"resources": [*self._catalogue.resources(session), *await self._upstream.resources(session)]}

    async def _list_templates(self, ctx: RequestContext, params: PaginatedRequestParams | None) -> dict[str, Any]:
        session = await self.calls.governed.session(self._transport.principal(ctx))
        return {"resourceTemplates": [*self._catalogue.templates(session), *await self._upstream.templates(session)]}

    async def _read_resource(self, ctx: RequestContext, params: ReadResourceRequestParams) -> dict[str, Any]:
        uri, who = str(params.uri), self._transport.principal(ctx)
        session = await self.calls.governed.session(who)
        if uri.startswith(RESULT_URI):
            kept = await self.calls.results.read(who, uri)
            if kept is not None:
                return {"contents": [kept]}
        guide = self._catalogue.guide(session, uri) if uri.startswith(GUIDE_URI) else None
        if guide is not None:
            return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": guide}]}
        if uri.startswith(SERVER_URI):
            passed = await self._upstream.read(session, uri)
            if passed is not None:
                return passed
        call = self._catalogue.call_for(session, uri)
        if call is None:
            raise MCPError(code=INVALID_PARAMS, message="Resource not found", data={"uri": uri[:1000]})
        outcome = await self._run(ctx, who, "resources/read", *call)
        if isinstance(outcome, InterimResult):
            return outcome.result
        if outcome.response.error is not None:
            raise MCPError(code=INVALID_PARAMS, message=outcome.response.error.message, data={"uri": uri[:1000]})
        text = as_text({"data": outcome.response.data})
        return {"contents": contents_of(uri, outcome.blocks, text)}

    async def _subscribe(self, ctx: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
        """Guides change with the registry, of which every connection hears; more there is not to remember."""
        return EmptyResult()

    async def _unsubscribe(self, ctx: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
        return EmptyResult()

    # Prompts, completion

    async def _list_prompts(self, ctx: RequestContext, params: PaginatedRequestParams | None) -> dict[str, Any]:
        session = await self.calls.governed.session(self._transport.principal(ctx))
        return {"prompts": [*self._catalogue.prompts(session), *await self._upstream.prompts(session)]}

    async def _get_prompt(self, ctx: RequestContext, params: GetPromptRequestParams) -> dict[str, Any]:
        who = self._transport.principal(ctx)
        session = await self.calls.governed.session(who)
        if params.name == SUMMARY:
            return {"messages": [_message({"type": "text", "text": self._catalogue.summary(session)})]}
        # A server's prompt has the server's name and a dot in front, and no tool has a dot in its name.
        passed = await self._upstream.prompt(session, params.name, params.arguments or {})
        if passed is not None:
            return passed
        if not self._catalogue.is_prompt(params.name) or session.plans[params.name] is None:
            raise MCPError(code=INVALID_PARAMS, message=f'There is no prompt "{params.name[:80]}".')
        outcome = await self._run(ctx, who, "prompts/get", params.name, dict(params.arguments or {}))
        if isinstance(outcome, InterimResult):
            return outcome.result
        if outcome.response.error is not None:
            raise MCPError(code=INVALID_PARAMS, message=outcome.response.error.message)
        blocks = outcome.blocks or [{"type": "text", "text": as_text({"data": outcome.response.data})}]
        return {"messages": [_message(block) for block in blocks]}

    async def _complete(self, ctx: RequestContext, params: CompleteRequestParams) -> dict[str, Any]:
        session = await self.calls.governed.session(self._transport.principal(ctx))
        named = params.ref
        tool = named.name if isinstance(named, PromptReference) else self._catalogue.tool_of_template(named.uri)
        values = self._catalogue.completions(session, tool, params.argument.name, params.argument.value) if tool else []
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}

    async def _set_level(self, ctx: RequestContext, params: SetLevelRequestParams) -> EmptyResult:
        return EmptyResult()

    # Tasks

    async def _get_task(self, ctx: RequestContext, params: TaskParams) -> dict[str, Any]:
        who = self._task_client(ctx, params.task_id)
        task, questions = await self.calls.task(ctx, who, params.task_id)
        return {"resultType": "complete", **self.calls.tasks.described(task, questions)}

    async def _update_task(self, ctx: RequestContext, params: TaskUpdateParams) -> dict[str, Any]:
        who = self._task_client(ctx, params.task_id)
        await self.calls.update_task(ctx, who, params.task_id, params.input_responses)
        return {"resultType": "complete"}

    async def _cancel_task(self, ctx: RequestContext, params: TaskParams) -> dict[str, Any]:
        await self.calls.cancel_task(self._task_client(ctx, params.task_id), params.task_id)
        return {"resultType": "complete"}

    def _task_client(self, ctx: RequestContext, task_id: str) -> Principal:
        """Who asks for a task. Over HTTP the task stands in a header as well, for whoever routes requests."""
        named = ctx.request.headers.get("mcp-name") if ctx.request is not None else None
        if named is not None and named.strip() != task_id:
            raise MCPError(code=HEADER_MISMATCH, message="Mcp-Name is not the task of the request.")
        if "tasks" not in abilities(ctx):
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message="This client did not declare that it knows tasks.",
                data={"requiredCapabilities": {"extensions": {TASKS: {}}}},
            )
        return self._transport.principal(ctx)

    # What changes

    async def connected(self, ctx: RequestContext, params: NotificationParams) -> None:
        """A client of the handshake era has opened its session."""
        self._connections[id(ctx.session)] = ctx.session
        if len(self._connections) > _MAX_CONNECTIONS:
            del self._connections[next(iter(self._connections))]

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncIterator[None]:
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield None
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await self.calls.close()

    async def _watch(self) -> None:
        """Tell clients when the tools change: a reload, or a switch."""
        before = self._offered()
        while True:
            await asyncio.sleep(1)
            now = self._offered()
            if now != before:
                before = now
                for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
                    await self._bus.publish(event)
                await asyncio.gather(*(self._tell(name, one) for name, one in list(self._connections.items())))

    async def _tell(self, name: int, session: ServerSession) -> None:
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                await session.send_tool_list_changed()
                await session.send_prompt_list_changed()
                await session.send_resource_list_changed()
        except Exception:  # noqa: BLE001  # it has gone, or does not read
            self._connections.pop(name, None)

    def _offered(self) -> tuple[str, frozenset[str]]:
        return self._runtime.registry.snapshot().version, frozenset(self._runtime.switches)


def _finished(
    handler: Callable[[RequestContext, Any], Awaitable[dict[str, Any]]],
) -> Callable[[RequestContext, Any], Awaitable[dict[str, Any]]]:
    """A result of 2026-07-28 says of what kind it is; that of a handler which does not is complete."""

    async def answer(ctx: RequestContext, params: Any) -> dict[str, Any]:
        result = await handler(ctx, params)
        return {"resultType": "complete", **result} if is_modern(ctx) else result

    return answer


def _message(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": dict(block)}


def _start_of(params: PaginatedRequestParams | None, length: int) -> int:
    cursor = params.cursor if params is not None else None
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= len(str(length)) and int(cursor) < length):
        raise MCPError(code=INVALID_PARAMS, message="That cursor is none of this list.")
    return int(cursor)


def _trace_context(ctx: RequestContext) -> dict[str, str]:
    """The trace that a request names: in `_meta`, as MCP does by every transport, or in the headers of its HTTP request."""
    headers = {} if ctx.request is None else ctx.request.headers
    named = {name: value for name in TRACE_CONTEXT if isinstance(value := headers.get(name), str)}
    told = {name: value for name in TRACE_CONTEXT if isinstance(value := (ctx.meta or {}).get(name), str)}
    return {**named, **told}
