"""A tool's plan: everything about it that a call needs to know, worked out once per snapshot and policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from fnmatch import translate
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import RESPONSE_SCHEMA_VERSION, ToolResponse
from handrail.contract.errors import RegistryError
from handrail.contract.portable_name import PORTABLE_NAME
from handrail.contract.store import Effects
from handrail.registry.handlers import Handler
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.runtime.attempt import Attempt, Gate, Refusal
from handrail.runtime.context import ToolFacts
from handrail.runtime.convertible import ConvertibleSchema
from handrail.runtime.gates import availability, budget, clamp, loop, mode, rate, session
from handrail.runtime.outcome import MAX_RESULT_BYTES
from handrail.runtime.policy import Policy
from handrail.schema.condition import Condition, compile_condition
from handrail.schema.subschemas import walk
from handrail.schema.validator import CompiledSchema, hide_values

if TYPE_CHECKING:
    from handrail.runtime.session import Session

Meaning = Callable[[ToolDefinition, str, Any], Any]
"""What a provider's form of the arguments means: a strict mode makes a model write null for what it leaves out."""
Observer = Callable[[Attempt, Refusal], None]
Redactor = Callable[[Any], Any]
RedactorFactory = Callable[[Mapping[str, Any], tuple[str, ...]], Redactor | None]

Shortcut = Callable[["Session", Any, Any, Any, Any], "ToolResponse | Coroutine[Any, Any, ToolResponse] | None"]
"""Session, raw arguments, call id, provider, id scope → the envelope, or what to await for it, or None: not my case."""

EARLY = (session, mode, availability)
"""Steps 4 to 6. Adding a gate is one file and one line."""
LATE = (rate, loop, budget)
"""Steps 10 to 12."""


class ToolPlan:
    """One tool under one policy."""

    __slots__ = (
        "always_confirm",
        "checks_output",
        "clamps",
        "confirm_when",
        "definition",
        "early",
        "effects",
        "facts",
        "is_plain",
        "late",
        "latency_budget_ms",
        "may_ask",
        "meaning",
        "meta",
        "most_bytes",
        "policy",
        "rate_limit",
        "redact",
        "retrieval",
        "stamp",
        "start",
        "timeout",
        "tool",
        "tool_id",
        "unvalidated",
        "validator",
        "version",
        "writes",
    )

    def __init__(
        self,
        tool: LoadedTool,
        registry_version: str,
        policy: Policy,
        observer: Observer,
        redactors: RedactorFactory,
        meaning: Meaning | None = None,
    ) -> None:
        definition = tool.definition
        self.tool = tool
        self.policy = policy
        self.definition = definition
        self.tool_id = definition.tool_id
        self.retrieval = definition.category == "retrieval"
        self.writes = definition.writes
        self.effects: Effects = "unsafe" if definition.writes and not definition.idempotent else "idempotent"
        self.early = _compiled(EARLY, definition, policy, observer)
        self.late = _compiled(LATE, definition, policy, observer)
        self.clamps = clamp.clamps_for(definition)
        self.always_confirm = definition.requires_confirmation or definition.unvalidated
        self.confirm_when = _condition(definition.confirmation_when)
        self.timeout = (definition.timeout_ms or policy.timeout_ms) / 1000
        self.facts = ToolFacts(definition.tool_id, definition.version, definition.category, definition.idempotent)
        self.redact = redactors(definition.parameters, policy.redact)
        # What it says about arguments goes to the audit and the log too.
        self.validator = _with_conversion(
            hide_values(tool.validator, policy.redact), tool, discreet=self.redact is not None
        )
        # Looked at by every call, so they stand one step away instead of two.
        self.meaning = partial(meaning, definition) if meaning is not None and _differs(definition) else None
        self.version = definition.version
        named = {
            "toolId": self.tool_id,
            "toolVersion": self.version,
            "registryVersion": registry_version,
            "category": definition.category,
        }
        self.stamp = orjson.dumps(named)[1:-1]
        """What the audit lines of its calls have in common."""
        self.meta = {
            "toolId": self.tool_id,
            "toolVersion": self.version,
            "registryVersion": registry_version,
            "duration": 0.0,
            "responseSchemaVersion": RESPONSE_SCHEMA_VERSION,
        }
        """What the envelopes of its calls have in common."""
        self.unvalidated = definition.unvalidated
        self.rate_limit = definition.rate_limit
        self.latency_budget_ms = definition.latency_budget_ms
        self.checks_output = definition.output_schema is not None
        self.most_bytes = min(definition.max_output_bytes or MAX_RESULT_BYTES, MAX_RESULT_BYTES)
        self.start = tool.handler.execute if _is_direct(tool) else None
        """The handler itself where calling it gives a coroutine; None where the runner has more to do."""
        self.is_plain = not self.clamps and _is_plain(definition.parameters)
        """Plain arguments that fit the schema stay plain when defaults are filled in."""
        self.may_ask = self.always_confirm or self.confirm_when is not None or definition.writes


