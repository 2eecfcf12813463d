"""Rule `json-syntax`: not JSON, duplicate keys, numbers that JSON cannot carry, nesting beyond reason."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    trouble = source.schema_trouble
    # Bytes that are no UTF-8 are the business of the rule `utf8`; a lone surrogate in an escape is ours.
    if trouble is not None and not _is_broken_utf8(source):
        yield Spot(SCHEMA_FILE, trouble.pointer, trouble.message, "Correct the JSON at that place.")


def _is_broken_utf8(source: ToolSource) -> bool:
    try:
        source.files[SCHEMA_FILE].decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


RULE = Rule(
    name="json-syntax",
    promise="`schema.json` is strict JSON: no duplicate keys, no NaN, no lone surrogates, no nesting beyond 64.",
    check=check,
)
