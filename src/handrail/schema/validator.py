"""Validation as a port, and the implementation that is used unless a registry is given another: `jsonschema_rs`.

A compiled schema checks an instance, fills defaults in on a copy, and says in sentences what is wrong. `validate` does
all three and is what every call passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cached_property
from typing import NamedTuple, Protocol

import orjson
from jsonschema_rs import Draft202012Validator

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import thaw
from handrail.schema.defaults import Node, build_plan, find_unsafe_defaults
from handrail.schema.effort import BARE_TYPES, MAX_EFFORT, Effort, effort_of
from handrail.schema.explain import MAX_STEPS, Explainer, SchemaProblem, Steps, first_refused
from handrail.schema.fill_plan import nodes_of
from handrail.schema.jsonschema_engine import BUILD_ERRORS, build
from handrail.schema.phrases import counted
from handrail.schema.problems import find_schema_problems, is_plain
from handrail.schema.secrets import SecretHolders
from handrail.schema.sentences import MAX_WORDING, Role, Wording
from handrail.schema.strict_json import is_plain_value
from handrail.schema.subschemas import Json, LocalRefs

__all__ = [
    "JSONSCHEMA_RS",
    "CompiledSchema",
    "JsonSchemaRs",
    "RustSchema",
    "SchemaCompiler",
    "Violation",
    "compile_schema",
    "find_schema_problems",
    "for_results",
    "hide_values",
]

MAX_VIOLATIONS = 50
MAX_INSTANCE_DEPTH = 200
EXTRA_STEPS = 1_000
MAX_EXPLANATION = MAX_STEPS + EXTRA_STEPS + MAX_WORDING
"""The most steps that an explanation takes, one or two microseconds each."""
MAX_RECOMPILED = 30_000
RESULT_EFFORT = 16
"""How many times the work that arguments may cost: results come from handlers, not from a model, and may be as much larger."""


class Violation(NamedTuple):
    """One way in which an instance does not fit: where, in a sentence that a model can act on, and by which keyword."""

    pointer: str
    message: str
    keyword: str

    def to_dict(self) -> dict[str, str]:
        return {"pointer": self.pointer, "message": self.message, "keyword": self.keyword}


Fill = Callable[[Json, str, list[str], bool], Json]
"""An instance, the pointer to it, where the pointers of defaults go, and whether the instance itself may be changed → the
instance with its defaults."""
QuickParts = tuple[Callable[[Json], bool], Fill | None, Callable[[Json], list[Violation]]]
"""Whether an instance fits; what fills defaults in, None if nothing does; what is wrong with one that does not fit."""
Validated = tuple[Json, tuple[str, ...], list[Violation]]
"""The instance with defaults filled in, the pointers of what was filled in, and what is wrong."""


class CompiledSchema(Protocol):
    """What the runtime needs of a compiled schema."""

    @property
    def defaults_safe(self) -> bool:
        """Whether a valid instance is known to stay valid when defaults are filled in."""
        ...

    def is_valid(self, instance: Json) -> bool: ...

    def violations(self, instance: Json) -> list[Violation]:
        """Everything that is wrong, by pointer; empty exactly where `is_valid`."""
        ...

    def with_defaults(self, instance: Json) -> tuple[Json, tuple[str, ...]]:
        """The instance with defaults filled in, and their pointers. The instance itself is not changed."""
        ...

    def validate(self, instance: Json) -> Validated:
        """Check and fill in. With violations, the instance comes back as it was, and nothing as filled in."""
        ...


class SchemaCompiler(Protocol):
    """Turns schemas into compiled ones; a registry takes any."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def compile(self, schema: Mapping[str, Json], trusted: bool = False) -> CompiledSchema:
        """`SchemaError` if the schema cannot be used. `trusted` skips what the build has checked already."""
        ...


class Explanation(NamedTuple):
    """Why an instance does not fit, and what it took to find out."""

    violations: list[Violation]
    steps: int = 0
    """How many steps were taken, of `MAX_EXPLANATION` at most."""
    complete: bool = True
    """Whether all of the instance was looked at."""


_NO_JSON = Violation("", "The value has a part that JSON does not have, or is nested too deeply.", "json")


