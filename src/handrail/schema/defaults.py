"""Proves that filling in defaults cannot make a valid instance invalid, or says which keyword stands in the way.

The proof is static and errs on the side of "unsafe". It goes through the nodes of the plan (`fill_plan`): at each one
the default must be valid where it is put, and every keyword that always applies there, or might, must be indifferent to
the names that appear and to the values that change below. The build shows the findings to authors; at run time an
unproven schema costs a second check of each instance that was filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import thaw
from handrail.schema.fill_plan import Node, build_plan, nodes_of
from handrail.schema.jsonschema_engine import BUILD_ERRORS, Subvalidators, pattern_matches
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import Json, LocalRefs, Path, in_place, is_trivial, unconditional, walk

__all__ = ["Node", "build_plan", "find_unsafe_defaults"]

MAX_EFFORT = 100_000

Schema = Mapping[str, Json]
Finding = tuple[str, str]
"""What may go wrong, as a clause about the keyword, and how to mend it."""


def find_unsafe_defaults(schema: Schema) -> list[SchemaError]:
    """Every reason to doubt that a valid instance stays valid, and stays the same, when defaults are filled in (again).

    `schema` must be one that compiles.
    """
    plain: Schema = schema if isinstance(schema, dict) else thaw(schema)
    root = build_plan(plain)
    if root is None:
        return []
    found: dict[tuple[str, str], SchemaError] = {}
    try:
        for doubt in _Proof(plain, nodes_of(root)).unproven():
            found.setdefault((doubt.pointer, doubt.message), doubt)
    except SchemaError as beyond_limits:
        return [beyond_limits]
    except BUILD_ERRORS:
        return [SchemaError("The defaults cannot be checked, because the schema does not compile in parts.")]
    return sorted(found.values(), key=lambda error: (error.pointer, error.message))


class _Changes:
    """What filling in does to a value: names that appear, names whose value changes inside, whether items change."""

    __slots__ = ("added", "inside", "items", "node", "touched")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.added = frozenset(node.given)
        self.inside = frozenset(node.children)
        self.touched = self.added | self.inside
        self.items = bool(node.prefix) or node.rest is not None

    def __str__(self) -> str:
        if self.added:
            return _names("the default of", self.added)
        return _names("the defaults inside", self.inside) if self.inside else "the defaults inside its items"


class _Proof:
    __slots__ = ("effort", "nodes", "paths", "refs", "schema", "validators")

    def __init__(self, schema: Schema, nodes: list[Node]) -> None:
        self.schema = schema
        self.nodes = nodes
        self.effort = 0
        self.refs = LocalRefs(schema)
        self.paths: dict[int, Path] = {}
        for path, subschema in walk(schema):
            self.paths.setdefault(id(subschema), path)
        self.validators = Subvalidators(schema, self._judges())

    def _judges(self) -> Iterator[Path]:
        """The subschemas that a default's value or name is checked against."""
        for node in self.nodes:
            for member in node.members:
                if id(member) in self.paths:
                    here = self.paths[id(member)]
                    yield from (
                        (*here, "properties", name) for name in node.given if name in member.get("properties", ())
                    )
                    if "propertyNames" in member:
                        yield (*here, "propertyNames")

    def unproven(self) -> Iterator[SchemaError]:
        for path, subschema in walk(self.schema):
            if isinstance(subschema, dict) and "$dynamicRef" in subschema:
                yield SchemaError(
                    '"$dynamicRef" cannot be followed ahead of time, so no default can be shown to be safe; use $ref.',
                    pointer=pointer((*path, "$dynamicRef")),
                )
        for node in self.nodes:
            yield from self._doubtful_values(node)
            changes = _Changes(node)
            for member in node.members:
                for keyword in member.keys() & _CHECKS.keys():
                    for trouble, mend in _CHECKS[keyword](self, member, keyword, changes):
                        yield SchemaError(
                            f'"{keyword}" may refuse an instance after defaults were filled in: {trouble}. {mend}',
                            pointer=pointer((*self.path(member), keyword)),
                        )

    def path(self, schema: Schema) -> Path:
        return self.paths.get(id(schema), ())

    def _doubtful_values(self, node: Node) -> Iterator[SchemaError]:
        """Doubts about the default values themselves."""
        for fill in node.fills:
            holders = [member for member in node.members if fill.name in member.get("properties", ())]
            place = self._place([holder["properties"][fill.name] for holder in holders])
            if fill.name in node.endless:
                yield SchemaError(
                    f'The default of "{fill.name}" leads to itself or to too many further defaults when defaults are '
                    "filled in below it; remove it, or give its value in full.",
                    pointer=place,
                )
            if len(node.given[fill.name]) > 1:
                yield SchemaError(
                    f'"{fill.name}" is given different defaults in different places; keep one of them.', pointer=place
                )
            for holder in holders:
                if self.accepts(holder, ("properties", fill.name), fill.value):
                    continue
                yield SchemaError(
                    f'The default of "{fill.name}" is not valid against its own schema; correct the one or the other.'
                    if self._place([holder["properties"][fill.name]]) == place
                    else f'The default of "{fill.name}" is not valid against another schema of "{fill.name}", at '
                    f"{pointer((*self.path(holder), 'properties', fill.name))}; make the two agree.",
                    pointer=place,
                )

    def _place(self, declarations: list[Json]) -> str:
        """Where the default of a property is written, as a pointer."""
        for schema in unconditional(declarations, self.refs):
            if "default" in schema:
                return pointer((*self.path(schema), "default"))
        return ""

    def accepts(self, holder: Schema, step: Path, value: Json) -> bool:
        """Whether the subschema at `step` below `holder` is known to take the value."""
        return id(holder) in self.paths and self.validators.is_valid((*self.paths[id(holder)], *step), value)

    def notices(self, schema: Json, changes: _Changes) -> str | None:
        """The keyword by which a subschema, applied to the value, may judge it differently after the changes."""
        parts = in_place([schema], self.refs)
        self.effort += len(parts)
        if self.effort > MAX_EFFORT:
            raise SchemaError("The schema combines too much for its defaults to be shown to be safe; make it simpler.")
        for part in parts:
            for keyword in part.keys() & _NOTICES.keys():
                if _NOTICES[keyword](part[keyword], changes):
                    return keyword
        return None


