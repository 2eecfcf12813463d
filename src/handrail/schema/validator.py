"""Validation as a port, and the implementation that is used unless a registry is given another: `jsonschema_rs`.

A compiled schema checks an instance, fills defaults in on a copy, and says in sentences what is wrong. `validate` does
all three and is what every call passes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import orjson
from jsonschema_rs import Draft202012Validator, ValidationError

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import thaw
from handrail.schema.defaults import Node, build_plan, find_unsafe_defaults
from handrail.schema.engine import BUILD_ERRORS, build
from handrail.schema.phrases import counted
from handrail.schema.pointer import pointer
from handrail.schema.problems import find_schema_problems, is_plain
from handrail.schema.sentences import Role, Wording, keyword_of
from handrail.schema.subschemas import Json

__all__ = [
    "JSONSCHEMA_RS",
    "CompiledSchema",
    "JsonSchemaRs",
    "RustSchema",
    "SchemaCompiler",
    "Violation",
    "compile_schema",
    "find_schema_problems",
]

MAX_VIOLATIONS = 50
MAX_INSTANCE_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which an instance does not fit: where, in a sentence that a model can act on, and by which keyword."""

    pointer: str
    message: str
    keyword: str

    def to_dict(self) -> dict[str, str]:
        return {"pointer": self.pointer, "message": self.message, "keyword": self.keyword}


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


class RustSchema:
    """A schema compiled by `jsonschema_rs`. What only filling in needs is worked out when the first instance comes."""

    __slots__ = ("_engine", "_plan", "_prepared", "_recursive", "_role", "_safe", "schema")

    def __init__(self, schema: Mapping[str, Json], engine: Draft202012Validator, role: Role) -> None:
        self.schema = schema
        self._engine = engine
        self._role = role
        self._prepared = False
        self._plan: Node | None = None
        self._safe: bool | None = None
        self._recursive = True

    def _prepare(self) -> None:
        self._plan = build_plan(self.schema)
        # Without references, a schema goes no deeper into an instance than it is deep itself.
        self._recursive = b'"$' in _text(self.schema)
        self._prepared = True

    @property
    def defaults_safe(self) -> bool:
        """Whether a valid instance is known to stay valid when defaults are filled in; worked out at first use."""
        if self._safe is None:
            self._safe = not find_unsafe_defaults(self.schema)
        return self._safe

    def is_valid(self, instance: Json) -> bool:
        """Whether the instance fits. A value that JSON does not have fits nothing."""
        if not self._prepared:
            self._prepare()
        # The engine follows a recursive schema down any instance, and a deep enough one would end the process.
        if self._recursive and _is_deep(instance):
            return False
        try:
            return self._engine.is_valid(instance)
        except ValueError:
            return False

    def violations(self, instance: Json) -> list[Violation]:
        """Everything that is wrong, by pointer, at most 50 and then how many more; empty exactly where `is_valid`."""
        if self.is_valid(instance):
            return []
        if self._recursive and _is_deep(instance):
            return [Violation("", f"The value is nested more than {MAX_INSTANCE_DEPTH} levels deep.", "json")]
        try:
            return self._explained(self._engine.iter_errors(instance))
        except ValueError:  # the engine's words may repeat the value
            return [Violation("", "The value has a part that JSON does not have, or is nested too deeply.", "json")]

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
        # `is_valid`, written out for the instances that every call brings.
        try:
            valid = self.is_valid(instance) if self._recursive else self._engine.is_valid(instance)
        except ValueError:
            valid = False
        if not valid:
            return instance, (), self.violations(instance)
        if self._plan is None:
            return instance, (), []
        filled: list[str] = []
        value = self._plan.fill(instance, "", filled)
        if not filled:
            return value, (), []
        if self._safe or self.defaults_safe or self.is_valid(value):
            return value, tuple(filled), []
        return instance, (), self.violations(value)

    def simple(self) -> tuple[Callable[[Json], bool], tuple[tuple[str, str, Json], ...]] | None:
        """For instances that are flat objects of scalars: the check, and name, pointer and value of each default.

        None where `validate` does more for some of them.
        """
        if not self._prepared:
            self._prepare()
        fills = self._plan.fills if self._plan is not None else []
        if self._recursive or any(fill.make is not None or fill.inner for fill in fills) or not self.defaults_safe:
            return None
        return self._engine.is_valid, tuple((fill.name, fill.token, fill.value) for fill in fills)

    def _explained(self, errors: Iterable[ValidationError]) -> list[Violation]:
        wording = Wording(self.schema, self._role, secrets=b'"writeOnly"' in _text(self.schema))
        found: dict[tuple[str, ...], tuple[str, ValidationError, str | None]] = {}
        for error in errors:
            here = pointer(error.instance_path)
            for name in wording.names(error) or (None,):
                place = here if name is None else here + pointer((name,))
                # Two references to one subschema report the same thing twice.
                found.setdefault((place, *map(str, error.schema_path)), (place, error, name))
        parts = sorted(found.values(), key=lambda part: part[0])
        violations = [
            Violation(place, wording.sentence(error, name), keyword_of(error))
            for place, error, name in parts[:MAX_VIOLATIONS]
        ]
        if (more := len(parts) - MAX_VIOLATIONS) > 0:
            violations.append(
                Violation("", f"There {'is' if more == 1 else 'are'} {counted(more, 'more problem')}.", "more")
            )
        return violations


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


def _is_deep(instance: Json) -> bool:
    """Whether the instance is nested deeper than anyone means, found without recursion."""
    level: list[Json] = [instance]
    for _ in range(MAX_INSTANCE_DEPTH):
        level = [
            part
            for value in level
            if isinstance(value, (dict, list, tuple))
            for part in (value.values() if isinstance(value, dict) else value)
            if isinstance(part, (dict, list, tuple))
        ]
        if not level:
            return False
    return True
