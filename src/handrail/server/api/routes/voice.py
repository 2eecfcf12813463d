"""Voice: a ticket over HTTP, and the WebSocket that it opens."""

from __future__ import annotations

from contextlib import nullcontext

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from handrail.server.api.http import (
    ApiContext,
    ApiRequest,
    HttpProblem,
    answer,
    hosted_session_of,
    problem_of,
    read_object,
    refusal,
)
from handrail.server.host.refusals import restarting, trying
from handrail.server.voice.asyncapi import document
from handrail.server.voice.client_socket import ClientSocket, pipe_of
from handrail.server.voice.voice_protocol import PROTOCOL


async def give_ticket(request: ApiRequest) -> Response:
    context, hosted = request.context, await hosted_session_of(request)
    await read_object(request, context.options, ())
    if context.voice is None:
        raise HttpProblem(404, "This server has no voice.")
    if context.sessions.draining:
        raise restarting()
    if hosted.is_trying:
        raise trying()
    return answer(await context.voice.ticket(hosted, request.key), 201)


async def asyncapi(request: ApiRequest) -> Response:
    return answer(document())


class VoiceEndpoint:
    """The WebSocket of one client. Refused before it is accepted if it speaks another protocol; after that, by close codes."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission, pipe = self._context.voice, pipe_of(scope)
        if admission is None or pipe is None:
            await refusal(HttpProblem(404, "This server has no voice."))(scope, receive, send)
            return
        if PROTOCOL not in scope.get("subprotocols", ()):
            problem = HttpProblem(400, f"This WebSocket speaks the subprotocol {PROTOCOL}; ask for it.")
            await refusal(problem)(scope, receive, send)
            return
        if self._context.sessions.draining:
            await refusal(problem_of(restarting()))(scope, receive, send)
            return
        await receive()  # the wish to connect
        await send({"type": "websocket.accept", "subprotocol": PROTOCOL, "headers": []})
        client, tracing = scope.get("client"), self._context.sessions.runtime.tracing
        address, session = str(client[0]) if client else "", str(scope["path_params"]["session"])
        with tracing.received(Headers(scope=scope)) if tracing is not None else nullcontext():
            caller = ClientSocket(pipe, admission, session, address)
        pipe.attach(caller)
        await caller.over
