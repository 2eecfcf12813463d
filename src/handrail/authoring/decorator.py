"""`@tool`: a class or a function becomes a tool with the same frozen definition that a folder would give.

On a class it gives a subclass of `ToolComponent`; on a function it leaves the function callable and attaches the
definition. Nothing is registered anywhere: the build finds decorated tools in the modules that `handrail.toml` names.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, cast, overload

from handrail.authoring.signature import docstring_parts, parameters_of
from handrail.contract.definition import NO_SCHEMA, Mode, NoSchemaMode, ToolDefinition, find_problems
from handrail.contract.errors import DefinitionError, JsonError, Problem
from handrail.schema.canonical import plain_copy
from handrail.schema.strict_json import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH

DEFINITION = "__handrail_definition__"
GUIDE = "__handrail_guide__"

_T = TypeVar("_T", bound=Callable[..., Any])


class ToolComponent:
    """One call of a class tool: made from the validated arguments, run once.

    `args` holds the validated arguments, `ctx` the context of the call (None outside the pipeline).
    """

    ctx: Any = None

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        self.args: Mapping[str, Any] = {} if args is None else args

    async def run(self, params: Any = None) -> Any:
        """Do the work. Subclasses override this; the base does nothing."""
        return None

    @classmethod
    def get_definition(cls) -> ToolDefinition | None:
        """The frozen definition; None for a class that was not decorated."""
        return definition_of(cls)


def definition_of(target: object) -> ToolDefinition | None:
    """The definition that `@tool` attached to this very class or function; what it inherits is another tool's."""
    found = getattr(target, "__dict__", {}).get(DEFINITION)
    return found if isinstance(found, ToolDefinition) else None


def guide_of(target: object) -> str | None:
    found = getattr(target, "__dict__", {}).get(GUIDE)
    return found if isinstance(found, str) else None


@overload
def tool(target: _T, /) -> _T: ...
@overload
def tool(
    *,
    tool_id: str | None = ...,
    version: str = ...,
    description: str | None = ...,
    category: str = ...,
    side_effects: str = ...,
    idempotent: bool | None = ...,
    requires_confirmation: bool = ...,
    allowed_modes: Sequence[Mode] = ...,
    latency_budget_ms: int = ...,
    parameters: Mapping[str, Any] | None = ...,
    guide: str | None = ...,
    allow_no_schema: bool = ...,
    no_schema_mode: NoSchemaMode = ...,
    **policy: Any,
) -> Callable[[_T], _T]: ...
def tool(
    target: Any = None,
    /,
    *,
    tool_id: str | None = None,
    version: str = "1.0.0",
    description: str | None = None,
    category: str = "utility",
    side_effects: str = "none",
    idempotent: bool | None = None,
    requires_confirmation: bool = False,
    allowed_modes: Sequence[Mode] = ("text", "voice"),
    latency_budget_ms: int = 1000,
    parameters: Mapping[str, Any] | None = None,
    guide: str | None = None,
    allow_no_schema: bool = False,
    no_schema_mode: NoSchemaMode = "confirm",
    **policy: Any,
) -> Any:
    """Make a class or a function a tool.

    Keyword arguments are the fields of `schema.json` in snake_case. On a function, `parameters` is derived from type
    hints and docstring unless given; `description` is the docstring's first sentence, the guide is `guide` or the whole
    docstring.
    """

    def decorate(target: Any) -> Any:
        if not inspect.isclass(target) and not inspect.isroutine(target):
            raise _refused(f"{target!r}", "", "@tool stands on a class or a function.", "Move it there.")
        name = f"Tool {tool_id or target.__name__!r}"
        short, _, docstring = docstring_parts(target)
        schema = parameters
        if schema is None and not inspect.isclass(target) and not allow_no_schema:
            schema = parameters_of(target)
        if schema is None and not allow_no_schema:
            fix = "Give `parameters=`, or say `allow_no_schema=True`."
            raise _refused(name, "/parameters", "It has no parameter schema.", fix)
        wire: dict[str, Any] = {
            "toolId": tool_id or _snake(target.__name__),
            "version": version,
            "description": description or short,
            "category": category,
            "sideEffects": side_effects,
            "idempotent": idempotent if idempotent is not None else side_effects != "writes",
            "requiresConfirmation": requires_confirmation,
            "allowedModes": list(allowed_modes),
            "latencyBudgetMs": latency_budget_ms,
            "parameters": schema if schema is not None else NO_SCHEMA,
            **_policy_fields(policy),
        }
        if schema is None:
            wire["noSchemaMode"] = no_schema_mode
        plain = _plain(name, wire)
        problems = find_problems(plain)
        if problems:
            raise DefinitionError(name, problems)
        return _attach(target, ToolDefinition.from_checked(plain), _plain(name, guide or docstring or None))

    return decorate if target is None else decorate(target)


