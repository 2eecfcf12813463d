"""Finds out what is wrong with an instance that the validator has refused, with a bounded number of steps.

The verdict is the engine's; this walk only explains it. The engine's own list of errors explores every alternative of every
alternative, which doubles with each level of a recursive schema. Here all that must hold is looked at breadth first,
verdicts on alternatives are remembered, and every visit to a subschema counts, with every keyword in it and all that a
keyword has to go through. A step is a microsecond, or about four calls of the interpreter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import orjson

from handrail.contract.errors import SchemaError
from handrail.schema.effort import number_work, patterns_of
from handrail.schema.jsonschema_engine import BUILD_ERRORS, Subvalidators, build
from handrail.schema.pattern_cost import pattern_size, pattern_work
from handrail.schema.subschemas import Json, LocalRefs, Path, walk

MAX_STEPS = 10_000
_MAX_NESTED = 150
_PER_STEP = 4
_PER_PROBLEM = 10
# A microsecond of the engine's, in the units of `effort`.
_WORK_PER_STEP = 50
# Building a check takes the engine some microseconds, and half of one for each state of a pattern.
_PER_CHECK = 5
_MAX_COMPILED = 64
_MAX_COMPILED_SIZE = 30_000
_PER_STATE = 5
"""What a state of a pattern takes to compile, in bytes of a schema without patterns."""
_MAX_CHECKED_SIZE = 256 * 1024
_CHUNK = 128

_PLAIN_TYPES = frozenset({str, int, float, type(None)})
"""Values of these types are equal in Python exactly where they are equal in JSON."""

Schema: TypeAlias = Mapping[str, Json]
Visit: TypeAlias = tuple[Json, Json, Path]
"""A subschema, the value that it applies to, and where that is in the instance."""


class Exhausted(Exception):
    """The allowed number of steps is used up."""


class Steps:
    """Counts the work of one explanation."""

    __slots__ = ("limit", "taken")

    def __init__(self, limit: int = MAX_STEPS) -> None:
        self.limit = limit
        self.taken = 0

    def take(self, number: int = 1) -> None:
        """Count steps before they are taken; `Exhausted` if fewer are left."""
        if self.taken + number > self.limit:
            self.taken = self.limit
            raise Exhausted
        self.taken += number

    def spare(self, number: int) -> bool:
        """Count steps if that many are left; whether they are."""
        if self.taken + number > self.limit:
            return False
        self.taken += number
        return True


class SchemaProblem(NamedTuple):
    """One keyword that a value does not satisfy."""

    keyword: str
    path: Path
    value: Json
    schema: Schema
    """The schema that the keyword stands in."""
    name: str | None = None
    """The property that is missing, unknown or ill-named, for problems that are about one."""
    cause: str | None = None
    """The property that makes the missing one required."""
    inner: SchemaProblem | None = None
    """What is wrong with the name itself, for an ill-named property."""
    fitting: int = 0
    """How many alternatives fit, for `oneOf`."""
    forms: tuple[tuple[SchemaProblem, ...], ...] | None = None
    """What is wrong by each alternative, where that is known already."""

    @property
    def wanted(self) -> Json:
        """The keyword's own value."""
        return self.schema.get(self.keyword)

    @property
    def place(self) -> tuple[str, ...]:
        """Where it is: the value, or the property that is missing or unknown. Made to be sorted by, and not to be shown."""
        # Texts as they are, and not joined: a long key that many paths share is neither copied nor compared again.
        return tuple(map(str, self.path if self.name is None else (*self.path, self.name)))


