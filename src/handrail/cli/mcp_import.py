"""Take over the MCP servers of a client's configuration file (Claude Desktop, VS Code, Cursor, …) into handrail.toml.

Values of variables and headers are not copied: they may be secrets. Each is taken from the environment by its name, and the
names that have to be set are printed. Nothing is started; `handrail mcp update` pins what the servers offer.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from handrail.cli.output import count, print_json, show
from handrail.cli.project import current_settings
from handrail.contract.errors import UsageError

_THERE = "it is there already"
HELP = "take over the servers of a client's configuration file"
EXAMPLES = """examples:
  handrail mcp import ~/.config/Claude/claude_desktop_config.json
  handrail mcp import .vscode/mcp.json --dry-run
  handrail mcp import ~/.cursor/mcp.json --only github"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="the client's file")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this server of the file")
    parser.add_argument("--dry-run", action="store_true", help="show what would be written, and write nothing")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    from handrail.mcp.gateway.client_files import read_client_file
    from handrail.mcp.gateway.project_file import (
        read_project_file,
        server_table,
        servers_in,
        with_servers,
        write_project_file,
    )

    settings = current_settings()
    found = read_client_file(Path(options.file).expanduser())
    known = {one.original for one in found}
    for name in options.only:
        if name not in known:
            raise UsageError(f'The file has no server "{name}"; it has {", ".join(sorted(known)) or "none"}.')
    chosen = [one for one in found if not options.only or one.original in options.only]
    before = read_project_file(settings.project)
    have = servers_in(before)
    chosen = [replace(one, refused=_THERE) if not one.refused and one.name in have else one for one in chosen]
    taken = [one for one in chosen if not one.refused]
    is_well = any(one.refused in ("", _THERE) for one in chosen)
    unset = sorted({name for one in taken for name in one.variables if not os.environ.get(name)})
    tables = {one.name: server_table(one.name, one.values) for one in taken}
    text = with_servers(before, tables)
    if not options.dry_run and tables:
        write_project_file(settings.project, text)
    if options.json:
        rows = [{"server": one.name, "from": one.original, "refused": one.refused, **one.values} for one in chosen]
        print_json({"servers": rows, "unset": unset, "written": bool(tables) and not options.dry_run})
        return 0 if is_well else 1
    for one in chosen:
        show(f"! {one.original} is left out: {one.refused}." if one.refused else f"+ {one.name}")
    if options.dry_run:
        show("".join(tables.values()).rstrip("\n"))
    elif tables:
        show(f"{count(len(tables), 'server')} written into handrail.toml.")
    if unset:
        show(f"No value was copied. Set these for Handrail: {', '.join(unset)}.")
    if tables:
        show(
            "Next: `handrail mcp update` shows the tools and pins them, then `handrail build`. Every tool asks a person before "
            'each call; annotations = "trust" believes a server that says which of its tools only read.'
        )
    return 0 if is_well else 1
