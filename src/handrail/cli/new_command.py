"""Write a tool that builds and passes its own generated test; then make it yours."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from handrail.build.scaffold import new_tool
from handrail.cli.output import print_json
from handrail.cli.project import current_settings

EXAMPLES = "examples:\n  handrail new lookup_order\n  handrail new cancel_order --category action"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the tool's name, such as lookup_order")
    parser.add_argument("--category", default="retrieval", help="retrieval (default), action or utility")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    written = [
        os.path.relpath(path)
        for path in new_tool(settings.project, settings.tools_path, options.name, options.category)
    ]
    if options.json:
        print_json({"tool": options.name.replace("-", "_"), "written": written})
        return 0
    for path in written:
        print(f"wrote {path}")
    print("Next: handrail build")
    return 0
