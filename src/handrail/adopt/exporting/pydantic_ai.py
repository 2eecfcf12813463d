"""The tools of a session as a toolset of Pydantic AI."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from handrail.adopt.exporting.framework_session import FrameworkSession, parameters
from handrail.adopt.frameworks import need
from handrail.contract.call import IdScope
from handrail.contract.definition import ToolDefinition
from handrail.runtime.session import Session

PACKAGE = "pydantic-ai-slim"


def to_pydantic_ai(session: Session, *, only: Collection[str] | None = None, id_scope: IdScope = "message") -> Any:
    """The session's tools as a toolset: `Agent(…, toolsets=[to_pydantic_ai(session)])`. Every call gives the envelope.

    `only` names those that are wanted. Call it where the session's loop runs.
    """
    make = need("pydantic_ai.tools", PACKAGE).Tool.from_schema
    toolset = need("pydantic_ai.toolsets", PACKAGE).FunctionToolset
    door = FrameworkSession(session, "pydantic-ai", only, id_scope)
    return toolset([_tool(make, door, definition) for definition in door.definitions])


def _tool(make: Any, door: FrameworkSession, definition: ToolDefinition) -> Any:
    async def call(run: Any, /, **arguments: Any) -> dict[str, Any]:
        return (await door.call(definition.tool_id, arguments, run.tool_call_id)).to_dict()

    return make(
        call,
        name=definition.tool_id,
        description=definition.description,
        json_schema=parameters(definition),
        takes_ctx=True,
        sequential=definition.writes,
    )
