"""A LangChain tool: anything with a `name`, a `description`, a schema for calls and `invoke`/`ainvoke`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from handrail.adopt.importing.adopted import ForeignTool, adopt
from handrail.adopt.importing.failures import failed, invalid
from handrail.adopt.importing.schema import refused
from handrail.contract.errors import ToolError


def from_langchain(source: Any, /, **policy: Any) -> Callable[..., Any]:
    """A governed tool that invokes a LangChain tool. Keywords are those of `@tool`."""
    name = getattr(source, "name", None)
    if not isinstance(name, str) or not callable(getattr(source, "invoke", None)):
        raise refused(
            "This object", "It is not a LangChain tool.", "Give a `BaseTool`, such as `@tool` makes.", pointer=""
        )
    _refuse_injected(source, name)
    answers = getattr(source, "handle_tool_error", False)
    bare = _raising(source)
    writes = policy.get("side_effects", "writes") == "writes"

    def run(arguments: dict[str, Any], ctx: Any) -> Any:
        _check(bare, arguments)
        try:
            return _content(bare.invoke(arguments))
        except Exception as error:
            if not _is_tool_exception(error):
                raise
            raise failed(_words(error, answers), writes=writes) from error

    async def arun(arguments: dict[str, Any], ctx: Any) -> Any:
        _check(bare, arguments)
        try:
            return _content(await bare.ainvoke(arguments))
        except Exception as error:
            if not _is_tool_exception(error):
                raise
            raise failed(_words(error, answers), writes=writes) from error

    is_async = _has_coroutine(source)
    foreign = ForeignTool(
        name=name,
        description=getattr(source, "description", "") or "",
        schema=_schema(source),
        run=arun if is_async else run,
        is_async=is_async,
    )
    return adopt(foreign, policy)


def _schema(source: Any) -> object:
    if getattr(source, "args_schema", None) is None and _is_of_one_text(source):
        return {"type": "object", "properties": dict(source.args), "required": list(source.args)}
    found = getattr(source, "tool_call_schema", None)
    if isinstance(found, Mapping) or found is None:
        return found
    write = getattr(found, "model_json_schema", None) or getattr(found, "schema", None)
    return write() if callable(write) else None


def _is_of_one_text(source: Any) -> bool:
    """Whether it is LangChain's oldest kind, a function of one text, whose schema cannot be read from its code."""
    return any(
        kind.__name__ == "Tool" and kind.__module__.startswith("langchain_core.tools") for kind in type(source).__mro__
    )


def _refuse_injected(source: Any, name: str) -> None:
    """Arguments that only LangGraph fills in cannot be filled in here, and the model must not."""
    fields = getattr(getattr(source, "args_schema", None), "model_fields", {})
    offered = getattr(getattr(source, "tool_call_schema", None), "model_fields", fields)
    missing = [field for field, info in fields.items() if field not in offered and info.is_required()]
    missing += [key for key in getattr(source, "_injected_args_keys", ()) if key not in fields]
    if missing:
        message = f'It wants "{sorted(missing)[0]}", which only a LangGraph run injects.'
        raise refused(f"Tool {name!r}", message, "Wrap it in a function that fills that in.", pointer="")


def _has_coroutine(source: Any) -> bool:
    """Whether it has code of its own for `ainvoke`; LangChain would otherwise run the plain one in a thread of its own."""
    if hasattr(source, "coroutine") and hasattr(source, "func"):
        return source.coroutine is not None
    for kind in type(source).__mro__:
        if "_arun" in vars(kind):
            return not kind.__module__.startswith("langchain_core.")
    return not hasattr(source, "_run")


def _raising(source: Any) -> Any:
    """The tool with its failures as exceptions: one told as an ordinary result would be recorded as a success."""
    silenced = {
        name: False for name in ("handle_tool_error", "handle_validation_error") if getattr(source, name, False)
    }
    return source.model_copy(update=silenced) if silenced else source


def _check(source: Any, arguments: dict[str, Any]) -> None:
    """The tool's own model sees the arguments first, so that its refusal is one: nothing has run yet."""
    validate = getattr(getattr(source, "args_schema", None), "model_validate", None)
    if validate is None:
        return
    try:
        validate(dict(arguments))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        raise invalid(error) from None


def _content(result: Any) -> Any:
    is_message = getattr(result, "type", None) == "tool" and hasattr(result, "tool_call_id")
    return result.content if is_message else result


def _is_tool_exception(error: Exception) -> bool:
    if isinstance(error, ToolError):
        return False
    return any(
        kind.__name__ == "ToolException" and kind.__module__.startswith("langchain_core")
        for kind in type(error).__mro__
    )


def _words(error: Exception, answers: Any) -> str:
    if isinstance(answers, str):
        return answers
    if callable(answers):
        return str(answers(error))
    return str(error)
