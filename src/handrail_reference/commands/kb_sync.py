"""`handrail kb sync`: make a part of the base equal to a folder or a Git repository."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from handrail.commands import print_json, project_folder
from handrail.errors import HandrailError, UsageError
from handrail.text import escaped
from handrail_reference.services.kb.importing import embed_missing
from handrail_reference.services.kb.service import KnowledgeBase
from handrail_reference.services.kb.syncing import (
    Origin,
    SyncOutcome,
    folder_origin,
    is_repository,
    repository_origin,
    sync,
)

_MAX_PROBLEMS = 50


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "origin", metavar="FOLDER|REPOSITORY", help="a folder of pages, or the address of a Git repository"
    )
    parser.add_argument(
        "--name", default="", help="what its records are known by (default: the folder's or repository's name)"
    )
    parser.add_argument("--branch", default="", help="of a repository (default: its own)")
    parser.add_argument("--path", default="", metavar="FOLDER", help="only this folder of it")
    parser.add_argument("--namespace", help="the namespace of records that name none (default: studio)")
    parser.add_argument("--owner", help="the owner of records that name none; for the namespace personal")
    parser.add_argument("--tenant", help="the tenant of records that name none")
    parser.add_argument(
        "--allow-empty", action="store_true", help="an origin without pages takes all of its records away"
    )
    parser.add_argument(
        "--moved", action="store_true", help="the name belonged to another place, which this one replaces"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")
    parser.add_argument(
        "--no-embeddings", action="store_true", help="leave out the vectors; `kb embed` makes them later"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(kb: KnowledgeBase, options: Namespace) -> int:
    names = ("namespace", "owner", "tenant")
    defaults = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    origin = _origin(kb, options)
    outcome = sync(
        kb.database,
        origin,
        defaults=defaults,
        allow_empty=options.allow_empty,
        dry_run=options.dry_run,
        moved=options.moved,
    )
    trouble = ""
    if not options.dry_run and kb.embedder is not None:
        try:
            embed_missing(kb.database, kb.embedder)
        except HandrailError as error:
            trouble = f"The records are stored, but not all have vectors: {error} Then `handrail kb embed`."
    _report(outcome, origin, options)
    if trouble:
        sys.stderr.write(trouble + "\n")
    return 1 if outcome.problems else 0


def _origin(kb: KnowledgeBase, options: Namespace) -> Origin:
    if is_repository(options.origin):
        copies = project_folder() / ".handrail" / "repositories"
        found = repository_origin(options.origin, options.name, branch=options.branch, copies=copies)
    elif options.branch:
        raise UsageError("--branch is for a repository; a folder has none.")
    else:
        found = folder_origin(Path(options.origin), options.name)
    return found.below(options.path) if options.path else found


def _report(outcome: SyncOutcome, origin: Origin, options: Namespace) -> None:
    if options.json:
        print_json(
            {
                "origin": origin.name,
                "version": origin.version or None,
                "added": outcome.added,
                "changed": outcome.changed,
                "unchanged": outcome.unchanged,
                "removed": outcome.removed,
                "dryRun": options.dry_run,
                "problems": [{"place": place, "problem": problem} for place, problem in outcome.problems],
            }
        )
        return
    for place, problem in outcome.problems[:_MAX_PROBLEMS]:
        sys.stderr.write(escaped(f"{place}: {problem}") + "\n")
    if len(outcome.problems) > _MAX_PROBLEMS:
        sys.stderr.write("… and more; mend these first, or read all of them with --json.\n")
    at = f" at {origin.version[:12]}" if origin.version else ""
    would = "would be " if options.dry_run else ""
    print(
        f"{origin.name}{at}: {outcome.added} {would}added, {outcome.changed} {would}changed, "
        f"{outcome.removed} {would}removed, {outcome.unchanged} unchanged."
    )
