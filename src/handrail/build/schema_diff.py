"""How two JSON Schemas differ, keyword by keyword, and what that does to the values they take. `diff.py` asks it about
the arguments and the results of a tool. Each difference says whether every value valid before is proven to be valid
after, and the other way round. A schema is the conjunction of its keywords, so where no difference says otherwise it is
proven for the whole. What keywords one by one cannot prove (an `anyOf` rewritten as a list of types, a bound that every
listed value keeps) is put to the validator's own set arithmetic; what that cannot prove either is told as not proven.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from handrail.contract.frozen import thaw
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, Json, LocalRefs, walk

try:  # The validator calls this part of itself experimental. Without it more stays unproven, and nothing else changes.
    from jsonschema_rs import canonicalize
    from jsonschema_rs.canonical import CanonicalizationError, Containment
except ImportError:  # pragma: no cover
    canonicalize = None  # type: ignore[assignment]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)
_DEFINITIONS = frozenset({"$defs", "definitions"})
_SILENT = ANNOTATIONS | _DEFINITIONS | {"$schema"}
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_TYPES = ("null", "boolean", "object", "array", "string", "number")
_ANYTHING: Mapping[str, Json] = {}
_ABSENT = object()
_MAX_DEPTH = 48

Node: TypeAlias = Mapping[str, Json]
_Pair: TypeAlias = tuple[int, int]
Event: TypeAlias = Literal["", "field added", "field removed", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One keyword that differs, at a JSON pointer into the new schema (or where it would stand there)."""

    place: str
    message: str
    old_in_new: bool = True
    """Every value valid before is proven to be valid after, as far as this keyword goes."""
    new_in_old: bool = True
    proven: bool = True
    """False where it could not be told what the difference does."""
    event: Event = ""
    settled: bool = False
    """True where the validator has no say, because the keyword means nothing to it and maybe something to others."""


def compare_schemas(old: Node, new: Node, *, subject: str = "the arguments") -> list[Difference]:
    """Every difference between two schemas; none if and only if they are the same JSON."""
    if _token(old) == _token(new):
        return []
    here = _At(subject=subject)
    if any(schema.get("$schema", DIALECT).rstrip("#") != DIALECT for schema in (old, new)):
        return [here.unclear("$schema", f"The schema of {subject} changed, and it is not draft 2020-12.")]
    found = _Comparison(_Document(old), _Document(new)).walk(old, new, here)
    return found or [Difference(place="", message=f"The schema of {subject} is rewritten and means the same.")]


@dataclass(frozen=True, slots=True)
class _At:
    """Where the comparison is: the place in the schema, and the name that people know it by."""

    place: str = ""
    path: str = ""
    subject: str = "the arguments"
    depth: int = 0
    fills: bool = True
    """Whether a default here is filled in for callers who leave the value out."""

    @property
    def name(self) -> str:
        return f'"{self.path}"' if self.path else self.subject

    def below(self, *steps: str | int, path: str = "", fills: bool = False) -> _At:
        place, fills = self.place + pointer(steps), self.fills and fills
        return replace(self, place=place, path=(self.path + path).lstrip("."), depth=self.depth + 1, fills=fills)

    def field(self, name: str, *, fills: bool = False) -> _At:
        return self.below("properties", name, path=f".{name}", fills=fills)

    def named(self, name: str) -> str:
        noun = "argument" if self.subject == "the arguments" and not self.path else "field"
        return f'The {noun} "{self.field(name).path}"'

    def gone(self, keyword: str, message: str = "") -> Difference:
        return self.tell(keyword, message or f'"{keyword}" of {self.name} is gone.', new_in_old=False)

    def new(self, keyword: str, message: str = "") -> Difference:
        return self.tell(keyword, message or f'"{keyword}" of {self.name} is new.', old_in_new=False)

    def unclear(self, keyword: str, message: str = "") -> Difference:
        message = message or f'"{keyword}" of {self.name} changed.'
        return self.tell(keyword, message, old_in_new=False, new_in_old=False, proven=False)

    def tell(
        self, keyword: str, message: str, *, old_in_new: bool = True, new_in_old: bool = True, proven: bool = True
    ) -> Difference:
        return Difference(
            place=self.place + pointer([keyword] if keyword else []),
            message=message,
            old_in_new=old_in_new,
            new_in_old=new_in_old,
            proven=proven,
        )


