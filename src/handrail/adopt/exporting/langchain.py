"""The tools of a session as LangChain tools, for an agent, a graph's tool node, or `bind_tools`."""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from typing import Any

from handrail.adopt.exporting.framework_session import FrameworkSession, envelope_text, parameters
from handrail.adopt.frameworks import need
from handrail.contract.call import IdScope
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import ToolResponse
from handrail.runtime.session import Session

PACKAGE = "langchain-core"
_CALL_ID: ContextVar[str | None] = ContextVar("handrail_langchain_call", default=None)


def to_langchain(session: Session, *, only: Collection[str] | None = None, id_scope: IdScope = "message") -> list[Any]:
    """The session's tools as `BaseTool`s; `only` names those that are wanted. Call it where the session's loop runs.

    A call with an id, as agents make it, is answered with a `ToolMessage` whose content is the envelope as JSON, whose
    artifact is the same as data, and whose status says whether it failed; one without an id with that JSON text.
    """
    base = need("langchain_core.tools", PACKAGE).BaseTool
    message = need("langchain_core.messages", PACKAGE).ToolMessage
    door = FrameworkSession(session, "langchain", only, id_scope)
    kind = _kind(base, message, door)
    return [_tool(kind, definition) for definition in door.definitions]


def _tool(kind: Any, definition: ToolDefinition) -> Any:
    return kind(name=definition.tool_id, description=definition.description, args_schema=parameters(definition))


def _kind(base: Any, message: Any, door: FrameworkSession) -> Any:
    """The class of this session's tools. LangChain gives a call's id to `run` and `arun`, and not to what they call."""

    def answer(response: ToolResponse, name: str) -> Any:
        call_id, text = _CALL_ID.get(), envelope_text(response)
        if call_id is None:
            return text
        status = "success" if response.ok else "error"
        return message(content=text, artifact=response.to_dict(), status=status, name=name, tool_call_id=call_id)

    class GovernedTool(base):  # type: ignore[misc]  # a class of a package that is not there when types are checked
        def _run(self, /, **arguments: Any) -> Any:
            return answer(door.call_from_thread(self.name, arguments, _CALL_ID.get()), self.name)

        async def _arun(self, /, **arguments: Any) -> Any:
            return answer(await door.call(self.name, arguments, _CALL_ID.get()), self.name)

        def run(self, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
            token = _CALL_ID.set(tool_call_id)
            try:
                return super().run(*args, tool_call_id=tool_call_id, **options)
            finally:
                _CALL_ID.reset(token)

        async def arun(self, *args: Any, tool_call_id: str | None = None, **options: Any) -> Any:
            token = _CALL_ID.set(tool_call_id)
            try:
                return await super().arun(*args, tool_call_id=tool_call_id, **options)
            finally:
                _CALL_ID.reset(token)

    return GovernedTool
