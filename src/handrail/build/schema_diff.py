"""How two JSON Schemas differ, and what that does to the values they take; `diff.py` asks it about the arguments and
the results of a tool. Each difference says whether every value valid before is proven to be valid after, and the other
way round. A schema is the conjunction of its keywords, so where no difference says otherwise, it is proven for all.
What keywords one by one (`schema_keywords.py`) cannot prove, such as an `anyOf` rewritten as a list of types, is put to
the validator's own set arithmetic; what that cannot prove either is reported as not proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import NamedTuple, TypeAlias

from handrail.build.schema_keywords import (
    ANNOTATIONS,
    DEFINITIONS,
    PARTS,
    SILENT,
    UNEVALUATED,
    At,
    Difference,
    Node,
    annotated,
    may_refer,
    token,
)
from handrail.contract.frozen import thaw
from handrail.schema.jsonschema_engine import BUILD_ERRORS
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, Json, LocalRefs, walk

try:  # The validator calls this part of itself experimental. Without it more stays unproven, and nothing else changes.
    from jsonschema_rs import canonicalize
    from jsonschema_rs.canonical import Containment
except ImportError:  # pragma: no cover
    canonicalize = None  # type: ignore[assignment]

__all__ = ["Difference", "compare_schemas"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ANYTHING: Node = {}
_MAX_DEPTH = 48
MAX_STEPS = 20_000
MAX_PROOF_STEPS = 5_000
_MAX_CHOICES = 100
_Pair: TypeAlias = tuple[int, int]


class DiffEffort:
    """Counts the work of one comparison: parts looked at, and what was put to the validator's arithmetic."""

    __slots__ = ("proof_steps", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.proof_steps = 0

    def step(self) -> bool:
        """Count one part, unless there were too many."""
        if self.steps >= MAX_STEPS:
            return False
        self.steps += 1
        return True

    def prove(self, cost: int) -> bool:
        """Count a proof by the alternatives on both sides multiplied, which it may have to try, unless it is too much."""
        if cost > _MAX_CHOICES or self.proof_steps + cost > MAX_PROOF_STEPS:
            return False
        self.proof_steps += cost
        return True


def compare_schemas(
    old: Node, new: Node, *, subject: str = "the arguments", effort: DiffEffort | None = None
) -> list[Difference]:
    """Every difference between two schemas; none if and only if they are the same JSON. `effort` counts the work."""
    if token(old) == token(new):
        return []
    here = At(subject=subject)
    if any(schema.get("$schema", _DIALECT).rstrip("#") != _DIALECT for schema in (old, new)):
        return [here.unclear("$schema", f"The schema of {subject} changed, and it is not draft 2020-12.")]
    found = _SchemaWalk(_SchemaSide(old), _SchemaSide(new), effort or DiffEffort()).walk(old, new, here)
    return found or [Difference(place="", message=f"The schema of {subject} was rewritten and means the same.")]


class _End(NamedTuple):
    """What a schema comes to when its references are followed."""

    schema: Json
    place: str
    notes: dict[str, Json]
    referred: bool


class _SchemaSide:
    """One schema as a whole: what its references mean, and whether a part of it can be read without the rest."""

    __slots__ = ("_choices", "_reached", "_refs", "_root", "portable")

    def __init__(self, root: Node) -> None:
        self._root = root
        self._choices: dict[int, int] = {}
        self._reached: dict[int, tuple[Node, list[Json]]] = {}
        """Id of a schema → the schema, which keeps its id, and what it leads to."""
        nodes = [(path, node) for path, node in walk(root) if isinstance(node, Mapping)]
        # Below an `$id` of its own, "#" means that subschema.
        self._refs = None if any(path and "$id" in node for path, node in nodes) else LocalRefs(root)
        refs = [str(node[key]) for _, node in nodes for key in ("$ref", "$dynamicRef") if key in node]
        self.portable = self._refs is not None and all(ref.startswith(("#/$defs/", "#/definitions/")) for ref in refs)

    def target(self, schema: Node) -> Json:
        """What the `$ref` of `schema` means; None if that is not known."""
        found = self._refs.target(schema) if self._refs is not None else None
        return found if isinstance(found, (Mapping, bool)) else None

    def follow(self, schema: Json, place: str) -> _End:
        """Follow a `$ref`, or an `allOf` of one, that stands by itself but for annotations."""
        notes: dict[str, Json] = {}
        met: set[int] = set()
        referred = False
        while isinstance(schema, Mapping) and id(schema) not in met:
            met.add(id(schema))
            notes = {key: value for key, value in schema.items() if key in ANNOTATIONS} | notes
            rest = schema.keys() - SILENT
            if rest == {"$ref"} and self._refs is not None and self.target(schema) is not None:
                place, schema, referred = pointer(self._refs.path(schema["$ref"])), self.target(schema), True
            elif rest == {"allOf"} and len(schema["allOf"]) == 1:
                place, schema = f"{place}/allOf/0", schema["allOf"][0]
        return _End(schema, place, notes, referred)

    def choices(self, schema: Json, depth: int = 0) -> int:
        """About how many alternatives a schema comes to when they are multiplied out; at most one more than the limit."""
        if not isinstance(schema, Mapping) or id(schema) in self._choices:
            return self._choices.get(id(schema), 1)
        if depth > _MAX_DEPTH:
            return _MAX_CHOICES + 1
        self._choices[id(schema)] = 1  # what leads back here counts once

        def inside(part: Json) -> int:
            return self.choices(part, depth + 1)

        product = 1
        for keyword, value in schema.items():
            if keyword in ("anyOf", "oneOf"):
                product *= sum(map(inside, value))
            elif keyword in SCHEMA_LISTS:
                product *= prod(map(inside, value))
            elif keyword == "$ref":
                product *= inside(self.target(schema))
            elif keyword in SCHEMA_MAPS and keyword not in DEFINITIONS:
                product *= max(map(inside, value.values()), default=1)
            elif keyword in ONE_SCHEMA:
                product *= inside(value) + (keyword in ("if", "not"))
            product = min(product, _MAX_CHOICES + 1)
        self._choices[id(schema)] = product
        return product

    def proof_cost(self, schema: Node) -> int:
        """The alternatives of the schema or of the definition that it leads to with the most: all are multiplied out."""
        return max(map(self.choices, (schema, *self._led_to(schema))))

    def alone(self, schema: Node) -> Node:
        """A subschema that can be read without its document, if the document is portable."""
        if not self._led_to(schema):
            return schema  # definitions that it does not need would be multiplied out all the same
        return {**schema, **{key: self._root[key] for key in DEFINITIONS & self._root.keys()}}

    def _led_to(self, schema: Node) -> list[Json]:
        """What the references of a schema mean, and the references in there, each once."""
        if id(schema) not in self._reached:
            found: dict[int, Json] = {}
            left: list[Json] = [schema]
            while left:
                for _, node in walk(left.pop()):
                    target = self.target(node) if isinstance(node, Mapping) and "$ref" in node else None
                    if target is not None and id(target) not in found:
                        found[id(target)] = target
                        left.append(target)
            self._reached[id(schema)] = (schema, list(found.values()))
        return self._reached[id(schema)][1]


class _SchemaWalk:
    """Walks both schemas at once. A pair that references led to before counts as compared: its differences are reported
    already or on their way, and since every value is finite this proves recursive schemas too."""

    __slots__ = ("_effort", "_new", "_old", "_seen")

    def __init__(self, old: _SchemaSide, new: _SchemaSide, effort: DiffEffort) -> None:
        self._old = old
        self._new = new
        self._effort = effort
        # The schemas are kept beside their ids, because the id of a collected one could come back.
        self._seen: dict[tuple[_Pair, bool], tuple[Json, Json]] = {}

    def walk(self, old: Json, new: Json, at: At) -> list[Difference]:
        before, after = self._old.follow(old, at.place), self._new.follow(new, at.place)
        found = list(annotated(before.notes, after.notes, at))
        if before.referred or after.referred:
            pair = (id(before.schema), id(after.schema))
            # Where defaults are filled in there is more to tell than where they are not.
            if (pair, True) in self._seen or (pair, at.reached) in self._seen:
                return found
            self._seen[pair, at.reached] = (before.schema, after.schema)
        return found + self._assertions(before.schema, after.schema, replace(at, place=after.place))

    def relation(self, old: Json, new: Json, at: At) -> tuple[bool, bool]:
        if _is_free(old) or _is_free(new):
            return _is_free(new), _is_free(old)
        # A trial: what it meets on its way does not count as told.
        trial = _SchemaWalk(self._old, self._new, self._effort)
        trial._seen = dict(self._seen)
        found = trial.walk(old, new, at)
        return all(item.old_in_new for item in found), all(item.new_in_old for item in found)

    def can_follow(self, old: Node, new: Node) -> bool:
        ends = ((self._old, old), (self._new, new))
        return all("$ref" not in schema or document.target(schema) is not None for document, schema in ends)

    def same(self, old: Json, new: Json, seen: set[_Pair] | None = None) -> bool:
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            return old is new
        pair, seen = (id(old), id(new)), seen or set()
        keywords = old.keys() - SILENT
        if pair in seen or keywords != new.keys() - SILENT:
            return pair in seen
        seen.add(pair)
        return all(self._same_keyword(keyword, old, new, seen) for keyword in keywords)

    def _same_keyword(self, keyword: str, old: Node, new: Node, seen: set[_Pair]) -> bool:
        before, after = old[keyword], new[keyword]
        if keyword == "$ref":
            ends = self._old.target(old), self._new.target(new)
            return before == after and None not in ends and self.same(*ends, seen)
        if keyword in ONE_SCHEMA:
            return self.same(before, after, seen)
        if keyword in SCHEMA_LISTS:
            return len(before) == len(after) and all(self.same(before[i], after[i], seen) for i in range(len(before)))
        if keyword in SCHEMA_MAPS and keyword != "dependencies":
            return before.keys() == after.keys() and all(self.same(before[name], after[name], seen) for name in before)
        return bool(token(before) == token(after)) and not may_refer(keyword, before)

    def _assertions(self, old: Json, new: Json, at: At) -> list[Difference]:
        if old is False or new is False:
            refused, allowed = f"Nothing is valid for {at.name} any more.", f"Something is valid for {at.name} now."
            return [] if old is new else [at.new("", refused) if new is False else at.gone("", allowed)]
        old, new = (_ANYTHING if schema is True else schema for schema in (old, new))
        if _is_free(old) and _is_free(new):
            return []
        if at.depth > _MAX_DEPTH or not self._effort.step():
            return [at.unclear("", f"The schema is too deep or too large for {at.name} to be compared.")]
        seen = dict(self._seen)
        found = list(self._by_keyword(old, new, at))
        cleared = self._without_disproved(old, new, found)
        if cleared != found:
            # What does no harm here may do harm elsewhere that the same definition is used, and must be reported there.
            self._seen = seen
        return cleared

    def _by_keyword(self, old: Node, new: Node, at: At) -> Iterator[Difference]:
        left_over = [keyword for keyword in UNEVALUATED if keyword in old or keyword in new]
        if not left_over:
            for part in PARTS:
                yield from part(self, old, new, at)
        elif not self.same(old, new):
            # It judges what all the other keywords left over, so that none of them can be looked at by itself.
            yield at.unclear(left_over[0])

    def _without_disproved(self, old: Node, new: Node, found: list[Difference]) -> list[Difference]:
        """The differences, without those that the validator's arithmetic disproves."""
        if any(not (item.old_in_new or item.settled) for item in found) and self._within(
            self._old, old, self._new, new
        ):
            found = [replace(item, old_in_new=item.old_in_new or not item.settled) for item in found]
        if any(not (item.new_in_old or item.settled) for item in found) and self._within(
            self._new, new, self._old, old
        ):
            found = [replace(item, new_in_old=item.new_in_old or not item.settled) for item in found]
        return found

    def _within(self, inside: _SchemaSide, inner: Node, outside: _SchemaSide, outer: Node) -> bool:
        """Whether the validator proves that every value of `inner` is one of `outer`; not asked where that may take long."""
        if canonicalize is None or not (inside.portable and outside.portable):
            return False
        if not self._effort.prove(inside.proof_cost(inner) * outside.proof_cost(outer)):
            return False
        try:
            small, large = (
                canonicalize(thaw(document.alone(schema)), validate_formats=True, offline=True)
                for document, schema in ((inside, inner), (outside, outer))
            )
            return large.covers(small) == Containment.YES
        except BUILD_ERRORS:
            return False


def _is_free(schema: Json) -> bool:
    """Whether the schema says nothing about values."""
    return schema is True or (isinstance(schema, Mapping) and not schema.keys() - SILENT)
