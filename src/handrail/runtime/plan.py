"""A tool's plan: everything about it that a call needs to know, worked out once per snapshot and policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import partial, reduce
from typing import Any

from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import RESPONSE_SCHEMA_VERSION
from handrail.contract.errors import RegistryError
from handrail.contract.gates import Gate
from handrail.contract.portable_name import PORTABLE_NAME
from handrail.contract.store import Effects
from handrail.registry.artifact import versioned_name
from handrail.registry.handlers import Handler
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.runtime.call_attempt import Attempt, Check, Refusal
from handrail.runtime.context import ToolFacts
from handrail.runtime.converting_schema import ConvertibleSchema
from handrail.runtime.execution import ResultRules
from handrail.runtime.gates import ADMISSION, LIMITS, LOOP, ToolGate, clamps_for, host_check
from handrail.runtime.hydrate import unknown_tool
from handrail.runtime.policy import Policy
from handrail.schema.condition import Condition, compile_condition
from handrail.schema.subschemas import walk
from handrail.schema.validator import CompiledSchema, QuickParts, hide_values

Meaning = Callable[[ToolDefinition, str, Any], Any]
"""What a provider's form of the arguments means: a strict mode makes a model write null for what it leaves out."""
Observer = Callable[[Attempt, Refusal], None]
Redactor = Callable[[Any], Any]
RedactorFactory = Callable[[Mapping[str, Any], tuple[str, ...]], Redactor | None]


_MAX_NAME, _MAX_NAMES = 64, 32
"""Of names that no tool has: how long and how many those are whose sentences are kept."""


class ToolPlan:
    """One tool under one policy."""

    __slots__ = (
        "_names",
        "admission",
        "always_confirm",
        "audit_fields",
        "clamps",
        "confirm_when",
        "defaults_plain",
        "definition",
        "effects",
        "facts",
        "fill",
        "handler",
        "host_check",
        "is_valid",
        "latency_budget_ms",
        "limits",
        "loop",
        "may_take_write_path",
        "meaning",
        "meta",
        "metric_name",
        "policy",
        "quick_ms",
        "rate_limit",
        "redact",
        "results",
        "retrieval",
        "start",
        "timeout",
        "tool",
        "tool_id",
        "validator",
        "version",
        "violations",
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
        host_gates: Sequence[Gate] = (),
        versioned: Collection[str] = (),
    ) -> None:
        definition = tool.definition
        self.tool = tool
        self.policy = policy
        self.definition = definition
        self.tool_id = definition.tool_id
        self.retrieval = definition.category == "retrieval"
        self.writes = definition.writes
        self.effects: Effects = "unsafe" if definition.writes and not definition.idempotent else "idempotent"
        self.admission = _one_check(_check(gate, definition, policy, observer) for gate in ADMISSION)
        """Steps 4 to 6."""
        self.host_check = host_check(host_gates, policy, observer)
        """What the host's own gates say; None if it has none."""
        # By gate and not only in a row: a replay asks the loop gate alone.
        limits = {gate: _check(gate, definition, policy, observer) for gate in LIMITS}
        self.limits = _one_check(limits.values())
        """Steps 10 to 12."""
        self.loop = limits[LOOP]
        """Step 11 alone: a replay without an id counts as a call there, and nowhere else."""
        self.clamps = clamps_for(definition)
        self.always_confirm = definition.requires_confirmation or definition.unvalidated
        self.confirm_when = _condition(definition.confirmation_when)
        self.may_take_write_path = self.writes or self.always_confirm or self.confirm_when is not None
        """It writes, or a person may have to approve its calls."""
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
        self.metric_name = versioned_name(self.tool_id, self.version) if self.tool_id in versioned else self.tool_id
        """What its numbers are kept under: each of several versions has its own."""
        self.audit_fields = {
            "toolId": self.tool_id,
            "toolVersion": self.version,
            "registryVersion": registry_version,
            "category": definition.category,
            "validator": dict(zip(("name", "version"), tool.validator_name, strict=True))
            | {"compiledAt": tool.compiled_at},
        }
        """What the audit lines of its calls have in common."""
        self.meta: dict[str, Any] = {
            "toolId": self.tool_id,
            "toolVersion": self.version,
            "registryVersion": registry_version,
            "duration": 0.0,
            "responseSchemaVersion": RESPONSE_SCHEMA_VERSION,
            **({"unvalidated": True} if definition.unvalidated else {}),
        }
        """What the envelopes of its calls have in common."""
        self.rate_limit = definition.rate_limit
        self.latency_budget_ms = definition.latency_budget_ms
        modes = (policy.text, policy.voice) if self.retrieval else ()
        self.quick_ms = min([self.latency_budget_ms, *(mode.retrieval_ms for mode in modes)])
        """A call that takes no longer is within its soft budget in either mode."""
        handler = self.handler = _handler(tool)
        """None if it cannot be loaded; the tool's own says why."""
        self.start = handler.execute if handler is not None and handler.is_async else None
        """The handler itself where calling it gives a coroutine; None where the runner has more to do."""
        self.results = ResultRules.of(tool) if handler is not None else None
        parts: QuickParts | None = getattr(self.validator, "quick_parts", None)
        self.is_valid = parts[0] if parts is not None else None
        self.fill = parts[1] if parts is not None else None
        self.violations = parts[2] if parts is not None else None
        """What the validator does, in its parts; None where it does more."""
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.defaults_plain = bool(getattr(self.validator, "defaults_plain", False))
        """Plain arguments stay plain, in the sense of `read_arguments`, when defaults are filled in."""

    def same_names(self, names: list[str]) -> tuple[str, ...]:
        """The names as one tuple for all calls that have the same ones: what calls leave behind is looked through again and again
        by the garbage collector, and nearly all lack the same arguments."""
        made = tuple(names)
        known = self._names.get(made)
        if known is None:
            if len(self._names) >= _MAX_NAMES:
                self._names.clear()
            known = self._names[made] = made
        return known


