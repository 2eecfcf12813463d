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

from handrail.authoring.docstrings import docstring_parts, guide_of_function
from handrail.authoring.registration import REGISTRATION, Registration, refused, registration_of
from handrail.contract.definition import Mode, NoSchemaMode, ToolDefinition

_T = TypeVar("_T", bound=Callable[..., Any])


class ToolComponent:
    """One call of a class tool: made from the validated arguments, run once.

    `args` holds the validated arguments, `ctx` the context of the call (None outside the pipeline).
    """

    ctx: Any = None

    def __init__(self, args: Mapping[str, Any] | None = None) -> None:
        self.args: Mapping[str, Any] = {} if args is None else args

    __init__.__handrail_component__ = True  # type: ignore[attr-defined]  # it says nothing about a tool's arguments

    async def run(self, params: Any = None) -> Any:
        """Do the work. Subclasses override this; the base does nothing."""
        return None

    @classmethod
    def get_definition(cls) -> ToolDefinition | None:
        """The frozen definition; None for a class that was not decorated."""
        return definition_of(cls)


def definition_of(target: object) -> ToolDefinition | None:
    """The definition that `@tool` made of this very class or function; what it inherits is another tool's."""
    found = registration_of(target)
    return None if found is None else found.definition


def guide_of(target: object) -> str | None:
    found = registration_of(target)
    return None if found is None else found.guide


@overload
def tool(target: _T, /) -> _T: ...
@overload
def tool(
    *,
    tool_id: str | None = ...,
    name: str | None = ...,
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
    name: str | None = None,
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

    Keyword arguments are the fields of `schema.json` in snake_case; `name` is another word for `tool_id`. Unless they are
    given, `parameters` is derived from type hints and docstring, `output_schema` from the return annotation;
    `description` is the docstring's first sentence, the guide is `guide`, or the docstring without what it says of
    parameters that are in the schema.
    """

    def decorate(target: Any) -> Any:
        if not inspect.isclass(target) and not inspect.isroutine(target):
            raise refused(f"{target!r}", "", "@tool stands on a class or a function.", "Move it there.")
        if tool_id is not None and name is not None and tool_id != name:
            raise refused(f"Tool {tool_id!r}", "/toolId", f"It is also called {name!r}.", "Give `tool_id` or `name`.")
        given_id = tool_id or name
        short, _, docstring = docstring_parts(target)
        fields: dict[str, Any] = {
            "toolId": given_id or _snake(target.__name__),
            "version": version,
            "description": description or short,
            "category": category,
            "sideEffects": side_effects,
            "idempotent": idempotent if idempotent is not None else side_effects != "writes",
            "requiresConfirmation": requires_confirmation,
            "allowedModes": list(allowed_modes),
            "latencyBudgetMs": latency_budget_ms,
            "parameters": parameters,
            **_policy_fields(policy),
        }
        if parameters is None and allow_no_schema:
            fields["noSchemaMode"] = no_schema_mode
        subject = f"Tool {given_id or target.__name__!r}"
        # Hints carry what the docstring says of parameters into the schema; a schema that is given has its own words.
        derived = parameters is None and not allow_no_schema and not inspect.isclass(target)
        own = guide_of_function(target) if derived else docstring
        return _attach(target, Registration(target, subject, fields, guide or own or None))

    return decorate if target is None else decorate(target)


def _attach(target: Any, registration: Registration) -> Any:
    if not inspect.isclass(target):
        setattr(target, REGISTRATION, registration)
        target.get_definition = lambda: registration.definition
        return target
    bases = (target,) if issubclass(target, ToolComponent) else (target, ToolComponent)
    members = {
        REGISTRATION: registration,
        "__module__": target.__module__,
        "__qualname__": target.__qualname__,
        "__doc__": target.__doc__,
    }
    if "__firstlineno__" in target.__dict__:  # Python 3.13 finds the source of a class by it
        members["__firstlineno__"] = target.__dict__["__firstlineno__"]
    return cast(Any, type(target))(target.__name__, bases, members)


_NESTED = {
    "requires_auth": ("permissions", "requiresAuth"),
    "roles": ("permissions", "roles"),
    "availability_condition": ("availability", "condition"),
    "confirmation_when": ("confirmation", "when"),
    "confirmation_channel": ("confirmation", "channel"),
}


_OPTIONAL = frozenset(
    {
        *_NESTED,
        *("timeout_ms", "output_schema", "max_output_bytes", "capabilities", "tags", "rate_limit", "permissions"),
        "always_offer",
        *("availability", "confirmation", "clamp", "dedupe_fields", "preview", "on_interrupt", "strict", "waivers"),
    }
)
_NAMED = frozenset(
    {
        *(
            "tool_id",
            "name",
            "version",
            "description",
            "category",
            "side_effects",
            "idempotent",
            "requires_confirmation",
        ),
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
            raise refused("This tool", f"/{name}", f"`@tool` has no keyword `{name}`.", fix)
        if value is None:
            continue
        if name in _NESTED:
            outer, inner = _NESTED[name]
            wire.setdefault(outer, {})[inner] = list(value) if isinstance(value, tuple) else value
        elif name == "rate_limit" and isinstance(value, Mapping):
            wire["rateLimit"] = {_camel(key): item for key, item in value.items()}
        else:
            wire[_camel(name)] = list(value) if isinstance(value, tuple) else value
    return wire


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
