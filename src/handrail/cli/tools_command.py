"""Switch a tool off or on, everywhere within a second, or see which are off."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace

from handrail.app import has_store, open_registry, store_url
from handrail.cli.output import print_json, show
from handrail.cli.project import project_settings
from handrail.settings import Settings
from handrail.stores import open_store

EXAMPLES = """examples:
  handrail tools off cancel_order --reason "the shop is down"
  handrail tools on cancel_order
  handrail tools list"""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="off|on|list")
    off = actions.add_parser("off", help="refuse every call of a tool from now on")
    off.add_argument("name", help="the tool")
    off.add_argument("--reason", default="switched off by an operator", help="why, for the record")
    on = actions.add_parser("on", help="let it be called again")
    on.add_argument("name", help="the tool")
    listing = actions.add_parser("list", help="the tools that are switched off")
    for one in (off, on, listing):
        one.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
        one.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: Namespace) -> int:
    settings = project_settings()
    if options.action != "list":
        open_registry(settings, options.registry).snapshot().tool(options.name)
    switches = await _switched(settings, options) if options.action != "list" or has_store(settings) else {}
    if options.json:
        print_json({"off": switches})
    elif not switches:
        show("Every tool is on.")
    else:
        for name, reason in sorted(switches.items()):
            show(f"off  {name}  ({reason})")
    return 0


async def _switched(settings: Settings, options: Namespace) -> dict[str, str]:
    """Switch, if that is what was asked for; the tools that are off, with the reasons."""
    store = open_store(store_url(settings))
    await store.open()
    try:
        if options.action == "off":
            await store.switch(options.name, options.reason)
        elif options.action == "on":
            await store.switch(options.name, None)
        return dict((await store.operating()).switches)
    finally:
        await store.close()
