"""Start each server, and say whether it answers and still offers what is pinned; with a tool, call it through the pipeline."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from handrail.authoring.mcp.lock import read_lock
from handrail.cli.mcp_servers import ask_for_offer, asked_for
from handrail.cli.output import count, print_json, show
from handrail.cli.project import current_settings
from handrail.contract.errors import ConfigError, ServiceError

HELP = "whether servers answer, and offer what is pinned"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="the servers (default: all)")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    from handrail.mcp.gateway.pinning import review

    settings = current_settings()
    lock = read_lock(settings.project)
    configs = asked_for(settings, options.names)
    rows: list[dict[str, object]] = []
    for config in configs:
        try:
            pinned = lock.pins_of(config.name)
            found = review(config, pinned, ask_for_offer(settings.project, config))
        except (ConfigError, ServiceError) as error:
            rows.append({"server": config.name, "ok": False, "trouble": str(error)})
            continue
        trouble = ""
        if pinned is None:
            trouble = f"nothing is pinned; `handrail mcp update {config.name}` pins its tools"
        elif not found.is_same:
            trouble = (
                f"{count(len(found.changes), 'change')} since it was pinned; see `handrail mcp update {config.name}`"
            )
        rows.append({"server": config.name, "ok": not trouble, "tools": len(found.pinned.tools), "trouble": trouble})
    if options.json:
        print_json(rows)
    else:
        for row in rows:
            told = row["trouble"] or f"answers, {count(int(str(row['tools'])), 'tool')} as pinned"
            show(f"{row['server']}: {told}")
    return 0 if all(row["ok"] for row in rows) else 1
