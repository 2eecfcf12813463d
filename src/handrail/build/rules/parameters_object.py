"""Rule `parameters-object`: the root says what it is and refuses arguments that a model made up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    parameters = (source.raw or {}).get("parameters")
    if not isinstance(parameters, Mapping) or (source.definition is not None and source.definition.unvalidated):
        return
    if parameters.get("type") != "object":
        yield Spot(SCHEMA_FILE, "/parameters", '"parameters" must have "type": "object".', 'Add "type": "object".')
    if parameters.get("additionalProperties") is not False:
        yield Spot(
            SCHEMA_FILE,
            "/parameters",
            '"parameters" must have "additionalProperties": false, so that made-up arguments are refused.',
            'Add "additionalProperties": false.',
        )


RULE = Rule(
    name="parameters-object",
    promise='`parameters` has `"type": "object"` and `"additionalProperties": false`.',
    check=check,
)
