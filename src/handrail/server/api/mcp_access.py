"""MCP in the application: its path, who may use it and how much of it, and where a client learns who gives out tokens for it.

A stream takes one of its key's places for streams and ends as every other does. A session of the handshake era stays open until
its client ends it, so a program that opens more of them than streams ends its own one that was unused for the longest time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from handrail.mcp.server.http import OAUTH, PATH, McpHttp
from handrail.mcp.server.request_body import WRITTEN_ARGUMENTS, TooManyValues, read_request
from handrail.server.api.http import ApiContext, HttpProblem, answer, problem_of, read_body, refusal
from handrail.server.connection_table import ConnectionCounts
from handrail.server.host.refusals import SessionRefused
from handrail.server.key_ring import UNKNOWN_CLIENT, Key, key_of_token

_SESSION, _VERSION, _METHOD = "mcp-session-id", "mcp-protocol-version", "mcp-method"
_LISTEN = "subscriptions/listen"
_TOO_LARGE = 413
_MALFORMED = (400, 404, 405, 406, 413, 415)
"""What a client is answered that does not keep to the protocol."""
_DRAIN_SECONDS = 20.0
_MAX_UNREAD_BYTES = 64 * 1024 * 1024


class McpRoutes:
    """The routes of one `McpHttp`, and what the guard asks about its clients."""

    def __init__(self, mcp: McpHttp, context: ApiContext) -> None:
        self.mcp = mcp
        self._context = context
        self._malformed = ConnectionCounts()
        self._sessions: dict[tuple[str, str], OrderedDict[str, int]] = {}
        """Sessions by the hash and name of their key, those used last at the end; each with how many requests it answers now.
        The tokens of one user have one hash, and a session is that of the program that opened it alone."""

    def routes(self) -> list[BaseRoute]:
        paths = {"/.well-known/oauth-protected-resource", self.mcp.metadata_path} if self.mcp.tokens else ()
        told = [Route(path, self._metadata, methods=["GET"], include_in_schema=False) for path in sorted(paths)]
        return [Route(PATH, _Application(self._serve), include_in_schema=False), *told]

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        key: Key = scope["state"]["key"]
        # The version decides which of its two servers the SDK takes, as here.
        is_modern = headers.get(_VERSION) not in (None, *HANDSHAKE_PROTOCOL_VERSIONS)
        listens = headers.get(_METHOD, "").strip() == _LISTEN if is_modern else scope["method"] == "GET"
        named = "" if is_modern else headers.get(_SESSION, "")

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _MALFORMED:
                self._malformed.note(
                    f"A request over MCP with the key {key.traceless_name} was refused with status {message['status']}"
                )
            await send(message)

        try:
            if scope["method"] == "POST":
                receive = await self._read(scope, receive)
            if not is_modern and not named:
                self._check_room(key)
            await self._with_session(key, named, listens, scope, receive, noting)
        except HttpProblem as problem:
            await refusal(problem)(scope, receive, noting)
        except SessionRefused as refused:
            await refusal(problem_of(refused))(scope, receive, noting)

    async def _read(self, scope: Scope, receive: Receive) -> Receive:
        """The body, read within its limit and in time, for the SDK to receive: without arguments that nobody takes."""
        is_whole = False

        async def noting() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        try:
            raw = await read_body(Request(scope, noting), self._context.options)
        except HttpProblem as problem:
            # After the last part nothing comes any more: whoever waits for it keeps the client waiting as well.
            if problem.status == _TOO_LARGE and not is_whole:
                await _drained(receive)
            raise
        try:
            request = read_request(raw)
        except TooManyValues:
            raise HttpProblem(413, "The body has more values than a request may have.") from None
        if request.arguments is not None:
            scope[WRITTEN_ARGUMENTS] = request.arguments
            # Arguments were taken out of the body, so the length that the client announced is no longer its own.
            scope["headers"] = [one for one in scope["headers"] if one[0] != b"content-length"]
        # Once from memory, then from the connection: the SDK listens there for the client's going away.
        waiting = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def from_memory() -> Message:
            return waiting.pop() if waiting else await receive()

        return from_memory

    async def _with_session(
        self, key: Key, named: str, listens: bool, scope: Scope, receive: Receive, send: Send
    ) -> None:
        whose = (key.hash, key.name)
        mine = self._sessions.get(whose, OrderedDict())
        if named in mine:
            mine[named] += 1
            mine.move_to_end(named)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                made = Headers(raw=message["headers"]).get(_SESSION)
                if made is not None and not named:
                    # Only when a session was really made: a refused request must not end another session.
                    await self._make_room(key, scope)
                    self._sessions.setdefault(whose, OrderedDict())[made] = 0
            await send(message)

        try:
            if listens:
                await self._stream(key, scope, receive, send)
            else:
                await self.mcp(scope, receive, noting)
        finally:
            mine = self._sessions.get(whose, OrderedDict())
            if named in mine:
                mine[named] -= 1
                if scope["method"] == "DELETE":
                    del mine[named]
            if not mine:
                self._sessions.pop(whose, None)

    def _check_room(self, key: Key) -> None:
        mine = self._sessions.get((key.hash, key.name), OrderedDict())
        if len(mine) >= self._context.options.max_streams and all(mine.values()):
            raise HttpProblem(429, f"This key has {len(mine)} sessions open; end one.", retry_after=5)

    async def _make_room(self, key: Key, scope: Scope) -> None:
        """A session is made: where the key has all that it may have, its own oldest one that answers nothing ends."""
        mine = self._sessions.get((key.hash, key.name), OrderedDict())
        while len(mine) >= self._context.options.max_streams:
            idle = next((name for name, requests in mine.items() if not requests), None)
            if idle is None:
                break
            # Before it is ended, which waits: another request that needs room must not choose the same one.
            del mine[idle]
            await self._end(idle, scope)

    async def _end(self, session_id: str, scope: Scope) -> None:
        """As its client would end it."""
        kept = [one for one in scope["headers"] if one[0] not in (b"content-length", b"transfer-encoding")]
        ending = {**scope, "method": "DELETE", "headers": [*kept, (_SESSION.encode(), session_id.encode())]}

        async def nothing() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def ignored(message: Message) -> None:
            pass

        await self.mcp(ending, nothing, ignored)

    async def _stream(self, key: Key, scope: Scope, receive: Receive, send: Send) -> None:
        """A stream for as long as one may be open. For the SDK its end is that its client went away."""
        context = self._context
        place = context.take_stream(key)
        begun = ended = False

        async def last() -> None:
            async with asyncio.timeout(context.options.stream_seconds):
                await context.sessions.leaving.wait()

        async def until_the_end() -> Message:
            asked = asyncio.ensure_future(receive())
            await asyncio.wait({asked, lifetime}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            asked.cancel()
            return {"type": "http.disconnect"}

        async def noting(message: Message) -> None:
            nonlocal begun, ended
            begun = begun or message["type"] == "http.response.start"
            ended = ended or (message["type"] == "http.response.body" and not message.get("more_body", False))
            await send(message)

        lifetime = place.stream = asyncio.get_running_loop().create_task(last())
        if place.revoked:
            lifetime.cancel()
        try:
            await self.mcp(scope, until_the_end, noting)
            # The SDK believes that its client went away, and sends no end; the client is still there, and would wait for
            # one.
            if begun and not ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            lifetime.cancel()
            await asyncio.gather(lifetime, return_exceptions=True)
            place.give_back()

    async def _metadata(self, request: Request) -> Response:
        return answer(self.mcp.metadata())

    def challenge(self, scope: str = "") -> str:
        return self.mcp.challenge(scope)

    def takes(self, token: str) -> bool:
        return self.mcp.tokens is not None and self.mcp.tokens.names_issuer(token)

    async def key_of(self, token: str) -> Key:
        assert self.mcp.tokens is not None  # `takes` was asked
        who = await self.mcp.tokens.check(token)
        return replace(key_of_token(self.mcp.options.issuer, who), name=f"{OAUTH}{who.client or UNKNOWN_CLIENT}")


async def _drained(receive: Receive) -> None:
    """Take the rest of a body that is refused: a client that still sends sees no answer, but a connection that is reset."""
    size, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while more and size < _MAX_UNREAD_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message["type"] == "http.request" and message.get("more_body", False)


class _Application:
    """A route takes a function for an endpoint of its own kind."""

    def __init__(self, serve: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)