class _End(NamedTuple):
    """What a schema comes to when its references are followed."""

    schema: Json
    place: str
    notes: dict[str, Json]
    referred: bool


class _Document:
    """One schema as a whole: what its references mean, and whether a part of it can be read without the rest."""

    __slots__ = ("_refs", "_root", "portable")

    def __init__(self, root: Node) -> None:
        self._root = root
        nodes = [(path, node) for path, node in walk(root) if isinstance(node, Mapping)]
        # Below an `$id` of its own, "#" means that subschema.
        self._refs = None if any(path and "$id" in node for path, node in nodes) else LocalRefs(root)
        refs = [str(node[key]) for _, node in nodes for key in ("$ref", "$dynamicRef") if key in node]
        self.portable = self._refs is not None and all(ref.startswith(("#/$defs/", "#/definitions/")) for ref in refs)

    def target(self, schema: Node) -> Json:
        """What the `$ref` of `schema` means; None if that cannot be told."""
        return self._refs.target(schema) if self._refs is not None else None

    def follow(self, schema: Json, place: str) -> _End:
        """Follow a `$ref` or an `allOf` of one that stands by itself, annotations apart."""
        notes: dict[str, Json] = {}
        met: set[int] = set()
        referred = False
        while isinstance(schema, Mapping) and id(schema) not in met:
            met.add(id(schema))
            notes = {key: value for key, value in schema.items() if key in ANNOTATIONS} | notes
            rest = schema.keys() - _SILENT
            if rest == {"$ref"} and self._refs is not None and self.target(schema) is not None:
                place, schema, referred = pointer(self._refs.path(schema["$ref"])), self.target(schema), True
            elif rest == {"allOf"} and len(schema["allOf"]) == 1:
                place, schema = f"{place}/allOf/0", schema["allOf"][0]
        return _End(schema, place, notes, referred)

    def alone(self, schema: Node) -> Node:
        """A subschema that can be read without its document."""
        return {**schema, **{key: self._root[key] for key in _DEFINITIONS & self._root.keys()}}


