"""Hydration: a model's call becomes a tool instance with validated arguments, or a list of what is wrong. Never raises.

    parse → (repair, if the policy allows) → validate → instantiate

`hydrate` keeps the provenance of each step for debugging and audit. The pipeline uses the same steps one by one
(`parse_call`, `validate_call`), because gates stand between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from handrail.authoring.decorator import ToolComponent
from handrail.contract.call import Call
from handrail.contract.errors import JsonError, UsageError
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.runtime.repair import mend_type_slips
from handrail.schema import strict_json
from handrail.schema.validator import CompiledSchema, Violation

Stage = Literal["parse", "validate", "instantiate"]


@dataclass(frozen=True, slots=True)
class HydrationFault:
    """One thing that went wrong, and in which stage."""

    stage: Stage
    message: str
    detail: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"stage": self.stage, "message": self.message, **({"detail": dict(self.detail)} if self.detail else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatorFacts:
    """Which validator judged, since when it is compiled, and how long it took."""

    name: str
    version: str
    compiled_at: str | None
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the arguments came from, and what was done to them on the way."""

    provider_tool_id: str
    provider: str | None
    original_raw_args: Any
    parsed: Any = None
    validated: Any = None
    validator: ValidatorFacts | None = None
    defaulted: tuple[str, ...] = ()
    repaired: bool = False

    def to_dict(self) -> dict[str, Any]:
        facts = self.validator
        return {
            "providerToolId": self.provider_tool_id,
            "provider": self.provider,
            "originalRawArgs": self.original_raw_args,
            "parsed": self.parsed,
            "validated": self.validated,
            "validator": facts
            and {
                "name": facts.name,
                "version": facts.version,
                "compiledAt": facts.compiled_at,
                "durationMs": facts.duration_ms,
            },
            "defaulted": list(self.defaulted),
            "repaired": self.repaired,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HydrationResult:
    """`tool` on success, `errors` otherwise; the provenance always."""

    success: bool
    provenance: Provenance
    tool: ToolComponent | None = None
    errors: tuple[HydrationFault, ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """Arguments as an object; `repaired` if their JSON had to be mended."""

    args: dict[str, Any]
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Validated:
    """Arguments that fit the schema, with defaults filled in; or the violations."""

    args: dict[str, Any]
    defaulted: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    repaired: bool = False


def parse_call(raw: Any, *, repair: bool = False) -> Parsed:
    """The arguments as an object; `JsonError` with the reason if they are none."""
    try:
        return Parsed(strict_json.parse_arguments(raw))
    except JsonError as error:
        # Only what is no JSON is mended. Duplicate keys or NaN could be mended in more than one way, so they stay refused.
        if not repair or error.code != "invalid_json" or not isinstance(raw, str):
            raise
        try:
            mended = strict_json.repair(raw)
        except JsonError:
            # What was wrong in the first place helps more than that it could not be mended.
            raise error from None
        return Parsed(mended, repaired=True)


def validate_call(
    tool: LoadedTool, args: dict[str, Any], *, repair: bool = False, validator: CompiledSchema | None = None
) -> Validated:
    """The arguments with defaults filled in, on a copy; or every violation. `validator` takes the place of the tool's own."""
    checker = tool.validator if validator is None else validator
    value, defaulted, violations = checker.validate(args)
    if not violations:
        return Validated(value, tuple(defaulted))
    if repair:
        mended = mend_type_slips(args, violations, tool.definition.parameters)
        if mended is not None:
            # Judged again as a whole: a mended value may break another rule of the schema.
            value, defaulted, left = checker.validate(mended)
            if not left:
                return Validated(value, tuple(defaulted), repaired=True)
    return Validated(args, (), tuple(violations))


def hydrate(
    call: Call,
    snapshot: Snapshot,
    *,
    repair: bool = False,
    observe: Callable[[HydrationResult], None] | None = None,
) -> HydrationResult:
    """Parse, validate and instantiate one call. `observe` sees every attempt, for the audit."""
    result = _attempt(call, snapshot, repair)
    if observe is not None:
        observe(result)
    return result


def _attempt(call: Call, snapshot: Snapshot, repair: bool) -> HydrationResult:
    origin = {"provider_tool_id": call.call_id or "", "provider": call.provider, "original_raw_args": call.args}
    tool = snapshot.get(call.name) if isinstance(call.name, str) else None
    if tool is None:
        return _failed(origin, HydrationFault("instantiate", unknown_tool(call.name, snapshot.tools)))
    try:
        parsed = parse_call(call.args, repair=repair)
    except JsonError as error:
        return _failed(origin, HydrationFault("parse", error.message, {"code": error.code, "pointer": error.pointer}))
    started = time.perf_counter()
    checked = validate_call(tool, parsed.args, repair=repair)
    name, version = tool.validator_name
    facts = ValidatorFacts(
        name=name, version=version, compiled_at=tool.compiled_at, duration_ms=(time.perf_counter() - started) * 1000
    )
    origin |= {"parsed": parsed.args, "validator": facts, "repaired": parsed.repaired or checked.repaired}
    if checked.violations:
        faults = (
            HydrationFault("validate", violation.message, violation.to_dict()) for violation in checked.violations
        )
        return _failed(origin, *faults)
    provenance = Provenance(**origin, validated=checked.args, defaulted=checked.defaulted)
    try:
        return HydrationResult(success=True, tool=instantiate(tool, checked.args), provenance=provenance)
    except Exception as error:  # noqa: BLE001  # an author's code may raise anything
        fault = HydrationFault(
            "instantiate", f'"{tool.tool_id}" could not be made from its arguments.', {"reason": type(error).__name__}
        )
        return HydrationResult(success=False, errors=(fault,), provenance=provenance)


def instantiate(tool: LoadedTool, args: Mapping[str, Any]) -> ToolComponent:
    """The component of a class tool, or one that stands for a tool that only the pipeline can make."""
    component = tool.handler.component
    if component is not None:
        return component(args)
    return _stand_in(tool)(args)


def unknown_tool(name: object, known: Iterable[str]) -> str:
    """The sentence for a name that no tool has, with the nearest that one has."""
    if not isinstance(name, str) or not name:
        return "The call names no tool."
    start = name[:64].encode(errors="replace").decode()  # no tool's name is longer, and half a surrogate is no text
    near = get_close_matches(start, known, n=1)
    return f'There is no tool "{start}"' + (f'; did you mean "{near[0]}"?' if near else ".")


def _failed(origin: Mapping[str, Any], *faults: HydrationFault) -> HydrationResult:
    return HydrationResult(success=False, errors=tuple(faults), provenance=Provenance(**origin))


def _stand_in(tool: LoadedTool) -> type[ToolComponent]:
    definition = tool.definition
    return type(tool.tool_id, (_Governed,), {"get_definition": staticmethod(lambda: definition)})


class _Governed(ToolComponent):
    """A tool with its arguments that is no class, or needs services. It carries them; the pipeline runs the handler."""

    async def run(self, params: Any = None) -> Any:
        raise UsageError("Handlers are run by the pipeline and by nothing else; use `session.call(…)`.")
