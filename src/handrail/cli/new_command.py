"""Write a tool, or a service for tools, that passes its own generated test; then make it yours."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from handrail.build.scaffold import new_tool
from handrail.build.service_scaffold import new_service
from handrail.cli.output import print_json
from handrail.cli.project import current_settings
from handrail.contract.errors import UsageError

EXAMPLES = """examples:
  handrail new lookup_order
  handrail new cancel_order --category action
  handrail new --service shop"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the tool's name, such as lookup_order")
    parser.add_argument("--category", default="retrieval", help="retrieval (default), action or utility")
    parser.add_argument(
        "--service", metavar="NAME", help="write a service that tools reach as ctx.NAME, instead of a tool"
    )
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(options: Namespace) -> int:
    if (options.name is None) == (options.service is None):
        raise UsageError("Name one thing to write: a tool, or a service with --service NAME.")
    settings = current_settings()
    if options.service is not None:
        paths = new_service(settings.project, options.service)
        made, following = {"service": options.service}, "Next: handrail doctor"
    else:
        paths = new_tool(settings.project, settings.tools_path, options.name, options.category)
        made, following = {"tool": options.name.replace("-", "_")}, "Next: handrail build"
    written = [os.path.relpath(path) for path in paths]
    if options.json:
        print_json({**made, "written": written})
        return 0
    for path in written:
        print(f"wrote {path}")
    print(following)
    return 0