def _attach(target: Any, definition: ToolDefinition, guide: str | None) -> Any:
    if not inspect.isclass(target):
        setattr(target, DEFINITION, definition)
        setattr(target, GUIDE, guide)
        target.get_definition = lambda: definition
        return target
    bases = (target,) if issubclass(target, ToolComponent) else (target, ToolComponent)
    members = {
        DEFINITION: definition,
        GUIDE: guide,
        "__module__": target.__module__,
        "__qualname__": target.__qualname__,
        "__doc__": target.__doc__,
    }
    return cast(Any, type(target))(target.__name__, bases, members)


_NESTED = {
    "requires_auth": ("permissions", "requiresAuth"),
    "availability_condition": ("availability", "condition"),
    "confirmation_when": ("confirmation", "when"),
    "confirmation_channel": ("confirmation", "channel"),
}


_OPTIONAL = frozenset(
    {
        *_NESTED,
        *("timeout_ms", "output_schema", "max_output_bytes", "capabilities", "tags", "rate_limit", "permissions"),
        *("availability", "confirmation", "clamp", "dedupe_fields", "preview", "on_interrupt", "strict", "waivers"),
    }
)
_NAMED = frozenset(
    {
        *("tool_id", "version", "description", "category", "side_effects", "idempotent", "requires_confirmation"),
        *("allowed_modes", "latency_budget_ms", "parameters", "guide", "allow_no_schema", "no_schema_mode"),
    }
)


def _policy_fields(policy: Mapping[str, Any]) -> dict[str, Any]:
    """The optional fields under their names in `schema.json`."""
    wire: dict[str, Any] = {}
    for name, value in policy.items():
        if name not in _OPTIONAL:
            near = get_close_matches(_snake(name), _OPTIONAL | _NAMED, n=1)
            fix = f"Did you mean `{near[0]}`?" if near else f"Known are {', '.join(sorted(_OPTIONAL | _NAMED))}."
            raise _refused("This tool", f"/{name}", f"`@tool` has no keyword `{name}`.", fix)
        if value is None:
            continue
        if name in _NESTED:
            outer, inner = _NESTED[name]
            wire.setdefault(outer, {})[inner] = value
        elif name == "rate_limit" and isinstance(value, Mapping):
            wire["rateLimit"] = {_camel(key): item for key, item in value.items()}
        else:
            wire[_camel(name)] = list(value) if isinstance(value, tuple) else value
    return wire


def _plain(name: str, value: Any) -> Any:
    """A copy that is JSON through and through, as the content of a file would be."""
    try:
        return plain_copy(value, max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_DOCUMENT_DEPTH)
    except JsonError as error:
        raise _refused(name, error.pointer, error.message, "Give it a value that JSON can carry.") from None


def _refused(subject: str, pointer: str, message: str, fix: str) -> DefinitionError:
    return DefinitionError(subject, [Problem(rule="decorator", pointer=pointer, message=message, fix=fix)])


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
