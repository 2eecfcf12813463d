"""What `@tool` attaches to a class or function, and how a definition comes out of it.

Most definitions are made at once, when the decorator runs. Only where a parameter has a class for a hint that no argument can
have is it left to the build, which knows the types of the configured services.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from handrail.authoring.injection import ServiceTypes, no_services
from handrail.authoring.signature import (
    PossibleService,
    Result,
    Signature,
    class_signature,
    function_signature,
    result_of,
)
from handrail.contract.definition import NO_SCHEMA, ToolDefinition, find_problems
from handrail.contract.errors import DefinitionError, JsonError, Problem
from handrail.schema.strict_json import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, plain_copy

REGISTRATION = "__handrail_tool__"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A tool whose parameters are all known: its definition, and which of them are given which service."""

    definition: ToolDefinition
    services: Mapping[str, str] = field(default_factory=dict)


class Registration:
    """One decorated class or function. `fields` are those of `schema.json`, as far as the decorator was given them."""

    def __init__(self, target: Any, subject: str, fields: Mapping[str, Any], guide: str | None) -> None:
        self.target = target
        self.subject = subject
        self.guide: str | None = plain_json(subject, guide)
        self._fields = fields
        self._resolved: Resolved | None = None
        try:
            self._resolved = self.resolve()
        except PossibleService:
            self._check(
                self._complete(Signature(schema=dict(NO_SCHEMA)), Result())
            )  # what is wrong besides is said now

    @property
    def definition(self) -> ToolDefinition:
        """The definition that needs no service by its type; `DefinitionError` if the tool asks for one."""
        return (self._resolved or self.resolve()).definition

    def signature(
        self, *, service_types: ServiceTypes = no_services, services: Mapping[str, str] | None = None
    ) -> Signature:
        read = class_signature if inspect.isclass(self.target) else function_signature
        return read(self.target, service_types=service_types, services=services, given=self._given_arguments())

    def _given_arguments(self) -> Collection[str] | None:
        """The arguments of the schema that the author has given; None if the hints are to give one."""
        parameters = self._fields.get("parameters")
        if parameters is None:
            return () if "noSchemaMode" in self._fields else None
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        return tuple(properties) if isinstance(properties, Mapping) else ()

    def result(self) -> Result:
        """What the function, or the class's `run`, is annotated to return."""
        returning = getattr(self.target, "run", None) if inspect.isclass(self.target) else self.target
        return Result() if returning is None else result_of(returning, self.subject)

    def resolve(self, service_types: ServiceTypes = no_services) -> Resolved:
        """The definition, with parameters that these services supply left out of its schema."""
        signature = self.signature(service_types=service_types)
        if self._resolved is not None and signature.services == self._resolved.services:
            return self._resolved
        plain = self._check(self._complete(signature, self.result()))
        return Resolved(ToolDefinition.from_checked(plain), signature.services)

    def _complete(self, signature: Signature, result: Result) -> dict[str, Any]:
        wire = dict(self._fields)
        if wire.get("parameters") is None:
            wire["parameters"] = NO_SCHEMA if "noSchemaMode" in wire else signature.schema
        if wire["parameters"] is None:
            fix = "Give `parameters=`, hint the arguments of its constructor as a dataclass, or say `allow_no_schema=True`."
            raise refused(self.subject, "/parameters", "It has no parameter schema.", fix)
        if wire.get("outputSchema") is None and result.schema is not None:
            wire["outputSchema"] = result.schema
        if signature.services:
            named = (*wire.get("capabilities", ()), *signature.services.values())
            wire["capabilities"] = list(dict.fromkeys(named))
        return wire

    def _check(self, wire: Mapping[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = plain_json(self.subject, wire)
        problems = find_problems(plain)
        if problems:
            raise DefinitionError(self.subject, problems)
        return plain


def registration_of(target: object) -> Registration | None:
    """What `@tool` attached to this very class or function; what it inherits is another tool's."""
    found = getattr(target, "__dict__", {}).get(REGISTRATION)
    return found if isinstance(found, Registration) else None


def plain_json(subject: str, value: Any) -> Any:
    """A copy that is JSON through and through, as the content of a file would be."""
    try:
        return plain_copy(value, max_bytes=MAX_DOCUMENT_BYTES, max_depth=MAX_DOCUMENT_DEPTH)
    except JsonError as error:
        raise refused(subject, error.pointer, error.message, "Give it a value that JSON can carry.") from None


def refused(subject: str, pointer: str, message: str, fix: str) -> DefinitionError:
    return DefinitionError(subject, [Problem(rule="decorator", pointer=pointer, message=message, fix=fix)])
