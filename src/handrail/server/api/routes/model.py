"""Which model answers, and why; an operator may choose one of those that were offered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from handrail.contract.errors import HandrailError
from handrail.server.api.http import HttpProblem, answer, context_of, key_of, operators_only, read_object, text_of

_MAX_NAME = 200


async def show(request: Request) -> Response:
    """Everybody may know who answers; what else could be chosen is the operators' business."""
    return answer(context_of(request).models.to_dict(offers=key_of(request).is_operator))


@operators_only
async def select(request: Request) -> Response:
    """Let another model answer from the next turn on. Only operators: it may cost money and sends conversations away."""
    context, by = context_of(request), key_of(request).name
    body = await read_object(request, context.options, ("model",))
    name = text_of(body, "model", maximum=_MAX_NAME, required=True)
    previous = context.models.choice.model
    try:
        await context.models.select(name)
    except HandrailError as error:
        context.runtime.audit.emit("model", {"model": name, "previous": previous, "by": by, "ok": False})
        raise HttpProblem(409, str(error)) from None
    context.runtime.audit.emit("model", {"model": name, "previous": previous, "by": by, "ok": True})
    return answer(context.models.to_dict(offers=True))
