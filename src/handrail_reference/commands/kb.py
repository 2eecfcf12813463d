"""The knowledge base: import records, search, look at them, export and delete them.

Files to import are JSON lines (.jsonl), tables (.csv), Markdown pages with front matter (.md) and folders of pages. Run an
import again after it was stopped, and it continues; what is stored already costs no work.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from handrail.commands import confirm, count, open_service, print_json, progress_for, require_project
from handrail.errors import HandrailError, UsageError
from handrail.text import escaped
from handrail_reference.commands import kb_sync
from handrail_reference.commands.kb_output import show_evidence, show_record, show_stats, write_lines
from handrail_reference.services.kb.files import find_sources
from handrail_reference.services.kb.importing import ImportOutcome, embed_missing, import_sources, missing_vectors
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.record import one_form
from handrail_reference.services.kb.record_queries import all_records, readable_scopes, records_with_ids, statistics
from handrail_reference.services.kb.record_writes import remove_records
from handrail_reference.services.kb.service import KnowledgeBase
from handrail_reference.services.kb.starter import replant

HELP = "import, search and export the knowledge base"
EXAMPLES = """examples:
  handrail kb import handbook.jsonl pages/ --namespace studio
  handrail kb import people.csv --strict
  handrail kb sync https://git.example.com/team/handbook.git --path docs
  handrail kb search "who runs onboarding?" --limit 3
  handrail kb get person:ana_kovac --json
  handrail kb export -o backup.jsonl
  handrail kb delete --source handrail --yes"""
_TYPES = ("project", "person", "process", "link", "doc", "lab")
_MAX_PROBLEMS = 50


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="import | sync | search | get | stats | export | delete | embed"
    )
    _configure_import(actions.add_parser("import", help="take in records from files and folders"))
    kb_sync.configure(actions.add_parser("sync", help="follow a folder or a Git repository"))
    search = actions.add_parser("search", help="what a query finds, with scores")
    search.add_argument("query", help="what to look for")
    search.add_argument("--limit", type=int, default=5, help="how many results, 1 to 50 (default: 5)")
    search.add_argument("--type", choices=_TYPES, help="only records of this type")
    search.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="only records with this tag; repeatable"
    )
    get = actions.add_parser("get", help="whole records by their ids")
    get.add_argument("ids", nargs="+", metavar="ID", help="such as person:ana_kovac")
    stats = actions.add_parser("stats", help="how much there is, and how it is searched")
    export = actions.add_parser("export", help="every record as JSON lines that can be imported again")
    export.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output)")
    delete = actions.add_parser("delete", help="delete records by id, or all of a source or namespace")
    delete.add_argument("ids", nargs="*", metavar="ID", help="such as person:ana_kovac")
    delete.add_argument(
        "--yes", action="store_true", help="do not ask: a whole source or namespace, or an id in several namespaces"
    )
    embed = actions.add_parser("embed", help="make the vectors that are missing")
    for one in (search, get, export, delete):
        one.add_argument("--namespace", help="only this namespace")
    for one in (search, get, delete):
        one.add_argument("--tenant", default="", help="this tenant's records (default: those of no tenant)")
        one.add_argument("--user", help="as this user: with their personal records")
    for one in (export, delete):
        one.add_argument("--source", help="only records that were imported from here")
    for one in (search, get, stats, delete, embed):
        one.add_argument("--json", action="store_true", help="print as JSON")


def _configure_import(parser: ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FILE|FOLDER", help="what to take in")
    parser.add_argument(
        "--starter", action="store_true", help="Handrail's own pages, too: for a base that began without them"
    )
    parser.add_argument("--strict", action="store_true", help="change nothing if a single record is bad")
    parser.add_argument("--namespace", help="the namespace of records that name none (default: studio)")
    parser.add_argument("--owner", help="the owner of records that name none; for the namespace personal")
    parser.add_argument("--tenant", help="the tenant of records that name none")
    parser.add_argument("--source", help="where the records are from (default: the file's name)")
    parser.add_argument(
        "--no-embeddings", action="store_true", help="leave out the vectors; `kb embed` makes them later"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    for name, value in vars(options).items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isprintable():
                raise UsageError(f'"{name}" must be plain text; {text[:40]!r} is not.')
    return asyncio.run(_run(options))


async def _run(options: Namespace) -> int:
    """Commands do their work on this thread: nobody else waits for it."""
    actions = {
        "import": _import, "search": _search, "get": _get, "stats": _stats, "export": _export, "delete": _delete,
        "embed": _embed, "sync": kb_sync.run,
    }  # fmt: skip
    if options.action not in ("import", "sync"):
        require_project()
    words_only = options.action in ("get", "export", "delete") or getattr(options, "no_embeddings", False)
    async with open_service("kb", **({"embeddings": "none"} if words_only else {})) as kb:
        if not isinstance(kb, KnowledgeBase):
            raise UsageError(
                "[services.kb] has a factory of its own; `handrail kb` works on the embedded knowledge base."
            )
        if options.action in ("stats", "export", "delete", "embed"):
            _must_exist(kb)
        return actions[options.action](kb, options)


def _must_exist(kb: KnowledgeBase) -> None:
    if not kb.database.is_there():
        raise UsageError(
            f'There is no knowledge base "{kb.database.name}" yet; `handrail kb import FILE` makes one, or the first search.'
        )


def _import(kb: KnowledgeBase, options: Namespace) -> int:
    if not options.paths and not options.starter:
        raise UsageError("Name the files or folders to import; --starter takes in Handrail's own pages.")
    sources, passed = find_sources(Path(path) for path in options.paths)
    if options.paths and not sources:
        raise UsageError("There is nothing to import: the folders hold no Markdown pages.")
    names = ("namespace", "owner", "tenant", "source")
    defaults = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    outcome = import_sources(
        kb.database,
        sources,
        passed,
        defaults=defaults,
        strict=options.strict,
        progress=progress_for("Importing (bytes)"),
        on_problem=_complainer(),
    )
    vectors, trouble = 0, ""
    if options.starter and not outcome.refused:
        kb.database.write_now(lambda db: replant(db, outcome.tally))
    if not outcome.refused:
        try:
            vectors = _make_vectors(kb)
        except HandrailError as error:  # the records are in; the tally is shown before what is missing
            trouble = str(error)
    code = _report(outcome, vectors, options)
    if trouble:
        sys.stdout.flush()
        sys.stderr.write(f"The records are stored, but not all have vectors: {trouble} Then `handrail kb embed`.\n")
    return code


def _complainer() -> Any:
    said = 0

    def complain(place: str, problem: str) -> None:
        nonlocal said
        said += 1
        if said <= _MAX_PROBLEMS:
            sys.stderr.write(escaped(f"{place}: {problem}") + "\n")
        elif said == _MAX_PROBLEMS + 1:
            sys.stderr.write("… and more; mend these first, or read all of them with --json.\n")

    return complain


def _report(outcome: ImportOutcome, vectors: int, options: Namespace) -> int:
    tally = outcome.tally
    nothing_good = bool(outcome.skipped) and not (outcome.refused or tally.touched or tally.unchanged)
    if options.json:
        print_json(
            {
                "added": tally.added,
                "changed": tally.changed,
                "unchanged": tally.unchanged,
                "skipped": outcome.skipped,
                "vectors": vectors,
                "refused": outcome.refused,
                "problems": [{"place": place, "problem": problem} for place, problem in outcome.problems],
            }
        )
    elif nothing_good:
        sys.stderr.write(f"Nothing was imported: {count(outcome.skipped, 'bad record')}.\n")
    elif outcome.refused:
        sys.stderr.write(f"Nothing was imported: {count(outcome.skipped, 'bad record')}, and --strict wants none.\n")
    else:
        made = f"; {vectors} vectors made" if vectors else ""
        print(
            f"{tally.added} added, {tally.changed} changed, {tally.unchanged} unchanged, {outcome.skipped} skipped{made}."
        )
    return 1 if outcome.refused or nothing_good else 0


def _make_vectors(kb: KnowledgeBase) -> int:
    embedder = kb.embedder
    return 0 if embedder is None else embed_missing(kb.database, embedder, progress=progress_for("Embedding (pieces)"))


def _embed(kb: KnowledgeBase, options: Namespace) -> int:
    if kb.embedder is None:
        reason = "No embeddings are installed or chosen; `handrail models install` brings them."
        raise UsageError(kb.meaning.problem or reason)
    made = _make_vectors(kb)
    if options.json:
        print_json({"vectors": made, "space": kb.embedder.name})
    else:
        print(f"{made} vectors made ({kb.embedder.name}).")
    return 0


def _search(kb: KnowledgeBase, options: Namespace) -> int:
    if not 1 <= options.limit <= 50:
        raise UsageError(f"--limit must be from 1 to 50; {options.limit} is not.")
    found = kb.search_now(
        options.query,
        namespaces=_namespaces(kb, options.namespace),
        tenant=options.tenant,
        user=options.user,
        wanted=Filter(type=options.type, tags=tuple(options.tag)),
        limit=options.limit,
    )
    show_evidence(found, as_json=options.json)
    return 0


def _namespaces(kb: KnowledgeBase, namespace: str | None) -> list[str]:
    if namespace is not None:
        return [namespace]
    kb.database.read_now(kb.open_now)
    return [
        row[0] for row in kb.database.read_now(lambda db: db.execute("SELECT DISTINCT namespace FROM scope").fetchall())
    ]


def _get(kb: KnowledgeBase, options: Namespace) -> int:
    ids = list(dict.fromkeys(one_form(one) for one in options.ids))
    namespaces = _namespaces(kb, options.namespace)
    found = kb.database.read_now(
        lambda db: records_with_ids(db, readable_scopes(db, options.tenant, namespaces, options.user), ids)
    )
    records = [record for one in ids for record in found if record.id == one]
    missing = [one for one in ids if all(record.id != one for record in found)]
    if options.json:
        print_json({"records": [record.to_dict() for record in records], "missing": missing})
    else:
        for record in records:
            show_record(record)
    for one in missing:
        sys.stderr.write(f'There is no record "{one}".\n')
    return 1 if missing else 0


def _stats(kb: KnowledgeBase, options: Namespace) -> int:
    numbers = kb.database.read_now(statistics)
    embedder = kb.embedder
    numbers["embeddings"] = None if embedder is None else embedder.name
    name = "" if embedder is None else embedder.name
    numbers["withoutVectors"] = kb.database.read_now(lambda db: missing_vectors(db, name))
    if options.json:
        print_json(numbers)
    else:
        show_stats(numbers)
    return 0


def _export(kb: KnowledgeBase, options: Namespace) -> int:
    written = kb.database.read_now(
        lambda db: write_lines(all_records(db, options.namespace, options.source), options.output)
    )
    if options.output:
        print(count(written, "record") + f' written to "{options.output}".')
    return 0


def _delete(kb: KnowledgeBase, options: Namespace) -> int:
    if not options.ids and options.source is None and options.namespace is None:
        raise UsageError("Name what to delete: ids, --source or --namespace.")
    rows = kb.database.read_now(lambda db: _rows_to_delete(db, options))
    if options.ids:
        rows = _chosen(rows, options)
    elif rows and not _agreed(len(rows), options):
        raise UsageError(f"{count(len(rows), 'record')} would be deleted; say --yes to do it.")
    removed = kb.database.write_now(lambda db: remove_records(db, [row[0] for row in rows]))
    if options.json:
        print_json({"deleted": removed})
    else:
        print(f"{count(removed, 'record')} deleted.")
    return 0


def _rows_to_delete(db: Any, options: Namespace) -> list[Any]:
    """(key, id, namespace, owner) of what is meant. By id only what this user reads; a whole source has every owner's."""
    asked = [("s.tenant = ?", options.tenant), ("s.namespace = ?", options.namespace), ("r.source = ?", options.source)]
    if options.ids or options.user is not None:
        asked.append(("s.owner IN ('', ?)", options.user or ""))
    given = [(condition, value) for condition, value in asked if value is not None]
    sql = "SELECT r.key, r.id, s.namespace, s.owner FROM record r JOIN scope s ON s.id = r.scope WHERE "
    conditions = " AND ".join(condition for condition, _ in given)
    rows: list[Any] = db.execute(f"{sql}{conditions} ORDER BY r.key", [value for _, value in given]).fetchall()
    return rows


def _chosen(rows: list[Any], options: Namespace) -> list[Any]:
    """The rows of the named ids. `UsageError` where one is missing, or in several namespaces and none of them was named."""
    chosen = []
    for one in dict.fromkeys(one_form(name) for name in options.ids):
        mine = [row for row in rows if row[1] == one]
        if not mine:
            raise UsageError(f'There is no record "{one}" here; nothing was deleted.')
        if len(mine) > 1 and not options.yes:
            places = ", ".join(f"{row[2]} of {row[3]}" if row[3] else row[2] for row in mine)
            raise UsageError(
                f'"{one}" is in several namespaces ({places}); name one with --namespace, or say --yes for all of them.'
            )
        chosen += mine
    return chosen


def _agreed(number: int, options: Namespace) -> bool:
    if options.yes or options.json or not sys.stdin.isatty():
        return bool(options.yes)
    return confirm(f"Delete {count(number, 'record')}?")
