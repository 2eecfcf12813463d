"""Users: delete what is kept of one, or block one for a time.

Sessions, conversations, what was said in calls, images, keys and what services keep go; docs/operating.md says what stays,
and why. A server that runs meanwhile lets go of the user's sessions within a second.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from handrail.app import open_connections, open_registry, open_runtime, service_factory
from handrail.cli.output import count, print_json, show
from handrail.cli.project import project_settings
from handrail.cli.terminal_input import confirm
from handrail.contract.errors import HandrailError, RegistryError, UsageError
from handrail.plugins import SERVICES, entry_points_of
from handrail.registry import Registry
from handrail.runtime.services import open_service
from handrail.settings import Settings

EXAMPLES = """examples:
  handrail users forget ana@example.com
  handrail users forget u1 --tenant acme --yes --json
  handrail users block u1 --seconds 3600"""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="forget|block")
    forget = actions.add_parser("forget", help="delete what is kept of a user")
    forget.add_argument("user", help="the user, by the id that sessions were opened with")
    forget.add_argument("--tenant", default="", help="the user's tenant, where there are several")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    forget.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    forget.add_argument("--json", action="store_true", help="print what was deleted as JSON")
    block = actions.add_parser("block", help="refuse everything that a user sends for a time, or extend such a block")
    block.add_argument("user", help="the user, by the id that sessions were opened with")
    block.add_argument("--seconds", type=int, required=True, help="from now on; a block that holds for longer stays")
    block.add_argument("--tenant", default="", help="the user's tenant, where there are several")
    block.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    block.add_argument("--json", action="store_true", help="print when it ends as JSON")


def run(options: Namespace) -> int:
    if not options.user.strip() or not options.user.isprintable():
        raise UsageError(f"A user is named by printable text; {options.user!r} is not.")
    if options.action == "block":
        until = asyncio.run(_block(project_settings(), options))
        ends = datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds")
        if options.json:
            print_json({"user": options.user, "tenant": options.tenant, "until": ends})
        else:
            show(f"{options.user} is blocked until {ends}.")
        return 0
    if not options.yes and not _agreed(options.user):
        raise UsageError("Nothing was deleted; say --yes to do it.")
    settings = project_settings()
    result = asyncio.run(_forget(settings, options))
    if options.json:
        print_json(result)
        return 0
    counts = result["deleted"]
    for name, number in counts.items():
        if name != "callsLeft":
            print(f"{name:<14} {number}")
    if counts["callsLeft"]:
        print(f"Left: {count(counts['callsLeft'], 'call')} with an open outcome; settle with `handrail ledger`.")
    for name, sentence in result.get("elsewhere", {}).items():
        print(f"Left by {name}: {sentence}")
    return 0


async def _block(settings: Settings, options: Namespace) -> float:
    async with open_runtime(settings, _registry(settings, options.registry), capability_checks=False) as runtime:
        return await runtime.block_user(options.user, options.seconds, tenant=options.tenant)


async def _forget(settings: Settings, options: Namespace) -> dict[str, Any]:
    from handrail.server.host.forgetting import forget_user
    from handrail.server.legacy_files import copies, import_files

    registry = _registry(settings, options.registry)
    async with AsyncExitStack() as stack:
        services, unopened = await _services(settings, stack)
        runtime = open_runtime(settings, registry, capability_checks=False)
        await import_files(settings, runtime.store)
        if settings.connections:
            try:
                runtime.connections = open_connections(settings, runtime.store)
            except HandrailError as error:
                unopened["connections"] = str(error)
        await stack.enter_async_context(runtime)
        return await forget_user(
            runtime,
            options.tenant,
            options.user,
            services=services,
            unopened=unopened,
            copies=copies(settings),
        )


async def _services(settings: Settings, stack: AsyncExitStack) -> tuple[dict[str, Any], dict[str, str]]:
    """Every service that is configured or installed, whether or not a tool needs it now: what an earlier catalogue kept is to
    go as well. One that cannot be opened must not keep the rest; why it could not is the second answer."""
    services: dict[str, Any] = {}
    unopened: dict[str, str] = {}
    for name in sorted({*settings.services, *entry_points_of(SERVICES)}):
        try:
            services[name] = await stack.enter_async_context(open_service(service_factory(settings, name)))
        except HandrailError as error:
            unopened[name] = str(error)
    return services, unopened


def _registry(settings: Settings, artifact: str | None) -> Registry:
    """The project's tools; none where they cannot be loaded, because what is kept of a user must go all the same."""
    try:
        return open_registry(settings, artifact)
    except RegistryError:
        if artifact is not None:
            raise
        return Registry.empty(settings.artifact_path)


def _agreed(user: str) -> bool:
    if not sys.stdin.isatty():
        return False
    return confirm(f'Delete everything that is kept of "{user}"?')
