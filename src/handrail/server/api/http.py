"""What the routes share: who is asking, for which session, what the body, the query and the headers say, and how it is
answered: with JSON, with a problem, or with a stream of events.

`ApiContext`, which every request carries, has the hosted sessions and the limits. A client learns what is wrong by a
status, a stable type and one sentence, never by a traceback. One that does not take what is sent is cut off by its connection's
watchdog, not here.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from handrail.contract.errors import JsonError, UsageError
from handrail.contract.fields import shown
from handrail.contract.store import StoreUnavailable
from handrail.schema.strict_json import parse
from handrail.server.api.idempotent_requests import IdempotentRequests
from handrail.server.api.readiness import Readiness
from handrail.server.connection_table import ConnectionTable
from handrail.server.host.hosted_session import OWN_IDS, EventReader, HostedSession
from handrail.server.host.refusals import RefusalReason, SessionRefused, restarting
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.key_ring import Key, KeyRing
from handrail.server.model_selection import ModelSelection
from handrail.server.options import Options
from handrail.server.voice.admission import Admission
from handrail.server.wire import HEARTBEAT, notice, to_json
from handrail.standard_runtime import Runtime

_DEPTH = 40
_MAX_DIGITS = 12
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
Endpoint: TypeAlias = "Callable[[ApiRequest], Awaitable[Response | ASGIApp]]"
TYPES = {
    400: "BAD_REQUEST",
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    406: "NOT_ACCEPTABLE",
    408: "TIMEOUT",
    409: "CONFLICT",
    410: "ENDED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "MISDIRECTED",
    429: "RATE_LIMIT",
    431: "HEADERS_TOO_LARGE",
    500: "INTERNAL",
    502: "BAD_GATEWAY",
    503: "UNAVAILABLE",
}
_STATUS = {
    RefusalReason.NOT_ALLOWED: 403,
    RefusalReason.NO_SESSION: 404,
    RefusalReason.MESSAGE_REUSED: 409,
    RefusalReason.BUSY: 409,
    RefusalReason.ENDED: 410,
    RefusalReason.QUOTA: 429,
    RefusalReason.FULL: 503,
    RefusalReason.RESTARTING: 503,
    RefusalReason.STORE_AWAY: 503,
}
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
_REVOKED = notice("closed", {"reason": "The key of this stream was revoked."})


class HttpProblem(Exception):
    """A request that cannot be carried out. `message` is for the client; `again` False keeps official OpenAI clients, which
    send anew by themselves, from doing so."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after: float | None = None,
        again: bool = True,
        challenge: str = 'Bearer realm="handrail"',
    ) -> None:
        super().__init__(message)
        self.challenge = challenge
        self.status = status
        self.message = message
        self.retry_after = retry_after
        self.again = again

    def body(self) -> dict[str, Any]:
        error: dict[str, Any] = {"type": TYPES.get(self.status, "INTERNAL"), "message": self.message}
        if self.retry_after is not None:
            error["retryAfter"] = round(self.retry_after, 3)
        return {"error": error}

    def headers(self) -> dict[str, str]:
        # A 403 for a scope that is missing carries a challenge as well (RFC 6750): from it a client knows what to ask
        # for.
        if self.status == 401 or "error=" in self.challenge:
            return {"WWW-Authenticate": self.challenge}
        # The SDKs of OpenAI and Anthropic repeat a 429 or 5xx by themselves, unless this header of theirs forbids it.
        told = {} if self.again else {"x-should-retry": "false"}
        return told if self.retry_after is None else {**told, "Retry-After": str(max(1, round(self.retry_after + 0.5)))}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(to_json(value), status, headers, media_type="application/json")


def refusal(problem: HttpProblem) -> Response:
    return answer(problem.body(), problem.status, problem.headers())


def problem_of(refused: SessionRefused) -> HttpProblem:
    """What the host of conversations refused, as HTTP says it."""
    return HttpProblem(_STATUS[refused.reason], refused.message, retry_after=refused.retry_after)