def _differs(definition: ToolDefinition) -> bool:
    """Whether some provider's form of the arguments is another than ours: strict, or under other names."""
    return definition.strict or any(
        not PORTABLE_NAME.fullmatch(name)
        for _, schema in walk(definition.parameters)
        if isinstance(schema, dict)
        for name in schema.get("properties", ())
    )


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


class Plans(dict[str, ToolPlan | None]):
    """The plans of the tools of a snapshot that some users may use, each made when its tool is first called; None for any other
    name."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        observer: Observer,
        redactors: RedactorFactory,
        allowed: tuple[str, ...] = ("*",),
        meaning: Meaning | None = None,
        host_gates: Sequence[Gate] = (),
        roles: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.allowed: Collection[str] = snapshot.tools
        """The tools that these users may use; for them no others exist."""
        # Everything is allowed nearly always; then the snapshot's own table serves, and no copy of it is made.
        if "*" not in allowed:
            pattern = re.compile("|".join(map(translate, allowed)) or r"(?!)")
            self.allowed = dict.fromkeys(name for name in snapshot.tools if pattern.match(name))
        # Tools that name no roles need no look at the user's.
        if snapshot.roles:
            barred = {tool.tool_id for tool in snapshot.conditional if not tool.is_for(roles)}
            self.allowed = dict.fromkeys(name for name in self.allowed if name not in barred)
        self._make = partial(
            ToolPlan,
            registry_version=snapshot.version,
            policy=policy,
            observer=observer,
            redactors=redactors,
            meaning=meaning,
            host_gates=host_gates,
            versioned=snapshot.versions,
        )
        self._snapshot = snapshot
        self._no_such: dict[str, str] = {}

    def no_such_tool(self, name: object) -> str:
        """The sentence for a name that no tool has. The nearest one is looked for among all, and models repeat themselves."""
        if not isinstance(name, str) or len(name) > _MAX_NAME:
            return unknown_tool(name, self.allowed)
        if name not in self._no_such:
            if len(self._no_such) >= _MAX_NAMES:
                self._no_such.clear()
            self._no_such[name] = unknown_tool(name, self.allowed)
        return self._no_such[name]

    def __missing__(self, name: str) -> ToolPlan | None:
        # Only tools are kept: the names that a model makes up are without end.
        tool = self._snapshot.get(name)
        if tool is None or tool.tool_id not in self.allowed:
            return None
        plan = self[tool.tool_id] = self._make(tool)
        return plan


def _one_check(checks: Iterable[Check | None]) -> Check:
    """What asks these in their order, up to the first that refuses."""
    return reduce(_both, [check for check in checks if check is not None])


def _both(one: Check, other: Check) -> Check:
    return lambda attempt: one(attempt) or other(attempt)


def _check(gate: ToolGate, definition: ToolDefinition, policy: Policy, observer: Observer) -> Check | None:
    check = gate.for_tool(definition, policy)
    return _observed(check, observer) if check is not None and gate.name in policy.observe else check


def _observed(check: Check, observer: Observer) -> Check:
    def observing(attempt: Attempt) -> Refusal | None:
        refusal = check(attempt)
        if refusal is not None:
            observer(attempt, refusal)
        return None

    return observing


def _condition(text: str | None) -> Condition | None:
    return None if text is None else compile_condition(text, ("mode", "user", "session", "args"))
