"""From a foreign tool to what `@tool` would have made: a function with a definition, at home in the module that adopts it.

The build looks for tools in the modules that it was told of and takes only those that belong to them. So the function is
given the name of the calling module and the line of the call: findings point there, and the hash covers that source.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from handrail.adopt.importing.results import success
from handrail.adopt.importing.schema import closed_schema, refused
from handrail.authoring.decorator import tool
from handrail.authoring.signature import CONTEXT

Handler = Callable[..., Any]
Run = Callable[[dict[str, Any], Any], Any]
"""Runs the foreign tool: its arguments, and the context of the call."""

MAX_SUMMARY = 250
MAX_DESCRIPTION = 1024
_PACKAGE = __name__.partition(".importing")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTool:
    """What there is to know of a tool that somebody wrote for something else."""

    name: str
    description: str
    schema: object
    run: Run
    """A plain function runs in the runtime's pool of threads, where a late result is still recorded."""
    is_async: bool
    wants_approval: bool = False


def adopt(foreign: ForeignTool, policy: Mapping[str, Any]) -> Handler:
    """The governed tool. `policy` are the keywords of `@tool`; what it does not say is taken to be the worst."""
    fields = dict(policy)
    effects = fields.setdefault("side_effects", "writes")
    fields.setdefault("category", "action" if effects == "writes" else "utility")
    fields.setdefault("requires_confirmation", asks_a_person(policy, foreign.wants_approval))
    fields["tool_id"] = fields.get("tool_id") or _tool_id(foreign.name)
    if not fields.get("description"):
        fields["description"] = _shortened(" ".join(foreign.description.split()), MAX_DESCRIPTION)
    fields.setdefault("guide", _guide(foreign.description))
    subject = f"Tool {fields['tool_id']!r}"
    if fields.get("parameters") is None and not fields.get("allow_no_schema"):
        fields["parameters"] = closed_schema(subject, foreign.schema)
    named = (fields.get("parameters") or {}).get("properties", {})
    handler = _handler(foreign, takes_context=CONTEXT not in named)
    _settle_in(handler, fields["tool_id"])
    return tool(**fields)(handler)


def asks_a_person(policy: Mapping[str, Any], wants_approval: bool) -> bool:
    """Whether every call is confirmed: as said; else where nobody has said what it does, or its framework would ask."""
    return bool(policy.get("requires_confirmation", policy.get("side_effects") is None or wants_approval))


def _handler(foreign: ForeignTool, *, takes_context: bool) -> Handler:
    """The function that the pipeline runs. One whose own argument is called `ctx` goes without the context."""
    run = foreign.run

    async def awaited(*, ctx: Any = None, **arguments: Any) -> Any:
        return success(await run(arguments, ctx))

    async def awaited_alone(**arguments: Any) -> Any:
        return success(await run(arguments, None))

    def called(*, ctx: Any = None, **arguments: Any) -> Any:
        return success(run(arguments, ctx))

    def called_alone(**arguments: Any) -> Any:
        return success(run(arguments, None))

    if foreign.is_async:
        return awaited if takes_context else awaited_alone
    return called if takes_context else called_alone


def _settle_in(handler: Any, name: str) -> None:
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "__main__"))
    handler.__module__, handler.__name__, handler.__qualname__ = module, name, name
    handler.__doc__ = None
    handler.__code__ = handler.__code__.replace(
        co_firstlineno=frame.f_lineno, co_filename=f"<adopted by {module}>", co_name=name
    )


def _tool_id(name: str) -> str:
    """The name as a tool's id, which every provider takes; two that become the same are one of the build's findings."""
    plain = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    if not plain:
        message = f'Nothing of its name "{name[:80]}" can stand in a toolId.'
        raise refused("This tool", message, "Give `tool_id=` with letters, digits and underscores.", pointer="/toolId")
    return f"_{plain}"[:64] if plain[0].isdigit() else plain[:64]


def _guide(description: str) -> str:
    """The description as a guide. A first line that is too long for a summary is shortened, and stands below in full."""
    lines = [line.strip() for line in description.strip().splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if len(first) <= MAX_SUMMARY:
        return description.strip()
    return f"{_shortened(first, MAX_SUMMARY)}\n\n{description.strip()}"


def _shortened(text: str, max_characters: int) -> str:
    if len(text) <= max_characters:
        return text
    sentence = text[:max_characters].rpartition(". ")[0]
    return f"{sentence}." if sentence else text[: max_characters - 1].rpartition(" ")[0] + "…"
