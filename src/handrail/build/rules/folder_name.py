"""Rule `folder-name`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import PROJECT, SCHEMA_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot
from handrail.registry.version_rules import is_version


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory" or source.raw is None:
        return
    tool_id = source.raw.get("toolId")
    if isinstance(tool_id, str) and tool_id != source.expected_id and not _is_other_version(source, tool_id, catalogue):
        yield Spot(
            SCHEMA_FILE,
            "/toolId",
            f'"toolId" is "{tool_id}", but the folder "{source.folder}" asks for "{source.expected_id}".',
            f'Write "toolId": "{source.expected_id}", or rename the folder.',
        )
    version, label = source.raw.get("version"), source.version_label
    if label is not None and isinstance(version, str) and not (label and is_version(label, version)):
        yield Spot(
            SCHEMA_FILE,
            "/version",
            f'"version" is "{version}", but the folder "{source.folder}" says "{label}".',
            'What follows "@" is the version or its beginning, such as "2" for 2.1.0: change one of the two.',
        )


def _is_other_version(source: ToolSource, tool_id: str, catalogue: Catalogue) -> bool:
    """Whether the folder holds a further version of a tool that has a folder of its name: `refund-new` beside `refund`."""
    if source.origin != PROJECT or not source.expected_id.startswith(tool_id):
        return False
    others = (other for other in catalogue.by_id.get(tool_id, ()) if other is not source)
    return any(other.origin == PROJECT and other.expected_id == tool_id for other in others)


RULE = Rule(
    name="folder-name",
    promise="`toolId` is the folder's name with `-` written as `_`; what follows `@` is the tool's version.",
    check=check,
)
