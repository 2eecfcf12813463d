"""What the routes share: who is asking, for which session, and what the body, the query and the headers say.

`ApiContext`, found through the application's state, has the hosted sessions and the limits.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from handrail.app import Runtime
from handrail.contract.errors import JsonError, UsageError
from handrail.contract.fields import shown
from handrail.contract.store import StoreUnavailable
from handrail.schema.strict_json import parse
from handrail.server.api.idempotent_requests import IdempotentRequests
from handrail.server.api.problems import HttpProblem, problem_of, refusal
from handrail.server.api.readiness import Readiness
from handrail.server.api.streams import StreamSlot
from handrail.server.connections import ConnectionTable
from handrail.server.host.hosted_session import OWN_IDS, HostedSession
from handrail.server.host.refusals import SessionRefused, busy, restarting
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.keys import Key, KeyRing
from handrail.server.model_selection import ModelSelection
from handrail.server.options import Options
from handrail.server.voice.admission import Admission

_DEPTH = 40
_MAX_DIGITS = 12
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
Endpoint = Callable[[Request], Awaitable[Response | ASGIApp]]


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
    streams: Counter[str] = field(default_factory=Counter)
    """Open streams by key."""
    trying: set[str] = field(default_factory=set)
    """Sessions in which a tool is being tried: a turn of its own, beside which no message is answered."""
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

    def check_not_trying(self, hosted: HostedSession) -> None:
        if hosted.id in self.trying:
            raise busy("A tool is being tried in this session; wait for it.")

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


class PathEndpoint:
    """An ASGI application that gives a request to the endpoint of its method and sends what comes back."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        method = "GET" if request.method == "HEAD" else request.method
        try:
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


def context_of(request: Request) -> ApiContext:
    context: ApiContext = request.app.state.context
    return context


def key_of(request: Request) -> Key:
    key: Key = request.state.key
    return key


async def hosted_session_of(request: Request, session_id: str | None = None, *, looks: bool = False) -> HostedSession:
    """The session that the path, or `session_id`, names; its secret comes in the header. Whoever only `looks` does not take it
    from another process, and may be given one that is remote."""
    token = request.headers.get("x-session-token", "")
    named = session_id if session_id is not None else str(request.path_params["session"])
    sessions = context_of(request).sessions
    return await sessions.find(named, token, key_of(request), looks=looks)


def operators_only(endpoint: Endpoint) -> Endpoint:
    """Refuses everybody whose key is not an operator's."""

    @wraps(endpoint)
    async def checked(request: Request) -> Response | ASGIApp:
        if not key_of(request).is_operator:
            raise HttpProblem(403, "Only an operator's key may do this.")
        return await endpoint(request)

    return checked


async def read_object(request: Request, options: Options, known: Collection[str] | None) -> dict[str, Any]:
    """The JSON object in the body, within its limit and in time. A field that is not `known` is named; None lets every field
    pass."""
    limit = options.max_body_bytes
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise HttpProblem(413, f"The body is larger than the {limit} bytes that are allowed.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(options.slow_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise HttpProblem(413, f"The body is larger than the {limit} bytes that are allowed.")
                parts.append(part)
    except TimeoutError:
        raise HttpProblem(408, "The body took too long to arrive.") from None
    except ClientDisconnect:
        raise HttpProblem(400, "The body ended before it was whole.") from None
    raw = b"".join(parts)
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


def number_in(request: Request, name: str, default: int, *, maximum: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    number = int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdecimal() else 0
    if not 0 < number <= maximum:
        raise HttpProblem(400, f'"{name}" must be a whole number from 1 to {maximum}.')
    return number


def last_event_id(request: Request) -> int | None:
    """The last event that the client has seen, by header or query; None if it says nothing."""
    text = request.headers.get("last-event-id") or request.query_params.get("after")
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 16:
        raise HttpProblem(400, "Last-Event-ID (or `after`) must be the number of an event.")
    return int(text)
