"""What a model is told about arguments that do not fit: one sentence per keyword, which says what to send instead.

The table at the end maps each keyword to the function that writes its sentence. Values are echoed short, never whole
objects or lists, and never those of a property that the schema marks `writeOnly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from handrail.schema.phrases import counted, cut, listed, lowered, nearest, quoted, was_given
from handrail.schema.subschemas import Json, LocalRefs, at, in_place, schemas_at

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Role: TypeAlias = Literal["arguments", "result"]
"""What the schema describes; only the wording depends on it."""

_TYPES = {
    "array": "a list", "boolean": "true or false", "integer": "an integer", "null": "null", "number": "a number",
    "object": "an object", "string": "a string",
}  # fmt: skip
_FORMS = ("anyOf", "oneOf")
_FORMATS = {
    "email": "an e-mail address such as name@example.com",
    "date-time": "a date-time such as 2026-03-01T09:00:00Z",
    "date": "a date such as 2026-03-01",
    "time": "a time with its offset such as 09:00:00Z",
    "uri": "a URI such as https://example.com/page",
    "uuid": "a UUID such as 123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "an IPv4 address such as 192.0.2.1",
    "ipv6": "an IPv6 address such as 2001:db8::1",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """What all sentences about one schema share."""

    root: Mapping[str, Json]
    role: Role = "arguments"
    secrets: bool = True
    """Whether the schema has `writeOnly` anywhere; False saves looking for it."""

    def hides(self, path: Iterable[str | int]) -> bool:
        """Whether a schema that may apply at the path, or above it, marks the value `writeOnly`."""
        return self.secrets and any(
            schema.get("writeOnly") is True for schemas in schemas_at(self.root, path) for schema in schemas
        )

    def subject(self, path: Sequence[str | int]) -> str:
        """How a sentence calls the value at `path`: `"filters.tags[0]"`, or `The arguments`."""
        if not path:
            return f"The {self.role}"
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        return f'"{cut(text.removeprefix("."))}"'

    def names(self, error: ValidationError) -> list[str]:
        """The properties that the error is about, where it is about some: missing, unknown, or ill-named."""
        kind = error.kind
        if kind.name == "required":
            return [_attribute(error, "property")]
        if kind.name in ("additionalProperties", "unevaluatedProperties") and not self.hides(error.instance_path):
            return list(_attribute(error, "unexpected"))
        if kind.name == "propertyNames" and not self.hides(error.instance_path):
            return [_attribute(error, "error").instance]
        return []

    def sentence(self, error: ValidationError, name: str | None = None) -> str:
        """The sentence for an error, or for one of the names that it is about."""
        path = error.instance_path
        fault = Fault(self, error, self.subject(path), self.hides(path), name or "")
        return SENTENCES.get(fault.keyword, _other)(fault)


@dataclass(frozen=True, slots=True)
class Fault:
    """One error of the engine, with what a sentence about it needs."""

    wording: Wording
    error: ValidationError
    subject: str
    hidden: bool
    """Whether the value must not be told."""
    name: str = ""
    """The property that is missing or unknown, for errors that are about one."""

    @property
    def value(self) -> Json:
        return self.error.instance

    @property
    def keyword(self) -> str:
        return keyword_of(self.error)

    @property
    def schema(self) -> Mapping[str, Json]:
        """The schema that the keyword stands in; empty where that cannot be found."""
        try:
            found = at(self.wording.root, self.error.schema_path[:-1])
        except (LookupError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def is_arguments(self) -> bool:
        """Whether the value is a tool's arguments as a whole."""
        return not self.error.instance_path and self.wording.role == "arguments"

    def kind(self, name: str) -> Json:
        return _attribute(self.error, name)

    def given(self) -> str:
        """The end of the sentence that tells what was given, where that may be told."""
        return "" if self.hidden else f", but {_described(self.value)} was given"


def keyword_of(error: ValidationError) -> str:
    """The keyword that was violated, as a schema's author would call it."""
    kind = error.kind.name
    path = error.schema_path
    # The engine reports these under another name; the path has their own, unless it ends in a property called so.
    own = path and path[-1] in _REPORTED_AS.get(kind, ()) and path[-2:-1] != ["properties"]
    return str(path[-1]) if own else kind


