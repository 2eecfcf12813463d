"""What the routes share: the hosted sessions, the limits, who is asking. Found through the application's state."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from handrail.app import Runtime
from handrail.server.api.idempotent_requests import IdempotentRequests
from handrail.server.api.problems import HttpProblem
from handrail.server.api.readiness import Readiness
from handrail.server.api.streams import StreamSlot
from handrail.server.connection_limits import ConnectionTable
from handrail.server.host.hosted_session import HostedSession
from handrail.server.host.refusals import busy, restarting
from handrail.server.host.session_registry import SessionRegistry
from handrail.server.keys import Key, KeyRing
from handrail.server.model_selection import ModelSelection
from handrail.server.options import Options
from handrail.server.voice.admission import Admission

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
        place = StreamSlot(lambda: self._give_back(key, unused))
        unused = self.keys.using(key, place.revoke)
        return place

    def _give_back(self, key: Key, unused: Callable[[], None]) -> None:
        unused()
        self.streams[key.hash] -= 1
        if self.streams[key.hash] <= 0:
            del self.streams[key.hash]


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
