"""Keys: who may use the server. Make one, see which there are, revoke one.

A key's secret is printed once, alone on standard output; the store keeps only its hash. Every server that shares the store takes
a change in within a second, and ends the streams of a revoked key.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import Any

from handrail.app import check_roles, has_store, store_url
from handrail.cli import nearest
from handrail.cli.output import print_json
from handrail.cli.project import add_role_flag, project_settings
from handrail.contract.errors import UsageError
from handrail.contract.keys import Key, KeyStore, Role
from handrail.server.legacy_files import import_files
from handrail.server.stored_keys import add_key
from handrail.settings import Settings
from handrail.stores import open_store

EXAMPLES = """examples:
  handrail keys add ana-laptop --user ana
  handrail keys add desk --user ben --role manager
  handrail keys add website --any-user
  handrail keys add night-shift --operator --json
  handrail keys list
  handrail keys revoke ana-laptop"""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|revoke")
    add = actions.add_parser("add", help="make a key and show it once")
    add.add_argument("name", help="what the key is called in lists and in the audit")
    whose = add.add_mutually_exclusive_group(required=True)
    whose.add_argument("--user", metavar="USER", help="it speaks for this user and nobody else")
    whose.add_argument("--any-user", action="store_true", help="it may name any user: for a program that knows them")
    whose.add_argument(
        "--operator", action="store_true", help="it may do everything: audit, switches, other users' data"
    )
    add_role_flag(add)
    add.add_argument("--replace", action="store_true", help="in the place of a key of that name, which ends")
    shown = actions.add_parser("list", help="the keys there are, without their secrets")
    revoke = actions.add_parser("revoke", help="accept a key no longer")
    revoke.add_argument("name", help="the key's name")
    for one in (add, shown, revoke):
        one.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    return asyncio.run(_run(project_settings(), options))


async def _run(settings: Settings, options: Namespace) -> int:
    if options.action == "add":
        check_roles(settings, options.roles)
    url = store_url(settings)
    if url.startswith("memory:"):
        raise UsageError(
            "The store is in memory, and so are the keys of each server; `handrail serve --new-key NAME` makes one."
        )
    earlier = settings.project / settings.server_keys_file
    made = options.action == "add" or has_store(settings) or await asyncio.to_thread(earlier.exists)
    store = open_store(url if made else "memory:")  # to look for keys makes no file
    await import_files(settings, store)
    await store.open()
    try:
        return await {"add": _add, "list": _list, "revoke": _revoke}[options.action](store.keys, options)
    finally:
        await store.close()


async def _add(keys: KeyStore, options: Namespace) -> int:
    if options.user is not None and not (options.user.strip() and options.user.isprintable()):
        raise UsageError(f"A user is named by printable text; {options.user!r} is not.")
    role: Role = "operator" if options.operator else "user"
    # As `serve` gives its first key a user, so that an operator who talks is somebody.
    user = options.user if options.user is not None else (options.name if options.operator else None)
    key, secret = await add_key(
        keys, name=options.name, role=role, user=user, roles=options.roles, replace=options.replace
    )
    if options.json:
        print_json({**_shown(key), "key": secret})
        return 0
    print(secret)
    sys.stdout.flush()
    sys.stderr.write(f'The key "{key.name}" {_whose(key)}. It is shown once; only its hash is kept.\n')
    return 0


async def _list(keys: KeyStore, options: Namespace) -> int:
    known = await keys.all()
    if options.json:
        print_json([_shown(key) for key in known])
        return 0
    if not known:
        print("There are no keys; `handrail keys add NAME --user USER` makes one.")
        return 0
    width = max(len(key.name) for key in known)
    for key in known:
        print(f"{key.name:<{width}}  {key.created or '-':<10}  {_whose(key)}")
    return 0


async def _revoke(keys: KeyStore, options: Namespace) -> int:
    gone = await keys.revoke(options.name)
    if gone is None:
        near = nearest(options.name, [key.name for key in await keys.all()])
        raise UsageError(f'There is no key "{options.name}"{near or "; `handrail keys list` shows them."}')
    if options.json:
        print_json(_shown(gone))
    else:
        print(f'The key "{gone.name}" is revoked; a running server ends its streams within a second.')
    return 0


def _shown(key: Key) -> dict[str, Any]:
    # Tenant and organisation are those of tokens, which are not kept.
    return {name: value for name, value in asdict(key).items() if name not in ("hash", "tenant", "organisation")}


def _whose(key: Key) -> str:
    roles = f" as {', '.join(key.roles)}" if key.roles else ""
    if key.is_operator:
        return f"is an operator's{roles}"
    return (f'speaks for "{key.user}"' if key.user is not None else "speaks for any user") + roles
