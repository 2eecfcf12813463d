"""What a model learns about arguments that do not fit: one sentence per keyword, which says what to send instead.

The table at the end maps each keyword to the function that writes its sentence. Values are echoed short, never whole
objects or lists. Of a property that the schema marks `writeOnly`, or that the configuration names, neither the value nor
the allowed values are named: the sentences go to the audit and the log as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeAlias

from handrail.schema.explain import Exhausted, Explainer, SchemaProblem, Steps
from handrail.schema.phrases import MAX_COMPARED, MAX_LISTED, counted, cut, listed, lowered, nearest, quoted, was_given
from handrail.schema.pointer import pointer
from handrail.schema.secrets import SecretHolders, is_bare
from handrail.schema.subschemas import Json, LocalRefs, Path, descend, in_place

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
MAX_WORDING = 5_000
_LONGEST_KEY = 200
_MAX_HINTS = 200


class _ShownPlace(NamedTuple):
    """A place in the instance: the schemas that may apply there, whether it is secret, whether a bare value there may be a
    secret that belongs further below, and how far its path may be shown."""

    schemas: Sequence[Mapping[str, Json]]
    hidden: bool
    holds_secret: bool
    visible_path: Path
    whole: bool


class Wording:
    """What all sentences about one instance share."""

    __slots__ = (
        "_declared",
        "_explainer",
        "_holders",
        "_is_open",
        "_names",
        "_places",
        "_role",
        "_secrets",
        "root",
        "steps",
    )

    def __init__(
        self,
        root: Mapping[str, Json],
        role: Role = "arguments",
        *,
        secrets: bool = True,
        names: frozenset[str] = frozenset(),
        holders: SecretHolders | None = None,
        explainer: Explainer | None = None,
    ) -> None:
        """`secrets` says whether the schema has `writeOnly` anywhere; False saves looking. `names` are secret too, casefolded.
        `holders` are the subschemas with one of either in them."""
        self.root = root
        self._role = role
        self._secrets = secrets
        self._names = names
        self._holders = SecretHolders(root, names) if holders is None and (secrets or names) else holders or ()
        self._explainer = explainer if explainer is not None else Explainer(LocalRefs(root), Steps())
        # Of its own: where finding problems has used up its steps, they are named all the same.
        self.steps = Steps(MAX_WORDING)
        self._declared: dict[int, list[str]] = {}
        self._is_open = not (self._holders or names)
        """Nothing is secret."""
        self._places: dict[Path, _ShownPlace] = {}
        if not self._is_open:
            schemas = self._applying([root]) if self._holders else ()
            self._places[()] = _ShownPlace(schemas or (), _marks(schemas), self._holds(schemas), (), True)

    def hides(self, path: Path) -> bool:
        """Whether the value at the path, or one around it, is secret."""
        return not self._is_open and self._place(path).hidden

    def holds_secret(self, path: Path) -> bool:
        """Whether a value at the path is secret, or has one in it, so that a bare value in its place may be that one."""
        if self._is_open:
            return False
        place = self._place(path)
        return place.hidden or place.holds_secret

    def visible_path(self, path: Path) -> Path:
        """The path as far as it may be shown: keys inside a secret value are a part of it, unless the schema has them."""
        if not self._is_open:
            return self._place(path).visible_path
        for index, token in enumerate(path):
            if _is_long(token):
                return path[:index]
        return path

    def _place(self, path: Path) -> _ShownPlace:
        known = self._places.get(path)
        if known is not None:
            return known
        start = len(path) - 1
        while path[:start] not in self._places:
            start -= 1
        here = self._places[path[:start]]
        for index in range(start, len(path)):
            here = self._places[path[: index + 1]] = self._below(here, path[index])
        return here

    def _below(self, above: _ShownPlace, token: str | int) -> _ShownPlace:
        schemas: Sequence[Mapping[str, Json]] | None = ()
        if self._holders:
            schemas = self._applying(self._members(above.schemas, token))
        named = isinstance(token, str) and token.casefold() in self._names
        hidden = above.hidden or named or _marks(schemas)
        foreign = above.hidden and isinstance(token, str) and not _declares(above.schemas, token)
        whole = above.whole and not foreign and not _is_long(token)
        visible_path = (*above.visible_path, token) if whole else above.visible_path
        return _ShownPlace(schemas or (), hidden, self._holds(schemas), visible_path, whole)

    def _members(self, schemas: Sequence[Mapping[str, Json]], token: str | int) -> Iterator[Json]:
        """The subschemas that may apply to the member `token` of a value."""
        for schema in schemas:
            self.steps.take(2)
            yield from descend(schema, token)

    def _holds(self, schemas: Sequence[Mapping[str, Json]] | None) -> bool:
        if not schemas:  # as nearly always: the schema has no secrets
            return schemas is None
        return any(schema in self._holders for schema in schemas)

    def _applying(self, schemas: Iterable[Json]) -> Sequence[Mapping[str, Json]] | None:
        """The schemas and all that may apply beside them; None if there are too many to look at."""
        try:
            found = in_place(schemas, self._explainer.refs, MAX_COMPARED, self._count_part)
        except Exhausted:
            return None
        return found if len(found) < MAX_COMPARED else None

    def _count_part(self, parts: int) -> None:
        """Count the look at a schema that has this number of parts."""
        self.steps.take(3 + parts)

    def subject(self, path: Path) -> str:
        """How a sentence calls the value at `path`: `"filters.tags[0]"`, or `The arguments`."""
        visible_path = self.visible_path(path)
        if not visible_path:
            return f"The {self._role}"
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{cut(step)}" for step in visible_path)
        return f'"{cut(text.removeprefix("."))}"'

    def place(self, problem: SchemaProblem) -> str:
        """The pointer of what a problem is about: the value, or the property that is missing or unknown."""
        name = self.name(problem)
        return pointer(self.visible_path(problem.path if name is None else (*problem.path, name)))

    def name(self, problem: SchemaProblem) -> str | None:
        """The property that a problem is about; None where there is none or it must not be shown."""
        foreign = problem.keyword in ("additionalProperties", "unevaluatedProperties", "propertyNames")
        return None if foreign and self.hides(problem.path) else problem.name

    def sentence(self, problem: SchemaProblem) -> str:
        """The sentence for a problem."""
        return SENTENCES.get(problem.keyword, _other)(Fault(self, problem))

    @property
    def is_arguments(self) -> bool:
        return self._role == "arguments"

    def forms(self, problem: SchemaProblem) -> tuple[tuple[SchemaProblem, ...], ...] | None:
        """What is wrong by each alternative; None if that takes more steps than are left."""
        try:
            return self._explainer.forms(problem)
        except (Exhausted, RecursionError):
            return None

    def nearest(self, name: str, known: list[str]) -> str | None:
        """The known name that is most like a name from outside, if one is and there is time to look."""
        some = known[:_MAX_HINTS]
        cost = 1 + len(name) * sum(map(len, some)) // 3
        return nearest(name, some) if self.steps.spare(cost) else None

    def declared(self, schema: Mapping[str, Json]) -> list[str]:
        """The properties that a schema, and those that may apply beside it, declare."""
        known = self._declared.get(id(schema))
        if known is None:
            try:
                parts = in_place([schema], self._explainer.refs, MAX_COMPARED, self._count_part)
            except Exhausted:
                parts = [schema]
            names = dict.fromkeys(chain.from_iterable([part.get("properties", ()) for part in parts]))
            known = self._declared[id(schema)] = list(names)
        return known

    def may_list(self, values: Sequence[Json]) -> bool:
        """Whether values from the schema may be shown where their place is no secret: a part of one may still be."""
        told = islice(values, MAX_LISTED)
        return not (self._secrets or self._names) or not any(isinstance(one, (dict, list, tuple)) for one in told)


def _is_long(token: str | int) -> bool:
    return isinstance(token, str) and len(token) > _LONGEST_KEY


def _marks(schemas: Sequence[Mapping[str, Json]] | None) -> bool:
    """Whether one of the schemas says that its value is secret; in doubt, it is."""
    if not schemas:
        return schemas is None
    return any(schema.get("writeOnly") is True for schema in schemas)


def _declares(schemas: Sequence[Mapping[str, Json]], name: str) -> bool:
    return any(name in schema.get("properties", ()) for schema in schemas)


class Fault:
    """One problem, with what a sentence about it needs."""

    __slots__ = ("hidden", "name", "problem", "subject", "wording")

    def __init__(self, wording: Wording, problem: SchemaProblem, subject: str = "", hidden: bool = False) -> None:
        self.wording = wording
        self.problem = problem
        self.subject = subject or wording.subject(problem.path)
        self.hidden = hidden or wording.hides(problem.path)
        """Whether the value must not be shown."""
        self.name = wording.name(problem)
        """The property that is missing or unknown, for problems that are about one."""

    @property
    def value(self) -> Json:
        return self.problem.value

    @property
    def wanted(self) -> Json:
        return self.problem.wanted

    @property
    def schema(self) -> Mapping[str, Json]:
        return self.problem.schema

    @property
    def is_arguments(self) -> bool:
        """Whether the value is a tool's arguments as a whole."""
        return not self.problem.path and self.wording.is_arguments

    @property
    def may_repeat(self) -> bool:
        """Whether the given value may be shown."""
        return not self.hidden and not (is_bare(self.value) and self.wording.holds_secret(self.problem.path))

    def given(self) -> str:
        """The end of the sentence that tells what was given, where that may be shown."""
        return f", but {_described(self.value)} was given" if self.may_repeat else ""