class RustSchema:
    """A schema compiled by `jsonschema_rs`. What only filling in needs is worked out when the first instance comes."""

    __slots__ = (
        "_effort",
        "_engine",
        "_guarded",
        "_hidden",
        "_holders",
        "_plan",
        "_prepared",
        "_recursive",
        "_refs",
        "_role",
        "_safe",
        "_secrets",
        "schema",
    )

    def __init__(self, schema: Mapping[str, Json], engine: Draft202012Validator, role: Role) -> None:
        self.schema = schema
        self._engine = engine
        self._role = role
        self._prepared = False
        self._plan: Node | None = None
        self._safe: bool | None = None
        self._recursive = self._guarded = self._secrets = True
        self._effort: Effort | None = None
        self._refs: LocalRefs | None = None
        self._hidden: frozenset[str] = frozenset()
        self._holders: SecretHolders | None = None

    def hiding(self, names: Iterable[str]) -> RustSchema:
        """The same schema, whose violations do not tell the values of properties of these names, in any spelling of case."""
        if not self._prepared:
            self._prepare()
        twin = copy(self)
        twin._hidden = self._hidden.union(name.casefold() for name in names)
        twin._holders = None
        return twin

    def for_results(self) -> RustSchema:
        """The same schema for what handlers return: called a result in sentences, and larger."""
        twin = copy(self)
        twin._role = "result"
        return twin

    def _prepare(self) -> None:
        self._plan = build_plan(self.schema)
        text = _text(self.schema)
        # Without references, a schema goes no deeper into an instance than it is deep itself.
        self._recursive = b'"$' in text
        self._secrets = b'"writeOnly"' in text
        effort = effort_of(self.schema)
        self._effort = effort if effort.needs_measuring else None
        self._guarded = self._recursive or self._effort is not None
        self._prepared = True

    @property
    def defaults_safe(self) -> bool:
        """Whether a valid instance is known to stay valid when defaults are filled in; worked out at first use."""
        if self._safe is None:
            self._safe = not find_unsafe_defaults(self.schema)
        return self._safe

    @property
    def quick_parts(self) -> QuickParts | None:
        """The parts of `validate`, where it is no more than these."""
        if not self._prepared:
            self._prepare()
        if self._guarded or not (self._plan is None or self.defaults_safe):
            return None
        return self._engine.is_valid, self._plan.fill if self._plan is not None else None, self._violations

    @property
    def defaults_plain(self) -> bool:
        """Whether orjson writes every default, with its name, in canonical form."""
        if not self._prepared:
            self._prepare()
        nodes = nodes_of(self._plan) if self._plan is not None else []
        return all(is_plain_value({fill.name: fill.value}) for node in nodes for fill in node.fills)

    def is_valid(self, instance: Json) -> bool:
        """Whether the instance fits. A value that JSON does not have fits nothing."""
        try:
            return self._refusal(instance) is None and self._engine.is_valid(instance)
        except ValueError:
            return False

    def _refusal(self, instance: Json) -> Violation | None:
        """Why the engine must not even look at the instance: it would end the process, or take too long."""
        if not self._prepared:
            self._prepare()
        # The engine follows a recursive schema down any instance, and a deep enough one would end the process.
        if self._recursive and _is_deep(instance):
            return Violation("", f"The value is nested more than {MAX_INSTANCE_DEPTH} levels deep.", "json")
        limit = MAX_EFFORT if self._role == "arguments" else MAX_EFFORT * RESULT_EFFORT
        if self._effort is not None and not self._effort.allows(instance, limit):
            message = (
                f"The {self._role} would take too long to check against this schema; send fewer or shorter values."
            )
            return Violation("", message, "size")
        return None

    def violations(self, instance: Json) -> list[Violation]:
        """Everything that is wrong, by pointer, at most 50 and then how many more; empty exactly where `is_valid`."""
        return self.explain(instance).violations

    def explain(self, instance: Json) -> Explanation:
        """The violations, found with a bounded number of steps; past the bound they say where the search ended."""
        refusal = self._refusal(instance)
        if refusal is not None:
            return Explanation([refusal])
        try:
            valid = self._engine.is_valid(instance)
        except ValueError:  # the engine's words may repeat the value
            return Explanation([_NO_JSON])
        return Explanation([]) if valid else self._explained(instance)

    def _violations(self, instance: Json) -> list[Violation]:
        return self._explained(instance).violations

    def _explained(self, instance: Json) -> Explanation:
        """The explanation of an instance that the engine has refused."""
        if self._refs is None:
            self._refs = LocalRefs(self.schema)
        explainer = Explainer(self._refs, Steps())
        problems = explainer.explain(self.schema, instance)
        if self._holders is None and (self._secrets or self._hidden):
            self._holders = SecretHolders(self.schema, self._hidden)
        wording = Wording(
            self.schema,
            self._role,
            secrets=self._secrets,
            names=self._hidden,
            holders=self._holders,
            explainer=explainer,
        )
        complete = not explainer.pending
        if not complete and not problems:
            problems = self._first_pending(explainer)
        violations = _reported(problems, wording)
        if not violations:
            reason = "" if complete else "; it would take too long to say where it does not"
            violations = [Violation("", f"The {self._role} must fit the schema{reason}.", "schema")]
        elif not complete:
            violations.append(
                Violation("", "There may be more problems; looking for them would take too long.", "more")
            )
        return Explanation(violations, explainer.steps.taken + wording.steps.taken, complete)

    def _first_pending(self, explainer: Explainer) -> list[SchemaProblem]:
        """What is wrong at the first place, of those not looked at any more, that the engine refuses."""
        # Compiling a very large schema again would take longer than the search.
        if len(_text(self.schema)) > MAX_RECOMPILED:
            return []
        wrong = first_refused(self.schema, explainer.pending)
        if wrong is None:
            return []
        schema, value, path = wrong
        explainer.steps.limit += EXTRA_STEPS
        found = explainer.explain(schema, value, path)
        if not found and isinstance(schema, dict):
            word = next((word for word in ("anyOf", "oneOf") if word in schema), "schema")
            found = [SchemaProblem(word, path, value, schema)]
        return found

    def with_defaults(self, instance: Json) -> tuple[Json, tuple[str, ...]]:
        """The instance with defaults filled in, and their pointers.

        What changes is a copy and what does not is shared; where nothing is filled in, that is the whole instance.
        """
        if not self._prepared:
            self._prepare()
        if self._plan is None:
            return instance, ()
        filled: list[str] = []
        value = self._plan.fill(instance, "", filled)
        return value, tuple(filled)

    def validate(self, instance: Json) -> Validated:
        """Check and fill in. With violations, the instance comes back as it was, and nothing as filled in."""
        if self._guarded and (refusal := self._refusal(instance)) is not None:
            return instance, (), [refusal]
        try:
            valid = self._engine.is_valid(instance)
        except ValueError:
            return instance, (), [_NO_JSON]
        if not valid:
            return instance, (), self._explained(instance).violations
        if self._plan is None:
            return instance, (), []
        filled: list[str] = []
        value = self._plan.fill(instance, "", filled)
        if not filled:
            return value, (), []
        if self._safe or self.defaults_safe or self.is_valid(value):
            return value, tuple(filled), []
        return instance, (), self.violations(value)