class Explainer:
    """The problems of one instance. `pending` is what was not looked at when the steps were used up."""

    __slots__ = (
        "_checkers",
        "_fits",
        "_forms",
        "_judging",
        "_matchers",
        "_nested",
        "_options",
        "pending",
        "refs",
        "steps",
    )

    def __init__(self, refs: LocalRefs, steps: Steps) -> None:
        self.refs = refs
        self.steps = steps
        self.pending: list[Visit] = []
        self._fits: dict[tuple[int, Path], bool] = {}
        self._forms: dict[tuple[int, Path, str], tuple[tuple[SchemaProblem, ...], ...]] = {}
        self._options: dict[int, frozenset[Json]] = {}
        self._matchers: dict[str, Callable[[str], bool]] = {}
        self._checkers: dict[tuple[str, Json], Callable[[Json], bool]] = {}
        self._judging = False
        self._nested = 0

    def explain(self, schema: Json, value: Json, path: Path = ()) -> list[SchemaProblem]:
        """Everything that is wrong, what is nearest to the root first; without what is left `pending`."""
        found: list[SchemaProblem] = []
        work: deque[Visit] = deque([(schema, value, path)])
        try:
            self._look(work, found, False)
        except (Exhausted, RecursionError):
            self.pending = list(work)
        return found

    def forms(self, problem: SchemaProblem) -> tuple[tuple[SchemaProblem, ...], ...]:
        """What is wrong by each alternative of an `anyOf` or `oneOf`; `Exhausted` if that would take too long."""
        if problem.forms is not None:
            return problem.forms
        key = (id(problem.schema), problem.path, problem.keyword)
        if key not in self._forms:
            self._forms[key] = tuple(self.problems(form, problem.value, problem.path) for form in problem.wanted)
        return self._forms[key]

    def problems(self, schema: Json, value: Json, path: Path) -> tuple[SchemaProblem, ...]:
        """Everything that is wrong with the value at `path` by a subschema."""
        found: list[SchemaProblem] = []
        self._look(deque([(schema, value, path)]), found, False)
        return tuple(found)

    def fits(self, schema: Json, value: Json, path: Path) -> bool:
        """Whether the value at `path` satisfies a subschema."""
        self.steps.take()
        if schema is True:
            return True
        key = (id(schema), path)
        known = self._fits.get(key)
        if known is None:
            self.steps.take()
            if self._nested >= _MAX_NESTED:
                raise Exhausted
            outer, self._judging, self._nested = self._judging, True, self._nested + 1
            found: list[SchemaProblem] = []
            try:
                self._look(deque([(schema, value, path)]), found, True)
            finally:
                self._judging, self._nested = outer, self._nested - 1
            known = self._fits[key] = not found
        return known

    def follow(self, ref: str, value: Json, path: Path, work: deque[Visit]) -> bool:
        """Look at what a reference points to: later, or at once where a verdict is enough, because that is remembered."""
        self.steps.take()
        target = self.refs.target({"$ref": ref})
        if self._judging and isinstance(target, dict):
            return self.fits(target, value, path)
        work.append((target, value, path))
        return True

    def _look(self, work: deque[Visit], found: list[SchemaProblem], first: bool) -> None:
        """Work through the visits. With `first`, one problem is enough. A visit stays in `work` until it is done with."""
        check_of = KEYWORD_CHECKS.get
        while work:
            schema, value, path = work[0]
            if isinstance(schema, dict):
                self.steps.take(1 + len(schema))
                for keyword in schema:
                    check = check_of(keyword)
                    if check is None:
                        continue
                    for problem in check(self, schema, value, path, work):
                        found.append(problem)
                        if first:
                            return
                        self.steps.take(_PER_PROBLEM)
            else:
                self.steps.take()
                if schema is False:
                    found.append(SchemaProblem("falseSchema", path, value, {}))
                    if first:
                        return
                    self.steps.take(_PER_PROBLEM)
            work.popleft()

    def equal_to_one(self, schema: Schema, options: Sequence[Json], value: Json) -> bool:
        """Whether the value is one of the options of `schema`."""
        known = self._options.get(id(schema))
        if known is None:
            self.steps.take(1 + len(options) // _PER_STEP)
            if _PLAIN_TYPES.issuperset(map(type, options)):
                known = frozenset(options)
            else:
                self.steps.take(len(options) // _PER_STEP)
                known = frozenset(self.token(option) for option in options)
            self._options[id(schema)] = known
        return self.token(value) in known

    def token(self, value: Json) -> Json:
        """Something hashable that is equal for equal JSON: 1 is 1.0, and neither is true."""
        kind = type(value)
        if kind in _PLAIN_TYPES:
            return value
        if kind is bool:
            return (bool, value)
        if isinstance(value, dict):
            self.steps.take(1 + len(value) // 2)
            return (dict, frozenset((key, self.token(item)) for key, item in value.items()))
        if isinstance(value, (list, tuple)):
            self.steps.take(1 + len(value) // 2)
            return (list, tuple(self.token(item) for item in value))
        return value

    def matches(self, pattern: str, text: str) -> bool:
        """Whether the text has a match."""
        matcher = self._matchers.get(pattern)
        if matcher is None:
            self.steps.take(_PER_CHECK + pattern_size(pattern) // 2)
            matcher = self._matchers[pattern] = _matcher(pattern)
        self.steps.take(2 + len(text) // 1_000 + pattern_work(pattern, len(text)) // _WORK_PER_STEP)
        return matcher(text)

    def passes(self, keyword: str, wanted: Json, value: Json) -> bool:
        """Whether the engine takes the value by one keyword; the work is for the caller to count."""
        checker = self._checkers.get((keyword, wanted))
        if checker is None:
            self.steps.take(_PER_CHECK)
            checker = self._checkers[keyword, wanted] = _checker(keyword, wanted)
        return checker(value)

    def covered_names(self, schema: Json, value: Json, path: Path) -> set[str]:
        """The properties that keywords beside `unevaluatedProperties` look at."""
        self.steps.take(3 + len(value) // _PER_STEP)
        if not isinstance(schema, dict):
            return set()
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            return set(value)
        properties = schema.get("properties", {})
        names: set[str] = {name for name in value if name in properties}
        for pattern in schema.get("patternProperties", ()):
            names.update(name for name in value if name not in names and self.matches(pattern, name))
        for part in self._holding(schema, value, path):
            names |= self.covered_names(part, value, path)
        return names

    def covered_items(self, schema: Json, value: Json, path: Path) -> set[int]:
        """The items that keywords beside `unevaluatedItems` look at."""
        self.steps.take(3 + len(value) // _PER_STEP)
        if not isinstance(schema, dict):
            return set()
        if "items" in schema or "unevaluatedItems" in schema:
            return set(range(len(value)))
        items = set(range(min(len(schema.get("prefixItems", ())), len(value))))
        if "contains" in schema:
            items.update(i for i, item in enumerate(value) if self.fits(schema["contains"], item, (*path, i)))
        for part in self._holding(schema, value, path):
            items |= self.covered_items(part, value, path)
        return items

    def _holding(self, schema: Schema, value: Json, path: Path) -> Iterator[Json]:
        """The subschemas for the same value that hold for it."""
        parts = [*self.targets(schema), *schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
        self.steps.take(2 + len(parts) // _PER_STEP)
        for keyword in ("dependentSchemas", "dependencies"):
            rules = schema.get(keyword, {})
            self.steps.take(len(rules) // _PER_STEP)
            parts.extend(part for name, part in rules.items() if name in value)
        if "if" in schema:
            chosen = "then" if self.fits(schema["if"], value, path) else "else"
            parts.extend([schema["if"]] if chosen == "then" else [])
            parts.extend([schema[chosen]] if chosen in schema else [])
        for part in parts:
            if isinstance(part, dict) and self.fits(part, value, path):
                yield part

    def targets(self, schema: Schema) -> Iterator[Json]:
        """What the references of a schema point to."""
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(ref := schema.get(keyword), str):
                yield self.refs.target({"$ref": ref})


def first_refused(root: Schema, visits: list[Visit]) -> Visit | None:
    """The first of the visits at which the engine refuses the value; None if there is none, or it takes long to find out."""
    room = _MAX_CHECKED_SIZE
    try:
        paths = _compiled_quickly(root, _ids(visits))
        engine = Subvalidators(root, paths.values())
        for start in range(0, len(visits), _CHUNK):
            chunk = visits[start : start + _CHUNK]
            room -= sum(map(len, map(orjson.dumps, [visit[1] for visit in chunk])))
            if room < 0:
                return None
            known = [visit for one, visit in zip(_ids(chunk), chunk, strict=True) if one in paths]
            index = engine.first_refused([paths[one] for one in _ids(known)], [visit[1] for visit in known])
            if index is not None:
                return known[index]
    except (*BUILD_ERRORS, SchemaError, TypeError):  # no JSON, or too deep to be written
        pass
    return None


def _ids(visits: list[Visit]) -> list[int]:
    """The ids of the schemas."""
    return list(map(id, [visit[0] for visit in visits]))


def _compiled_quickly(root: Schema, wanted: list[int]) -> dict[int, Path]:
    """Id → path of the wanted subschemas, as far as they are together not too much to be compiled again."""
    sizes: dict[Path, int] = {}
    patterns: list[tuple[Path, int]] = []
    paths: dict[int, Path] = {}
    distinct = dict.fromkeys(wanted)
    for path, schema in walk(root):
        if id(schema) in distinct:
            paths[id(schema)] = path
            sizes[path] = len(orjson.dumps(schema))
        if isinstance(schema, dict) and ("pattern" in schema or "patternProperties" in schema):
            patterns.append((path, _PER_STATE * sum(map(pattern_size, patterns_of(schema)))))
    # What references lead to is compiled as well, once.
    room = 2 * _MAX_COMPILED_SIZE - len(orjson.dumps(root)) - sum(size for _, size in patterns)
    found: dict[int, Path] = {}
    for one in distinct:
        if one in paths and len(found) < _MAX_COMPILED:
            path = paths[one]
            room -= sizes[path] + sum(size for place, size in patterns if place[: len(path)] == path)
            if room < 0:
                break
            found[one] = path
    return found


def compile_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match, by the engine's own idea of a pattern and in linear time; True for one it does not take."""
    try:
        return build({"pattern": pattern}).is_valid
    except BUILD_ERRORS:
        return lambda text: True


_matcher = lru_cache(maxsize=256)(compile_matcher)


@lru_cache(maxsize=256)
def _checker(keyword: str, wanted: Json) -> Callable[[Json], bool]:
    return build({keyword: wanted}).is_valid


Found: TypeAlias = Iterable[SchemaProblem]
Check: TypeAlias = "Callable[[Explainer, Schema, Json, Path, deque[Visit]], Found]"


def is_type(name: str, value: Json) -> bool:
    """Whether a value is of the JSON type; an integer may be written 1.0."""
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    return isinstance(value, _PYTHON_TYPES[name])


_PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "array": (list, tuple),
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "string": str,
}


def _type(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    wanted = schema["type"]
    if isinstance(wanted, str):
        fits = is_type(wanted, value)
    else:
        explainer.steps.take(len(wanted))
        fits = any(is_type(one, value) for one in wanted)
    return () if fits else (SchemaProblem("type", path, value, schema),)


def _enum(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    fits = explainer.equal_to_one(schema, schema["enum"], value)
    return () if fits else (SchemaProblem("enum", path, value, schema),)


def _const(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    fits = explainer.token(schema["const"]) == explainer.token(value)
    return () if fits else (SchemaProblem("const", path, value, schema),)


def _on_numbers(keyword: str, fits: Callable[[Json, Json], bool]) -> Check:
    def check(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
        applies = isinstance(value, (int, float)) and not isinstance(value, bool)
        return (SchemaProblem(keyword, path, value, schema),) if applies and not fits(value, schema[keyword]) else ()

    return check


def _multiple_of(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return ()
    divisor = schema["multipleOf"]
    explainer.steps.take(2 + number_work(divisor, value) // _WORK_PER_STEP)
    fits = explainer.passes("multipleOf", divisor, value)
    return () if fits else (SchemaProblem("multipleOf", path, value, schema),)


def _on_sizes(keyword: str, kind: type[Sized] | tuple[type[Sized], ...], fits: Callable[[Json, Json], bool]) -> Check:
    def check(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
        wrong = isinstance(value, kind) and not fits(len(value), schema[keyword])
        return (SchemaProblem(keyword, path, value, schema),) if wrong else ()

    return check


def _pattern(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    wrong = isinstance(value, str) and not explainer.matches(schema["pattern"], value)
    return (SchemaProblem("pattern", path, value, schema),) if wrong else ()


def _format(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if not isinstance(value, str):
        return ()
    explainer.steps.take(1 + len(value) // 100)
    fits = explainer.passes("format", schema["format"], value)
    return () if fits else (SchemaProblem("format", path, value, schema),)


def _unique_items(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if not isinstance(value, (list, tuple)) or schema["uniqueItems"] is not True:
        return ()
    explainer.steps.take(1 + len(value) // _PER_STEP)
    fits = explainer.passes("uniqueItems", True, value)
    return () if fits else (SchemaProblem("uniqueItems", path, value, schema),)


def _contains(
    explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]
) -> Iterator[SchemaProblem]:
    if not isinstance(value, (list, tuple)):
        return
    fitting = sum(explainer.fits(schema["contains"], item, (*path, i)) for i, item in enumerate(value))
    if fitting < schema.get("minContains", 1):
        yield SchemaProblem("minContains" if "minContains" in schema else "contains", path, value, schema)
    if fitting > schema.get("maxContains", fitting):
        yield SchemaProblem("maxContains", path, value, schema)


def _required(
    explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]
) -> Iterator[SchemaProblem]:
    if isinstance(value, dict):
        explainer.steps.take(len(schema["required"]) // 10)
        yield from (
            SchemaProblem("required", path, value, schema, name) for name in schema["required"] if name not in value
        )


def _dependent(keyword: str) -> Check:
    def check(
        explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]
    ) -> Iterator[SchemaProblem]:
        if not isinstance(value, dict):
            return
        for name, wanted in schema[keyword].items():
            explainer.steps.take()
            if name not in value:
                continue
            if isinstance(wanted, (dict, bool)):
                work.append((wanted, value, path))
                continue
            explainer.steps.take(len(wanted) // 10)
            for other in wanted:
                if other not in value:
                    yield SchemaProblem(keyword, path, value, schema, other, name)

    return check


def _property_names(
    explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]
) -> Iterator[SchemaProblem]:
    if not isinstance(value, dict):
        return
    if schema["propertyNames"] is False:
        if value:
            yield SchemaProblem("propertyNames", path, value, schema)
        return
    for name in value:
        if inner := explainer.problems(schema["propertyNames"], name, (*path, name)):
            yield SchemaProblem("propertyNames", path, value, schema, name, inner=inner[0])


def _members(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if isinstance(value, dict):
        known = schema["properties"]
        explainer.steps.take(min(len(value), len(known)) // _PER_STEP)
        for name in value if len(value) < len(known) else known:
            if name in value and name in known and known[name] is not True:
                work.append((known[name], value[name], (*path, name)))
    return ()


def _members_by_pattern(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if isinstance(value, dict):
        for pattern, subschema in schema["patternProperties"].items():
            for name, item in value.items():
                if explainer.matches(pattern, name):
                    work.append((subschema, item, (*path, name)))
    return ()


def _other_members(
    explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]
) -> Iterator[SchemaProblem]:
    if not isinstance(value, dict):
        return
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    rest = schema["additionalProperties"]
    for name, item in value.items():
        explainer.steps.take()
        if name in known or any(explainer.matches(pattern, name) for pattern in patterns):
            continue
        if rest is not False:
            work.append((rest, item, (*path, name)))
        elif known or patterns:
            yield SchemaProblem("additionalProperties", path, value, schema, name)
        else:
            yield SchemaProblem("additionalProperties", path, value, schema)
            return


def _left_over_members(
    explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]
) -> Iterator[SchemaProblem]:
    if not isinstance(value, dict):
        return
    rest = schema["unevaluatedProperties"]
    own = {keyword: part for keyword, part in schema.items() if keyword != "unevaluatedProperties"}
    covered = explainer.covered_names(own, value, path)
    for name, item in value.items():
        if name not in covered and not explainer.fits(rest, item, (*path, name)):
            yield SchemaProblem("unevaluatedProperties", path, value, schema, name)


def _items(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if isinstance(value, (list, tuple)) and schema["items"] is not True:
        start = len(schema.get("prefixItems", ()))
        explainer.steps.take(len(value) // _PER_STEP)
        work.extend((schema["items"], value[i], (*path, i)) for i in range(start, len(value)))
    return ()


def _first_items(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if isinstance(value, (list, tuple)):
        explainer.steps.take(min(len(schema["prefixItems"]), len(value)) // _PER_STEP)
        pairs = enumerate(zip(schema["prefixItems"], value, strict=False))
        work.extend((subschema, item, (*path, i)) for i, (subschema, item) in pairs)
    return ()


def _left_over_items(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if not isinstance(value, (list, tuple)):
        return ()
    rest = schema["unevaluatedItems"]
    own = {keyword: part for keyword, part in schema.items() if keyword != "unevaluatedItems"}
    covered = explainer.covered_items(own, value, path)
    wrong = any(i not in covered and not explainer.fits(rest, item, (*path, i)) for i, item in enumerate(value))
    return (SchemaProblem("unevaluatedItems", path, value, schema),) if wrong else ()


def _same_value(keyword: str) -> Check:
    def check(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
        fits = explainer.follow(schema[keyword], value, path, work)
        return () if fits else (SchemaProblem(keyword, path, value, schema),)

    return check


def _all_of(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    explainer.steps.take(len(schema["allOf"]) // _PER_STEP)
    work.extend((part, value, path) for part in schema["allOf"])
    return ()


def _any_of(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    fits = any(explainer.fits(form, value, path) for form in schema["anyOf"])
    return () if fits else (SchemaProblem("anyOf", path, value, schema),)


def _one_of(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    fitting = sum(explainer.fits(form, value, path) for form in schema["oneOf"])
    return () if fitting == 1 else (SchemaProblem("oneOf", path, value, schema, fitting=fitting),)


def _not(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    return (SchemaProblem("not", path, value, schema),) if explainer.fits(schema["not"], value, path) else ()


def _if(explainer: Explainer, schema: Schema, value: Json, path: Path, work: deque[Visit]) -> Found:
    if "then" in schema or "else" in schema:
        chosen = "then" if explainer.fits(schema["if"], value, path) else "else"
        if chosen in schema:
            work.append((schema[chosen], value, path))
    return ()


KEYWORD_CHECKS: Mapping[str, Check] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _on_numbers("minimum", lambda value, limit: value >= limit),
    "maximum": _on_numbers("maximum", lambda value, limit: value <= limit),
    "exclusiveMinimum": _on_numbers("exclusiveMinimum", lambda value, limit: value > limit),
    "exclusiveMaximum": _on_numbers("exclusiveMaximum", lambda value, limit: value < limit),
    "multipleOf": _multiple_of,
    "minLength": _on_sizes("minLength", str, lambda size, limit: size >= limit),
    "maxLength": _on_sizes("maxLength", str, lambda size, limit: size <= limit),
    "pattern": _pattern,
    "format": _format,
    "minItems": _on_sizes("minItems", (list, tuple), lambda size, limit: size >= limit),
    "maxItems": _on_sizes("maxItems", (list, tuple), lambda size, limit: size <= limit),
    "uniqueItems": _unique_items,
    "contains": _contains,
    "minProperties": _on_sizes("minProperties", dict, lambda size, limit: size >= limit),
    "maxProperties": _on_sizes("maxProperties", dict, lambda size, limit: size <= limit),
    "required": _required,
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "dependencies": _dependent("dependencies"),
    "propertyNames": _property_names,
    "properties": _members,
    "patternProperties": _members_by_pattern,
    "additionalProperties": _other_members,
    "unevaluatedProperties": _left_over_members,
    "items": _items,
    "prefixItems": _first_items,
    "unevaluatedItems": _left_over_items,
    "$ref": _same_value("$ref"),
    "$dynamicRef": _same_value("$dynamicRef"),
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
