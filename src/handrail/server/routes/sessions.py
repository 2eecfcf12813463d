"""Sessions over HTTP: open, look at, speak, listen, cancel, end."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any, cast
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from handrail.contract.definition import Mode
from handrail.contract.store import HoldState
from handrail.runtime.confirm import token_hash
from handrail.runtime.held import request_of
from handrail.server.bodies import id_of, last_event_id, read_object, text_of
from handrail.server.parts import key_of, parts_of, talk_of
from handrail.server.problems import Problem, answer
from handrail.server.streams import EventStream, frames
from handrail.server.talk import Run, Talk, events_of
from handrail.server.talks import Talks
from handrail.server.wire import notice, without_detail

MOST_TEXT = 32_000
_MOST_USER = 256


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
    tools = [tool.tool_id for tool in session.snapshot.in_mode(session.mode) if session.plans.allows(tool.tool_id)]
    facts = {"sessionId": session.id, "token": session.token, "mode": session.mode, "user": session.user}
    return answer({**facts, "registryVersion": session.snapshot.version, "tools": tools}, 201)


async def show_session(request: Request) -> Response:
    talk = await talk_of(request)
    session = talk.session
    talks = parts_of(request).talks
    return answer(
        {
            "sessionId": session.id,
            "mode": session.mode,
            "user": session.user,
            "active": session.is_active,
            "voice": talk.voice is not None,
            "turn": session.turn.number if session.turn is not None else 0,
            "answering": talk.current.turn.message_id if talk.current is not None else None,
            "registryVersion": session.snapshot.version,
            "tools": [
                tool.tool_id for tool in session.snapshot.in_mode(session.mode) if session.plans.allows(tool.tool_id)
            ],
            "budget": talk.budget(),
            "messages": talk.messages(detailed=key_of(request).is_operator),
            "confirmations": await open_confirmations(talks, talk),
            "lastEventId": talk.log.last,
        }
    )


async def open_confirmations(talks: Talks, talk: Talk) -> list[dict[str, Any]]:
    """The requests that wait for the person, each with a fresh token: any of its tokens approves, once."""
    store = talks.runtime.store
    now = await store.now()
    found = []
    for hold in await store.holds(talk.id, (HoldState.PENDING,)):
        if hold.expires_at > now:
            token = secrets.token_urlsafe(32)
            await store.add_hold_token(hold.hold_id, token_hash(token))
            found.append({**request_of(hold), "token": token, "channel": hold.channel, "turn": hold.turn})
    return found


async def end_session(request: Request) -> Response:
    talk = await talk_of(request)
    await parts_of(request).talks.end(talk)
    return answer({"sessionId": talk.id, "active": False})


async def post_message(request: Request) -> Response | ASGIApp:
    parts, talk = parts_of(request), await talk_of(request)
    body = await read_object(request, parts.options, ("id", "text"))
    parts.check_not_trying(talk)
    message_id = id_of(body.get("id"), '"id"')
    text = text_of(body, "text", most=MOST_TEXT, required=True)
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
        return EventStream(_told_again(run, detailed=key_of(request).is_operator), place=place)
    reader = talk.log.reader(run.which, detailed=key_of(request).is_operator)
    told = frames(reader, parts.options, until_turn=run.turn.number)
    return EventStream(told, place=place, on_end=(reader.close,))


async def _told_again(run: Run, *, detailed: bool) -> AsyncIterator[bytes]:
    """A message that was answered before: the same turn, from what is stored."""
    for name, data in events_of(run.turn):
        told = data if detailed else without_detail(name, data)
        yield notice(name, {"turn": run.turn.number, **told, "replayed": True})


async def listen(request: Request) -> ASGIApp:
    parts, talk = parts_of(request), await talk_of(request)
    after = last_event_id(request)
    place = parts.take_stream(key_of(request))
    reader = talk.log.reader(after, detailed=key_of(request).is_operator)
    return EventStream(frames(reader, parts.options), place=place, on_end=(reader.close,))


async def cancel(request: Request) -> Response:
    talk = await talk_of(request)
    return answer({"cancelled": await parts_of(request).talks.cancel(talk)})


def time_zone_of(body: dict[str, Any]) -> str:
    name = text_of(body, "timeZone", most=64)
    try:
        return ZoneInfo(name).key if name else ""
    except (KeyError, ValueError, OSError):
        raise Problem(400, '"timeZone" must be an IANA name such as "Europe/Zagreb".') from None