def _reported(problems: list[SchemaProblem], wording: Wording) -> list[Violation]:
    """What is said of the first problems, and how many more there are: what may be shown of a place takes work to find out."""
    # Two references to one subschema report the same thing twice.
    found = {(problem.place, id(problem.schema), problem.keyword): problem for problem in reversed(problems)}
    visible_path: dict[tuple[str, int, str], Violation] = {}
    left = len(found)
    for _, problem in sorted(found.items(), key=lambda item: item[0][0]):
        if len(visible_path) == MAX_VIOLATIONS:
            break
        left -= 1
        place = wording.place(problem)
        key = (place, id(problem.schema), problem.keyword)
        if key not in visible_path:  # inside a secret value places are told apart no further
            visible_path[key] = Violation(place, wording.sentence(problem), problem.keyword)
    violations = sorted(visible_path.values(), key=lambda violation: violation.pointer)
    if left:
        violations.append(
            Violation("", f"There {'is' if left == 1 else 'are'} {counted(left, 'more problem')}.", "more")
        )
    return violations


def hide_values(compiled: CompiledSchema, names: Iterable[str]) -> CompiledSchema:
    """The compiled schema, whose violations do not tell the values of properties of these names."""
    hidden = frozenset(name.casefold() for name in names)
    if not hidden:
        return compiled
    if isinstance(compiled, RustSchema):
        return compiled.hiding(hidden)
    return _DiscreetSchema(compiled, hidden)


