"""How much work it is to check one instance against a schema, estimated without doing it.

The engine remembers verdicts only where a schema refers back to itself. Elsewhere references that multiply, long lists of
alternatives, large patterns and divisors of very large numbers can make one small instance cost seconds. The estimate is an
upper bound, in units of about 20 ns; a schema beyond `MAX_PER_VALUE` is refused, and a large instance of a costly schema is
refused unchecked.

Measuring must cost less than what it guards. First the instance is written as JSON and its bytes and commas are counted,
which takes a fraction of the check itself and is enough for nearly all. Only where that bound is too high are the values
looked at one by one, with the subschemas that apply to each; that look is counted as work too, and ends at the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, log10

import orjson

from handrail.contract.errors import SchemaError
from handrail.schema.pattern_cost import QUICK_CHARACTERS, pattern_cost, pattern_size, pattern_work
from handrail.schema.subschemas import Json, LocalRefs, descend, in_place, walk

MAX_PER_VALUE = 100_000
MAX_EFFORT = 1_000_000
MAX_PATTERN_SIZE = 100_000
SHORT_TEXT = 100
"""Texts of up to this many characters can always be checked; a schema whose patterns are too costly for that is refused."""
# What 64 KiB of arguments can hold: a value takes two bytes at least, with its comma.
_MAX_VALUES, _MAX_CHARACTERS = 32 * 1024, 64 * 1024
_LEVELS = 64
_MAX_PLACES = 1_000
# Looking at a value takes a few hundred nanoseconds, more if it is a list or an object with something in it, and finding out
# which subschemas apply somewhere two microseconds each.
_PER_LOOK, _PER_CONTAINER, _PER_SUBSCHEMA = 10, 80, 100
BARE_TYPES = frozenset({str, int, float, bool, type(None)})
_CHUNK = 100
_SMALL_INTEGER, _SMALL_WEIGHT = 256, 60
# A number is divided as a fraction of two integers that are written out: `1e300` has a thousand bits.
_EXACT_BITS = 53
_PER_NUMBER_BYTE, _MAX_PER_NUMBER_BYTE = 30, 140
_EXPONENT = re.compile(rb"\de")

_Vector = list[int]
"""The work at a value, at its members, at their members, and so on."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The most that parts of an instance can cost: a value, 16 characters of its texts and keys, a hundredth of a number."""

    schema: Mapping[str, Json]
    per_value: int
    per_characters: int
    per_number: int
    _places: _Places = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", _Places(self.schema))

    @property
    def needs_measuring(self) -> bool:
        """Whether arguments of the allowed size can cost too much, so that each instance is measured first."""
        return self._bound(_MAX_VALUES, _MAX_CHARACTERS) > MAX_EFFORT

    def _bound(self, values: int, size: int, per_number_byte: int = _MAX_PER_NUMBER_BYTE) -> int:
        by_size = self.per_characters * size // QUICK_CHARACTERS + self.per_number * per_number_byte * size // 100
        return self.per_value * values + by_size

    def allows(self, instance: Json, limit: int = MAX_EFFORT) -> bool:
        """Whether checking the instance stays within the limit."""
        try:
            text = orjson.dumps(instance)
        except TypeError:  # not JSON, or very deep; the engine refuses it or the look at its values tells
            return self._work(instance, limit) <= limit
        if self._bound(len(text) // 2 + 1, len(text)) <= limit:
            return True
        # Each value but the first of its container comes after a comma. Those inside texts only raise the bound.
        values = 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
        large_numbers = self.per_number and _EXPONENT.search(text)
        bound = self._bound(values, len(text), _MAX_PER_NUMBER_BYTE if large_numbers else _PER_NUMBER_BYTE)
        return bound <= limit or self._work(instance, limit) <= limit

    def _work(self, instance: Json, limit: int) -> int:
        """The work by the values themselves and what applies to each; more than `limit` as soon as it is."""
        places = self._places
        per_look = _PER_LOOK + self.per_value
        work = per_look
        todo: list[tuple[_Place, Json]] = [(places.root, instance)]
        while todo and work <= limit:
            place, value = todo.pop()
            kind = type(value)
            if kind is not dict and kind is not list:
                value = _json_value(value)
                if not isinstance(value, (dict, list)):
                    work += place.bare_work([value])
                    continue
            work += _PER_CONTAINER + per_look * len(value)
            if work > limit:
                break
            for below, items in place.by_name(value) if type(value) is dict else place.by_index(value):
                todo += [(below, item) for item in items if type(item) not in BARE_TYPES and item]
                if below.weighs and (bare := [item for item in items if type(item) in BARE_TYPES]):
                    for start in range(0, len(bare), _CHUNK):
                        work += below.bare_work(bare[start : start + _CHUNK])
                        if work > limit:
                            return work
            work += places.new_work
            places.new_work = 0
        return work


class _Places:
    """The kinds of places in an instance, each found when first met. `new_work` is what finding took since it was last reset."""

    __slots__ = ("_known", "_refs", "new_work", "root")

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self._refs = LocalRefs(schema)
        self._known: dict[frozenset[int], _Place] = {}
        self.new_work = 0
        self.root = self.of([schema])

    def of(self, schemas: list[Json]) -> _Place:
        key = frozenset(map(id, schemas))
        place = self._known.get(key)
        if place is None:
            parts = in_place(schemas, self._refs)
            self.new_work += _PER_SUBSCHEMA * (1 + len(parts))
            if len(self._known) >= _MAX_PLACES:
                self._known.clear()
            place = self._known[key] = _Place(parts, self)
        return place


class _Place:
    """A place in an instance: which patterns and divisors may apply there, and which subschemas below."""

    __slots__ = (
        "_for_keys", "_key_work", "_members", "_names", "_parts", "_places", "_prefix", "_text_work", "for_texts", "per_number",
        "weighs",
    )  # fmt: skip

    def __init__(self, parts: list[Mapping[str, Json]], places: _Places) -> None:
        self._parts = parts
        self._places = places
        self._for_keys = [one for part in parts for one in _keys(part)]
        self._text_work: dict[int, int] = {}
        self._key_work: dict[int, int] = {}
        self._names = frozenset(name for part in parts for name in part.get("properties", ()))
        self._prefix = max((len(_listed(part.get("prefixItems"))) for part in parts), default=0)
        self._members: dict[str | int | None, _Place] = {}
        self.for_texts = [one for part in parts for one in _texts(part)]
        self.per_number = sum(map(_work_per_number, parts))
        self.weighs = bool(self.for_texts or self.per_number)
        """Whether texts or numbers take more work here than other values."""

    def bare_work(self, values: Sequence[Json]) -> int:
        """The work of patterns and divisors with those of the values that are texts and numbers."""
        work = 0
        known, per_number = self._text_work, self.per_number
        for value in values:
            kind = type(value)
            if kind is str:
                if self.for_texts:
                    length = len(value)
                    work += known[length] if length in known else _pattern_work(self.for_texts, length, known)
            elif per_number and (kind is int or kind is float):
                small = -_SMALL_INTEGER < value < _SMALL_INTEGER and kind is int
                work += per_number * (_SMALL_WEIGHT if small else _number_weight(value)) // 100
        return work

    def by_index(self, value: Sequence[Json]) -> list[tuple[_Place, Sequence[Json]]]:
        """The places of the items of a list, with the items of each."""
        prefix = self._prefix
        found: list[tuple[_Place, Sequence[Json]]] = []
        if prefix:
            found += [(self._member(index, index), [item]) for index, item in enumerate(value[:prefix])]
        if value[prefix:]:
            below = self._members[prefix] if prefix in self._members else self._member(prefix, prefix)
            found.append((below, value[prefix:] if prefix else value))
        return found

    def by_name(self, value: Mapping[str, Json]) -> list[tuple[_Place, Sequence[Json]]]:
        """The places of the members of an object, with the members of each."""
        if self._for_keys:
            # Other keys than texts are no JSON, and the engine says so. That patterns are matched with names is new work.
            for length in map(len, [name for name in value if type(name) is str]):
                self._places.new_work += 2 * _PER_LOOK + _pattern_work(self._for_keys, length, self._key_work)
        members, names = self._members, self._names
        found: list[tuple[_Place, Sequence[Json]]] = []
        others: Sequence[Json] = list(value.values())
        if names:
            found = [
                (members[name] if name in members else self._member(name, name), [value[name]])
                for name in value
                if name in names
            ]
            others = [item for name, item in value.items() if name not in names]
        # Names that the schema does not have are all alike.
        if others:
            found.append((members[None] if None in members else self._member("", None), others))
        return found

    def _member(self, token: str | int, key: str | int | None) -> _Place:
        place = self._members.get(key)
        if place is None:
            below = [one for part in self._parts for one in descend(part, token)]
            place = self._members[key] = self._places.of(below)
        return place


def _pattern_work(patterns: list[str], length: int, known: dict[int, int]) -> int:
    work = known.get(length)
    if work is None:
        if len(known) >= _MAX_PLACES:
            known.clear()
        work = known[length] = sum(pattern_work(pattern, length) for pattern in patterns)
    return work


def _json_value(value: Json) -> Json:
    """A value of a type of its own as one of the types of JSON; None for what is none of them."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else None


def _number_weight(value: int | float) -> int:
    """How costly a number is to divide, in units, for an ordinary divisor."""
    if isinstance(value, int):
        return max(_SMALL_WEIGHT, 20 + 9 * value.bit_length() // 2)
    bits = max(0, frexp(value)[1])
    return 60 + (2 * bits if bits <= _EXACT_BITS else 2 * _EXACT_BITS + 7 * (bits - _EXACT_BITS) // 10)


def number_work(divisor: int | float, value: int | float) -> int:
    """The work of dividing one number."""
    return _work_per_number({"multipleOf": divisor}) * _number_weight(value) // 100


def _texts(schema: Mapping[str, Json]) -> list[str]:
    return [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []


def _keys(schema: Mapping[str, Json]) -> list[str]:
    names = schema.get("propertyNames")
    by_pattern = schema.get("patternProperties")
    return [*(by_pattern if isinstance(by_pattern, dict) else ()), *(_texts(names) if isinstance(names, dict) else ())]


def effort_of(schema: Mapping[str, Json]) -> Effort:
    """The estimate for a schema whose subschemas are within the limits of `subschemas.walk`."""
    graph = _Graph(schema)
    heaviest = graph.heaviest
    return Effort(schema, heaviest(_work_here), heaviest(_work_per_characters, 0), heaviest(_work_per_number, 0))


def check_effort(schema: Mapping[str, Json]) -> None:
    """`SchemaError` if a single value can cost too much."""
    patterns = [pattern for _, part in walk(schema) if isinstance(part, dict) for pattern in patterns_of(part)]
    if sum(map(pattern_size, patterns)) > MAX_PATTERN_SIZE:
        raise SchemaError(
            f"The schema's patterns together have more than {MAX_PATTERN_SIZE:,} states; use smaller repetition counts."
        )
    graph = _Graph(schema)
    if (
        graph.heaviest(lambda part: sum(pattern_work(pattern, SHORT_TEXT) for pattern in patterns_of(part)), 0)
        > MAX_EFFORT
    ):
        raise SchemaError(
            f"Matching a text of {SHORT_TEXT} characters with the schema's patterns can take too long, because their "
            "repetitions overlap; use smaller repetition counts, or a separator between the repeated parts."
        )
    if graph.heaviest(_work_here) > MAX_PER_VALUE:
        raise SchemaError(
            f"The schema's references and alternatives multiply to more than {MAX_PER_VALUE:,} checks of a single value; "
            "refer to each definition from fewer places, or make the alternatives fewer."
        )


class _Graph:
    """The subschemas that can apply to an instance, each once, those that others lead to first."""

    __slots__ = ("_below", "_order", "_recursive", "_root")

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._below: dict[int, tuple[list[Json], list[Json], list[Json], list[Json], list[Json]]] = {}
        self._order: list[Mapping[str, Json]] = []
        self._recursive: dict[int, None] = {}
        refs = LocalRefs(root)
        open_now: set[int] = set()
        trail: list[tuple[Mapping[str, Json], Iterator[Json]]] = []

        def enter(schema: Mapping[str, Json]) -> None:
            parts = _parts(schema, refs)
            self._below[id(schema)] = parts
            open_now.add(id(schema))
            trail.append((schema, iter([one for part in parts for one in part])))

        enter(root)
        while trail:
            schema, steps = trail[-1]
            for step in steps:
                if not isinstance(step, dict):
                    continue
                if id(step) in open_now:
                    self._recursive[id(step)] = None
                elif id(step) not in self._below:
                    enter(step)
                    break
            else:
                trail.pop()
                open_now.discard(id(schema))
                self._order.append(schema)

    def heaviest(self, own: Callable[[Mapping[str, Json]], int], remembered: int = 1) -> int:
        """The most work that one value can cost, by what each subschema costs by itself, and a remembered verdict."""
        known: dict[int, _Vector] = {}

        def total(schemas: list[Json]) -> _Vector:
            # One that is not known yet leads back to itself; the engine checks it once per value, which is added below.
            return _added([known.get(id(one), [remembered]) for one in schemas if isinstance(one, dict)])

        def dearest(schemas: list[Json]) -> _Vector:
            return _largest([known.get(id(one), [remembered]) for one in schemas if isinstance(one, dict)])

        for schema in self._order:
            in_place, named, any_name, at_index, any_item = self._below[id(schema)]
            here = total(in_place)
            if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
                here = [2 * weight for weight in here]  # they are looked at again for what they have covered
            members = _added([dearest(named), total(any_name)])
            items = _added([dearest(at_index), total(any_item)])
            below = [0, *_largest([members, items])]
            known[id(schema)] = _added([[own(schema)], here, below])[:_LEVELS]
        peaks = [max(known[target]) for target in {id(self._root): None, **self._recursive}]
        return sum(peaks)


def _parts(
    schema: Mapping[str, Json], refs: LocalRefs
) -> tuple[list[Json], list[Json], list[Json], list[Json], list[Json]]:
    """Subschemas for the value itself, for one named member each, for any member, for one item each, and for any item."""
    in_place: list[Json] = []
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(ref := schema.get(keyword), str):
            in_place.append(refs.target({"$ref": ref}))
    for keyword in ("allOf", "anyOf", "oneOf"):
        in_place.extend(_listed(schema.get(keyword)))
    in_place.extend(schema[keyword] for keyword in ("not", "if", "then", "else") if keyword in schema)
    for keyword in ("dependentSchemas", "dependencies"):
        in_place.extend(_mapped(schema.get(keyword)))
    named = _mapped(schema.get("properties"))
    any_name = _mapped(schema.get("patternProperties"))
    others = ("additionalProperties", "unevaluatedProperties", "propertyNames")
    any_name.extend(schema[keyword] for keyword in others if keyword in schema)
    any_item = [schema[keyword] for keyword in ("items", "contains", "unevaluatedItems") if keyword in schema]
    return in_place, named, any_name, _listed(schema.get("prefixItems")), any_item


def _listed(value: Json) -> list[Json]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _mapped(value: Json) -> list[Json]:
    return list(value.values()) if isinstance(value, dict) else []


def _added(vectors: list[_Vector]) -> _Vector:
    longest = max(map(len, vectors), default=0)
    return [sum(vector[i] for vector in vectors if i < len(vector)) for i in range(longest)]


def _largest(vectors: list[_Vector]) -> _Vector:
    longest = max(map(len, vectors), default=0)
    return [max(vector[i] for vector in vectors if i < len(vector)) for i in range(longest)]


def _work_here(schema: Mapping[str, Json]) -> int:
    work = 1 + len(schema) // 4
    work += (len(_listed(schema.get("anyOf"))) + len(_listed(schema.get("oneOf")))) // 4
    work += len(_mapped(schema.get("patternProperties")))
    if "const" in schema:
        wanted = schema["const"]
        work += (
            1 if wanted is None or isinstance(wanted, (str, bool)) else 6 if isinstance(wanted, (int, float)) else 10
        )
    if "enum" in schema:
        # Plain options are looked up; objects and lists are compared one by one.
        work += 1 + 8 * sum(isinstance(option, (dict, list, tuple)) for option in schema["enum"])
    return work


def _work_per_characters(schema: Mapping[str, Json]) -> int:
    """By sixteen characters."""
    return sum(1 + QUICK_CHARACTERS * pattern_cost(pattern).active for pattern in patterns_of(schema))


def _work_per_number(schema: Mapping[str, Json]) -> int:
    """By a hundredth of a number's weight."""
    divisor = schema.get("multipleOf")
    if not isinstance(divisor, (int, float)) or divisor <= 0:
        return 0
    if isinstance(divisor, int) or divisor.is_integer():
        return 12  # integers are divided by integers at once
    return 100 + int(3 * abs(log10(divisor)))


def patterns_of(schema: Mapping[str, Json]) -> list[str]:
    """The patterns that a schema itself matches texts and keys with."""
    by_pattern = schema.get("patternProperties")
    return [*_texts(schema), *(by_pattern if isinstance(by_pattern, dict) else ())]
