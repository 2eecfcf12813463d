"""The tools of the registry, one line each."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from handrail.cli.output import print_json, show
from handrail.cli.project import current_settings, say_without_project, tools_at_hand
from handrail.registry.artifact import versioned_name

EXAMPLES = "examples:\n  handrail list\n  handrail list --mode voice\n  handrail list --category retrieval --json"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--mode", choices=("text", "voice"), help="only the tools of this mode")
    parser.add_argument(
        "--category", choices=("retrieval", "action", "utility"), help="only the tools of this category"
    )
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    if options.registry is None:
        say_without_project(settings, "list")
    _, registry = tools_at_hand(settings, options.registry)
    snapshot = registry.snapshot()
    every = [one for tool in snapshot for one in snapshot.versions.get(tool.tool_id, {"": tool}).values()]
    tools = [
        tool for tool in every if options.category in (None, tool.category) and options.mode in (None, *tool.modes)
    ]
    if options.json:
        print_json(
            {
                "version": registry.version,
                "gitCommit": registry.git_commit,
                "tools": [{**tool.metadata(), "summary": tool.summary} for tool in tools],
            }
        )
        return 0
    names = [
        versioned_name(tool.tool_id, tool.version) if tool.tool_id in snapshot.versions else tool.tool_id
        for tool in tools
    ]
    width = max(map(len, names), default=0)
    for name, tool in zip(names, tools, strict=True):
        show(f"{name:<{width}}  {tool.category:<9}  {','.join(tool.modes):<10}  {tool.summary}")
    if not tools:
        show("No tool fits.")
    return 0
