"""The MCP servers of the project: where each is, how many of its tools are pinned, and how many were refused."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from handrail.authoring.mcp.lock import read_lock
from handrail.cli.output import count, print_json, show
from handrail.cli.project import current_settings

HELP = "the servers of the project"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    lock = read_lock(settings.project)
    pinned = lock.servers
    rows = [
        {
            "server": name,
            "place": config.place,
            "tools": len(pinned[name].tools) if name in pinned else 0,
            "refused": len(pinned[name].refused) if name in pinned else 0,
            "pinned": name in pinned,
            "enabled": config.enabled,
            "trouble": lock.broken[name].fault if name in lock.broken else "",
        }
        for name, config in sorted(settings.mcp_servers.items())
    ]
    if options.json:
        print_json(rows)
        return 0
    for row in rows:
        state = f"{count(row['tools'], 'tool')} pinned" if row["pinned"] else row["trouble"] or "not pinned yet"  # type: ignore[arg-type]
        refused = f", {row['refused']} refused" if row["refused"] else ""
        off = "" if row["enabled"] else ", switched off"
        show(f"{row['server']}  {row['place']}  {state}{refused}{off}")
    if not rows:
        show("This project has no MCP servers; `handrail mcp add` takes one in.")
    return 0
