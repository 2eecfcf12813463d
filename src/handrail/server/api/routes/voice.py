"""Voice: a ticket over HTTP, and the WebSocket that it opens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from handrail.server.api.context import Parts, key_of, parts_of, talk_of
from handrail.server.api.problems import Problem, answer, problem_of, refusal
from handrail.server.api.request_bodies import read_object
from handrail.server.host.refusals import restarting
from handrail.server.voice.asyncapi import document
from handrail.server.voice.client_socket import Caller
from handrail.server.voice.messages import PROTOCOL
from handrail.server.voice.websocket_protocol import pipe_of


async def give_ticket(request: Request) -> Response:
    parts, talk = parts_of(request), await talk_of(request)
    await read_object(request, parts.options, ())
    if parts.voice is None:
        raise Problem(404, "This server has no voice.")
    if parts.talks.draining:
        raise restarting()
    parts.check_not_trying(talk)
    return answer(parts.voice.ticket(talk, key_of(request)), 201)


async def asyncapi(request: Request) -> Response:
    return answer(document())


class Line:
    """The WebSocket of one client. Refused before it is accepted if it speaks another protocol; after that, by close codes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange, pipe = self._parts.voice, pipe_of(scope)
        if exchange is None or pipe is None:
            await refusal(Problem(404, "This server has no voice."))(scope, receive, send)
            return
        if PROTOCOL not in scope.get("subprotocols", ()):
            problem = Problem(400, f"This WebSocket speaks the subprotocol {PROTOCOL}; ask for it.")
            await refusal(problem)(scope, receive, send)
            return
        if self._parts.talks.draining:
            await refusal(problem_of(restarting()))(scope, receive, send)
            return
        await receive()  # the wish to connect
        await send({"type": "websocket.accept", "subprotocol": PROTOCOL, "headers": []})
        client = scope.get("client")
        caller = Caller(pipe, exchange, str(scope["path_params"]["session"]), str(client[0]) if client else "")
        pipe.attach(caller)
        await caller.over
