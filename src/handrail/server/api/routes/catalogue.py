"""The catalogue: which tools there are, their guides, and trying one through the pipeline."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.responses import Response

from handrail.contract.call import Call
from handrail.registry.snapshot import LoadedTool
from handrail.server.api.http import ApiRequest, HttpProblem, answer, hosted_session_of, id_of, read_object
from handrail.server.api.visible_tools import MODES, nearest, tools_for, tools_in
from handrail.server.host.refusals import trying

_PROVIDER = "handrail-console"


async def list_tools(request: ApiRequest) -> Response:
    """What the key's user may use; with `session` and its secret, what may be used in that session now."""
    runtime = request.context.runtime
    version, visible = await _visible(request)
    return answer({"registryVersion": version, "tools": [_shown(tool, runtime.switches) for tool in visible]})


async def show_tool(request: ApiRequest) -> Response:
    runtime, name = request.context.runtime, str(request.path_params["tool"])
    _, visible = await _visible(request)
    tool = next((one for one in visible if one.tool_id == name), None)
    if tool is None:
        raise HttpProblem(404, nearest(name, visible))
    definition = tool.metadata()
    return answer(
        {
            **_shown(tool, runtime.switches),
            "definition": definition,
            "guide": tool.documentation,
            "parameters": definition["parameters"],
        }
    )


async def _visible(request: ApiRequest) -> tuple[str, list[LoadedTool]]:
    """The version of the registry, and the tools that this request may see."""
    session_id, mode = request.query_params.get("session"), request.query_params.get("mode")
    if mode not in (None, *MODES):
        raise HttpProblem(400, '"mode" must be "text" or "voice".')
    if session_id is not None:
        session = (await hosted_session_of(request, session_id, looks=True)).session
        return session.snapshot.version, tools_in(session)
    runtime = request.context.runtime
    snapshot = runtime.registry.snapshot()
    return snapshot.version, tools_for(request.key, snapshot, runtime.policy, mode)


async def try_tool(request: ApiRequest) -> Response:
    """One call as a turn of its own, governed like a model's."""
    context = request.context
    tool = str(request.path_params["tool"])
    body = await read_object(request, context.options, ("args", "sessionId"))
    hosted = await hosted_session_of(request, id_of(body.get("sessionId"), '"sessionId"'))
    if hosted.is_trying:
        raise trying()
    if hosted.voice is not None:
        raise HttpProblem(409, "A voice conversation is on in this session; end it first.", retry_after=1)
    if hosted.current is not None or hosted.busy.locked():
        raise HttpProblem(409, "The session is answering a message; wait for it, or cancel it.", retry_after=1)
    hosted.is_trying = True
    try:
        await context.sessions.set_live(hosted, True)
        async with hosted.busy:
            name = f"try_{secrets.token_hex(8)}"
            await hosted.session.begin_turn(name)
            call = Call(tool, body.get("args", {}), name, _PROVIDER)
            (envelope,) = await hosted.session.call_many([call])
            await hosted.session.end_turn()
    finally:
        hosted.is_trying = False
        context.sessions.clear_live(hosted)
    return answer(envelope.to_dict())


def _shown(tool: LoadedTool, switches: Any) -> dict[str, Any]:
    definition = tool.definition
    return {
        "id": tool.tool_id,
        "version": definition.version,
        "description": definition.description,
        "summary": tool.summary,
        "category": definition.category,
        "sideEffects": definition.side_effects,
        "modes": list(tool.modes),
        "requiresConfirmation": definition.requires_confirmation,
        "switchedOff": switches.get(tool.tool_id),
    }
