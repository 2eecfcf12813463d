"""The tools of a session as function tools of the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from handrail.adopt.exporting.framework_session import FrameworkSession, envelope_text, parameters
from handrail.adopt.frameworks import need
from handrail.contract.call import IdScope
from handrail.contract.definition import ToolDefinition
from handrail.runtime.session import Session

PACKAGE = "openai-agents"


def to_openai_agents(
    session: Session, *, only: Collection[str] | None = None, id_scope: IdScope = "message"
) -> list[Any]:
    """The session's tools for `Agent(tools=…)`. Every call gives the envelope as JSON text, also a failed one.

    `only` names those that are wanted. Call it where the session's loop runs.
    """
    make = need("agents", PACKAGE).FunctionTool
    door = FrameworkSession(session, "openai-agents", only, id_scope)
    return [_tool(make, door, definition) for definition in door.definitions]


def _tool(make: Any, door: FrameworkSession, definition: ToolDefinition) -> Any:
    async def call(context: Any, text: str) -> str:
        # The text continues as the model wrote it: parsing is the pipeline's part, and refuses what it must.
        return envelope_text(await door.call(definition.tool_id, text or "{}", getattr(context, "tool_call_id", None)))

    return make(
        name=definition.tool_id,
        description=definition.description,
        params_json_schema=parameters(definition),
        on_invoke_tool=call,
        strict_json_schema=False,  # the SDK's strict form would make optional arguments required
    )