class _Comparison:
    """Walks both schemas at once. A pair that references led to before counts as compared: its differences are told
    already or on their way, and since every value is finite this proves recursive schemas too."""

    __slots__ = ("_seen", "new", "old")

    def __init__(self, old: _Document, new: _Document, seen: Mapping[_Pair, tuple[Json, Json]] | None = None) -> None:
        self.old = old
        self.new = new
        # The schemas are kept beside their ids, because the id of a collected one could come back.
        self._seen = dict(seen or {})

    def walk(self, old: Json, new: Json, at: _At) -> list[Difference]:
        before, after = self.old.follow(old, at.place), self.new.follow(new, at.place)
        found = list(_annotations(before.notes, after.notes, at))
        if before.referred or after.referred:
            pair = (id(before.schema), id(after.schema))
            if pair in self._seen:
                return found
            self._seen[pair] = (before.schema, after.schema)
        return found + self._assertions(before.schema, after.schema, replace(at, place=after.place))

    def _assertions(self, old: Json, new: Json, at: _At) -> list[Difference]:
        if old is False or new is False:
            refused, allowed = (
                f"Nothing is valid for {at.name} any more.",
                f"Not every value of {at.name} is refused now.",
            )
            return [] if old is new else [at.new("", refused) if new is False else at.gone("", allowed)]
        old, new = (_ANYTHING if schema is True else schema for schema in (old, new))
        if not (old.keys() | new.keys()) - _SILENT:
            return []
        if at.depth > _MAX_DEPTH:
            return [at.unclear("", f"{at.name} lies too deep to be compared.")]
        seen = dict(self._seen)
        if any(keyword in schema for keyword in _UNEVALUATED for schema in (old, new)):
            found = _unevaluated(self, old, new, at)
        else:
            found = [difference for part in _PARTS for difference in part(self, old, new, at)]
        cleared = self._without_doubts(old, new, found)
        if cleared != found:
            # What is harmless here may do harm where else the same definition is used, and must be told there.
            self._seen = seen
        return cleared

    def _without_doubts(self, old: Node, new: Node, found: list[Difference]) -> list[Difference]:
        """The differences, without the doubts that the validator's arithmetic takes away."""
        if any(not (item.old_in_new or item.settled) for item in found) and self._within(self.old, old, self.new, new):
            found = [replace(item, old_in_new=item.old_in_new or not item.settled) for item in found]
        if any(not (item.new_in_old or item.settled) for item in found) and self._within(self.new, new, self.old, old):
            found = [replace(item, new_in_old=item.new_in_old or not item.settled) for item in found]
        return found

    @staticmethod
    def _within(inside: _Document, inner: Node, outside: _Document, outer: Node) -> bool:
        if canonicalize is None or not (inside.portable and outside.portable):
            return False
        try:
            small, large = (
                canonicalize(thaw(document.alone(schema)), validate_formats=True, offline=True)
                for document, schema in ((inside, inner), (outside, outer))
            )
            return large.covers(small) == Containment.YES
        except (CanonicalizationError, ValueError):
            return False

    def relation(self, old: Json, new: Json) -> tuple[bool, bool]:
        """Whether `old` is within `new` and `new` within `old`; what is met on the way does not count as told."""
        found = _Comparison(self.old, self.new, self._seen).walk(old, new, _At())
        return all(item.old_in_new for item in found), all(item.new_in_old for item in found)

    def same(self, old: Json, new: Json, seen: frozenset[_Pair] = frozenset()) -> bool:
        """Whether two subschemas are written alike, annotations apart, and refer to what is written alike."""
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            return old is new
        pair = (id(old), id(new))
        keywords = old.keys() - _SILENT
        if pair in seen or keywords != new.keys() - _SILENT:
            return pair in seen
        return all(self._same_keyword(keyword, old, new, seen | {pair}) for keyword in keywords)

    def _same_keyword(self, keyword: str, old: Node, new: Node, seen: frozenset[_Pair]) -> bool:
        before, after = old[keyword], new[keyword]
        if keyword == "$ref":
            ends = self.old.target(old), self.new.target(new)
            return before == after and None not in ends and self.same(*ends, seen)
        if keyword in ONE_SCHEMA:
            return self.same(before, after, seen)
        if keyword in SCHEMA_LISTS:
            return len(before) == len(after) and all(self.same(before[i], after[i], seen) for i in range(len(before)))
        if keyword in SCHEMA_MAPS and keyword != "dependencies":
            return before.keys() == after.keys() and all(self.same(before[name], after[name], seen) for name in before)
        return _token(before) == _token(after) and not _may_refer(keyword, before)


def _annotations(old: Node, new: Node, at: _At) -> Iterator[Difference]:
    for keyword in sorted(old.keys() | new.keys()):
        if _differs(keyword, old, new):
            fills = keyword == "default" and at.fills
            message = _told([keyword], old, new, at) if fills else f'"{keyword}" of {at.name} changed.'
            yield replace(at.tell(keyword, message), event="default" if fills else "")


