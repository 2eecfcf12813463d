"""A person's yes or no to a held call. Three secrets must agree: the key, the session's token and the request's own token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from handrail.contract.errors import ErrorType
from handrail.server.bodies import read_object, text_of
from handrail.server.parts import parts_of, talk_of
from handrail.server.problems import Problem, answer


async def approve(request: Request) -> Response:
    return await _decide(request, yes=True)


async def decline(request: Request) -> Response:
    return await _decide(request, yes=False)


async def _decide(request: Request, *, yes: bool) -> Response:
    parts = parts_of(request)
    body = await read_object(request, parts.options, ("token",))
    token = text_of(body, "token", most=256, required=True)
    confirmation = str(request.path_params["confirmation"])
    hold = await parts.runtime.store.hold_by_id(confirmation) if confirmation.isascii() else None
    if hold is None:
        raise _none()
    try:
        # The session comes into this process, if it is not here: then the approved call is carried out at once.
        await talk_of(request, hold.session_id)
    except Problem as problem:
        raise (_none() if problem.status == 404 else problem) from None
    decide = parts.runtime.approve if yes else parts.runtime.decline
    envelope = await decide(confirmation, token=token)
    if envelope.error is not None and envelope.error.type is ErrorType.NOT_FOUND and not envelope.meta.get("toolId"):
        raise _none()
    return answer(envelope.to_dict())


def _none() -> Problem:
    return Problem(404, "There is no such confirmation request.")
