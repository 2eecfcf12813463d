"""A function tool of the OpenAI Agents SDK: its `on_invoke_tool` is given JSON text and a context of its own kind."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import orjson

from handrail.adopt.frameworks import need
from handrail.adopt.importing.adopted import ForeignTool, adopt
from handrail.adopt.importing.failures import failed
from handrail.adopt.importing.schema import refused

PACKAGE = "openai-agents"
_SILENT = {"_failure_error_function": None, "_use_default_failure_error_function": False}
_WORDED = ("tool_input_guardrails", "tool_output_guardrails")


def from_openai_agents(
    source: Any, /, *, context: Callable[[Any], Any] | None = None, **policy: Any
) -> Callable[..., Any]:
    """A governed tool that calls a `FunctionTool`.

    `context` makes what the tool finds as its run's context from the context of the call. Other keywords are those of
    `@tool`.
    """
    name = getattr(source, "name", None)
    if not isinstance(name, str) or not callable(getattr(source, "on_invoke_tool", None)):
        fix = "Give a `FunctionTool`, such as `@function_tool` makes."
        raise refused("This object", "It is not a function tool of OpenAI Agents.", fix, pointer="")
    guarded = [field for field in _WORDED if getattr(source, field, None)]
    if guarded:
        fix = "Take them off and say what they guard as policy, or wrap the tool in a function."
        raise refused(f"Tool {name!r}", f"It has {guarded[0]}, which only a run of an agent obeys.", fix, pointer="")
    bare, answers = _raising(source)
    writes = policy.get("side_effects", "writes") == "writes"

    async def arun(arguments: dict[str, Any], ctx: Any) -> Any:
        text = orjson.dumps(arguments).decode()
        call = need("agents.tool_context", PACKAGE).ToolContext(
            context=None if context is None or ctx is None else context(ctx),
            tool_name=name,
            tool_call_id=getattr(ctx, "idempotency_key", None) or "adopted",
            tool_arguments=text,
        )
        try:
            return await bare.on_invoke_tool(call, text)
        except Exception as error:
            if answers is None:
                raise
            words = answers(call, error)
            raise failed(await words if inspect.isawaitable(words) else words, writes=writes) from error

    def run(arguments: dict[str, Any], ctx: Any) -> Any:
        return asyncio.run(arun(arguments, ctx))  # in a worker's thread, which has no loop

    is_async = not _is_plain(source)
    foreign = ForeignTool(
        name=name,
        description=getattr(source, "description", "") or "",
        schema=_with_optional(getattr(source, "params_json_schema", None)),
        run=arun if is_async else run,
        is_async=is_async,
        wants_approval=bool(getattr(source, "needs_approval", False)),
    )
    return adopt(foreign, policy)


def _raising(source: Any) -> tuple[Any, Callable[..., Any] | None]:
    """The tool with its failures as exceptions, and what its author would have said of one.

    The SDK gives a failure back as an ordinary text, which would be recorded as a success.
    """
    fields = {field.name for field in dataclasses.fields(source)} if dataclasses.is_dataclass(source) else set()
    if not fields.issuperset(_SILENT):
        return source, None
    own = None if source._use_default_failure_error_function else source._failure_error_function
    return dataclasses.replace(source, **_SILENT), own


def _is_plain(source: Any) -> bool:
    """Whether a plain function is below, which the SDK would run in a thread that nobody waits for after the deadline."""
    try:
        below = source.__wrapped__
    except AttributeError:
        return False
    return inspect.isroutine(below) and not inspect.iscoroutinefunction(below)


def _with_optional(schema: Any) -> Any:
    """Strict mode writes every argument as required; one with a default may be left out, as in the function itself."""
    if not isinstance(schema, dict) or not isinstance(schema.get("required"), list):
        return schema
    properties = schema.get("properties", {})
    required = [name for name in schema["required"] if "default" not in properties.get(name, {})]
    return {**schema, "required": required} if required else {k: v for k, v in schema.items() if k != "required"}
