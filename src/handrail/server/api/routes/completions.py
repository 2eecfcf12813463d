"""The OpenAI-compatible door: one request to `/v1/chat/completions` is one turn of the same agent, tools governed behind it.

A session is found by the headers `X-Handrail-Session` and `X-Session-Token`, or made for the request; both are returned in the
answer's headers, so that a person can look at the session, and approve what waits there. No secret is ever in the text.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp

from handrail.agents.host_notices import blocked_notice
from handrail.contract.model import AssistantMessage, HostMessage, Message, UserMessage
from handrail.server.api.http import (
    ApiContext,
    ApiRequest,
    EventStream,
    HttpProblem,
    answer,
    hosted_session_of,
    id_of,
    problem_of,
    read_object,
    text_of,
)
from handrail.server.api.routes.sessions import MAX_TEXT
from handrail.server.host.hosted_session import EventReader, HostedSession, TurnRun
from handrail.server.host.refusals import SessionRefused
from handrail.server.wire import HEARTBEAT, to_json

MODEL = "handrail"
_MAX_MESSAGES = 1_000
_REASONS = {"length": "length", "refusal": "content_filter"}


async def models(request: ApiRequest) -> Response:
    name = request.context.models.name
    listed = [
        {"id": one, "object": "model", "created": 0, "owned_by": "handrail"} for one in dict.fromkeys((MODEL, name))
    ]
    return answer({"object": "list", "data": listed})


async def complete(request: ApiRequest) -> Response | ASGIApp:
    context = request.context
    context.check_model()
    body = await read_object(request, context.options, None)
    history, text = _messages(body)
    _check_options(body)
    named = request.headers.get("idempotency-key")
    message_id = id_of(named or f"req_{secrets.token_hex(12)}", "Idempotency-Key")
    hosted = await _hosted_session(request, context, body, history)
    # A message that was answered before is answered again, also to somebody who is blocked now: nothing runs for it.
    if hosted.known(message_id) is None:
        await _check_welcome(context, hosted)
    streamed = body.get("stream") is True
    place = context.take_stream(request.key) if streamed else None
    try:
        run = await context.sessions.say(hosted, message_id, text)
    except BaseException as error:
        if place is not None:
            place.give_back()
        if isinstance(error, SessionRefused) and message_id in hosted.turns and not named:
            begun = problem_of(error)
            begun.again = False  # it continues after the restart
            raise begun from None
        raise
    # From the turn's beginning: the same request may have come before, and its turn may be under way.
    reader = hosted.log.reader(run.which, stays=True)
    headers = {"X-Handrail-Session": hosted.id, "X-Handrail-Session-Token": hosted.session.token}
    if place is not None:
        options = body.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        chunks = _chunks(context, hosted, run, reader, with_usage=with_usage, cancels=not named)
        revoked = b"data: %b\n\n" % to_json(HttpProblem(401, "The key was revoked.").body())
        return EventStream(chunks, place=place, headers=headers, on_end=(reader.close,), revoked=revoked)
    if not await _finished(request, context, hosted, run, reader, cancels=not named):
        # nginx's status for a client that has gone. Nobody reads it.
        return Response(status_code=499)
    problem = _problem(run)
    if problem is not None:
        problem.again = problem.again and (bool(named) or not run.may_have_written(hosted.session))
        return answer(problem.body(), problem.status, {**headers, **problem.headers()})
    return answer(_completion(context, hosted, run), headers=headers)


class NoAnswer(HttpProblem):
    """A turn without an answer, as OpenAI's clients know an error: they notice it, and ask again where that may help.

    They do so as a new message, unless it has an Idempotency-Key: nobody would know a call that has run, and it would run again.
    """

    def __init__(self, status: int, message: str, code: str, *, retry_after: float | None = None, again: bool) -> None:
        super().__init__(status, message, retry_after=retry_after, again=again)
        self._code = code

    def body(self) -> dict[str, Any]:
        return {"error": {**super().body()["error"], "param": None, "code": self._code}}


def _blocked(seconds: float) -> NoAnswer:
    # Whoever asks again would only get the same, and at once.
    return NoAnswer(429, blocked_notice(seconds), "user_blocked", retry_after=seconds, again=False)


async def _check_welcome(context: ApiContext, hosted: HostedSession) -> None:
    """Somebody who is blocked learns so before a turn begins, and the session that was made for that request goes."""
    seconds = hosted.session.blocked_for()
    if seconds <= 0:
        return
    if hosted.passing and not hosted.turns and hosted.current is None:
        await context.sessions.end(hosted)
    raise _blocked(seconds)


def _problem(run: TurnRun) -> NoAnswer | None:
    """Why a turn that is over has no answer; None if it has one. What the host said in its place is no answer."""
    done = run.done or {}
    if done.get("reason") == "blocked" and "retryAfter" in done:
        return _blocked(float(done["retryAfter"]))
    if run.turn.state != "failed":
        return None
    error = run.turn.answer.get("error") or {}
    said = str(error.get("message") or "The turn failed.")
    if error.get("retryable", True):
        return NoAnswer(503, said, "turn_failed", retry_after=1, again=True)
    return NoAnswer(502, said, "turn_failed", again=False)


async def _hosted_session(
    request: ApiRequest, context: ApiContext, body: Mapping[str, Any], history: Sequence[Message]
) -> HostedSession:
    session = request.headers.get("x-handrail-session")
    if session is not None:
        hosted = await hosted_session_of(request, session)
        if hosted.voice is not None:
            raise HttpProblem(409, "A voice conversation is on in this session; end it first.", retry_after=1)
        return hosted
    key, user = request.key, _plain_user(request, text_of(body, "user", maximum=256))

    async def make() -> HostedSession:
        return await context.sessions.open(key, user=user, history=history, passing=True)

    name = request.headers.get("idempotency-key")
    if not name:
        return await make()
    return await context.resent.find(context.sessions, key, request.secret, user, name, make)


def _plain_user(request: ApiRequest, user: str) -> str | None:
    """Clients send `user` for their provider's statistics: a key that speaks for one user is not led astray by it."""
    key = request.key
    if key.user is not None and not key.is_operator:
        return None
    return user if user.isprintable() and user.strip() else None