def _described(value: Json) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    return f"the string {quoted(value)}" if isinstance(value, str) else quoted(value)


def _types_of(problem: SchemaProblem) -> list[str]:
    wanted = problem.wanted
    return [_TYPES[one] for one in ([wanted] if isinstance(wanted, str) else wanted)]


def _type(fault: Fault) -> str:
    return f"{fault.subject} must be {' or '.join(_types_of(fault.problem))}{fault.given()}."


def _enum(fault: Fault) -> str:
    if fault.hidden or not fault.wording.may_list(fault.wanted):
        return f"{fault.subject} must be one of the values that its schema lists."
    given = f"; {_described(fault.value).removeprefix('the string ')} was given" if fault.may_repeat else ""
    return f"{fault.subject} must be one of {listed(fault.wanted)}{given}."


def _const(fault: Fault) -> str:
    if fault.hidden or not fault.wording.may_list([fault.wanted]):
        return f"{fault.subject} must be the value that its schema gives."
    return f"{fault.subject} must be {quoted(fault.wanted)}{fault.given()}."


def _bound(words: str) -> Callable[[Fault], str]:
    def write(fault: Fault) -> str:
        return f"{fault.subject} must be {words} {quoted(fault.wanted)}{fault.given()}."

    return write


def _multiple(fault: Fault) -> str:
    return f"{fault.subject} must be a multiple of {quoted(fault.wanted)}{fault.given()}."


