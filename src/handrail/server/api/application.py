"""The application: the routes behind the guard. `create` puts it together from parts that are already made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from handrail.server import console_tickets
from handrail.server.api.guard import CheckToken, Guard
from handrail.server.api.http import ApiContext, Endpoint, HttpProblem, PathEndpoint, refusal
from handrail.server.api.routes import (
    calendar,
    catalogue,
    completions,
    confirmations,
    connections,
    files,
    model,
    operator,
    sessions,
    voice,
)
from handrail.server.key_ring import KeyRing, TokenBuckets

if TYPE_CHECKING:
    from handrail.server.api.mcp_access import McpRoutes

ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/", files.home),
    ("GET", connections.CALLBACK, connections.come_back),
    ("GET", "/console/{name:path}", files.console),
    ("GET", "/favicon.ico", files.favicon),
    ("GET", "/healthz", files.alive),
    ("GET", "/readyz", files.ready),
    ("GET", "/openapi.json", files.openapi),
    ("GET", "/asyncapi.json", voice.asyncapi),
    ("GET", "/api/sessions", sessions.list_sessions),
    ("POST", "/api/sessions", sessions.open_session),
    ("GET", "/api/sessions/{session}", sessions.show_session),
    ("DELETE", "/api/sessions/{session}", sessions.end_session),
    ("POST", "/api/sessions/{session}/messages", sessions.post_message),
    ("GET", "/api/sessions/{session}/events", sessions.listen),
    ("POST", "/api/sessions/{session}/cancel", sessions.cancel),
    ("POST", "/api/sessions/{session}/tools", sessions.take_newest_tools),
    ("POST", "/api/sessions/{session}/voice", voice.give_ticket),
    ("GET", "/api/sessions/{session}/connections", connections.show),
    ("POST", "/api/sessions/{session}/connections", connections.complete),
    ("POST", "/api/sessions/{session}/connections/{connection}", connections.begin),
    ("DELETE", "/api/sessions/{session}/connections/{connection}", connections.disconnect),
    ("GET", "/api/confirmations/{confirmation}", confirmations.show),
    ("GET", "/api/confirmations/{confirmation}/progress", confirmations.progress),
    ("POST", "/api/confirmations/{confirmation}/approve", confirmations.approve),
    ("POST", "/api/confirmations/{confirmation}/decline", confirmations.decline),
    ("GET", "/api/tools", catalogue.list_tools),
    ("GET", "/api/tools/{tool}", catalogue.show_tool),
    ("POST", "/api/tools/{tool}/try", catalogue.try_tool),
    ("POST", "/api/tools/{tool}/switch", operator.switch),
    ("GET", "/api/model", model.show),
    ("POST", "/api/model", model.select),
    ("GET", "/api/audit", operator.audit),
    ("GET", "/api/audit/stream", operator.audit_stream),
    ("GET", "/api/audit/why/{call}", operator.audit_why),
    ("GET", "/api/ledger", operator.ledger),
    ("POST", "/api/ledger/{key}/settle", operator.settle),
    ("GET", "/api/policy", operator.policy),
    ("GET", "/api/mcp/servers", operator.mcp_servers),
    ("DELETE", "/api/users/{user:path}", operator.forget_user),
    ("GET", "/metrics", operator.metrics),
    ("GET", "/api/stats", operator.stats),
    ("POST", "/v1/chat/completions", completions.complete),
    ("GET", "/v1/models", completions.models),
    ("GET", "/images/{image}.png", files.image),
    ("GET", "/calendar/events/{event}", calendar.show_event),
)


def create(
    context: ApiContext,
    keys: KeyRing,
    *,
    buckets: TokenBuckets | None = None,
    mcp: McpRoutes | None = None,
    tokens: CheckToken | None = None,
) -> Starlette:
    """The application over these parts, for whoever has one of these keys."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await context.sessions.start()
        try:
            async with mcp.mcp.run() if mcp is not None else nullcontext():
                yield
        finally:
            await context.sessions.close()

    traded = (_route(context, console_tickets.PATH, {"POST": console_tickets.trade}),) if context.takes_tickets else ()
    spoken = WebSocketRoute("/api/sessions/{session}/voice", voice.VoiceEndpoint(context))
    app = Starlette(
        # Routes are looked through in their order, and MCP's clients ask most often.
        routes=[*(mcp.routes() if mcp is not None else ()), *traded, *_routes(context), spoken],
        middleware=[Middleware(Guard, keys=keys, options=context.options, buckets=buckets, mcp=mcp, tokens=tokens)],
        exception_handlers={HttpProblem: _refused, HTTPException: _not_routed},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.context = context
    return app


def _routes(context: ApiContext) -> list[BaseRoute]:
    """One route for each path, so that a wrong method learns which would be right."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for method, path, endpoint in ROUTES:
        by_path.setdefault(path, {})[method] = endpoint
    return [_route(context, path, endpoints) for path, endpoints in by_path.items()]


def _route(context: ApiContext, path: str, endpoints: dict[str, Endpoint]) -> Route:
    return Route(path, PathEndpoint(context, endpoints), methods=sorted(endpoints), include_in_schema=False)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    return refusal(error)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "There is nothing at this path.", 405: "This path does not take that method."}
    response = refusal(
        HttpProblem(error.status_code, words.get(error.status_code, "The request cannot be carried out."))
    )
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response
