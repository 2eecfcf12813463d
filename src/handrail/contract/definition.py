"""The definition: the frozen, authoritative description of a tool. Every way of authoring ends here.

`ToolDefinition.from_dict` takes the content of a `schema.json`, checks it against the table in `fields.py`, and reports
every problem at once. `to_dict` is its inverse. Nothing in a definition can be changed after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from handrail.contract.errors import DefinitionError, Problem
from handrail.contract.fields import FIELDS, ChoiceField, Field, escape, shown
from handrail.contract.frozen import FrozenDict, freeze, thaw

Category = Literal["retrieval", "action", "utility"]
SideEffects = Literal["none", "read_only", "writes"]
Mode = Literal["text", "voice"]
NoSchemaMode = Literal["confirm", "refuse"]

NO_SCHEMA: Mapping[str, Any] = FrozenDict({"type": "object"})
"""The parameters of a tool that was registered without a schema: any object, marked as unvalidated."""

_KNOWN = {field.name: field for field in FIELDS}

# Written by the decorator for a function without hints, never by an author: checked, but not offered as a field.
_NO_SCHEMA_MODE = Field(
    "noSchemaMode", ChoiceField(("confirm", "refuse")), "What happens to calls of an unvalidated tool."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How often a tool may be called in any window of this length, by one session or one user."""

    calls: int
    window_ms: int
    scope: Literal["session", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDefinition:
    """Identity, policy and parameter schema of one tool."""

    tool_id: str
    version: str
    description: str
    category: Category
    side_effects: SideEffects
    idempotent: bool
    requires_confirmation: bool
    allowed_modes: tuple[Mode, ...]
    latency_budget_ms: int
    parameters: Mapping[str, Any]
    timeout_ms: int | None = None
    output_schema: Mapping[str, Any] | None = None
    max_output_bytes: int | None = None
    capabilities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    always_offer: bool = False
    """Declared in every conversation, also where only some of many tools are."""
    rate_limit: RateLimit | None = None
    requires_auth: bool = False
    roles: tuple[str, ...] = ()
    """The roles of which a user needs one; none: it is for everybody."""
    availability_condition: str | None = None
    confirmation_when: str | None = None
    confirmation_channel: Literal["any", "screen"] = "any"
    clamp: Mapping[str, Mapping[str, Any]] = FrozenDict()
    dedupe_fields: tuple[str, ...] = ()
    preview: str | None = None
    on_interrupt: Literal["cancel", "finish"] = "cancel"
    strict: bool = False
    waivers: Mapping[str, str] = FrozenDict()
    no_schema_mode: NoSchemaMode | None = None
    """Set for a tool without a parameter schema: what happens to its calls."""

    def __post_init__(self) -> None:
        # However it was made (`dataclasses.replace` included), a definition shares nothing that somebody could change.
        for name in ("parameters", "output_schema", "clamp", "waivers"):
            object.__setattr__(self, name, freeze(getattr(self, name)))
        for name in ("allowed_modes", "capabilities", "tags", "dedupe_fields", "roles"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolDefinition:
        return self

    @property
    def writes(self) -> bool:
        return self.side_effects == "writes"

    @property
    def unvalidated(self) -> bool:
        return self.no_schema_mode is not None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolDefinition:
        """The definition in the content of a `schema.json`; `DefinitionError` with every problem if it is not one."""
        problems = find_problems(data)
        if problems:
            raise DefinitionError(_subject(data), problems)
        return cls.from_checked(data)

    @classmethod
    def from_checked(cls, data: Mapping[str, Any]) -> ToolDefinition:
        """As `from_dict`, for data that was checked before, such as an artifact whose integrity was verified."""
        limit = data.get("rateLimit")
        confirmation = data.get("confirmation") or {}
        permissions = data.get("permissions") or {}
        return cls(
            tool_id=data["toolId"],
            version=data["version"],
            description=data["description"],
            category=data["category"],
            side_effects=data["sideEffects"],
            idempotent=data["idempotent"],
            requires_confirmation=data["requiresConfirmation"],
            allowed_modes=tuple(data["allowedModes"]),
            latency_budget_ms=data["latencyBudgetMs"],
            parameters=data["parameters"],
            timeout_ms=data.get("timeoutMs"),
            output_schema=data.get("outputSchema"),
            max_output_bytes=data.get("maxOutputBytes"),
            capabilities=tuple(data.get("capabilities", ())),
            tags=tuple(data.get("tags", ())),
            always_offer=data.get("alwaysOffer", False),
            rate_limit=limit and RateLimit(calls=limit["calls"], window_ms=limit["windowMs"], scope=limit["scope"]),
            requires_auth=permissions.get("requiresAuth", False),
            roles=tuple(permissions.get("roles", ())),
            availability_condition=(data.get("availability") or {}).get("condition"),
            confirmation_when=confirmation.get("when"),
            confirmation_channel=confirmation.get("channel", "any"),
            clamp=data.get("clamp", {}),
            dedupe_fields=tuple(data.get("dedupeFields", ())),
            preview=data.get("preview"),
            on_interrupt=data.get("onInterrupt", "cancel"),
            strict=data.get("strict", False),
            waivers=data.get("waivers", {}),
            no_schema_mode=data.get("noSchemaMode"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The content of a `schema.json` that gives this definition; optional fields at their default are left out."""
        wire: dict[str, Any] = {
            "toolId": self.tool_id,
            "version": self.version,
            "description": self.description,
            "category": self.category,
            "sideEffects": self.side_effects,
            "idempotent": self.idempotent,
            "requiresConfirmation": self.requires_confirmation,
            "allowedModes": list(self.allowed_modes),
            "latencyBudgetMs": self.latency_budget_ms,
            "parameters": thaw(self.parameters),
        }
        if self.output_schema is not None:
            wire["outputSchema"] = thaw(self.output_schema)
        limit = self.rate_limit
        when, channel = self.confirmation_when, self.confirmation_channel
        optional: dict[str, Any] = {
            "timeoutMs": self.timeout_ms,
            "maxOutputBytes": self.max_output_bytes,
            "capabilities": list(self.capabilities),
            "tags": list(self.tags),
            "alwaysOffer": self.always_offer,
            "rateLimit": limit and {"calls": limit.calls, "windowMs": limit.window_ms, "scope": limit.scope},
            "permissions": ({"requiresAuth": True} if self.requires_auth else {})
            | ({"roles": list(self.roles)} if self.roles else {}),
            "availability": {"condition": self.availability_condition} if self.availability_condition else None,
            "confirmation": ({"when": when} if when else {}) | ({"channel": channel} if channel != "any" else {}),
            "clamp": thaw(self.clamp),
            "dedupeFields": list(self.dedupe_fields),
            "preview": self.preview,
            "onInterrupt": self.on_interrupt if self.on_interrupt != "cancel" else None,
            "strict": self.strict,
            "waivers": thaw(self.waivers),
            "noSchemaMode": self.no_schema_mode,
        }
        wire.update({name: value for name, value in optional.items() if value})
        return wire


def find_problems(data: object) -> list[Problem]:
    """Everything in the content of a `schema.json` that does not fit the table of fields."""
    if not isinstance(data, Mapping):
        return [
            Problem(
                rule="field-value",
                pointer="",
                message="A schema.json holds one JSON object.",
                fix="Put the fields of the tool into { … }.",
            )
        ]
    known = {*_KNOWN, _NO_SCHEMA_MODE.name}
    problems = [_unknown(str(name)) for name in data if name not in known]
    for field in (*FIELDS, _NO_SCHEMA_MODE):
        if field.name not in data:
            if field.required:
                problems.append(
                    Problem(
                        rule="required-field",
                        pointer="",
                        message=f'The required field "{field.name}" is missing.',
                        fix=f'Add "{field.name}": {field.doc}',
                    )
                )
            continue
        problems += [
            Problem(
                rule="field-value",
                pointer=f"/{field.name}{place}",
                message=_sentence(field.name, place, trouble),
                fix=field.doc,
            )
            for place, trouble in field.kind.troubles(data[field.name])
        ]
    return problems


def _subject(data: object) -> str:
    name = data.get("toolId") if isinstance(data, Mapping) else None
    return f"Tool {shown(name)}" if name else "This object"


def _sentence(name: str, place: str, trouble: str) -> str:
    subject = f'"{name}"' if not place else f'"{place[1:]}" in "{name}"'
    return f"{subject} {trouble}."


def _unknown(name: str) -> Problem:
    near = get_close_matches(name, _KNOWN, n=1, cutoff=0.6)
    return Problem(
        rule="unknown-field",
        pointer=f"/{escape(name)}",
        message=f'There is no field "{name}" in a schema.json.',
        fix=f'Did you mean "{near[0]}"?' if near else f"Remove it; the known fields are {', '.join(_KNOWN)}.",
    )
