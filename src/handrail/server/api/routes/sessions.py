"""Sessions over HTTP: open, look at, speak, listen, cancel, end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from handrail.app import Runtime
from handrail.contract.definition import Mode
from handrail.contract.store import HoldState, LedgerState
from handrail.runtime.confirmation_view import request_of
from handrail.runtime.session import Session
from handrail.server.api.context import key_of, parts_of, talk_of
from handrail.server.api.problems import Problem, answer
from handrail.server.api.request_bodies import id_of, last_event_id, read_object, text_of
from handrail.server.api.streams import EventStream, frames
from handrail.server.api.visible_tools import tools_in
from handrail.server.host.hosted_session import Run, events_of
from handrail.server.host.refusals import message_reused
from handrail.server.host.remote_sessions import follow
from handrail.server.host.session_openers import seal, unseal
from handrail.server.host.session_registry import Elsewhere
from handrail.server.wire import notice, without_detail

MOST_TEXT = 32_000
_MOST_USER = 256
_MOST_LISTED = 100


async def open_session(request: Request) -> Response:
    parts = parts_of(request)
    body = await read_object(request, parts.options, ("mode", "user", "timeZone"))
    mode = body.get("mode", "text")
    if mode not in ("text", "voice"):
        raise Problem(400, '"mode" must be "text" or "voice".')
    user = text_of(body, "user", most=_MOST_USER)
    if not user.isprintable() or (user and not user.strip()):
        raise Problem(400, '"user" must be printable text that is not blank.')
    talk = await parts.talks.open(
        key_of(request), mode=cast(Mode, mode), user=user or None, time_zone=time_zone_of(body)
    )
    session = talk.session
    key, sealed = key_of(request), seal(_secret(request), session.id, session.token)
    await parts.talks.conversations.remember_opener(session.id, key.hash, sealed)
    tools = [tool.tool_id for tool in tools_in(session)]
    facts = {"sessionId": session.id, "token": session.token, "mode": session.mode, "user": session.user}
    return answer({**facts, "registryVersion": session.snapshot.version, "tools": tools}, 201)


async def list_sessions(request: Request) -> Response:
    """The conversations that were opened with this key for its user, each with its secret: no other key is told of them. A key
    without a user is shared by people who do not know each other, and is told of none."""
    talks, key = parts_of(request).talks, key_of(request)
    if key.user is None:
        return answer({"sessions": []})
    found = await talks.conversations.opened_with(key.hash, key.user, _MOST_LISTED)
    now = await talks.runtime.store.now()
    sessions = []
    for one in found:
        holds = await talks.runtime.store.holds(one.session_id, (HoldState.PENDING,))
        facts = {"sessionId": one.session_id, "token": unseal(_secret(request), one.session_id, one.sealed)}
        times = {"createdAt": round(one.created * 1000), "updatedAt": round(one.updated * 1000)}
        waiting = sum(hold.expires_at > now for hold in holds)
        sessions.append({**facts, "title": one.title, **times, "answering": one.answering, "waiting": waiting})
    return answer({"sessions": sessions})


def _secret(request: Request) -> str:
    return request.headers.get("authorization", "").partition(" ")[2].strip()


async def show_session(request: Request) -> Response:
    talk = await talk_of(request, looks=True)
    session = talk.session
    talks = parts_of(request).talks
    return answer(
        {
            "sessionId": session.id,
            "mode": session.mode,
            "user": session.user,
            "active": session.is_active,
            "voice": talk.voice is not None or (talk.is_live and session.mode == "voice"),
            "turn": session.turn.number if session.turn is not None else 0,
            "answering": talk.answering,
            "registryVersion": session.snapshot.version,
            "tools": [tool.tool_id for tool in tools_in(session)],
            "budget": talk.budget(),
            "messages": talk.messages(detailed=_detailed(request)),
            "confirmations": await open_confirmations(
                talks.runtime, session, tokens=request.query_params.get("tokens") == "true"
            ),
            "approved": await approved_confirmations(talks.runtime, talk.id),
            "lastEventId": talk.last_event,
        }
    )


async def open_confirmations(runtime: Runtime, session: Session, *, tokens: bool) -> list[dict[str, Any]]:
    """The requests that wait for the person with their facts of this moment; with `tokens` each has a fresh one."""
    return await runtime.confirmations.show_all(session, tokens=tokens)


async def approved_confirmations(runtime: Runtime, session_id: str) -> list[dict[str, Any]]:
    """The requests that were approved and whose calls have not ended: a page that comes back goes on waiting for them."""
    found = []
    for hold in await runtime.store.holds(session_id, (HoldState.APPROVED, HoldState.CONSUMED)):
        row = await runtime.store.ledger_row(hold.ledger_key) if hold.state is HoldState.CONSUMED else None
        if hold.state is HoldState.APPROVED or (row is not None and row.state is LedgerState.RUNNING):
            found.append({**request_of(hold), "turn": hold.turn})
    return found


async def end_session(request: Request) -> Response:
    talk = await talk_of(request)
    await parts_of(request).talks.end(talk)
    return answer({"sessionId": talk.id, "active": False})


async def post_message(request: Request) -> Response | ASGIApp:
    parts = parts_of(request)
    parts.check_model()
    elsewhere: Elsewhere | None = None
    try:
        talk = await talk_of(request)
    except Elsewhere as problem:
        elsewhere, talk = problem, problem.talk
    body = await read_object(request, parts.options, ("id", "text"))
    parts.check_not_trying(talk)
    message_id = id_of(body.get("id"), '"id"')
    text = text_of(body, "text", most=MOST_TEXT, required=True)
    if elsewhere is not None:
        return _answered_elsewhere(request, elsewhere, message_id, text)
    if "text/event-stream" not in request.headers.get("accept", ""):
        run = await parts.talks.say(talk, message_id, text)
        return answer({"turn": run.turn.number, "messageId": message_id, "lastEventId": run.which}, 202)
    place = parts.take_stream(key_of(request))
    try:
        run = await parts.talks.say(talk, message_id, text)
    except BaseException:
        place.give_back()
        raise
    if not run.fresh:
        return EventStream(_told_again(run, detailed=_detailed(request)), place=place)
    reader = talk.log.reader(run.which, detailed=_detailed(request))
    told = frames(reader, parts.options, until_turn=run.turn.number)
    return EventStream(told, place=place, on_end=(reader.close,))


async def _told_again(run: Run, *, detailed: bool) -> AsyncIterator[bytes]:
    """A message that was answered before: the same turn, from what is stored."""
    for name, data in events_of(run.turn):
        told = data if detailed else without_detail(name, data)
        yield notice(name, {"turn": run.turn.number, **told, "replayed": True})


def _answered_elsewhere(request: Request, problem: Elsewhere, message_id: str, text: str) -> Response | ASGIApp:
    """Another process is busy in the session: if it is with this very message, its answer is told from what is stored."""
    parts, talk = parts_of(request), problem.talk
    turn = talk.known(message_id)
    if turn is not None and turn.text != text:
        raise message_reused()
    if turn is None or turn.state == "failed":
        raise problem
    if "text/event-stream" not in request.headers.get("accept", ""):
        return answer({"turn": turn.number, "messageId": message_id, "lastEventId": talk.last_event}, 202)
    place = parts.take_stream(key_of(request))
    after = talk.last_event if turn.state == "running" else turn.last_event - 1
    requests = _requests(parts.runtime, talk.session)
    told = follow(parts.talks, talk, after, requests, until=message_id, detailed=_detailed(request))
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


def _detailed(request: Request) -> bool:
    return key_of(request).is_operator


async def listen(request: Request) -> ASGIApp:
    parts, talk = parts_of(request), await talk_of(request, looks=True)
    after = last_event_id(request)
    place = parts.take_stream(key_of(request))
    if talk.is_remote:
        begin = talk.last_event if after is None else after
        requests = _requests(parts.runtime, talk.session)
        return EventStream(follow(parts.talks, talk, begin, requests, detailed=_detailed(request)), place=place)
    reader = talk.log.reader(after, detailed=_detailed(request))
    return EventStream(frames(reader, parts.options), place=place, on_end=(reader.close,))


async def cancel(request: Request) -> Response:
    talk = await talk_of(request, looks=True)
    if talk.is_remote:
        if talk.answering is not None or talk.is_live:
            raise Elsewhere(talk)
        return answer({"cancelled": False})
    return answer({"cancelled": await parts_of(request).talks.cancel(talk)})


def time_zone_of(body: dict[str, Any]) -> str:
    name = text_of(body, "timeZone", most=64)
    try:
        return ZoneInfo(name).key if name else ""
    except (KeyError, ValueError, OSError):
        raise Problem(400, '"timeZone" must be an IANA name such as "Europe/Zagreb".') from None
