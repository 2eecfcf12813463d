"""Rule `schema-keyword`: a misspelt keyword says nothing, so `minLenght` would check nothing without a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.schema.pointer import pointer
from handrail.schema.subschemas import HOLDERS, walk

_CHECKS = frozenset(
    {
        *("type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
        *("maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems", "maxContains"),
        *("minContains", "maxProperties", "minProperties", "required", "dependentRequired"),
    }
)
_NOTES = frozenset(
    {
        *("$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary", "$comment"),
        *("title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples"),
        *("contentEncoding", "contentMediaType"),
    }
)
KNOWN = HOLDERS | _CHECKS | _NOTES


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    for name, problems in source.schema_problems.items():
        if problems or source.raw is None:
            continue  # the rule `json-schema` has named them
        for path, schema in walk(source.raw[name]):
            for keyword in sorted(set(schema) - KNOWN) if isinstance(schema, Mapping) else ():
                if keyword.startswith("x-"):
                    continue  # the usual way to mark an extension
                near = get_close_matches(keyword, KNOWN, n=1)
                yield Spot(
                    SCHEMA_FILE,
                    f"/{name}{pointer((*path, keyword))}",
                    f'JSON Schema has no keyword "{keyword}", so it checks nothing.',
                    f'Did you mean "{near[0]}"?' if near else "Take it out, or waive this with a reason.",
                )


RULE = Rule(
    name="schema-keyword",
    severity="warning",
    promise="Every keyword in `parameters` and `outputSchema` is one that JSON Schema knows.",
    check=check,
)