async def _finished(
    request: ApiRequest, context: ApiContext, hosted: HostedSession, run: TurnRun, reader: EventReader, *, cancels: bool
) -> bool:
    """Wait for the end of the turn; False if the client went away, which `cancels` the turn unless it can ask again."""
    reader.close()
    if run.task is None:
        return True

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            continue

    leaving = asyncio.get_running_loop().create_task(gone())
    try:
        await asyncio.wait({run.task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not run.task.done():
            if cancels:
                await context.sessions.cancel(hosted)
            return False
    finally:
        leaving.cancel()
    if run.cut:
        # In a session of the client's own the turn continues after the start. One made for the request is not found again.
        own = "x-handrail-session" in request.headers
        again = not cancels if own else not run.may_have_written(hosted.session)
        raise HttpProblem(503, "The server restarts; ask again in a moment.", retry_after=2, again=again)
    return True


def _completion(context: ApiContext, hosted: HostedSession, run: TurnRun) -> dict[str, Any]:
    result = run.turn.answer
    message = {"role": "assistant", "content": result.get("text", "")}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(result)}
    return {
        **_head(context, run, "chat.completion"),
        "choices": [choice],
        "usage": _usage(result),
        "handrail": _facts(hosted, run),
    }


async def _chunks(
    context: ApiContext, hosted: HostedSession, run: TurnRun, reader: EventReader, *, with_usage: bool, cancels: bool
) -> AsyncIterator[bytes]:
    head = _head(context, run, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return b"data: %b\n\n" % to_json({**head, "choices": [choice], **more})

    ended = False
    try:
        yield chunk({"role": "assistant", "content": ""})
        async for delta in _deltas(context, run, reader):
            yield HEARTBEAT if delta is None else chunk({"content": delta})
        if run.cut:
            yield b"data: %b\n\n" % to_json(HttpProblem(503, "The server restarts; ask again in a moment.").body())
            return
        problem = _problem(run)
        if problem is not None:
            yield b"data: %b\n\n" % to_json(problem.body())
            ended = True
            return
        yield chunk({}, _reason(run.turn.answer), handrail=_facts(hosted, run))
        if with_usage:
            yield b"data: %b\n\n" % to_json({**head, "choices": [], "usage": _usage(run.turn.answer)})
        yield b"data: [DONE]\n\n"
        ended = True
    finally:
        reader.close()
        if cancels and not ended and run.task is not None and not run.task.done():
            await context.sessions.cancel(hosted)


async def _deltas(context: ApiContext, run: TurnRun, reader: EventReader) -> AsyncIterator[str | None]:
    """The pieces of the answer as they come; None where there was nothing to say for a while. After an error the host excuses
    itself, which is no part of the answer."""
    if not run.fresh:
        yield str(run.turn.answer.get("text", ""))
        return
    number, seconds, failed = run.turn.number, context.options.heartbeat_seconds, False
    while True:
        events = await reader.batch(seconds if not run.cut else 0.01)
        if events is None or (run.cut and not events):
            return
        if not events:
            yield None
        for event in events:
            if event.turn not in (0, number):
                continue
            failed = failed or event.type == "error"
            if event.type == "text" and not failed:
                yield str(orjson.loads(event.data.partition(b"data: ")[2])["text"])
            elif event.type == "done":
                return


def _head(context: ApiContext, run: TurnRun, kind: str) -> dict[str, Any]:
    name = f"chatcmpl-{run.turn.message_id.removeprefix('req_')}"
    return {"id": name, "object": kind, "created": int(time.time()), "model": context.models.name}


def _facts(hosted: HostedSession, run: TurnRun) -> dict[str, Any]:
    """What an OpenAI client does not know and may ignore: nothing secret."""
    cards = run.turn.answer.get("toolCards", ())
    held = [card.get("error", {}).get("confirmation_request", {}).get("id") for card in cards if card.get("held")]
    return {
        "sessionId": hosted.id,
        "turn": run.turn.number,
        "citations": run.turn.answer.get("citations", []),
        "confirmations": [name for name in held if name],
    }


def _reason(result: Mapping[str, Any]) -> str:
    return _REASONS.get(str(result.get("reason")), "stop")


def _usage(result: Mapping[str, Any]) -> dict[str, int]:
    usage = result.get("usage") or {}
    spent, said = int(usage.get("inputTokens", 0)), int(usage.get("outputTokens", 0))
    return {"prompt_tokens": spent, "completion_tokens": said, "total_tokens": spent + said}


def _check_options(body: Mapping[str, Any]) -> None:
    if body.get("n") not in (None, 1):
        raise HttpProblem(400, '"n" must be 1: a turn has one answer.')
    if body.get("tools") or body.get("functions"):
        raise HttpProblem(
            400, "This server runs tools of its own, under its own policy; leave `tools` and `functions` out."
        )
    if not isinstance(body.get("stream"), (bool, type(None))):
        raise HttpProblem(400, '"stream" must be true or false.')


def _messages(body: Mapping[str, Any]) -> tuple[list[Message], str]:
    """What was said before, and what the user says now."""
    given = body.get("messages")
    if not isinstance(given, list) or not given or len(given) > _MAX_MESSAGES:
        raise HttpProblem(400, f'"messages" must be a list of 1 to {_MAX_MESSAGES} messages.')
    history: list[Message] = []
    for place, one in enumerate(given):
        if not isinstance(one, dict):
            raise HttpProblem(400, f"Message {place} is not an object.")
        role, text = one.get("role"), _text(one.get("content"), place)
        if role == "user":
            history.append(UserMessage(text))
        elif role == "assistant":
            history.append(AssistantMessage(text))
        elif role in ("system", "developer"):
            history.append(HostMessage(text))
        # Results of tools that the client ran itself are passed over: here only our own tools run, and only their results
        # are believed.
        elif role not in ("tool", "function"):
            raise HttpProblem(
                400, f"Message {place} has the role {role!r:.40}; known are system, developer, user, assistant, tool."
            )
    last = history.pop() if given[-1].get("role") == "user" else None
    if not isinstance(last, UserMessage) or not last.text.strip():
        raise HttpProblem(400, "The last message must be the user's, with text.")
    text = last.text
    if len(text) > MAX_TEXT:
        raise HttpProblem(400, f"The user's message has {len(text)} characters; at most {MAX_TEXT} are allowed.")
    return history, text


def _text(content: Any, place: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
            return "".join(texts)
    raise HttpProblem(400, f"The content of message {place} must be text.")
