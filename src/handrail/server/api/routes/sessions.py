"""Sessions over HTTP: open, look at, speak, listen, cancel, end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any, cast
from zoneinfo import ZoneInfo

from starlette.responses import Response
from starlette.types import ASGIApp

from handrail.contract.definition import Mode
from handrail.contract.store import HoldState, LedgerState, StoreUnavailable
from handrail.runtime.confirmation import request_of
from handrail.runtime.session import Session
from handrail.server.api.http import (
    ApiContext,
    ApiRequest,
    EventStream,
    HttpProblem,
    answer,
    frames,
    hosted_session_of,
    id_of,
    last_event_id,
    read_object,
    text_of,
)
from handrail.server.api.visible_tools import tools_in
from handrail.server.host.hosted_session import HostedSession, TurnRun, events_of
from handrail.server.host.refusals import message_reused
from handrail.server.host.remote_sessions import remote_frames
from handrail.server.host.sealed_tokens import seal, unseal
from handrail.server.host.session_registry import BusyElsewhere
from handrail.server.wire import notice, without_detail
from handrail.standard_runtime import Runtime

MAX_TEXT = 32_000
_MAX_USER = 256
_MAX_LISTED = 100
_CERTAIN_SECONDS = 5.0
"""A look at a session that took longer is taken again: its process was frozen, and others may have continued since."""


async def open_session(request: ApiRequest) -> Response:
    context = request.context
    body = await read_object(request, context.options, ("mode", "user", "timeZone"))
    mode = body.get("mode", "text")
    if mode not in ("text", "voice"):
        raise HttpProblem(400, '"mode" must be "text" or "voice".')
    user = text_of(body, "user", maximum=_MAX_USER)
    if not user.isprintable() or (user and not user.strip()):
        raise HttpProblem(400, '"user" must be printable text that is not blank.')
    hosted = await context.sessions.open(
        request.key, mode=cast(Mode, mode), user=user or None, time_zone=time_zone_of(body)
    )
    session = hosted.session
    if not request.key.expires:  # another token of the same user could not open it
        sealed = seal(request.secret, session.id, session.token)
        await context.sessions.conversations.remember_opener(session.id, sealed)
    tools = [tool.tool_id for tool in tools_in(session)]
    facts = {"sessionId": session.id, "token": session.token, "mode": session.mode, "user": session.user}
    return answer({**facts, "registryVersion": session.snapshot.version, "tools": tools}, 201)


async def list_sessions(request: ApiRequest) -> Response:
    """The conversations that were opened with this key for its user, each with its secret: no other key sees them. A key
    without a user is shared by people who do not know each other, and sees none."""
    sessions, key = request.context.sessions, request.key
    if key.user is None or key.expires:
        return answer({"sessions": []})
    found = await sessions.conversations.opened_with(key.hash, key.user, _MAX_LISTED)
    now = await sessions.runtime.store.now()
    listed = []
    for one in found:
        holds = await sessions.runtime.store.holds(one.session_id, (HoldState.PENDING,))
        facts = {"sessionId": one.session_id, "token": unseal(request.secret, one.session_id, one.sealed)}
        times = {"createdAt": one.created_at, "updatedAt": one.updated_at}
        waiting = sum(hold.expires_at > now for hold in holds)
        listed.append({**facts, "title": one.title, **times, "answering": one.answering, "waiting": waiting})
    return answer({"sessions": listed})


async def show_session(request: ApiRequest) -> Response:
    for _ in range(2):  # a process that was frozen meanwhile looks again whose the session is
        began = monotonic()
        hosted = await hosted_session_of(request, looks=True)
        shown = await _shown(request, hosted)
        if began <= hosted.asked_at and monotonic() - began < _CERTAIN_SECONDS:
            return answer(shown)
    raise StoreUnavailable("What is in memory may be old, and the store cannot be asked who has the session.")


async def _shown(request: ApiRequest, hosted: HostedSession) -> dict[str, Any]:
    session = hosted.session
    sessions = request.context.sessions
    # At one moment, before the requests are read: the stream tells what happens meanwhile.
    messages, last_event = hosted.messages(detailed=request.key.is_operator), hosted.last_event
    return {
        "sessionId": session.id,
        "mode": session.mode,
        "user": session.user,
        "active": session.is_active,
        "voice": hosted.voice is not None or (hosted.is_live and session.mode == "voice"),
        "turn": session.turn.number if session.turn is not None else 0,
        "answering": hosted.answering,
        "registryVersion": session.snapshot.version,
        "tools": [tool.tool_id for tool in tools_in(session)],
        "budget": hosted.budget(),
        "messages": messages,
        "confirmations": await open_confirmations(
            sessions.runtime, session, tokens=request.query_params.get("tokens") == "true"
        ),
        "approved": await approved_confirmations(sessions.runtime, hosted.id),
        "lastEventId": last_event,
    }


async def open_confirmations(runtime: Runtime, session: Session, *, tokens: bool) -> list[dict[str, Any]]:
    """The requests that wait for the person with their facts of this moment; with `tokens` each has a fresh one."""
    return await runtime.confirmations.show_all(session, tokens=tokens)


async def approved_confirmations(runtime: Runtime, session_id: str) -> list[dict[str, Any]]:
    """The requests that were approved and whose calls have not ended: a page that comes back continues waiting for them."""
    found = []
    for hold in await runtime.store.holds(session_id, (HoldState.APPROVED, HoldState.CONSUMED)):
        row = await runtime.store.ledger_row(hold.ledger_key) if hold.state is HoldState.CONSUMED else None
        if hold.state is HoldState.APPROVED or (row is not None and row.state is LedgerState.RUNNING):
            found.append({**request_of(hold), "turn": hold.turn})
    return found


async def end_session(request: ApiRequest) -> Response:
    hosted = await hosted_session_of(request)
    await request.context.sessions.end(hosted)
    return answer({"sessionId": hosted.id, "active": False})


async def post_message(request: ApiRequest) -> Response | ASGIApp:
    context, key = request.context, request.key
    context.check_model()
    elsewhere: BusyElsewhere | None = None
    try:
        hosted = await hosted_session_of(request)
    except BusyElsewhere as problem:
        elsewhere, hosted = problem, problem.hosted
    body = await read_object(request, context.options, ("id", "text"))
    message_id = id_of(body.get("id"), '"id"')
    text = text_of(body, "text", maximum=MAX_TEXT, required=True)
    if elsewhere is not None:
        return _answered_elsewhere(request, elsewhere, message_id, text)
    if "text/event-stream" not in request.headers.get("accept", ""):
        run = await context.sessions.say(hosted, message_id, text)
        return answer({"turn": run.turn.number, "messageId": message_id, "lastEventId": run.which}, 202)
    # Before the turn begins: a message whose answer cannot be streamed is refused while it has done nothing.
    place = context.take_stream(key)
    try:
        run = await context.sessions.say(hosted, message_id, text)
    except BaseException:
        place.give_back()
        raise
    if not run.fresh:
        return EventStream(_replayed_events(run, detailed=key.is_operator), place=place)
    reader = hosted.log.reader(run.which, detailed=key.is_operator)
    told = frames(reader, context.options, _is_here(context, hosted), until_turn=run.turn.number)
    return EventStream(told, place=place, on_end=(reader.close,))


async def _replayed_events(run: TurnRun, *, detailed: bool) -> AsyncIterator[bytes]:
    """A message that was answered before: the same turn, from what is stored."""
    for name, data in events_of(run.turn):
        told = data if detailed else without_detail(name, data)
        yield notice(name, {"turn": run.turn.number, **told, "replayed": True})


def _answered_elsewhere(request: ApiRequest, problem: BusyElsewhere, message_id: str, text: str) -> Response | ASGIApp:
    """Another process is busy in the session: if it is with this very message, its answer is given from what is stored."""
    context, hosted = request.context, problem.hosted
    turn = hosted.known(message_id)
    if turn is not None and turn.text != text:
        raise message_reused()
    if turn is None or turn.state == "failed":
        raise problem
    if "text/event-stream" not in request.headers.get("accept", ""):
        return answer({"turn": turn.number, "messageId": message_id, "lastEventId": hosted.last_event}, 202)
    place = context.take_stream(request.key)
    # One before its last: that one says that the turn is done, and ends the stream.
    after = hosted.last_event if turn.state == "running" else turn.last_event - 1
    requests = _requests(context.runtime, hosted.session)
    told = remote_frames(context.sessions, hosted, after, requests, until=message_id, detailed=request.key.is_operator)
    return EventStream(told, place=place)


def _requests(runtime: Runtime, session: Session) -> Callable[[], Awaitable[list[dict[str, Any]]]]:
    """Finds the requests that wait for the person and were not found before as they are now."""
    seen: set[tuple[str, str, str | None]] = set()

    async def find() -> list[dict[str, Any]]:
        holds = await runtime.store.holds(session.id, (HoldState.PENDING,))
        if {(hold.hold_id, hold.preview, hold.replaced_by) for hold in holds} <= seen:
            return []
        found = await open_confirmations(runtime, session, tokens=True)
        fresh = [one for one in found if (one["id"], one["preview"], one["replacedBy"]) not in seen]
        seen.update((one["id"], one["preview"], one["replacedBy"]) for one in fresh)
        return fresh

    return find


async def listen(request: ApiRequest) -> ASGIApp:
    context, hosted = request.context, await hosted_session_of(request, looks=True)
    after = last_event_id(request)
    place = context.take_stream(request.key)
    if hosted.is_remote:
        begin = hosted.last_event if after is None else after
        requests = _requests(context.runtime, hosted.session)
        return EventStream(
            remote_frames(context.sessions, hosted, begin, requests, detailed=request.key.is_operator), place=place
        )
    reader = hosted.log.reader(after, detailed=request.key.is_operator)
    return EventStream(frames(reader, context.options, _is_here(context, hosted)), place=place, on_end=(reader.close,))


def _is_here(context: ApiContext, hosted: HostedSession) -> Callable[[], Awaitable[bool]]:
    return partial(context.sessions.is_still_here, hosted)


async def cancel(request: ApiRequest) -> Response:
    hosted = await hosted_session_of(request, looks=True)
    if hosted.is_remote:
        if hosted.answering is not None or hosted.is_live:
            raise BusyElsewhere(hosted)
        return answer({"cancelled": False})
    return answer({"cancelled": await request.context.sessions.cancel(hosted)})


async def take_newest_tools(request: ApiRequest) -> Response:
    """Continue with the tools as they are now, where they were built again since the session was opened."""
    hosted = await hosted_session_of(request)
    return answer({"version": await request.context.sessions.take_newest_tools(hosted)})


def time_zone_of(body: dict[str, Any]) -> str:
    name = text_of(body, "timeZone", maximum=64)
    try:
        return ZoneInfo(name).key if name else ""
    except (KeyError, ValueError, OSError):
        raise HttpProblem(400, '"timeZone" must be an IANA name such as "Europe/Zagreb".') from None
