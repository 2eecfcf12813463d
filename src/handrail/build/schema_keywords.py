"""What a change of each JSON Schema keyword does to the values that a schema takes. `schema_diff.py` walks two schemas
at once and asks the parts below at every pair of subschemas. A part looks at one keyword, or at a few that only mean
something together, and tells how they differ; it claims that no value is lost, or none gained, only where sure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

from handrail.contract.frozen import thaw
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import Json

ANNOTATIONS = frozenset(
    {"$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"}
)
DEFINITIONS = frozenset({"$defs", "definitions"})
SILENT = ANNOTATIONS | DEFINITIONS | {"$schema"}
"""Keywords that refuse no value by themselves."""
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_KNOWN = frozenset(
    {
        "$ref", "additionalProperties", "allOf", "anyOf", "const", "contains", "dependentRequired", "dependentSchemas",
        "else", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems",
        "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum",
        "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames",
        "required", "then", "type", "uniqueItems", *UNEVALUATED,
    }
)  # fmt: skip
_TYPES = ("null", "boolean", "object", "array", "string", "number")
_ABSENT = object()

Node: TypeAlias = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One keyword that differs, at a JSON pointer into the new schema (or where it would stand there)."""

    place: str
    message: str
    old_in_new: bool = True
    """Every value valid before is proven to be valid after, as far as this keyword goes."""
    new_in_old: bool = True
    proven: bool = True
    """False where it is not known what the difference does."""
    event: Literal["", "field added", "field removed", "default"] = ""
    settled: bool = False
    """True where the validator has no say: the keyword means nothing to it, and maybe something to others."""


@dataclass(frozen=True, slots=True)
class At:
    """Where the comparison is: the place in the schema, and the name that people know it by."""

    place: str = ""
    path: str = ""
    subject: str = "the arguments"
    depth: int = 0
    reached: bool = True
    """Whether defaults are filled in below: on the way here there was no keyword that may or may not apply."""
    fills: bool = False
    """Whether a default right here is filled in for callers who leave the value out."""

    @property
    def name(self) -> str:
        return f'"{self.path}"' if self.path else self.subject

    def below(self, *steps: str | int, path: str = "", reached: bool = False, fills: bool = False) -> At:
        return replace(
            self,
            place=self.place + pointer(steps),
            path=self.path + path if self.path else path.removeprefix("."),
            depth=self.depth + 1,
            reached=self.reached and reached,
            fills=self.reached and fills,
        )

    def field(self, name: str, *, fills: bool = False) -> At:
        return self.below("properties", name, path=f".{name}", reached=True, fills=fills)

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


class Walk(Protocol):
    """What the parts ask of the comparison that they are parts of."""

    def walk(self, old: Json, new: Json, at: At) -> list[Difference]:
        """The differences between two subschemas."""

    def relation(self, old: Json, new: Json, at: At) -> tuple[bool, bool]:
        """Whether `old` is within `new` and `new` within `old`."""

    def same(self, old: Json, new: Json) -> bool:
        """Whether two subschemas are written alike, annotations apart, and refer to what is written alike."""

    def can_follow(self, old: Node, new: Node) -> bool:
        """Whether it is known what their `$ref`s mean."""


Part: TypeAlias = Callable[[Walk, Node, Node, At], Iterable[Difference]]
Rule: TypeAlias = Callable[[Node, Node], bool | None]
"""Whether what passes a keyword in one schema passes it in the other: True, False, or None for "cannot tell"."""


