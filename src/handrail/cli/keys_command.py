"""Keys: who may use the server. Make one, see which there are, revoke one.

A key's secret is printed once, alone on standard output; the file keeps only its hash. A server that runs takes every change in
within a second, and ends the streams of a revoked key.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from handrail.cli import nearest
from handrail.cli.output import print_json
from handrail.cli.project import current_settings
from handrail.contract.errors import UsageError
from handrail.server.keyfile import add_key, load_keys, revoke_key
from handrail.server.keys import Key, Role

EXAMPLES = """examples:
  handrail keys add ana-laptop --user ana
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
    add.add_argument("--replace", action="store_true", help="in the place of a key of that name, which ends")
    shown = actions.add_parser("list", help="the keys there are, without their secrets")
    revoke = actions.add_parser("revoke", help="accept a key no longer")
    revoke.add_argument("name", help="the key's name")
    for one in (add, shown, revoke):
        one.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    path = settings.project / settings.server_keys_file
    return {"add": _add, "list": _list, "revoke": _revoke}[options.action](path, options)


def _add(path: Path, options: Namespace) -> int:
    if options.user is not None and not (options.user.strip() and options.user.isprintable()):
        raise UsageError(f"A user is named by printable text; {options.user!r} is not.")
    role: Role = "operator" if options.operator else "user"
    # As `serve` gives its first key a user, so that an operator who talks is somebody.
    user = options.user if options.user is not None else (options.name if options.operator else None)
    key, secret = add_key(path, name=options.name, role=role, user=user, replace=options.replace)
    if options.json:
        print_json({**_shown(key), "key": secret})
        return 0
    print(secret)
    sys.stdout.flush()
    sys.stderr.write(f'The key "{key.name}" {_whose(key)}. It is shown once; only its hash is kept.\n')
    return 0


def _list(path: Path, options: Namespace) -> int:
    keys = load_keys(path)
    if options.json:
        print_json([_shown(key) for key in keys])
        return 0
    if not keys:
        print("There are no keys; `handrail keys add NAME --user USER` makes one.")
        return 0
    width = max(len(key.name) for key in keys)
    for key in keys:
        print(f"{key.name:<{width}}  {key.created or '-':<10}  {_whose(key)}")
    return 0


def _revoke(path: Path, options: Namespace) -> int:
    gone = revoke_key(path, options.name)
    if gone is None:
        near = nearest(options.name, [key.name for key in load_keys(path)])
        raise UsageError(f'There is no key "{options.name}"{near or "; `handrail keys list` shows them."}')
    if options.json:
        print_json(_shown(gone))
    else:
        print(f'The key "{gone.name}" is revoked; a running server ends its streams within a second.')
    return 0


def _shown(key: Key) -> dict[str, Any]:
    return {name: value for name, value in asdict(key).items() if name != "hash"}


def _whose(key: Key) -> str:
    if key.is_operator:
        return "is an operator's"
    return f'speaks for "{key.user}"' if key.user is not None else "speaks for any user"
