"""Compare two registries: tools added, removed and changed, and which changes break callers or only widen."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from handrail.build.diff import diff_registries
from handrail.cli.build_command import definitions_in
from handrail.cli.output import print_json

EXAMPLES = "examples:\n  handrail diff released/tool_registry.json tool_registry.json"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("old", help="the artifact before")
    parser.add_argument("new", help="the artifact after")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(options: Namespace) -> int:
    found = diff_registries(definitions_in(Path(options.old)), definitions_in(Path(options.new)))
    if options.json:
        print_json(found.to_dict())
    else:
        print(found.render())
    return 0
