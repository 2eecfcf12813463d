"""The store: bring its tables to this release, check it, copy it to another database.

`copy` works while nothing uses either store, and into an empty one only; it verifies every row before it keeps any.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path

from handrail.app import store_url
from handrail.cli.output import count, print_json, progress_for, show
from handrail.cli.project import project_settings
from handrail.contract.errors import UsageError
from handrail.stores import open_store
from handrail.stores.maintenance import open_access
from handrail.stores.maintenance.checking import check_store
from handrail.stores.maintenance.copying import copy_store
from handrail.stores.migrations import MIGRATIONS

EXAMPLES = """examples:
  handrail store migrate --dry-run
  handrail store check --json
  handrail store copy sqlite:///handrail.db postgresql://handrail@db.example.com/handrail"""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="migrate|check|copy")
    migrating = actions.add_parser("migrate", help="bring the tables to this release")
    migrating.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    checking = actions.add_parser("check", help="verify tables, files, references and the rules of the ledger")
    for one in (migrating, checking):
        one.add_argument("url", nargs="?", metavar="URL", help="another store than the project's")
    copying = actions.add_parser("copy", help="copy a store into an empty one, while nothing uses either")
    copying.add_argument("source", metavar="FROM", help="the URL of the store that is copied")
    copying.add_argument("target", metavar="TO", help="the URL of an empty store")
    for one in (migrating, checking, copying):
        one.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    if options.action == "copy":
        return _copy(options)
    url = options.url or store_url(project_settings())
    if url == "memory:":
        raise UsageError('The store of this project is kept in memory, where nothing stays; set "url" in [store].')
    return _migrate(url, options) if options.action == "migrate" else _check(url, options)


def _migrate(url: str, options: Namespace) -> int:
    before, newest = _version(url), MIGRATIONS[-1].version
    steps = [step for step in MIGRATIONS if step.version > before]
    if not options.dry_run or before > newest:
        asyncio.run(_open_and_close(url))  # which refuses one that is newer
    if options.json:
        listed = [{"version": step.version, "name": step.name} for step in steps]
        print_json({"from": before, "to": newest, "steps": listed, "done": not options.dry_run})
        return 0
    for step in steps:
        show(f"{step.version:>4}  {step.name}")
    if not steps:
        show(f"The tables are at version {newest}, which is this release's.")
    elif options.dry_run:
        show(f"The tables would go from version {before} to {newest}. Nothing was changed.")
    else:
        show(f"The tables went from version {before} to {newest}.")
    return 0


def _version(url: str) -> int:
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return 0
    with closing(open_access(url, read_only=True)) as store:
        return store.version()


async def _open_and_close(url: str) -> None:
    """Opening a store upgrades it."""
    store = open_store(url)
    await store.open()
    await store.close()


def _check(url: str, options: Namespace) -> int:
    with closing(open_access(url, read_only=True)) as store:
        findings = list(check_store(store))
    if options.json:
        print_json([{"name": one.name, "ok": one.ok, "message": one.message} for one in findings])
    else:
        for one in findings:
            show(f"{'ok  ' if one.ok else 'FAIL'}  {one.name:<10} {one.message}")
    return 0 if all(one.ok for one in findings) else 1


def _copy(options: Namespace) -> int:
    if options.source == options.target:
        raise UsageError("A store cannot be copied to itself; name another target.")
    with closing(open_access(options.source, read_only=False)) as source:
        asyncio.run(_open_and_close(options.target))  # which makes its tables
        with closing(open_access(options.target, read_only=False)) as target:
            tables = copy_store(source, target, progress_for("copying"))
    rows = sum(table.rows for table in tables)
    if options.json:
        listed = [{"name": table.name, "rows": table.rows, "sha256": table.digest} for table in tables]
        print_json({"rows": rows, "tables": listed})
        return 0
    for table in tables:
        show(f"{table.rows:>8}  {table.name:<16} {table.digest}")
    show(f'{count(rows, "row")} copied and verified. Set "url" in [store] to the new store before anything starts.')
    return 0
