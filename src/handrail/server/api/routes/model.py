"""Which model answers, and why; an operator may choose one of those that were offered."""

from __future__ import annotations

from starlette.responses import Response

from handrail.contract.errors import HandrailError
from handrail.server.api.http import ApiRequest, HttpProblem, answer, operators_only, read_object, text_of

_MAX_NAME = 200


async def show(request: ApiRequest) -> Response:
    """Everybody may know who answers; what else could be chosen is the operators' business."""
    return answer(request.context.models.to_dict(offers=request.key.is_operator))


@operators_only
async def select(request: ApiRequest) -> Response:
    """Let another model answer from the next turn on. Only operators: it may cost money and sends conversations away."""
    context, by = request.context, request.key.traceless_name
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
