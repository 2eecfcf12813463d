"""How large a schema OpenAI's strict mode takes. A larger one is refused with the whole request, so it is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handrail.providers.strict_mode import every_schema
from handrail.schema.subschemas import Json, LocalRefs

MAX_LEVELS = 10
MAX_PROPERTIES = 5_000
MAX_ENUM_VALUES = 1_000
MAX_CHARACTERS = 120_000
LONG_ENUM = 250
MAX_LONG_ENUM_CHARACTERS = 15_000
_MAX_STEPS = 64  # through references and alternatives, which are no levels


def exceeded(schema: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The limits that a strict schema exceeds: the keyword that does so, and how, as the end of a sentence."""
    every = list(every_schema(schema))
    names = [name for one in every for held in ("properties", "$defs") for name in one.get(held, {})]
    values = [value for one in every for value in one.get("enum", ())]
    constants = [one["const"] for one in every if "const" in one]
    properties = sum(len(one.get("properties", {})) for one in every)
    levels = _levels(schema, LocalRefs(schema), {})
    if levels > MAX_LEVELS:
        yield "properties", f"it nests {levels} levels of objects and lists, where strict mode allows {MAX_LEVELS}"
    if properties > MAX_PROPERTIES:
        yield "properties", f"it has {properties:,} properties, where strict mode allows {MAX_PROPERTIES:,}"
    if len(values) > MAX_ENUM_VALUES:
        yield "enum", f"it lists {len(values):,} values, where strict mode allows {MAX_ENUM_VALUES:,}"
    if sum(len(str(text)) for text in (*names, *values, *constants)) > MAX_CHARACTERS:
        yield "properties", f"names and listed values have more than the {MAX_CHARACTERS:,} characters of strict mode"
    if any(_characters(one.get("enum", ())) > MAX_LONG_ENUM_CHARACTERS for one in every):
        yield "enum", f"one list of values has more than the {MAX_LONG_ENUM_CHARACTERS:,} characters of strict mode"


def _characters(values: list[Json]) -> int:
    """Of an enum that is long enough for its characters to be limited; otherwise 0."""
    return sum(len(value) for value in values if isinstance(value, str)) if len(values) > LONG_ENUM else 0


def _levels(schema: Mapping[str, Json], refs: LocalRefs, known: dict[str, int], steps: int = 0) -> int:
    """How many objects and lists stand inside one another. Recursion counts once."""
    if steps > _MAX_STEPS:
        return MAX_LEVELS + 1
    ref = schema.get("$ref")
    if ref is not None:
        if ref not in known:
            known[ref] = 0
            known[ref] = _levels(refs.resolve(ref), refs, known, steps + 1)
        return known[ref]
    beside = max((_levels(branch, refs, known, steps + 1) for branch in schema.get("anyOf", ())), default=0)
    inside = list(schema.get("properties", {}).values())
    if "items" in schema:
        inside.append(schema["items"])
    holds = "properties" in schema or "items" in schema
    return max(beside, holds + max((_levels(one, refs, known, steps + 1) for one in inside), default=0))