def _differs(definition: ToolDefinition) -> bool:
    """Whether some provider's form of the arguments is another than ours: strict, or under other names."""
    return definition.strict or any(
        not PORTABLE_NAME.fullmatch(name)
        for _, schema in walk(definition.parameters)
        if isinstance(schema, dict)
        for name in schema.get("properties", ())
    )


def _is_plain(schema: Mapping[str, Any]) -> bool:
    members = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    defaults = [member.get("default") for member in members.values() if isinstance(member, Mapping)]
    scalars = all(default is None or isinstance(default, (str, bool, int)) for default in defaults)
    combined = {"allOf", "anyOf", "oneOf", "if", "$ref", "dependentSchemas"} & schema.keys()
    return bool(closed and scalars and not combined and all(map(str.isascii, members)))


def _is_direct(tool: LoadedTool) -> bool:
    handler = _handler(tool)
    return handler is not None and handler.is_async


def _with_conversion(schema: CompiledSchema, tool: LoadedTool, *, discreet: bool) -> CompiledSchema:
    handler = _handler(tool)
    if handler is None or handler.check is None:
        return schema
    return ConvertibleSchema(schema, handler.check, discreet=discreet)


def _handler(tool: LoadedTool) -> Handler | None:
    try:
        return tool.handler
    except RegistryError:  # one that cannot be loaded answers its calls with INTERNAL
        return None


class Plans(dict[str, ToolPlan]):
    """The plans of the tools of a snapshot that some users may use, each made when its tool is first called."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        observer: Observer,
        redactors: RedactorFactory,
        allowed: tuple[str, ...] = ("*",),
        meaning: Meaning | None = None,
        shortcut: Callable[[ToolPlan], Shortcut | None] = lambda plan: None,
    ) -> None:
        super().__init__()
        self.shortcuts: dict[str, Shortcut] = {}
        self._shortcut = shortcut
        self._allowed = None if "*" in allowed else re.compile("|".join(map(translate, allowed)) or r"(?!)")
        self._make = partial(
            ToolPlan,
            registry_version=snapshot.version,
            policy=policy,
            observer=observer,
            redactors=redactors,
            meaning=meaning,
        )
        self._snapshot = snapshot

    def find(self, name: object) -> ToolPlan | None:
        plan = self.get(name) if isinstance(name, str) else None
        if plan is not None:
            return plan
        tool = self._snapshot.get(name) if isinstance(name, str) else None
        if tool is None or not self.allows(tool.tool_id):
            return None
        plan = self[tool.tool_id] = self._make(tool)
        shortcut = self._shortcut(plan)
        if shortcut is not None:
            self.shortcuts[plan.tool_id] = shortcut
        return plan

    def allows(self, tool_id: str) -> bool:
        """Whether these users may use the tool; for all others it does not exist."""
        return self._allowed is None or self._allowed.match(tool_id) is not None

    def names(self) -> list[str]:
        """The tools that these users may use."""
        return [name for name in self._snapshot.tools if self.allows(name)]


def _compiled(modules: Any, definition: ToolDefinition, policy: Policy, observer: Observer) -> tuple[Gate, ...]:
    gates = ((module.NAME, module.gate_for(definition, policy)) for module in modules)
    return tuple(
        _observed(gate, observer) if name in policy.observe else gate for name, gate in gates if gate is not None
    )


def _observed(gate: Gate, observer: Observer) -> Gate:
    def observing(attempt: Attempt) -> Refusal | None:
        refusal = gate(attempt)
        if refusal is not None:
            observer(attempt, refusal)
        return None

    return observing


def _condition(text: str | None) -> Condition | None:
    return None if text is None else compile_condition(text, ("mode", "user", "session", "args"))