def _size(words: str, noun: str, plural: str = "") -> Callable[[Fault], str]:
    def write(fault: Fault) -> str:
        given = f", but {was_given(len(fault.value))}" if fault.may_repeat else ""
        return f"{fault.subject} must have {words} {counted(fault.wanted, noun, plural)}{given}."

    return write


def _pattern(fault: Fault) -> str:
    if fault.hidden:
        return f"{fault.subject} must match the pattern that its schema gives."
    return f"{fault.subject} must match the pattern {cut(fault.wanted)}{fault.given()}."


def _format(fault: Fault) -> str:
    name = fault.wanted
    return f"{fault.subject} must be {_FORMATS.get(name, f'in the format {name}')}."


def _unique(fault: Fault) -> str:
    return f"{fault.subject} must not have the same item twice."


def _contains(fault: Fault) -> str:
    is_upper = fault.problem.keyword == "maxContains"
    number = fault.schema.get("maxContains" if is_upper else "minContains", 1)
    inner = fault.schema.get("contains")
    what = "of the form that the schema gives under contains"
    if isinstance(inner, dict) and "const" in inner:
        visible_path = not fault.hidden and fault.wording.may_list([inner["const"]])
        what = f"equal to {quoted(inner['const'])}" if visible_path else what
    elif isinstance(inner, dict) and isinstance(inner.get("type"), str):
        what = f"of the type {inner['type']}"
    return f"{fault.subject} must have {'at most' if is_upper else 'at least'} {counted(number, 'item')} {what}."