@dataclass(slots=True, kw_only=True)
class ApiContext:
    """Everything that a route may need."""

    sessions: SessionRegistry
    options: Options
    keys: KeyRing
    models: ModelSelection
    """Which model answers."""
    audit: Path | None
    """The folder of the audit log; None if it is kept in memory."""
    console: Mapping[str, tuple[bytes, str, str]] = field(default_factory=dict)
    """Files of the console by path: content, type, tag."""
    forget: Callable[[str, str], Awaitable[dict[str, Any]]] | None = None
    """Deletes what is kept of a user of a tenant."""
    voice: Admission | None = None
    """Voice conversations; None where the server has none."""
    takes_tickets: bool = False
    """Whether a one-time link opens the console."""
    streams: Counter[str] = field(default_factory=Counter)
    """Open streams by key."""
    resent: IdempotentRequests = field(default_factory=IdempotentRequests)
    """Sessions made for requests that may come again."""

    readiness: Readiness = field(init=False)
    connections: ConnectionTable = field(init=False)
    """Those of the server that these parts run in."""

    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    """Reading a long audit log takes a thread and a disk; operators wait for each other."""

    def __post_init__(self) -> None:
        self.readiness = Readiness(self.sessions, self.audit)
        self.connections = ConnectionTable(self.options.max_connections)

    @property
    def runtime(self) -> Runtime:
        return self.sessions.runtime

    def check_model(self) -> None:
        if self.models.choice.is_none:
            raise HttpProblem(503, self.models.choice.sentence, again=False)

    def take_stream(self, key: Key) -> StreamSlot:
        """A place for a stream that opens: it is given back when the stream closes, which it does if the key is revoked."""
        if self.sessions.draining:
            raise restarting()
        if self.streams[key.hash] >= self.options.max_streams:
            raise HttpProblem(429, f"This key has {self.options.max_streams} streams open; close one.", retry_after=5)
        self.streams[key.hash] += 1
        place = StreamSlot(self.streams, key.hash)
        place.unused = self.keys.using(key, place.revoke)
        return place


class ApiRequest(Request):
    """A request as the endpoints see it."""

    context: ApiContext
    key: Key
    """The one that the guard has found with it; paths that need none have none."""

    @property
    def secret(self) -> str:
        """The secret of the key."""
        return self.headers.get("authorization", "").partition(" ")[2].strip()


class PathEndpoint:
    """An ASGI application that gives a request to the endpoint of its method and sends what comes back."""

    def __init__(self, context: ApiContext, endpoints: dict[str, Endpoint]) -> None:
        self._context = context
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ApiRequest(scope, receive, send)
        request.context = self._context
        key = scope.get("state", {}).get("key")
        if key is not None:
            request.key = key
        method = "GET" if request.method == "HEAD" else request.method
        tracing = self._context.sessions.runtime.tracing
        try:
            with tracing.received(request.headers) if tracing is not None else nullcontext():
                response: Any = await self._endpoints[method](request)
        except HttpProblem as problem:
            response = refusal(problem)
        except SessionRefused as refused:
            response = refusal(problem_of(refused))
        except UsageError as error:
            response = refusal(HttpProblem(400, str(error)))
        except StoreUnavailable:
            response = refusal(
                HttpProblem(503, "The store cannot be reached at the moment; try again later.", retry_after=5)
            )
        await response(scope, request.receive, send)


async def hosted_session_of(
    request: ApiRequest, session_id: str | None = None, *, looks: bool = False
) -> HostedSession:
    """The session that the path, or `session_id`, names; its secret comes in the header. Whoever only `looks` does not take it
    from another process, and may be given one that is remote."""
    token = request.headers.get("x-session-token", "")
    named = session_id if session_id is not None else str(request.path_params["session"])
    return await request.context.sessions.find(named, token, request.key, looks=looks)


def operators_only(endpoint: Endpoint) -> Endpoint:
    """Refuses everybody whose key is not an operator's."""

    @wraps(endpoint)
    async def checked(request: ApiRequest) -> Response | ASGIApp:
        if not request.key.is_operator:
            raise HttpProblem(403, "Only an operator's key may do this.")
        return await endpoint(request)

    return checked


async def read_body(request: Request, options: Options) -> bytes:
    """The body, within its limit and in time."""
    limit = options.max_body_bytes
    announced = request.headers.get("content-length", "")
    # Cut, because Python refuses to read a number of thousands of digits; twenty are more than any limit.
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise HttpProblem(413, f"The body is larger than the {limit} bytes that are allowed.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.slow_seconds):
            # Counted as it comes, whatever was announced: a chunked body announces nothing.
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise HttpProblem(413, f"The body is larger than the {limit} bytes that are allowed.")
                parts.append(part)
    except TimeoutError:
        raise HttpProblem(408, "The body took too long to arrive.") from None
    except ClientDisconnect:
        raise HttpProblem(400, "The body ended before it was whole.") from None
    return b"".join(parts)


async def read_object(request: ApiRequest, options: Options, known: Collection[str] | None) -> dict[str, Any]:
    """The JSON object in the body, within its limit and in time. A field that is not `known` is named; None lets every field
    pass."""
    raw = await read_body(request, options)
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if raw and kind != "application/json":
        raise HttpProblem(415, "The body must be JSON, with the content type application/json.")
    try:
        value = parse(raw, max_bytes=options.max_body_bytes, max_depth=_DEPTH) if raw.strip() else {}
    except JsonError as error:
        raise HttpProblem(400, f"The body is not right: {error}") from None
    if not isinstance(value, dict):
        raise HttpProblem(400, "The body must be a JSON object.")
    strange = next((name for name in value if known is not None and name not in known), None)
    if strange is not None:
        has = f"it has {', '.join(sorted(known))}" if known else "it is empty"
        raise HttpProblem(400, f"The body has no field {shown(strange)}; {has}.")
    return value


def text_of(body: Mapping[str, Any], name: str, *, maximum: int, required: bool = False) -> str:
    """A text field; blank if it is not there and need not be."""
    value = body.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value.strip()):
        raise HttpProblem(400, f'"{name}" must be text{" that is not blank" if required else ""}.')
    if len(value) > maximum:
        raise HttpProblem(400, f'"{name}" has {len(value)} characters; at most {maximum} are allowed.')
    return value


