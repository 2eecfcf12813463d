"""A tool of Pydantic AI, or one tool of a toolset, called as its own tool manager calls it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

from handrail.adopt.frameworks import need
from handrail.adopt.importing.adopted import ForeignTool, adopt, asks_a_person
from handrail.adopt.importing.failures import failed, invalid
from handrail.adopt.importing.schema import refused
from handrail.contract.errors import ErrorType

PACKAGE = "pydantic-ai-slim"
_LISTING_SECONDS = 30


def from_pydantic_ai(
    source: Any, name: str | None = None, /, *, deps: Callable[[Any], Any] | None = None, **policy: Any
) -> Callable[..., Any]:
    """A governed tool that calls a Pydantic AI tool, or the tool `name` of a toolset.

    `deps` makes the tool's `RunContext.deps` from the context of the call. Other keywords are those of `@tool`.
    """
    toolset = _toolset(source)
    found = _listed(toolset)
    tool = _chosen(found, name)
    known = tool.tool_def
    is_async = getattr(tool, "is_async", True)
    writes = policy.get("side_effects", "writes") == "writes"
    wants_approval = known.kind == "unapproved"
    approved = asks_a_person(policy, wants_approval)

    async def arun(arguments: dict[str, Any], ctx: Any) -> Any:
        run_context = _run_context(known.name, ctx, deps, approved)
        listed = (await toolset.get_tools(run_context)).get(known.name)
        if listed is None:
            raise failed(f'"{known.name}" is not on offer in this run.', writes=False)
        checked = await _validated(listed, arguments, run_context)
        try:
            result = await toolset.call_tool(known.name, checked, run_context, listed)
        except Exception as error:
            told = _expected_failure(error, writes=writes)
            if told is None:
                raise
            raise told from error
        return getattr(result, "return_value", result) if type(result).__name__ == "ToolReturn" else result

    def run(arguments: dict[str, Any], ctx: Any) -> Any:
        return asyncio.run(arun(arguments, ctx))  # in a worker's thread, which has no loop

    foreign = ForeignTool(
        name=known.name,
        description=known.description or "",
        schema=known.parameters_json_schema,
        run=arun if is_async else run,
        is_async=is_async,
        wants_approval=wants_approval,
    )
    return adopt(foreign, policy)


def _toolset(source: Any) -> Any:
    if callable(getattr(source, "get_tools", None)) and callable(getattr(source, "call_tool", None)):
        return source
    if hasattr(source, "function_schema") and hasattr(source, "tool_def"):
        return need("pydantic_ai.toolsets", PACKAGE).FunctionToolset([source])
    fix = "Give a `Tool` or a toolset; a plain function is for `from_function`."
    raise refused("This object", "It is not a tool of Pydantic AI.", fix, pointer="")


def _listed(toolset: Any) -> dict[str, Any]:
    """The tools of a toolset. Modules are imported where a loop may be running, so the question is asked in a thread."""
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(asyncio.run(toolset.get_tools(_run_context(None, None, None, False))))
        except Exception as error:  # noqa: BLE001  # raised below, in the thread that asked
            answer.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_LISTING_SECONDS)
    if not answer:
        raise refused(
            "This toolset", f"It did not list its tools in {_LISTING_SECONDS} seconds.", "Is it reachable?", ""
        )
    if isinstance(answer[0], Exception):
        raise refused("This toolset", f"It cannot list its tools: {answer[0]}.", "Mend it first.", "") from answer[0]
    return cast(dict[str, Any], answer[0])


def _chosen(found: dict[str, Any], name: str | None) -> Any:
    names = ", ".join(sorted(found)) or "none"
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        raise refused("This toolset", "It has not exactly one tool.", f"Name one: {names}.", pointer="")
    if name not in found:
        raise refused("This toolset", f'It has no tool "{name}".', f"It has: {names}.", pointer="")
    return found[name]


def _run_context(name: str | None, ctx: Any, deps: Callable[[Any], Any] | None, approved: bool) -> Any:
    """A run that is ours: there is no agent and no model. `approved`: a person confirms every call before it runs."""
    tools, usage = need("pydantic_ai.tools", PACKAGE), need("pydantic_ai.usage", PACKAGE)
    return tools.RunContext(
        deps=None if deps is None or ctx is None else deps(ctx),
        model=need("pydantic_ai.models.test", PACKAGE).TestModel(),
        usage=usage.RunUsage(),
        tool_name=name,
        tool_call_id=getattr(ctx, "idempotency_key", None) or "adopted",
        tool_call_approved=approved,
    )


async def _validated(tool: Any, arguments: dict[str, Any], run_context: Any) -> dict[str, Any]:
    try:
        checked = cast(dict[str, Any], tool.args_validator.validate_python(arguments))
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        raise invalid(error) from None
    further = getattr(tool, "args_validator_func", None)
    if further is not None:
        try:
            answer = further(run_context, **checked)
            if inspect.isawaitable(answer):
                await cast(Coroutine[Any, Any, Any], answer)
        except Exception as error:
            told = _expected_failure(error, writes=False)
            if told is None:
                raise
            raise told from error
    return checked


def _expected_failure(error: Exception, *, writes: bool) -> Exception | None:
    """What the model gets to know of a failure that the tool meant; None for one that nobody expected."""
    exceptions = need("pydantic_ai.exceptions", PACKAGE)
    if isinstance(error, exceptions.ModelRetry):
        return failed(error, writes=writes, type=ErrorType.VALIDATION)
    if isinstance(error, getattr(exceptions, "ToolFailed", ())):
        return failed(error, writes=writes)
    if isinstance(error, exceptions.ApprovalRequired):
        return failed(
            "This tool wants an approval, and was adopted without `requires_confirmation=True`.", writes=writes
        )
    if isinstance(error, exceptions.CallDeferred):
        return failed("This tool can only be finished outside of this run, which is not offered here.", writes=writes)
    return None