_REPORTED_AS = {
    "required": ("dependentRequired", "dependencies"),
    "contains": ("minContains", "maxContains"),
    "falseSchema": ("additionalProperties", "propertyNames"),
}


def _described(value: Json) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f"the string {quoted(value)}" if isinstance(value, str) else quoted(value)


def _attribute(error: ValidationError, name: str) -> Json:
    return getattr(error.kind, name)


def _type(fault: Fault) -> str:
    types = [_TYPES[one] for one in fault.kind("types")]
    return f"{fault.subject} must be {' or '.join(types)}{fault.given()}."


def _enum(fault: Fault) -> str:
    given = "" if fault.hidden else f"; {_described(fault.value).removeprefix('the string ')} was given"
    return f"{fault.subject} must be one of {listed(fault.kind('options'))}{given}."


def _const(fault: Fault) -> str:
    return f"{fault.subject} must be {quoted(fault.kind('expected_value'))}{fault.given()}."


def _bound(words: str) -> Callable[[Fault], str]:
    def write(fault: Fault) -> str:
        return f"{fault.subject} must be {words} {quoted(fault.kind('limit'))}{fault.given()}."

    return write


def _multiple(fault: Fault) -> str:
    return f"{fault.subject} must be a multiple of {quoted(fault.kind('multiple_of'))}{fault.given()}."


def _size(words: str, noun: str, plural: str = "") -> Callable[[Fault], str]:
    def write(fault: Fault) -> str:
        given = "" if fault.hidden else f", but {was_given(len(fault.value))}"
        return f"{fault.subject} must have {words} {counted(fault.kind('limit'), noun, plural)}{given}."

    return write


def _pattern(fault: Fault) -> str:
    return f"{fault.subject} must match the pattern {cut(fault.kind('pattern'))}{fault.given()}."


def _format(fault: Fault) -> str:
    name = fault.kind("format")
    return f"{fault.subject} must be {_FORMATS.get(name, f'in the format {name}')}."


def _unique(fault: Fault) -> str:
    return f"{fault.subject} must not have the same item twice."


def _contains(fault: Fault) -> str:
    most = fault.keyword == "maxContains"
    number = fault.schema.get("maxContains" if most else "minContains", 1)
    inner = fault.schema.get("contains")
    what = "of the form that the schema gives under contains"
    if isinstance(inner, dict) and "const" in inner:
        what = f"equal to {quoted(inner['const'])}"
    elif isinstance(inner, dict) and isinstance(inner.get("type"), str):
        what = f"of the type {inner['type']}"
    return f"{fault.subject} must have {'at most' if most else 'at least'} {counted(number, 'item')} {what}."


def _property_names(fault: Fault) -> str:
    if fault.error.kind.name == "falseSchema":
        return _empty(fault)
    if fault.hidden:
        return f"{fault.subject} has a property whose name is not allowed."
    inner: ValidationError = fault.kind("error")
    named = Fault(fault.wording, inner, f"The property name {quoted(inner.instance)}", hidden=True)
    return SENTENCES.get(named.keyword, _other)(named)


def _missing(fault: Fault) -> str:
    path = [*fault.error.instance_path, fault.name]
    because = ""
    if fault.keyword != "required" and isinstance(fault.value, dict):
        rules = {name: wanted for name, wanted in fault.schema.get(fault.keyword, {}).items() if name in fault.value}
        by = [name for name, wanted in rules.items() if isinstance(wanted, (list, tuple)) and fault.name in wanted]
        because = f' when "{cut(by[0])}" is given' if by else ""
    return f"{fault.wording.subject(path)} is required{because}."


def _unexpected(fault: Fault) -> str:
    if fault.error.kind.name == "falseSchema":
        return _empty(fault)
    if not fault.name:
        return f"{fault.subject} has a property that is not allowed."
    if fault.schema.get(fault.keyword) is not False:
        return f'"{cut(fault.name)}" in {lowered(fault.subject)} is not what its schema allows there.'
    owner = "an argument of this tool" if fault.is_arguments else f"a property of {lowered(fault.subject)}"
    parts = in_place([fault.schema], LocalRefs(fault.wording.root))
    known = list(dict.fromkeys(name for part in parts for name in part.get("properties", ())))
    if near := nearest(fault.name, known):
        hint = f'; did you mean "{near}"?'
    else:
        hint = f"; known: {listed(known)}." if known else "."
    return f'"{cut(fault.name)}" is not {owner}{hint}'