# ----------------------------------------------------------------------------------------------------- JSON values
def token(value: Json) -> Any:
    """A key that two values share exactly if JSON Schema calls them equal: 1 is 1.0, and true is not 1."""
    if isinstance(value, Mapping):
        return frozenset((name, token(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(token(item) for item in value)
    return isinstance(value, bool), value


def text(value: Json) -> str:
    """A value as it may stand in a sentence."""
    whole = json.dumps(thaw(value), ensure_ascii=False)
    return whole if len(whole) <= 60 else whole[:57] + "…"


def may_refer(keyword: str, value: Json) -> bool:
    """Whether a keyword that is not looked into may mean something else although it is written alike."""
    return keyword in ("$dynamicRef", "$recursiveRef") or '"$ref"' in json.dumps(thaw(value))


def _differs(keyword: str, old: Node, new: Node) -> bool:
    return bool(token(old.get(keyword, _ABSENT)) != token(new.get(keyword, _ABSENT)))


def _change_sentence(keywords: Iterable[str], old: Node, new: Node, at: At) -> str:
    def part(keyword: str) -> str:
        if keyword in old and keyword in new:
            return f'"{keyword}" went from {text(old[keyword])} to {text(new[keyword])}'
        value, what = (old[keyword], "gone") if keyword in old else (new[keyword], "new")
        return f'"{keyword}" {text(value)} is {what}'

    return f"For {at.name}, {' and '.join(map(part, keywords))}."


# ------------------------------------------------------------------------------------------------- single keywords
def annotated(old: Node, new: Node, at: At) -> Iterator[Difference]:
    """Differences between the annotations of a subschema, its default among them."""
    for keyword in sorted(old.keys() | new.keys()):
        if _differs(keyword, old, new):
            fills = keyword == "default" and at.fills
            message = _change_sentence([keyword], old, new, at) if fills else f'"{keyword}" of {at.name} changed.'
            yield replace(at.tell(keyword, message), event="default" if fills else "")


def _ruled(rule: Rule, *keywords: str) -> Part:
    def part(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
        changed = [keyword for keyword in keywords if _differs(keyword, old, new)]
        if changed:
            forward, backward = rule(old, new), rule(new, old)
            yield at.tell(
                changed[0],
                _change_sentence(changed, old, new, at),
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


def _unique(a: Node, b: Node) -> bool:
    return bool(a.get("uniqueItems")) or not b.get("uniqueItems")


def _companions(a: Node, b: Node) -> bool:
    always, given = set(a.get("required", ())), a.get("dependentRequired", {})
    return all(
        _impossible(name, a) or set(wanted) <= always | {name} | set(given.get(name, ()))
        for name, wanted in b.get("dependentRequired", {}).items()
    )


def _impossible(name: str, schema: Node) -> bool:
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    return closed and name not in schema.get("properties", {})


def _values(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    """`enum` and `const`, which answer one question: which values are listed."""
    before, after = _listed(old), _listed(new)
    keyword = "enum" if "enum" in old or "enum" in new else "const"
    if before is None or after is None:
        if before is not after:
            yield at.gone(keyword) if after is None else at.new(keyword)
        return
    lost = [text(value) for key, value in before.items() if key not in after]
    gained = [text(value) for key, value in after.items() if key not in before]
    parts = [f"no longer include {', '.join(lost)}"] if lost else []
    parts += [f"now include {', '.join(gained)}"] if gained else []
    if parts:
        message = f"The values of {at.name} {' and '.join(parts)}."
        yield at.tell(keyword, message, old_in_new=not lost, new_in_old=not gained)


def _listed(schema: Node) -> dict[Any, Json] | None:
    lists = [schema[key] if key == "enum" else [schema[key]] for key in ("enum", "const") if key in schema]
    tokens = [{token(value): value for value in values} for values in lists]
    return {key: value for key, value in tokens[0].items() if key in tokens[-1]} if tokens else None


def _unknown(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    for keyword in sorted((old.keys() | new.keys()) - _KNOWN - SILENT):
        if _differs(keyword, old, new) or may_refer(keyword, old[keyword]):
            yield replace(at.unclear(keyword), settled=True)


# ---------------------------------------------------------------------------------------------- objects and arrays
def _required(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    before, after = old.get("required", ()), new.get("required", ())
    for name in after:
        if name in before:
            continue
        if name in new.get("properties", {}) and _impossible(name, old):
            # One sentence for a new and required name; `_properties` leaves it to this one.
            told = at.new("required", f"{at.named(name)} is new and required.")
            yield replace(told, new_in_old=False, event="field added")
        else:
            yield at.new("required", f"{at.named(name)} is required now.")
    for name in before:
        if name not in after:
            yield at.gone("required", f"{at.named(name)} is no longer required.")


def _properties(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    """`properties`, `patternProperties` and `additionalProperties`, which share all names among them."""
    before, after = old.get("properties", {}), new.get("properties", {})
    for name in before:
        if name in after:
            # Whoever had to give a value never met its default.
            here = at.field(name, fills=name not in old.get("required", ()))
            yield from walk.walk(before[name], after[name], here)
        else:
            yield _removed(walk, name, old, new, at)
    for name in after:
        if name not in before and (name not in new.get("required", ()) or not _impossible(name, old)):
            yield _added(walk, name, old, new, at)
    patterns = ({"patternProperties": schema.get("patternProperties", {})} for schema in (old, new))
    if not walk.same(next(patterns), next(patterns)):
        yield at.unclear("patternProperties")
    yield from _others(walk, _rest(old), _rest(new), at)


def _added(walk: Walk, name: str, old: Node, new: Node, at: At) -> Difference:
    here = at.field(name)
    forward, backward = walk.relation(_rest(old), new["properties"][name], here)
    # One of the patterns may have been what judged this name.
    forward = forward and not old.get("patternProperties")
    what = "is new and optional" if forward else "takes fewer values than before, when its name was not listed"
    told = here.tell("", f"{at.named(name)} {what}.", old_in_new=forward, new_in_old=backward)
    return replace(told, event="field added")


def _removed(walk: Walk, name: str, old: Node, new: Node, at: At) -> Difference:
    here, schema = at.field(name), old["properties"][name]
    forward, backward = walk.relation(schema, _rest(new), here)
    backward = backward and not new.get("patternProperties")
    what = "is no longer described, and still allowed" if forward else "was removed"
    told = here.tell("", f"{at.named(name)} {what}.", old_in_new=forward, new_in_old=backward)
    if forward and at.reached and isinstance(schema, Mapping) and "default" in schema:
        return replace(told, message=f"{told.message[:-1]}, and its default is gone.", event="default")
    return replace(told, event="field removed")


def _rest(schema: Node) -> Json:
    return schema.get("additionalProperties", True)


def _others(walk: Walk, old: Json, new: Json, at: At) -> Iterable[Difference]:
    if new is False and old is not False:
        return [at.new("additionalProperties", f"Names that are not listed in {at.name} are refused now.")]
    if old is False and new is not False:
        told = at.gone("additionalProperties", f"Names that are not listed in {at.name} are allowed now.")
        return [replace(told, event="field added")]
    return walk.walk(old, new, at.below("additionalProperties", path=".*"))


def _names(walk: Walk, old: Node, new: Node, at: At) -> Iterable[Difference]:
    here = at.below("propertyNames", path=".(name)")
    return walk.walk(old.get("propertyNames", True), new.get("propertyNames", True), here)


def _items(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    """`prefixItems` and `items`: what is asked of the item at each index, and of all that follow."""
    before, after = old.get("prefixItems", ()), new.get("prefixItems", ())
    rest_before, rest_after = old.get("items", True), new.get("items", True)
    for index in range(max(len(before), len(after))):
        steps: tuple[str | int, ...] = ("prefixItems", index) if index < len(after) else ("items",)
        yield from walk.walk(
            before[index] if index < len(before) else rest_before,
            after[index] if index < len(after) else rest_after,
            at.below(*steps, path=f"[{index}]", reached=True),
        )
    yield from walk.walk(rest_before, rest_after, at.below("items", path="[]", reached=True))


# ---------------------------------------------------------------------------------------------------- combinations
def _all_of(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    """`allOf`, and a `$ref` with other keywords beside it, which is one more of the same."""
    if not walk.can_follow(old, new):
        yield at.unclear("$ref", f'It is not known what the "$ref" of {at.name} refers to.')
        return
    before, after = (
        [*schema.get("allOf", ()), *([{"$ref": schema["$ref"]}] if "$ref" in schema else [])] for schema in (old, new)
    )
    yield from _one_by_one(walk, "allOf", before, after, at)


def _any_of(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
    yield from _one_by_one(walk, "anyOf", old.get("anyOf", ()), new.get("anyOf", ()), at)


def _one_by_one(walk: Walk, keyword: str, old: Sequence[Json], new: Sequence[Json], at: At) -> Iterator[Difference]:
    always = keyword == "allOf"
    if len(old) == len(new):
        for index in range(len(old)):
            here = at.below(keyword, index, reached=always, fills=always and at.fills)
            yield from walk.walk(old[index], new[index], here)
    elif old and new:
        yield at.unclear(keyword)
    else:
        yield at.gone(keyword) if old else at.new(keyword)


def _alike(first: str, *others: str) -> Part:
    """Keywords in which more may mean less: kept, gone, new, or not to be compared."""

    def part(walk: Walk, old: Node, new: Node, at: At) -> Iterator[Difference]:
        before, after = ({key: schema[key] for key in (first, *others) if key in schema} for schema in (old, new))
        if first in before and first in after and not walk.same(before, after):
            yield at.unclear(first)
        elif (first in before) != (first in after):
            yield at.gone(first) if first in before else at.new(first)

    return part


PARTS: tuple[Part, ...] = (
    _ruled(_typed, "type"),
    _values,
    _ruled(_bound(1, "minimum", "exclusiveMinimum"), "minimum", "exclusiveMinimum"),
    _ruled(_bound(-1, "maximum", "exclusiveMaximum"), "maximum", "exclusiveMaximum"),
    _ruled(_multiple, "multipleOf"),
    *(_ruled(_bound(1, keyword, floor=0), keyword) for keyword in ("minLength", "minItems", "minProperties")),
    *(_ruled(_bound(-1, keyword), keyword) for keyword in ("maxLength", "maxItems", "maxProperties")),
    *(_ruled(_opaque(keyword), keyword) for keyword in ("pattern", "format")),
    _ruled(_unique, "uniqueItems"),
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