# ----------------------------------------------------------------------------------------------------- JSON values
def _token(value: Json) -> Any:
    """A key that two values share exactly if JSON Schema calls them equal: 1 is 1.0, and true is not 1."""
    if isinstance(value, Mapping):
        return frozenset((name, _token(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_token(item) for item in value)
    return isinstance(value, bool), value


def _differs(keyword: str, old: Node, new: Node) -> bool:
    return bool(_token(old.get(keyword, _ABSENT)) != _token(new.get(keyword, _ABSENT)))


def _text(value: Json) -> str:
    text = json.dumps(thaw(value), ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _told(keywords: Iterable[str], old: Node, new: Node, at: _At) -> str:
    def part(keyword: str) -> str:
        if keyword in old and keyword in new:
            return f'"{keyword}" went from {_text(old[keyword])} to {_text(new[keyword])}'
        value, what = (old[keyword], "gone") if keyword in old else (new[keyword], "new")
        return f'"{keyword}" {_text(value)} is {what}'

    return f"For {at.name}, {' and '.join(map(part, keywords))}."


def _may_refer(keyword: str, value: Json) -> bool:
    """Whether a keyword that is not looked into may mean something else although it is written alike."""
    return keyword in ("$dynamicRef", "$recursiveRef") or '"$ref"' in json.dumps(thaw(value))


# ------------------------------------------------------------------------------------------------- single keywords
# A rule says whether what passes the keyword in `a` passes it in `b`: True, False, or None for "cannot tell".
Rule: TypeAlias = Callable[[Node, Node], bool | None]
Part: TypeAlias = Callable[[_Comparison, Node, Node, _At], Iterable[Difference]]


def _ruled(rule: Rule, *keywords: str) -> Part:
    def part(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
        changed = [keyword for keyword in keywords if _differs(keyword, old, new)]
        if changed:
            forward, backward = rule(old, new), rule(new, old)
            yield at.tell(
                changed[0],
                _told(changed, old, new, at),
                old_in_new=forward is True,
                new_in_old=backward is True,
                proven=None not in (forward, backward),
            )

    return part


def _bound(sign: int, inclusive: str, exclusive: str = "", floor: int | None = None) -> Rule:
    def tightest(schema: Node) -> tuple[float, bool] | None:
        # With the sign turned for upper bounds, the greater is the tighter, and exclusive is tighter than inclusive.
        bounds = [(sign * schema[key], key == exclusive) for key in (inclusive, exclusive) if key in schema]
        return max(bounds) if bounds else None if floor is None else (floor, False)

    def rule(a: Node, b: Node) -> bool:
        have, want = tightest(a), tightest(b)
        return want is None or (have is not None and have >= want)

    return rule


def _opaque(keyword: str) -> Rule:
    def rule(a: Node, b: Node) -> bool | None:
        if keyword not in b or a.get(keyword) == b[keyword]:
            return True
        return None if keyword in a else False

    return rule


def _typed(a: Node, b: Node) -> bool:
    def names(schema: Node) -> set[str]:
        named = schema.get("type", _TYPES)
        listed = {named} if isinstance(named, str) else set(named)
        return listed | {"integer"} if "number" in listed else listed

    return names(a) <= names(b)


def _multiple(a: Node, b: Node) -> bool | None:
    have, want = a.get("multipleOf"), b.get("multipleOf")
    if want is None or have == want:
        return True
    if have is None:
        return False
    # Which decimal is a multiple of which is a matter of the validator's rounding.
    return have % want == 0 if float(have).is_integer() and float(want).is_integer() else None


def _companions(a: Node, b: Node) -> bool:
    always, given = set(a.get("required", ())), a.get("dependentRequired", {})
    closed = a.get("additionalProperties") is False and not a.get("patternProperties")
    return all(
        (closed and name not in a.get("properties", {})) or set(wanted) <= always | {name} | set(given.get(name, ()))
        for name, wanted in b.get("dependentRequired", {}).items()
    )


def _values(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    """`enum` and `const`, which answer one question: which values are listed."""
    before, after = _listed(old), _listed(new)
    keyword = "enum" if "enum" in old or "enum" in new else "const"
    if before is None or after is None:
        if before is not after:
            yield at.gone(keyword) if after is None else at.new(keyword)
        return
    lost = [_text(value) for token, value in before.items() if token not in after]
    gained = [_text(value) for token, value in after.items() if token not in before]
    parts = [f"no longer include {', '.join(lost)}"] if lost else []
    parts += [f"now include {', '.join(gained)}"] if gained else []
    if parts:
        message = f"The values of {at.name} {' and '.join(parts)}."
        yield at.tell(keyword, message, old_in_new=not lost, new_in_old=not gained)


def _listed(schema: Node) -> dict[Any, Json] | None:
    lists = [schema[key] if key == "enum" else [schema[key]] for key in ("enum", "const") if key in schema]
    tokens = [{_token(value): value for value in values} for values in lists]
    return {key: value for key, value in tokens[0].items() if key in tokens[-1]} if tokens else None


def _unknown(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    for keyword in sorted((old.keys() | new.keys()) - _KNOWN - _SILENT):
        if _differs(keyword, old, new) or _may_refer(keyword, old[keyword]):
            yield replace(at.unclear(keyword), settled=True)


# ---------------------------------------------------------------------------------------------- objects and arrays
def _required(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    before, after = old.get("required", ()), new.get("required", ())
    for name in after:
        if name in before:
            continue
        if name in new.get("properties", {}) and name not in old.get("properties", {}):
            # One sentence for a new and required name; `_properties` leaves it to this one.
            told = at.new("required", f"{at.named(name)} is new and required.")
            yield replace(told, new_in_old=False, event="field added")
        else:
            yield at.new("required", f"{at.named(name)} is required now.")
    for name in before:
        if name not in after:
            yield at.gone("required", f"{at.named(name)} is no longer required.")


def _properties(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    """`properties`, `patternProperties` and `additionalProperties`, which share all names among them."""
    before, after = old.get("properties", {}), new.get("properties", {})
    for name in before:
        if name in after:
            # Whoever had to give a value never met its default.
            here = at.field(name, fills=name not in old.get("required", ()))
            yield from comparison.walk(before[name], after[name], here)
        else:
            yield _removed(comparison, name, old, new, at)
    for name in after:
        if name not in before:
            told = _added(comparison, name, old, new, at)
            if not told.old_in_new or name not in new.get("required", ()):
                yield told
    patterns = ({"patternProperties": schema.get("patternProperties", {})} for schema in (old, new))
    if not comparison.same(next(patterns), next(patterns)):
        yield at.unclear("patternProperties")
    yield from _others(comparison, _rest(old), _rest(new), at)


def _added(comparison: _Comparison, name: str, old: Node, new: Node, at: _At) -> Difference:
    forward, backward = comparison.relation(_rest(old), new["properties"][name])
    # One of the patterns may have been what judged this name.
    forward = forward and not old.get("patternProperties")
    what = "is new and optional" if forward else "takes fewer values than before, when its name was not listed"
    told = at.tell("", f"{at.named(name)} {what}.", old_in_new=forward, new_in_old=backward)
    return replace(told, place=at.field(name).place, event="field added")


def _removed(comparison: _Comparison, name: str, old: Node, new: Node, at: _At) -> Difference:
    forward, backward = comparison.relation(old["properties"][name], _rest(new))
    backward = backward and not new.get("patternProperties")
    what = "is no longer described, and still allowed" if forward else "was removed"
    told = at.tell("", f"{at.named(name)} {what}.", old_in_new=forward, new_in_old=backward)
    return replace(told, place=at.field(name).place, event="field removed")


def _rest(schema: Node) -> Json:
    return schema.get("additionalProperties", True)


def _others(comparison: _Comparison, old: Json, new: Json, at: _At) -> Iterable[Difference]:
    if new is False and old is not False:
        return [at.new("additionalProperties", f"Names that are not listed in {at.name} are refused now.")]
    if old is False and new is not False:
        return [at.gone("additionalProperties", f"Names that are not listed in {at.name} are allowed now.")]
    return comparison.walk(old, new, at.below("additionalProperties", path=".*"))


def _names(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterable[Difference]:
    here = at.below("propertyNames", path=".(name)")
    return comparison.walk(old.get("propertyNames", True), new.get("propertyNames", True), here)


def _items(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    """`prefixItems` and `items`: what is asked of the item at each index, and of all that follow."""
    before, after = old.get("prefixItems", ()), new.get("prefixItems", ())
    rest_before, rest_after = old.get("items", True), new.get("items", True)
    for index in range(max(len(before), len(after))):
        steps: tuple[str | int, ...] = ("prefixItems", index) if index < len(after) else ("items",)
        yield from comparison.walk(
            before[index] if index < len(before) else rest_before,
            after[index] if index < len(after) else rest_after,
            at.below(*steps, path=f"[{index}]", fills=True),
        )
    yield from comparison.walk(rest_before, rest_after, at.below("items", path="[]", fills=True))


# ---------------------------------------------------------------------------------------------------- combinations
def _all_of(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    """`allOf`, and a `$ref` with other keywords beside it, which is one more of the same."""
    if any("$ref" in node and doc.target(node) is None for doc, node in ((comparison.old, old), (comparison.new, new))):
        yield at.unclear("$ref", f'The "$ref" of {at.name} cannot be followed.')
        return
    before, after = (
        [*schema.get("allOf", ()), *([{"$ref": schema["$ref"]}] if "$ref" in schema else [])] for schema in (old, new)
    )
    yield from _one_by_one(comparison, "allOf", before, after, at)


def _any_of(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
    yield from _one_by_one(comparison, "anyOf", old.get("anyOf", ()), new.get("anyOf", ()), at)


def _one_by_one(
    comparison: _Comparison, keyword: str, old: Iterable[Json], new: Iterable[Json], at: _At
) -> Iterator[Difference]:
    before, after = list(old), list(new)
    if len(before) == len(after):
        for index in range(len(before)):
            here = at.below(keyword, index, fills=keyword == "allOf")
            yield from comparison.walk(before[index], after[index], here)
    elif before and after:
        yield at.unclear(keyword)
    else:
        yield at.gone(keyword) if before else at.new(keyword)


def _alike(*keywords: str) -> Part:
    """Keywords in which more may mean less: kept, gone, new, or not to be compared."""

    def part(comparison: _Comparison, old: Node, new: Node, at: _At) -> Iterator[Difference]:
        before, after = ({key: schema[key] for key in keywords if key in schema} for schema in (old, new))
        first = keywords[0]
        if first in before and first in after and not comparison.same(before, after):
            yield at.unclear(first)
        elif (first in before) != (first in after):
            yield at.gone(first) if first in before else at.new(first)

    return part


def _unevaluated(comparison: _Comparison, old: Node, new: Node, at: _At) -> list[Difference]:
    """It judges what all other keywords have left over, so none of them can be looked at by itself."""
    if comparison.same(old, new):
        return []
    return [at.unclear(next(keyword for keyword in _UNEVALUATED if keyword in old or keyword in new))]


_PARTS: tuple[Part, ...] = (
    _ruled(_typed, "type"),
    _values,
    _ruled(_bound(1, "minimum", "exclusiveMinimum"), "minimum", "exclusiveMinimum"),
    _ruled(_bound(-1, "maximum", "exclusiveMaximum"), "maximum", "exclusiveMaximum"),
    _ruled(_multiple, "multipleOf"),
    *(_ruled(_bound(1, keyword, floor=0), keyword) for keyword in ("minLength", "minItems", "minProperties")),
    *(_ruled(_bound(-1, keyword), keyword) for keyword in ("maxLength", "maxItems", "maxProperties")),
    *(_ruled(_opaque(keyword), keyword) for keyword in ("pattern", "format")),
    _ruled(lambda a, b: bool(a.get("uniqueItems")) or not b.get("uniqueItems"), "uniqueItems"),
    _required,
    _properties,
    _names,
    _ruled(_companions, "dependentRequired"),
    _items,
    _all_of,
    _any_of,
    _alike("contains", "minContains", "maxContains"),
    _alike("dependentSchemas"),
    _alike("oneOf"),
    _alike("not"),
    _alike("if", "then", "else"),
    _unknown,
)
_KNOWN = frozenset(
    {
        "$ref", "additionalProperties", "allOf", "anyOf", "const", "contains", "dependentRequired", "dependentSchemas",
        "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems",
        "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum",
        "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames",
        "required", "then", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
    }
)  # fmt: skip
