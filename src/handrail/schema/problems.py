"""What an author learns about a schema that cannot be used: every problem at once, each with its place and what to do.

The build shows all of them; `compile_schema` raises the first. If nothing is found here, the schema compiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from jsonschema_rs import Draft202012Validator, ValidationError

from handrail.contract.errors import SchemaError
from handrail.contract.frozen import thaw
from handrail.schema.effort import check_effort
from handrail.schema.explain import SchemaProblem
from handrail.schema.fill_plan import build_plan
from handrail.schema.jsonschema_engine import BUILD_ERRORS, FORMATS, build, pattern_problem
from handrail.schema.phrases import listed, nearest, quoted
from handrail.schema.pointer import pointer
from handrail.schema.sentences import Wording
from handrail.schema.subschemas import MAX_DEPTH, Json, LocalRefs, Path, in_place_steps, walk

META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

_FORMAT = re.compile(rb'"format":"([^"]*)"')
_KNOWN_FORMATS = frozenset(name.encode() for name in FORMATS)
_COUNTED = re.compile(rb"[\])\w.]\{\d")
_PLAIN_SIZE = 10_000


def is_plain(text: bytes) -> bool:
    """Whether a schema, as compact JSON, can be seen at a glance to have no problem that the engine would not find.

    Most tools' schemas are so; the others are looked at properly.

    So few braces cannot nest too deeply, so few bytes cannot hold too many subschemas, and without `$ref`, `$defs` and
    their like the engine visits every subschema and compiles every pattern that can have an effect. Patterns with counted
    repetitions may be costly to match, which the engine does not say.
    """
    return (
        len(text) <= _PLAIN_SIZE
        and text.count(b"{") <= MAX_DEPTH
        and (b"$" not in text or b'"$' not in text)  # the first is much the faster to find out
        and b'"definitions"' not in text
        and (b'"pattern' not in text or _COUNTED.search(text) is None)
        and (b'"format":"' not in text or _KNOWN_FORMATS.issuperset(_FORMAT.findall(text)))
    )


def find_schema_problems(schema: Mapping[str, Json]) -> list[SchemaError]:
    """Every reason why the schema cannot be used, in the order of the document's places; empty if it can."""
    plain: Json = schema if isinstance(schema, dict) else thaw(schema)
    if not isinstance(plain, dict):
        return [SchemaError(f"A schema must be an object, but {quoted(plain)} was given.")]
    try:
        subschemas = list(walk(plain))
    except SchemaError as beyond_limits:
        return [beyond_limits]  # nothing that recurses may see this schema
    found: dict[tuple[str, str], SchemaError] = {}
    for finder in (_against_meta_schema, _in_references, _in_formats, _in_patterns):
        for path, message in finder(plain, subschemas):
            error = SchemaError(message, pointer=pointer(path))
            found.setdefault((error.pointer, message), error)
    return sorted(found.values(), key=lambda error: error.pointer) or _left_over(plain)


Found = Iterator[tuple[Path, str]]
Subschemas = list[tuple[Path, Json]]


def _against_meta_schema(root: Mapping[str, Json], subschemas: Subschemas) -> Found:
    try:
        errors = [] if _meta_validator().is_valid(root) else list(_meta_validator().iter_errors(root))
    except ValueError:
        return  # not JSON; building the schema says what the matter is
    if not errors:
        yield from _in_loops(root, subschemas)
    wording = Wording({}, secrets=False)
    for error in errors:
        path = tuple(error.instance_path)
        last = path[-1] if path else ""
        if error.kind.name == "type" and {"boolean", "object"} == set(getattr(error.kind, "types", ())):
            hint = "; a list of schemas, one per place, is called prefixItems" if last == "items" else ""
            yield path, f'"{last}" must be a schema (an object, true or false){hint}.'
        elif last == "type":
            wanted = error.instance if isinstance(error.instance, str) else ""
            near = nearest(wanted, TYPES)
            hint = f'; did you mean "{near}"?' if near else "."
            yield path, f'"type" must be one of {listed(TYPES)}, or a list of them without repetition{hint}'
        elif error.kind.name not in (
            "format",
            "propertyNames",
        ):  # those two are about patterns, which are looked at below
            yield path, wording.sentence(_problem_of(error))