def _property_names(fault: Fault) -> str:
    inner = fault.problem.inner
    if inner is None:
        return _empty(fault)
    if fault.hidden or fault.name is None:
        return f"{fault.subject} has a property whose name is not allowed."
    named = Fault(fault.wording, inner, f"The property name {quoted(fault.name)}", hidden=True)
    return SENTENCES.get(inner.keyword, _other)(named)


def _missing(fault: Fault) -> str:
    cause = fault.problem.cause
    because = "" if cause is None else f' when "{cut(cause)}" is given'
    return f"{fault.wording.subject((*fault.problem.path, fault.name or ''))} is required{because}."


def _unexpected(fault: Fault) -> str:
    keyword = fault.problem.keyword
    if fault.problem.name is None:
        return _empty(fault)
    if fault.name is None:
        return f"{fault.subject} has a property that is not allowed."
    if fault.schema.get(keyword) is not False:
        return f'"{cut(fault.name)}" in {lowered(fault.subject)} is not what its schema allows there.'
    owner = "an argument of this tool" if fault.is_arguments else f"a property of {lowered(fault.subject)}"
    known = fault.wording.declared(fault.schema)
    if near := fault.wording.nearest(fault.name, known):
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
    forms = fault.wording.forms(fault.problem)
    path = fault.problem.path
    if forms is None:
        number = counted(len(fault.wanted), "form")
        return f"{fault.subject} must fit one of {number} and fits none; the explanation ends here, as it would take too long."
    mistyped = [next((one for one in form if _is_type(one, path)), None) for form in forms]
    if all(mistyped):
        types = dict.fromkeys(one for problem in mistyped if problem is not None for one in _types_of(problem))
        return f"{fault.subject} must be {' or '.join(types)}{fault.given()}."
    reason = fault.wording.sentence(_nearest_form(fault.wording, fault.problem))
    return f"{fault.subject} must fit one of {counted(len(forms), 'form')}; for the nearest one: {lowered(reason)}"


def _nearest_form(wording: Wording, problem: SchemaProblem) -> SchemaProblem:
    """What the form that lacks least lacks first, through forms within forms."""
    while problem.keyword in _FORMS and not problem.fitting:
        path = problem.path
        forms = wording.forms(problem)
        of_type = [form for form in forms or () if form and not any(_is_type(one, path) for one in form)]
        if not of_type:
            break
        problem = min(of_type, key=len)[0]
    return problem


def _is_type(problem: SchemaProblem, path: Path) -> bool:
    return problem.keyword == "type" and problem.path == path


def _one_of(fault: Fault) -> str:
    if not fault.problem.fitting:
        return _no_form(fault)
    number = counted(len(fault.wanted), "form")
    return f"{fault.subject} must fit exactly one of {number}, but {fault.problem.fitting} of them fit."


def _not(fault: Fault) -> str:
    excluded = fault.wanted
    if isinstance(excluded, dict) and not fault.hidden:
        if "const" in excluded or "enum" in excluded:
            values = excluded["enum"] if "enum" in excluded else [excluded["const"]]
            if fault.wording.may_list(values):
                return f"{fault.subject} must not be {listed(values, ' or ')}."
        elif excluded.keys() == {"required"}:
            return f"{fault.subject} must not have {listed(excluded['required'], ' and ')}" + (
                " together." if len(excluded["required"]) > 1 else "."
            )
        elif isinstance(excluded.get("type"), str) and len(excluded) == 1:
            return f"{fault.subject} must not be {_TYPES[excluded['type']]}."
    return f"{fault.subject} must not be of the form that the schema excludes under not."


def _forbidden(fault: Fault) -> str:
    return f"{fault.subject} must not be given."


def _too_many_items(fault: Fault) -> str:
    return f"{fault.subject} must not have items beyond those that the schema describes."


def _other(fault: Fault) -> str:
    return f"{fault.subject} must fit its schema."


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
