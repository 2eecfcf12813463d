"""Compare two registries: tools added, removed and changed, and which changes break callers or only widen."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from handrail.build.diff import Change, RegistryDiff, ToolDiff, diff_registries
from handrail.cli.build_command import definitions_in
from handrail.cli.output import print_json, show
from handrail.registry.artifact import read_artifact

EXAMPLES = "examples:\n  handrail diff released/tool_registry.json tool_registry.json"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("old", help="the artifact before")
    parser.add_argument("new", help="the artifact after")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(options: Namespace) -> int:
    old, new = Path(options.old), Path(options.new)
    found = diff_registries(definitions_in(old), definitions_in(new))
    found = replace(found, tools=(*found.tools, *_unseen(found, old, new)))
    if options.json:
        print_json(found.to_dict())
    else:
        show(found.render())
    return 0


def _unseen(found: RegistryDiff, old: Path, new: Path) -> list[ToolDiff]:
    """Tools whose definition is the same, but whose guide, handler or provider schemas are not."""
    named = {tool.tool for tool in found.tools}
    before = {entry["toolId"]: entry for entry in read_artifact(old).entries}
    unseen = []
    for entry in read_artifact(new).entries:
        name, was = entry["toolId"], before.get(entry["toolId"])
        if was is None or name in named or was["hash"] == entry["hash"]:
            continue
        parts = [part for part in ("documentation", "handler") if was[part] != entry[part]]
        words = {"documentation": "guide", "handler": "handler"}
        what = " and ".join(words[part] for part in parts) or "provider schema"
        change = Change(tool=name, kind="neutral", place="", message=f"Its {what} changed; its definition did not.")
        unseen.append(ToolDiff(tool=name, old_version=was["version"], new_version=entry["version"], changes=(change,)))
    return unseen