def _empty(fault: Fault) -> str:
    if fault.is_arguments:
        return "This tool takes no arguments."
    return f"{fault.subject} must not have any properties."


def _no_form(fault: Fault) -> str:
    """`anyOf`, and `oneOf` where nothing fits: the types, if only they differ, else what the nearest form lacks."""
    forms: list[list[ValidationError]] = fault.kind("context")
    path = fault.error.instance_path
    mistyped = [error for errors in forms for error in errors if _is_type(error, path)]
    if all(any(_is_type(error, path) for error in errors) for errors in forms):
        types = dict.fromkeys(_TYPES[one] for error in mistyped for one in _attribute(error, "types"))
        return f"{fault.subject} must be {' or '.join(types)}{fault.given()}."
    error = _nearest_form(fault.error)
    name = next(iter(fault.wording.names(error)), None)
    reason = fault.wording.sentence(error, name)
    return f"{fault.subject} must fit one of {counted(len(forms), 'form')}; for the nearest one: {lowered(reason)}"


def _nearest_form(error: ValidationError) -> ValidationError:
    """What the form that lacks least lacks first, through forms within forms."""
    while error.kind.name in _FORMS:
        path = error.instance_path
        forms = [errors for errors in _attribute(error, "context") if errors]
        of_type = [errors for errors in forms if not any(_is_type(one, path) for one in errors)]
        if not of_type:
            break
        error = min(of_type, key=len)[0]
    return error


def _is_type(error: ValidationError, path: Sequence[str | int]) -> bool:
    return error.kind.name == "type" and error.instance_path == path


def _one_of(fault: Fault) -> str:
    forms: list[list[ValidationError]] = fault.kind("context")
    fitting = sum(not errors for errors in forms)
    if not fitting:
        return _no_form(fault)
    return f"{fault.subject} must fit exactly one of {counted(len(forms), 'form')}, but {fitting} of them fit."


def _not(fault: Fault) -> str:
    excluded = fault.kind("schema")
    if isinstance(excluded, dict) and not fault.hidden:
        if "const" in excluded or "enum" in excluded:
            values = excluded["enum"] if "enum" in excluded else [excluded["const"]]
            return f"{fault.subject} must not be {listed(values, ' or ')}."
        if excluded.keys() == {"required"}:
            return f"{fault.subject} must not have {listed(excluded['required'], ' and ')}" + (
                " together." if len(excluded["required"]) > 1 else "."
            )
        if isinstance(excluded.get("type"), str) and len(excluded) == 1:
            return f"{fault.subject} must not be {_TYPES[excluded['type']]}."
    return f"{fault.subject} must not be of the form that the schema excludes under not."


def _forbidden(fault: Fault) -> str:
    return f"{fault.subject} must not be given."


def _too_many_items(fault: Fault) -> str:
    return f"{fault.subject} must not have items beyond those that the schema describes."


def _other(fault: Fault) -> str:
    return f"{fault.subject} does not fit its schema ({fault.keyword})."


SENTENCES: Mapping[str, Callable[[Fault], str]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("at least"),
    "maximum": _bound("at most"),
    "exclusiveMinimum": _bound("more than"),
    "exclusiveMaximum": _bound("less than"),
    "multipleOf": _multiple,
    "minLength": _size("at least", "character"),
    "maxLength": _size("at most", "character"),
    "pattern": _pattern,
    "format": _format,
    "minItems": _size("at least", "item"),
    "maxItems": _size("at most", "item"),
    "uniqueItems": _unique,
    "contains": _contains,
    "minContains": _contains,
    "maxContains": _contains,
    "unevaluatedItems": _too_many_items,
    "minProperties": _size("at least", "property", "properties"),
    "maxProperties": _size("at most", "property", "properties"),
    "required": _missing,
    "dependentRequired": _missing,
    "dependencies": _missing,
    "propertyNames": _property_names,
    "additionalProperties": _unexpected,
    "unevaluatedProperties": _unexpected,
    "anyOf": _no_form,
    "oneOf": _one_of,
    "not": _not,
    "falseSchema": _forbidden,
}