def _refuses_more_names(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    limit = schema[keyword]
    closed = [
        len(member.get("properties", ()))
        for member in changes.node.members
        if member.get("additionalProperties") is False and "patternProperties" not in member
    ]
    if changes.added and not (closed and min(closed) <= limit):
        yield (
            f"{changes} adds to the number of properties",
            f"Make it as large as the number of properties and set additionalProperties: false, or remove {changes}.",
        )


def _wants_other_names(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    present = changes.added.union(*(member.get("required", ()) for member in changes.node.members))
    for name, wanted in schema[keyword].items():
        if isinstance(wanted, (dict, bool)):
            yield from _applies_by_name(proof, name, wanted, changes)
        elif name in changes.added and (missing := set(wanted) - present):
            yield (
                f'the default of "{name}" brings in the need for {_names("", missing)}',
                "Give the missing ones defaults, require them, or remove the default.",
            )


def _applies_by_name(proof: _Proof, name: str, subschema: Json, changes: _Changes) -> Iterator[Finding]:
    if name in changes.added and not is_trivial(subschema):
        yield f'the default of "{name}" brings in the schema under its name', "Remove the default or that schema."
    elif noticed := proof.notices(subschema, changes):
        yield f'"{noticed}" in it may notice {changes}', f"Remove {changes}, or keep the schema to other properties."


def _judges_names(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    for name in sorted(changes.added):
        if not proof.accepts(schema, (keyword,), name):
            yield f'it does not allow the name "{name}", which has a default', "Allow the name or remove its default."


def _judges_by_pattern(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    for pattern, subschema in schema[keyword].items():
        for name in sorted(changes.touched):
            if not is_trivial(subschema) and _matches(pattern, name):
                yield (
                    f'"{name}", which is filled in, matches "{pattern}"',
                    f'Make the pattern leave "{name}" out, or remove the default.',
                )


def _judges_others(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    """`additionalProperties` and `unevaluatedProperties`: they see the names that the schema does not declare."""
    rest = schema[keyword]
    if is_trivial(rest):
        return
    declaring = [schema] if keyword == "additionalProperties" else unconditional([schema], proof.refs)
    known = set[str]().union(*(part.get("properties", ()) for part in declaring))
    # Under `false` a name that is there already is either known or makes the instance invalid from the start.
    seen = changes.added if rest is False else changes.touched
    for name in sorted(seen - known):
        if not any(_matches(pattern, name) for pattern in schema.get("patternProperties", ())):
            yield (
                f'"{name}", which has a default elsewhere, is not declared beside it',
                f'Declare "{name}" there too ("{name}": true is enough), or remove the default.',
            )


def _judges_whole(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    if _names_container(schema[keyword] if keyword == "enum" else [schema[keyword]]):
        yield f"it compares whole values, which {changes} changes", f"Remove {changes}."


def _judges_items(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    harmless = schema[keyword] is False or (keyword != "uniqueItems" and is_trivial(schema[keyword]))
    if changes.items and not harmless:
        yield "defaults inside its items change them", "Remove the defaults from the items, or this keyword."


def _may_apply(proof: _Proof, schema: Schema, keyword: str, changes: _Changes) -> Iterator[Finding]:
    branches = schema[keyword] if keyword in ("anyOf", "oneOf") else [schema[keyword]]
    for branch in branches:
        if noticed := proof.notices(branch, changes):
            yield (
                f'"{noticed}" in it may notice {changes}',
                f"Remove {changes}, or keep {keyword} to properties without defaults.",
            )
            return


_CHECKS: dict[str, Callable[[_Proof, Schema, str, _Changes], Iterator[Finding]]] = {
    "maxProperties": _refuses_more_names,
    "dependentRequired": _wants_other_names,
    "dependentSchemas": _wants_other_names,
    "dependencies": _wants_other_names,
    "propertyNames": _judges_names,
    "patternProperties": _judges_by_pattern,
    "additionalProperties": _judges_others,
    "unevaluatedProperties": _judges_others,
    "enum": _judges_whole,
    "const": _judges_whole,
    "uniqueItems": _judges_items,
    "contains": _judges_items,
    "unevaluatedItems": _judges_items,
    "not": _may_apply,
    "if": _may_apply,
    "then": _may_apply,
    "else": _may_apply,
    "anyOf": _may_apply,
    "oneOf": _may_apply,
}


def _depends(value: Json, changes: _Changes) -> bool:
    listed = set(value).union(*(names for names in value.values() if isinstance(names, (list, tuple))))
    return not changes.added.isdisjoint(listed)


def _mentions(value: Json, changes: _Changes) -> bool:
    return any(name in changes.touched and not is_trivial(subschema) for name, subschema in value.items())


def _counts(value: Json, changes: _Changes) -> bool:
    return bool(changes.added)


def _closes(value: Json, changes: _Changes) -> bool:
    return bool(changes.touched) and not is_trivial(value)


def _looks_at_items(value: Json, changes: _Changes) -> bool:
    return changes.items and not is_trivial(value)


# How a subschema that may or may not apply can notice a change. Keywords that are not here look at plain values, or at
# the kind of a value, neither of which filling in ever changes. Its in-place subschemas are looked at one by one.
_NOTICES: dict[str, Callable[[Json, _Changes], bool]] = {
    "properties": _mentions,
    "required": lambda value, changes: not changes.added.isdisjoint(value),
    "dependentRequired": _depends,
    "dependentSchemas": _depends,
    "dependencies": _depends,
    "minProperties": _counts,
    "maxProperties": _counts,
    "propertyNames": _closes,
    "patternProperties": _closes,
    "additionalProperties": _closes,
    "unevaluatedProperties": _closes,
    "items": _looks_at_items,
    "prefixItems": _looks_at_items,
    "contains": _looks_at_items,
    "uniqueItems": lambda value, changes: changes.items and value is True,
    "unevaluatedItems": _looks_at_items,
    "enum": lambda value, changes: _names_container(value),
    "const": lambda value, changes: _names_container([value]),
}


def _names_container(values: Json) -> bool:
    return any(isinstance(value, (dict, list, tuple)) for value in values)


def _names(before: str, names: frozenset[str] | set[str]) -> str:
    listed = " and ".join(f'"{name}"' for name in sorted(names))
    return f"{before} {listed}".strip()


@lru_cache(maxsize=1_000)
def _matches(pattern: str, name: str) -> bool:
    return pattern_matches(pattern, name)
