"""How much work it is to check one instance against a schema, estimated without doing it.

The engine remembers verdicts only where a schema refers back to itself. Elsewhere references that multiply, long lists of
alternatives and large patterns can make one small instance cost seconds. The estimate is an upper bound, in units of about
20 ns; a schema beyond `MAX_PER_VALUE` is refused, and a large instance of a costly schema is refused unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import orjson

from handrail.contract.errors import SchemaError
from handrail.schema.subschemas import Json, LocalRefs, descend, in_place, walk

MAX_PER_VALUE = 100_000
MAX_EFFORT = 1_000_000
MAX_PATTERN_SIZE = 100_000
# What 64 KiB of arguments can hold: a value takes two bytes at least, with its comma.
_MOST_VALUES, _MOST_CHARACTERS = 32 * 1024, 64 * 1024
_LEVELS = 64
_MOST_REPEATS = 1_000_000

_Vector = list[int]
"""The work at a value, at its members, at their members, and so on."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The most that one value of an instance, and one character of its texts and keys, can cost."""

    schema: Mapping[str, Json]
    per_value: int
    per_character: int

    @property
    def needs_measuring(self) -> bool:
        """Whether arguments of the allowed size can cost too much, so that each instance is measured first."""
        return self.per_value * _MOST_VALUES + self.per_character * _MOST_CHARACTERS > MAX_EFFORT

    def allows(self, instance: Json) -> bool:
        """Whether checking the instance stays within the limit."""
        try:
            size = len(orjson.dumps(instance))
        except TypeError:  # not JSON, or very deep; the engine refuses it or the count below tells
            size = MAX_EFFORT
        if (self.per_value // 2 + self.per_character + 1) * size <= MAX_EFFORT:
            return True
        values, characters = measured(instance)
        left = MAX_EFFORT - self.per_value * values
        # Few texts are matched by the schema's most costly patterns; which ones is looked at only where it matters.
        return left >= 0 and (self.per_character * characters <= left or _matching(self.schema, instance, left) <= left)


def _matching(schema: Mapping[str, Json], instance: Json, limit: int) -> int:
    """The work of matching patterns, by the texts and keys that they may apply to; more than `limit` as soon as it is."""
    refs = LocalRefs(schema)
    known: dict[frozenset[int], tuple[list[Mapping[str, Json]], list[str], list[str]]] = {}
    work = 0
    todo: list[tuple[list[Json], Json]] = [([schema], instance)]
    while todo and work <= limit:
        schemas, value = todo.pop()
        key = frozenset(map(id, schemas))
        if key not in known:
            parts = in_place(schemas, refs)
            known[key] = (
                parts,
                [one for part in parts for one in _texts(part)],
                [one for part in parts for one in _keys(part)],
            )
            work += len(parts)
        parts, for_texts, for_keys = known[key]
        work += len(parts)
        if isinstance(value, str):
            work += sum(pattern_work(pattern, len(value)) for pattern in for_texts)
        elif isinstance(value, dict):
            for name, item in value.items():
                work += sum(pattern_work(pattern, len(name)) for pattern in for_keys)
                todo.append(([below for part in parts for below in descend(part, name)], item))
        elif isinstance(value, (list, tuple)):
            todo.extend(([below for part in parts for below in descend(part, i)], item) for i, item in enumerate(value))
    return work


def _texts(schema: Mapping[str, Json]) -> list[str]:
    return [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []


def _keys(schema: Mapping[str, Json]) -> list[str]:
    names = schema.get("propertyNames")
    by_pattern = schema.get("patternProperties")
    return [*(by_pattern if isinstance(by_pattern, dict) else ()), *(_texts(names) if isinstance(names, dict) else ())]


def measured(instance: Json) -> tuple[int, int]:
    """How many values an instance holds, itself included, and how many characters its texts and keys have."""
    values = characters = 0
    level: list[Json] = [instance]
    while level and values <= MAX_EFFORT:
        below: list[Json] = []
        for value in level:
            values += 1
            if isinstance(value, str):
                characters += len(value)
            elif isinstance(value, dict):
                characters += sum(len(key) for key in value if isinstance(key, str))
                below.extend(value.values())
            elif isinstance(value, (list, tuple)):
                below.extend(value)
        level = below
    return values, characters


def effort_of(schema: Mapping[str, Json]) -> Effort:
    """The estimate for a schema whose subschemas are within the limits of `subschemas.walk`."""
    graph = _Graph(schema)
    return Effort(schema, graph.heaviest(_work_here), graph.heaviest(_work_per_character))


def widest_place(schema: Mapping[str, Json]) -> int:
    """How many subschemas one value of an instance can meet, at the place where they are most."""
    return _Graph(schema).heaviest(lambda part: 1)


def check_effort(schema: Mapping[str, Json]) -> None:
    """`SchemaError` if a single value can cost too much."""
    patterns = [pattern for _, part in walk(schema) if isinstance(part, dict) for pattern in patterns_of(part)]
    if sum(map(pattern_size, patterns)) > MAX_PATTERN_SIZE:
        raise SchemaError(
            f"The schema's patterns together have more than {MAX_PATTERN_SIZE:,} states; use smaller repetition counts."
        )
    if effort_of(schema).per_value > MAX_PER_VALUE:
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

    def heaviest(self, own: Callable[[Mapping[str, Json]], int]) -> int:
        """The most work that one value can cost, by what each subschema costs by itself."""
        known: dict[int, _Vector] = {}

        def total(schemas: list[Json]) -> _Vector:
            # One that is not known yet leads back to itself; the engine checks it once per value, which is added below.
            return _added([known.get(id(one), [1]) for one in schemas if isinstance(one, dict)])

        def most(schemas: list[Json]) -> _Vector:
            return _largest([known.get(id(one), [1]) for one in schemas if isinstance(one, dict)])

        for schema in self._order:
            in_place, named, any_name, at_index, any_item = self._below[id(schema)]
            here = total(in_place)
            if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
                here = [2 * weight for weight in here]  # they are looked at again for what they have covered
            members = _added([most(named), total(any_name)])
            items = _added([most(at_index), total(any_item)])
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
    for keyword in ("anyOf", "oneOf"):
        work += 5 * len(_listed(schema.get(keyword)))
    work += len(_mapped(schema.get("patternProperties")))
    if "const" in schema:
        work += 10
    if "enum" in schema:
        # Plain options are looked up; objects and lists are compared one by one.
        work += 10 + 20 * sum(isinstance(option, (dict, list, tuple)) for option in schema["enum"])
    return work


def _work_per_character(schema: Mapping[str, Json]) -> int:
    return sum(pattern_work(pattern, 1) for pattern in patterns_of(schema))


def patterns_of(schema: Mapping[str, Json]) -> list[str]:
    """The patterns that a schema itself matches texts and keys with."""
    by_pattern = schema.get("patternProperties")
    return [*_texts(schema), *(by_pattern if isinstance(by_pattern, dict) else ())]


_WIDE = (r"\w", r"\W", r"\D", r"\S", ".")
_PATTERN_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d+)(,(\d*))?\}|[()|*+?]|.", re.DOTALL)
_SIMPLE = 300
_PER_STATE = 5