def for_results(compiled: CompiledSchema) -> CompiledSchema:
    """The compiled schema, for what handlers return."""
    return compiled.for_results() if isinstance(compiled, RustSchema) else compiled


class _DiscreetSchema:
    """A schema compiled by somebody else, of whose messages only those are passed on that are about a plain, open value."""

    __slots__ = ("_inner", "_names")

    def __init__(self, inner: CompiledSchema, names: frozenset[str]) -> None:
        self._inner = inner
        self._names = names

    @property
    def defaults_safe(self) -> bool:
        return self._inner.defaults_safe

    def is_valid(self, instance: Json) -> bool:
        return self._inner.is_valid(instance)

    def violations(self, instance: Json) -> list[Violation]:
        return [self._reported(violation, instance) for violation in self._inner.violations(instance)]

    def with_defaults(self, instance: Json) -> tuple[Json, tuple[str, ...]]:
        return self._inner.with_defaults(instance)

    def validate(self, instance: Json) -> Validated:
        value, filled, violations = self._inner.validate(instance)
        return value, filled, [self._reported(violation, instance) for violation in violations]

    def _reported(self, violation: Violation, instance: Json) -> Violation:
        value = instance
        path = [token.replace("~1", "/").replace("~0", "~") for token in violation.pointer.split("/")[1:]]
        for token in path:
            if isinstance(value, dict) and token in value:
                value = value[token]
            elif isinstance(value, (list, tuple)) and token.isdecimal() and int(token) < len(value):
                value = value[int(token)]
        secret = any(token.casefold() in self._names for token in path)
        if not secret and not isinstance(value, (dict, list, tuple)):
            return violation
        where = f"The value at {violation.pointer}" if path else "The value"
        return Violation(violation.pointer, f"{where} must fit its schema ({violation.keyword}).", violation.keyword)


class JsonSchemaRs:
    """The default compiler."""

    name = "jsonschema-rs"

    @cached_property
    def version(self) -> str:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, and few ask

        return version("jsonschema-rs")

    def compile(self, schema: Mapping[str, Json], trusted: bool = False, role: Role = "arguments") -> RustSchema:
        return compile_schema(schema, trusted=trusted, role=role)


JSONSCHEMA_RS = JsonSchemaRs()


def compile_schema(schema: Mapping[str, Json], *, trusted: bool = False, role: Role = "arguments") -> RustSchema:
    """The compiled schema; `SchemaError` with the place if it cannot be used.

    `trusted` skips the checks that are for authors, for schemas from an artifact whose build has made them; nothing is
    fetched in either case. `role` is what the sentences call the instance. The schema must not be changed afterwards.
    """
    if not isinstance(schema, dict):
        schema = thaw(schema)
    if not isinstance(schema, dict):
        raise find_schema_problems(schema)[0]
    if not trusted and not is_plain(_text(schema)) and (problems := find_schema_problems(schema)):
        raise problems[0]
    try:
        engine = build(schema)
    except BUILD_ERRORS as error:
        raise (find_schema_problems(schema) or [SchemaError("The schema cannot be compiled.")])[0] from error
    return RustSchema(schema, engine, role)


def _text(schema: Mapping[str, Json]) -> bytes:
    try:
        return orjson.dumps(schema)
    except TypeError:
        return b'"$" "writeOnly"'  # too deep, or no JSON: it is not plain, and may have anything in it


def _members(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def _is_deep(instance: Json) -> bool:
    """Whether the instance is nested deeper than anyone means, found without recursion."""
    level: list[Json] = [instance]
    for _ in range(MAX_INSTANCE_DEPTH):
        level = [
            part
            for value in level
            for part in (value.values() if type(value) is dict else value if type(value) is list else _members(value))
            if type(part) not in BARE_TYPES
        ]
        if not level:
            return False
    return True
