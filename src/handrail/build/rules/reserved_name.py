"""Rule `reserved-name`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.reference import CORE, collection_root
from handrail.authoring.source import SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot

RESERVED = frozenset({"get_tool_guide", "find_tools", "call_tool", "approve", "confirm", "decline", "handrail"})


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.definition is not None and source.definition.tool_id in RESERVED and not _is_handrails(source):
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"{source.definition.tool_id}" is a name that Handrail keeps for itself.',
            "Choose another name.",
        )


def _is_handrails(source: ToolSource) -> bool:
    """Whether it is Handrail's own tool of that name, taken in by a project or built where it is written."""
    if source.origin == CORE:
        return True
    own = collection_root(CORE) / source.folder
    return source.kind == "directory" and all(
        (own / name).is_file() and (own / name).read_bytes() == raw for name, raw in source.files.items()
    )


RULE = Rule(
    name="reserved-name", promise="No tool has a name that Handrail keeps for itself.", check=check, upstream=True
)