class _Pattern(NamedTuple):
    """About how many states a pattern has when its repetitions are written out, and how many of them a text can reach at
    once; whether it can match at the beginning alone, and no more characters than it has states."""

    size: int
    active: int
    is_bounded: bool


def pattern_size(pattern: str) -> int:
    """About how many states a pattern has when its repetitions are written out."""
    return _read_pattern(pattern).size


def pattern_work(pattern: str, characters: int) -> int:
    """The most that matching so many characters can cost.

    The engine is quick as long as it meets the same sets of states again; counted repetitions can make every set a new one.
    """
    size, active, is_bounded = _read_pattern(pattern)
    return _PER_STATE * active * (min(characters, size) if is_bounded else characters)


@lru_cache(maxsize=1_000)
def _read_pattern(pattern: str) -> _Pattern:
    sizes = [0]
    repeats = [False]  # whether each open group holds a repetition
    last, last_repeats = 0, False
    counted = endless = nested = alternatives = False
    variable = 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            sizes.append(0)
            repeats.append(False)
            continue
        if text == ")" and len(sizes) > 1:
            last, last_repeats = sizes.pop() + 1, repeats.pop()
            repeats[-1] = repeats[-1] or last_repeats
        elif text in ("*", "+", "?") or token[1] is not None:
            # An open repetition is written out as often as it must be matched, and once more.
            open_end = text in ("*", "+") or (token[2] is not None and not token[3])
            times = 1 if token[1] is None else int(token[3] or token[1]) + open_end
            counted = counted or token[1] is not None
            endless = endless or open_end
            nested = nested or last_repeats
            variable += open_end or text == "?" or (token[2] is not None and token[1] != token[3])
            more = max(last * (min(times, _MOST_REPEATS) - 1), 0)
            sizes[-1] += more
            last += more
            repeats[-1] = last_repeats = True
            continue
        else:
            alternatives = alternatives or (text == "|" and len(sizes) == 1)
            # A class of letters beyond ASCII is compiled to many byte ranges.
            wide = text in _WIDE or (text[:1] == "[" and (text[1:2] == "^" or not text.isascii()))
            last, last_repeats = (20 if wide else 1), False
        sizes[-1] += last
    size = min(sum(sizes), _MOST_REPEATS)
    is_bounded = pattern.startswith("^") and not endless and not alternatives
    if not counted and size <= _SIMPLE:
        return _Pattern(size, 0, is_bounded)
    return _Pattern(size, 2 if is_bounded and not nested and variable <= 1 else size, is_bounded)
