"""A `tools/call` in a session of the handshake era over HTTP of which everything is plain: answered without the session's queues.

The SDK hands each request of a session to the task of that session and its answer back, which takes longer than the governed
call. What is taken here is a call of a tool that soon answers, changes nothing and asks nobody, in a session that the SDK has
opened, by the client that opened it. The answer is a stream of events, as the SDK gives it. Everything else goes the SDK's way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import orjson
import pydantic_core
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp_types import ErrorData, RequestParamsMeta
from mcp_types.methods import serialize_server_result
from starlette.requests import Request
from starlette.types import Scope, Send

from handrail.contract.definition import ToolDefinition
from handrail.mcp.server.live_calls import RequestContext
from handrail.mcp.server.options import TRACE_CONTEXT, Principal
from handrail.mcp.server.plain_calls import (
    CALL,
    PROGRESS_TOKEN,
    CallsTools,
    ProgressEvents,
    as_event,
    error_data,
    event_headers,
    is_soon,
    progress_events,
    takes_answers,
)
from handrail.providers.mcp.transport import TURN

SESSION = b"mcp-session-id"
_CANCELLED = "notifications/cancelled"
_MAX_SESSIONS = 10_000
_REQUEST = {"jsonrpc", "id", "method", "params"}
_PARAMS = {"name", "arguments", "_meta"}
_TEXTS = frozenset({TURN, *TRACE_CONTEXT})


@dataclass(slots=True)
class OpenSession:
    """A session as its client opened it, and the calls of it that run here, by the ids of their requests."""

    named: bytes
    who: Principal
    connection: Connection
    running: dict[int | str, asyncio.Task[Any]] = field(default_factory=dict)
    cancelled: set[int | str] = field(default_factory=set)


class SessionCall(NamedTuple):
    """A call that is ready to be made."""

    session: OpenSession
    number: int | str
    """The id of its request."""
    ctx: RequestContext
    name: str
    args: dict[str, Any]
    events: ProgressEvents | None


class SessionCalls:
    """Reads and answers plain calls of sessions. `find` gives the definition of a tool."""

    def __init__(self, find: Callable[[str], ToolDefinition | None], call: CallsTools) -> None:
        self._find = find
        self._call = call
        self._sessions: dict[bytes, OpenSession] = {}
        self._plain: dict[str, tuple[ToolDefinition, bool]] = {}

    def opened(self, named: bytes, who: Principal, session: ServerSession) -> None:
        """The client has said that it is there."""
        client = session.client_params
        if client is None or not named:
            return
        known = Connection.from_envelope(session.protocol_version, client.client_info, client.capabilities)
        self._sessions[named] = OpenSession(named, who, known)
        if len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def ended(self, named: bytes) -> None:
        """Its requests are for the SDK to refuse."""
        self._sessions.pop(named, None)

    def read(self, scope: Scope, who: Principal, body: bytes) -> SessionCall | None:
        """The call in a request; None if it is not plain."""
        headers = dict(scope["headers"])
        session = self._session(headers, who)
        if session is None or len(headers) != len(scope["headers"]):
            return None
        kind, accept = (headers.get(name, b"").decode("latin-1") for name in (b"content-type", b"accept"))
        if kind.partition(";")[0].strip() != "application/json" or not takes_answers(accept):
            return None
        try:
            request = pydantic_core.from_json(body)
            if not (type(request) is dict and request.keys() == _REQUEST and request["jsonrpc"] == "2.0"):
                return None
            number, params = request["id"], request["params"]
            # An id that is still in use is refused by the SDK, which knows how.
            if request["method"] != CALL or type(number) not in (int, str) or number in session.running:
                return None
            if type(params) is not dict or not params.keys() <= _PARAMS or type(params.get("arguments")) is not dict:
                return None
            name, meta = params.get("name"), params.get("_meta", {})
            if type(name) is not str or not self._is_plain(name) or type(meta) is not dict:
                return None
            if not all(name == PROGRESS_TOKEN or (name in _TEXTS and type(text) is str) for name, text in meta.items()):
                return None
            events = progress_events(meta, session.named)
            connection = session.connection
            ctx: RequestContext = RequestContext(
                session=ServerSession(events or connection.outbound, connection),  # type: ignore[arg-type]
                lifespan_context=None,
                protocol_version=connection.protocol_version,
                method=CALL,
                params=params,
                request_id=number,
                meta=cast("RequestParamsMeta", meta),
                request=Request(scope),
            )
            # Tried now: an id that cannot be written must not be found out when the call has run.
            orjson.dumps(number)
            return SessionCall(session, number, ctx, name, params["arguments"], events)
        except (ValueError, TypeError, RecursionError):  # no JSON, or a number that only the SDK's writer knows
            return None

    def cancel(self, scope: Scope, who: Principal, body: bytes) -> None:
        """Cancel what a notification names, if it runs here. The SDK, which hears of it as well, does not know it."""
        session = self._session(dict(scope["headers"]), who)
        if session is None or not session.running or _CANCELLED.encode() not in body:
            return
        try:
            notice = pydantic_core.from_json(body)
            number = notice["params"]["requestId"] if notice["method"] == _CANCELLED else None
        except (ValueError, TypeError, KeyError):  # the SDK says what is wrong with it
            return
        if isinstance(number, (int, str)) and not isinstance(number, bool) and number in session.running:
            session.cancelled.add(number)
            session.running[number].cancel()

    async def answer(self, call: SessionCall, send: Send) -> None:
        """Make the call, and send what comes of it."""
        session, number = call.session, call.number
        if call.events is not None:
            call.events.open(send)
        # In the task of the request: one of its own would have to wait for its turn, behind other threads as well.
        task = asyncio.current_task()
        assert task is not None
        session.running[number] = task
        outcome: dict[str, Any]
        try:
            result = await self._call(call.ctx, call.name, call.args)
            outcome = {"result": serialize_server_result(CALL, call.ctx.protocol_version, result)}
        except asyncio.CancelledError:
            # The request's own end, as when the server stops, is not the client's wish.
            if number not in session.cancelled:
                raise
            task.uncancel()
            outcome = {"error": _error_fields(ErrorData(code=REQUEST_CANCELLED, message="Request cancelled"))}
        except Exception as error:  # noqa: BLE001  # the client gets it, as an error of the protocol
            outcome = {"error": _error_fields(error_data(error, call.name))}
        finally:
            del session.running[number]
            session.cancelled.discard(number)
        body = as_event(orjson.dumps({"jsonrpc": "2.0", "id": number, **outcome}))
        if call.events is None or not call.events.has_begun:
            # Of a length, though it is a stream: it is all there, and takes one packet less.
            headers = [*event_headers(session.named), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _session(self, headers: dict[bytes, bytes], who: Principal) -> OpenSession | None:
        """The session of a request, if it is of the client that opened it and of its version."""
        session = self._sessions.get(headers.get(SESSION, b""))
        # The protocol forbids to take a session's id for proof of who asks: it travels in a header of every request.
        if session is None or session.who != who:
            return None
        version = headers.get(b"mcp-protocol-version")
        return session if version == session.connection.protocol_version.encode() else None

    def _is_plain(self, name: str) -> bool:
        """Whether its call soon has an answer, before which nobody is asked anything."""
        tool = self._find(name)
        if tool is None:
            return False
        known = self._plain.get(name)
        if known is None or known[0] is not tool:
            asks = tool.requires_confirmation or tool.confirmation_when is not None or tool.unvalidated
            # A write takes the way that keeps what was answered until the client has it.
            asks = asks or tool.side_effects == "writes"
            known = self._plain[name] = (tool, not asks and is_soon(tool))
        return known[1]


def _error_fields(data: ErrorData) -> dict[str, Any]:
    return data.model_dump(by_alias=True, mode="json", exclude_none=True)
