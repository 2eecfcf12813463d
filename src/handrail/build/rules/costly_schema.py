"""Rule `costly-schema`: a schema whose refusals cannot be explained in full, because explaining is bounded work."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.schema.effort import patterns_of, widest_place
from handrail.schema.explain import MAX_STEPS
from handrail.schema.pattern_cost import pattern_size
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import LocalRefs, leads_back, walk

# So many wrong values are explained at least.
_VALUES = 50
_SEARCHING = ("contains", "unevaluatedItems")
_CUT = f"an explanation ends after {MAX_STEPS:,} steps, and the model is told less than it needs"


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.raw is None or source.schema_problems.get("parameters") != []:
        return
    schema = source.raw["parameters"]
    width = widest_place(schema)
    if width > MAX_STEPS // _VALUES:
        yield Spot(
            SCHEMA_FILE,
            "/parameters",
            f"One value can meet {width:,} subschemas; {_CUT}.",
            "Use fewer alternatives: an enumeration for plain values, or one property that says which form is meant.",
        )
    refs = LocalRefs(schema)
    for path, part in walk(schema):
        keyword = next((word for word in _SEARCHING if isinstance(part, dict) and word in part), None)
        if keyword is not None and leads_back(part, refs):
            yield Spot(
                SCHEMA_FILE,
                f"/parameters{pointer((*path, keyword))}",
                f"Lists within lists are searched at every level for what fits; {_CUT} where they hold hundreds of items.",
                "Give the items one schema with items, or limit their number with maxItems.",
            )
        for pattern in patterns_of(part) if isinstance(part, dict) else ():
            if pattern_size(pattern) // 2 > MAX_STEPS // 4:
                place = (*path, "pattern") if part.get("pattern") == pattern else (*path, "patternProperties", pattern)
                yield Spot(
                    SCHEMA_FILE,
                    f"/parameters{pointer(place)}",
                    f"The pattern is very large when its repetitions are written out; {_CUT}.",
                    "Use smaller repetition counts, or minLength and maxLength.",
                )


RULE = Rule(
    name="costly-schema",
    promise=(
        "What is wrong with arguments can be explained in full: no value meets hundreds of subschemas, no pattern is huge, "
        "no recursive schema searches lists."
    ),
    check=check,
    severity="warning",
)
