"""Users: delete what is kept of one.

Sessions, conversations, what was said in calls, personal records, events, images and keys go; docs/operating.md says what stays,
and why. A server that runs meanwhile lets go of the user's sessions within a second.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from handrail.app import open_calendar, open_kb, open_registry, open_runtime
from handrail.cli.output import count, print_json
from handrail.cli.project import current_settings
from handrail.cli.terminal_input import confirm
from handrail.contract.errors import RegistryError, UsageError
from handrail.registry import Registry
from handrail.settings import Settings

EXAMPLES = """examples:
  handrail users forget ana@example.com
  handrail users forget u1 --tenant acme --yes --json"""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="forget")
    forget = actions.add_parser("forget", help="delete what is kept of a user")
    forget.add_argument("user", help="the user, by the id that sessions were opened with")
    forget.add_argument("--tenant", default="", help="the user's tenant, where there are several")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    forget.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    forget.add_argument("--json", action="store_true", help="print what was deleted as JSON")


def run(options: Namespace) -> int:
    if not options.user.strip() or not options.user.isprintable():
        raise UsageError(f"A user is named by printable text; {options.user!r} is not.")
    if not options.yes and not _agreed(options.user):
        raise UsageError("Nothing was deleted; say --yes to do it.")
    settings = current_settings()
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
    return 0


async def _forget(settings: Settings, options: Namespace) -> dict[str, Any]:
    from handrail.server.forgetting import forget_user
    from handrail.server.state_files import keys_path, open_conversations

    registry = _registry(settings, options.registry)
    # Opened whether or not a tool needs them now: what an earlier catalogue kept is to go as well.
    kb = open_kb(settings, embeddings="none") if (settings.project / settings.kb_path).is_file() else None
    calendar = open_calendar(settings) if (settings.project / settings.calendar_path).is_file() else None
    conversations = open_conversations(settings)
    await conversations.open()
    try:
        async with open_runtime(settings, registry, capability_checks=False) as runtime:
            images = _images(settings)
            return await forget_user(
                runtime,
                conversations,
                options.tenant,
                options.user,
                kb=kb,
                images=images,
                calendar=calendar,
                keys=keys_path(settings),
            )
    finally:
        await conversations.close()
        for service in (kb, calendar):
            if service is not None:
                await service.close()


def _images(settings: Settings) -> Any:
    folder = settings.project / settings.images_directory
    if not folder.is_dir():
        return None
    from handrail.services.images.folder import ImageFolder  # a drawing library, only where there are images

    return ImageFolder(folder)


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
