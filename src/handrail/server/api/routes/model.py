"""Which model answers, and why; an operator may choose one of those that were offered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from handrail.contract.errors import HandrailError
from handrail.server.api.context import key_of, operators_only, parts_of
from handrail.server.api.problems import Problem, answer
from handrail.server.api.request_bodies import read_object, text_of

_MAX_NAME = 200


async def show(request: Request) -> Response:
    """Everybody may know who answers; what else could be chosen is the operators' business."""
    return answer(parts_of(request).models.to_dict(offers=key_of(request).is_operator))


@operators_only
async def select(request: Request) -> Response:
    """Let another model answer from the next turn on. Only operators: it may cost money and sends conversations away."""
    parts, by = parts_of(request), key_of(request).name
    body = await read_object(request, parts.options, ("model",))
    name = text_of(body, "model", most=_MAX_NAME, required=True)
    previous = parts.models.choice.model
    try:
        await parts.models.select(name)
    except HandrailError as error:
        parts.runtime.audit.emit("model", {"model": name, "previous": previous, "by": by, "ok": False})
        raise Problem(409, str(error)) from None
    parts.runtime.audit.emit("model", {"model": name, "previous": previous, "by": by, "ok": True})
    return answer(parts.models.to_dict(offers=True))