def _problem_of(error: ValidationError) -> SchemaProblem:
    """An error of the engine as the sentences know it. The meta-schema has no keywords that are about names."""
    name, path, wanted = error.kind.name, tuple(error.instance_path), error.kind.value
    forms = None
    if name in ("anyOf", "oneOf"):
        forms = tuple(tuple(map(_problem_of, errors)) for errors in wanted)
    return SchemaProblem(name, path, error.instance, {name: wanted}, forms=forms)


@cache
def _meta_validator() -> Draft202012Validator:
    return build({"$ref": META_SCHEMA})


def _in_loops(root: Mapping[str, Json], subschemas: Subschemas) -> Found:
    """References that lead back to where they stand without going down into the value."""
    refs = LocalRefs(root)
    paths = {id(subschema): path for path, subschema in reversed(subschemas)}
    finished: set[int] = set()
    for _, start in subschemas:
        trail: list[tuple[Json, Iterator[Json]]] = [(start, in_place_steps(start, refs))]
        on_trail = {id(start)}
        while trail:
            schema, steps = trail[-1]
            step = next((one for one in steps if isinstance(one, dict) and id(one) not in finished), None)
            if step is None:
                finished.add(id(schema))
                on_trail.discard(id(schema))
                trail.pop()
            elif id(step) in on_trail:
                yield paths.get(id(schema), ()), "This leads back to itself without end; make it describe something."
            else:
                on_trail.add(id(step))
                trail.append((step, in_place_steps(step, refs)))


def _in_references(root: Mapping[str, Json], subschemas: Subschemas) -> Found:
    refs = LocalRefs(root)
    places = {path for path, _ in subschemas}
    anchors: set[str] = set()
    for path, schema in subschemas:
        if not isinstance(schema, dict):
            continue
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(ref := schema.get(keyword), str) and (trouble := _trouble_with(ref, refs, places)):
                yield (*path, keyword), trouble
        if path and "$id" in schema:
            yield (*path, "$id"), '"$id" inside a schema changes what "#" means there; remove it and refer by $defs.'
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := schema.get(keyword), str):
                if anchor in anchors:
                    yield (*path, keyword), f'The anchor "{anchor}" is declared twice; rename one.'
                anchors.add(anchor)


def _trouble_with(ref: str, refs: LocalRefs, places: set[Path]) -> str | None:
    if not ref.startswith("#"):
        return (
            f"The reference {quoted(ref)} leads out of the schema, and nothing is fetched; copy its target into $defs."
        )
    try:
        path = refs.path(ref)
    except (LookupError, SchemaError):
        known = ["#" + pointer(place) for place in places if place[:1] in (("$defs",), ("definitions",))]
        near = nearest(ref, known)
        return f"The reference {quoted(ref)} leads nowhere; " + (
            f'did you mean "{near}"?' if near else "declare it in $defs."
        )
    if path not in places:
        return (
            f"The reference {quoted(ref)} leads to a place where no schema is expected; move what is there into $defs."
        )
    return None


def _in_formats(root: Mapping[str, Json], subschemas: Subschemas) -> Found:
    for path, schema in subschemas:
        name = schema.get("format") if isinstance(schema, dict) else None
        if isinstance(name, str) and name not in FORMATS:
            near = nearest(name, FORMATS)
            hint = f'; did you mean "{near}"?' if near else ", or say in the description what is wanted."
            yield (*path, "format"), f"The format {quoted(name)} is not checked; use one of {listed(FORMATS)}{hint}"


def _in_patterns(root: Mapping[str, Json], subschemas: Subschemas) -> Found:
    for path, schema in subschemas:
        if not isinstance(schema, dict):
            continue
        if isinstance(pattern := schema.get("pattern"), str) and (trouble := pattern_problem(pattern)):
            yield (*path, "pattern"), f"The pattern {quoted(pattern)} {trouble}."
        if isinstance(by_pattern := schema.get("patternProperties"), dict):
            for pattern in by_pattern:
                if trouble := pattern_problem(pattern):
                    yield (*path, "patternProperties", pattern), f"The pattern {quoted(pattern)} {trouble}."


def _left_over(schema: Mapping[str, Json]) -> list[SchemaError]:
    """What only shows when the schema is really built."""
    try:
        check_effort(schema)
        build(schema)
        build_plan(schema)
    except SchemaError as error:
        return [error]
    except BUILD_ERRORS as error:
        path = error.instance_path if isinstance(error, ValidationError) else ()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return [SchemaError(f"The schema cannot be compiled: {reason.rstrip('.')}.", pointer=pointer(path))]
    return []
