"""Rule `costly-schema`: a schema whose refusals cannot be explained in full, because explaining is bounded work.

The rule does not estimate: it explains wrong values, and looks whether the steps were used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.schema.effort import patterns_of
from handrail.schema.explain import MAX_STEPS, Exhausted, Explainer, Steps
from handrail.schema.pointer import pointer
from handrail.schema.sentences import Wording
from handrail.schema.subschemas import Json, LocalRefs, Path, leads_back, walk

WRONG_VALUES = 10
"""How many are explained in a list, or under names that the schema leaves open. Elsewhere a place has one value."""
_BARE: tuple[Json, ...] = (None, True, 0.5, "", [], {})
_COMBINING = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "properties"})
_ITEMS = ("items", "contains", "unevaluatedItems")
_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_SEARCHING = ("contains", "unevaluatedItems")
# About a second: a schema with a thousand costly places is not looked at to its end.
_MAX_TRIED = 100 * MAX_STEPS
_CUT = f"an explanation ends after {MAX_STEPS:,} steps, and the model learns less than it needs"


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.raw is None or source.schema_problems.get("parameters") != []:
        return
    schema = source.raw["parameters"]
    refs = LocalRefs(schema)
    parts = [(path, part) for path, part in walk(schema) if isinstance(part, dict)]
    for path, part in parts:
        keyword = next((word for word in _SEARCHING if word in part), None)
        if keyword is not None and leads_back(part, refs):
            yield Spot(
                SCHEMA_FILE,
                f"/parameters{pointer((*path, keyword))}",
                f"Lists within lists are searched at every level for what fits; {_CUT} where they hold hundreds of items.",
                "Give the items one schema with items, or limit their number with maxItems.",
            )
    place = _last_pattern(parts, refs)
    if place is not None:
        yield Spot(
            SCHEMA_FILE,
            f"/parameters{pointer(place)}",
            f"The patterns up to this one are very large when their repetitions are written out; {_CUT}.",
            "Use smaller repetition counts, or minLength and maxLength.",
        )
        return
    trials = _Trials(schema, refs)
    # The innermost place alone: those around it are cut because of it.
    for path, part in reversed(parts):
        number = trials.unexplained(part)
        if number:
            values = "One wrong value is" if number == 1 else f"{number} wrong values are"
            yield Spot(
                SCHEMA_FILE,
                f"/parameters{pointer(path)}",
                f"{values} not explained in full; {_CUT}.",
                "Use fewer alternatives: an enumeration for plain values, or one property that says which form is meant.",
            )
            return


def _last_pattern(parts: Iterable[tuple[Path, Mapping[str, Json]]], refs: LocalRefs) -> Path | None:
    """Where the pattern is at which an explanation that needs them all ends; None if it does not."""
    explainer = Explainer(refs, Steps())
    for path, part in parts:
        for pattern in patterns_of(part):
            try:
                explainer.matches(pattern, "")
            except Exhausted:
                return (*path, "pattern") if part.get("pattern") == pattern else (*path, "patternProperties", pattern)
    return None


class _Trials:
    """Explanations of wrong values, each with the steps that a call has, and all together with `_MAX_TRIED`."""

    def __init__(self, schema: Mapping[str, Json], refs: LocalRefs) -> None:
        self._schema = schema
        self._refs = refs
        self._names = Wording(schema, secrets=False, explainer=Explainer(refs, Steps()))
        self._tried = 0

    def unexplained(self, part: Mapping[str, Json]) -> int:
        """How many wrong values at a subschema are not explained in full: 0 if they are, or if too much was tried already."""
        if not _COMBINING.isdisjoint(part) and any(self._is_cut(part, value) for value in self._wrong(part)):
            return 1
        items = [value for keyword in _ITEMS for value in self._wrong(part.get(keyword))]
        members = [value for keyword in _MEMBERS for value in self._wrong(part.get(keyword))]
        several = [
            *([value] * WRONG_VALUES for value in items),
            *({f"name{i}": value for i in range(WRONG_VALUES)} for value in members),
        ]
        return WRONG_VALUES if any(self._is_cut(part, value) for value in several) else 0

    def _wrong(self, part: Json) -> Iterator[Json]:
        """Values of every type, and objects that have each property of a subschema with such a value."""
        if isinstance(part, dict):
            yield from _BARE
            if declared := self._names.declared(part):
                yield from (dict.fromkeys(declared, value) for value in _BARE)

    def _is_cut(self, part: Mapping[str, Json], value: Json) -> bool:
        """Whether the explanation of a value takes more steps than there are, its sentences included."""
        if self._tried >= _MAX_TRIED:
            return False
        steps = Steps(MAX_STEPS + 1)
        explainer = Explainer(self._refs, steps)
        wording = Wording(self._schema, secrets=False, explainer=explainer)
        for problem in explainer.explain(part, value):
            wording.sentence(problem)
        self._tried += steps.taken
        return bool(explainer.pending) or steps.taken > MAX_STEPS


RULE = Rule(
    name="costly-schema",
    promise=(
        "What is wrong with arguments can be explained in full: ten wrong values in a list or one elsewhere, patterns that are "
        "not huge together, no recursive schema that searches lists."
    ),
    check=check,
    severity="warning",
)
