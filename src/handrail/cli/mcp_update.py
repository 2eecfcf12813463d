"""Ask servers what they offer now, show every change since it was pinned, and pin it if a person takes it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from handrail.authoring.mcp.lock import LOCK_FILE, LockFile, read_lock, write_lock
from handrail.cli.mcp_servers import ask_for_offer, asked_for, show_changes
from handrail.cli.output import print_json, show, warn
from handrail.cli.project import current_settings
from handrail.contract.errors import ConfigError, ServiceError

if TYPE_CHECKING:
    from handrail.mcp.gateway.pinning import PinReview

HELP = "see what servers changed, and take it"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="the servers (default: all)")
    parser.add_argument("--token-env", metavar="NAME", help="a variable with a token to list the tools with")
    parser.add_argument("--take", action="store_true", help="take what is shown without being asked")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON; takes nothing without --take")


def run(options: Namespace) -> int:
    from handrail.mcp.gateway.pinning import review

    settings = current_settings()
    configs = asked_for(settings, options.names)
    try:
        lock = read_lock(settings.project)
    except ConfigError as error:
        if not options.take and not _asks(options):
            raise
        warn(f"{error} Every tool is shown as new.")
        lock = LockFile()
        configs = asked_for(settings, ())
    found: dict[str, PinReview] = {}
    for config in configs:
        try:
            offer = ask_for_offer(settings.project, config, options.token_env)
        except ServiceError as error:  # the others are not its fault
            warn(f"{config.name}: {error} Its pins stay as they are.")
        else:
            broken = lock.broken.get(config.name)
            if broken is not None:
                warn(f"{broken.fault} What follows is how it differs from what the server says.")
            old = lock.servers.get(config.name) if broken is None else broken.readable
            found[config.name] = review(config, old, offer)
    failed = len(configs) - len(found)
    changed = {name: one for name, one in found.items() if not one.is_same or name not in lock.servers}
    if options.json:
        print_json({name: [change.to_dict() for change in one.changes] for name, one in found.items()})
    else:
        for name, one in found.items():
            show(f"{name}:")
            show_changes(settings.mcp_servers[name], one)
    if not changed:
        if not options.json and found:
            show("Nothing changed.")
        return 1 if failed else 0
    if not (options.take or (_asks(options) and _agreed())):
        if not options.json:
            show(f"{LOCK_FILE} is as it was; --take takes these changes.")
        return 1
    kept = LockFile(
        servers={name: one for name, one in lock.servers.items() if name in settings.mcp_servers},
        broken={name: one for name, one in lock.broken.items() if name in settings.mcp_servers},
    )
    write_lock(settings.project, kept.taking({name: one.pinned for name, one in changed.items()}))
    if not options.json:
        show(f"Taken. Commit {LOCK_FILE}, and run `handrail build`.")
    return 1 if failed else 0


def _asks(options: Namespace) -> bool:
    return not options.json and sys.stdin.isatty() and sys.stdout.isatty()


def _agreed() -> bool:
    try:
        return input("Take these changes? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
