"""Compare two registries: tools added, removed and changed, and which changes break callers or only widen."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from handrail.build.diff import Change, RegistryDiff, ToolDiff, diff_registries, paired_entries
from handrail.cli.build_command import definitions_of
from handrail.cli.output import print_json, show
from handrail.registry.artifact import read_artifact

Entries: TypeAlias = Mapping[str, Mapping[str, Any]]
EXAMPLES = "examples:\n  handrail diff released/tool_registry.json tool_registry.json"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("old", help="the artifact before")
    parser.add_argument("new", help="the artifact after")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(options: Namespace) -> int:
    old, new = paired_entries(read_artifact(Path(options.old)).entries, read_artifact(Path(options.new)).entries)
    found = diff_registries(definitions_of(old), definitions_of(new))
    found = replace(found, tools=(*found.tools, *_unseen(found, old, new)))
    if options.json:
        print_json(found.to_dict())
    else:
        show(found.render())
    return 0


def _unseen(found: RegistryDiff, old: Entries, new: Entries) -> list[ToolDiff]:
    """Tools whose definition is the same, but whose guide, handler or provider schemas are not."""
    named = {tool.tool for tool in found.tools}
    unseen = []
    for name, entry in new.items():
        was = old.get(name)
        if was is None or name in named or was["hash"] == entry["hash"]:
            continue
        parts = [part for part in ("documentation", "handler") if was[part] != entry[part]]
        words = {"documentation": "guide", "handler": "handler"}
        what = " and ".join(words[part] for part in parts) or "provider schema"
        change = Change(tool=name, kind="neutral", place="", message=f"Its {what} changed; its definition did not.")
        unseen.append(ToolDiff(tool=name, old_version=was["version"], new_version=entry["version"], changes=(change,)))
    return unseen