def id_of(value: object, what: str) -> str:
    """An id that a client chose: short, and of plain characters."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise HttpProblem(400, f"{what} must be 1 to 128 letters, digits or any of _ . : -")
    if value.startswith(OWN_IDS):
        raise HttpProblem(400, f'{what} must not begin with "{OWN_IDS}": such ids are the server\'s own.')
    return value


def number_in(request: ApiRequest, name: str, default: int, *, maximum: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    # `isdecimal` alone would take the digits of any script.
    number = int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal() else 0
    if not 0 < number <= maximum:
        raise HttpProblem(400, f'"{name}" must be a whole number from 1 to {maximum}.')
    return number


def last_event_id(request: ApiRequest) -> int | None:
    """The last event that the client has seen, by header or query; None if it says nothing."""
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 16:
        raise HttpProblem(400, "Last-Event-ID (or `after`) must be the number of an event.")
    return int(text)


# --------------------------------------------------------------------------------------------- streams of events
@dataclass(slots=True, eq=False)
class StreamSlot:
    """One of the places that a key has for streams. `revoke` ends the stream that has it."""

    open: Counter[str]
    """How many each key has open."""
    key: str
    unused: Callable[[], None] | None = None
    """To be called when the key is no longer used here."""
    stream: asyncio.Task[Any] | None = None
    revoked: bool = False

    def revoke(self) -> None:
        self.revoked = True
        if self.stream is not None:
            self.stream.cancel()

    def give_back(self) -> None:
        """Once; further times change nothing."""
        unused, self.unused, self.stream = self.unused, None, None
        if unused is not None:
            unused()
            self.open[self.key] -= 1
            if self.open[self.key] <= 0:
                del self.open[self.key]


@dataclass(slots=True, eq=False)
class EventStream:
    """A response whose body is made of chunks that come in time. `source` ends when the client goes away."""

    source: AsyncIterator[bytes]
    place: StreamSlot = field(kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    on_end: Sequence[Callable[[], None]] = field(default=(), kw_only=True)
    revoked: bytes = field(default=_REVOKED, kw_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {**STREAM_HEADERS, **self.headers}.items()
        start = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
        sending = asyncio.current_task()
        assert sending is not None
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                continue
            gone = True
            sending.cancel()

        # ASGI tells of a client that went away only those who ask; what is sent to it afterwards is dropped without a
        # word.
        watching = asyncio.get_running_loop().create_task(watch())
        self.place.stream = sending
        if self.place.revoked:
            sending.cancel()
        try:
            await send(start)
            if scope["method"] != "HEAD":
                async for chunk in self.source:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            watching.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if gone:
                return
            if not self.place.revoked:
                raise
            sending.uncancel()
            watching.cancel()
            await send({"type": "http.response.body", "body": self.revoked, "more_body": False})
        finally:
            watching.cancel()
            close = getattr(self.source, "aclose", None)
            if close is not None:
                await close()
            # Not left to the source alone: one that was never begun does not end either.
            for call in self.on_end:
                call()
            self.place.give_back()


async def frames(
    reader: EventReader, options: Options, is_here: Callable[[], Awaitable[bool]], *, until_turn: int | None = None
) -> AsyncIterator[bytes]:
    """The frames of a log for one client; up to the end of one turn, where one is named. A session that `is_here` no
    more is left to whoever has it now."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + options.stream_seconds
    # A comment at once: proxies and browsers hand on the beginning of an answer with its first bytes. `retry` is how long
    # EventSource waits before it comes back.
    begin = b": handrail\nretry: 1000\n\n"
    try:
        while True:
            seconds = min(options.heartbeat_seconds, max(0.01, ends - loop.time()))
            events = await reader.batch(0 if begin else seconds)  # what is there goes out with the beginning
            if events is None or (events and not await is_here()):
                yield begin + notice(reader.farewell or "reconnect", {})
                return
            wanted = [one for one in events if until_turn is None or one.turn in (0, until_turn)]
            ends_at = [place for place, one in enumerate(wanted) if one.type == "done" and until_turn is not None]
            if ends_at:
                yield begin + b"".join(one.data for one in wanted[: ends_at[0] + 1])
                return
            if wanted or begin:
                yield begin + b"".join(one.data for one in wanted)
                begin = b""
            elif not events:
                yield HEARTBEAT
            if loop.time() >= ends:
                yield notice("reconnect", {"reason": "This stream is old enough; connect again and continue."})
                return
    finally:
        reader.close()
