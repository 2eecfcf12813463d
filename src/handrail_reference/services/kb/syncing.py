"""Keeping a part of the base equal to a folder or a Git repository: new and changed documents are taken in, deleted ones go.

A run looks at every page and writes only what differs, so it may be run by a timer as often as wanted. Records of one origin are
known by their `source`, which begins with its name; others are left alone. A page that cannot be read keeps its record.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from handrail.errors import UsageError
from handrail_reference.services.kb import writing
from handrail_reference.services.kb.files import FileEntry, Source, find_sources, read_source
from handrail_reference.services.kb.record import KnowledgeRecord

BATCH = 200
_GIT_SECONDS = 600
_URL = re.compile(r"(?:https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
_BRANCH = re.compile(r"[\w][\w./-]{0,199}")
_NAME = re.compile(r"[\w][\w.-]{0,63}")
# What a repository says is not run: no hooks, no filters of its own, no helper programs, no links out of it.
_GIT_SAFELY = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.symlinks=false", "-c", "protocol.ext.allow=never",
    "-c", "core.fsmonitor=false", "-c", "credential.interactive=false", "-c", "advice.detachedHead=false",
)  # fmt: skip


@dataclass(slots=True)
class SyncOutcome:
    """What a run did. `problems` are (place, sentence)."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where documents come from: a folder on this machine, and when each of its files was changed."""

    name: str
    folder: Path
    changed_at: Callable[[Path], str]
    version: str = ""
    """The commit, of a repository."""

    def below(self, inside: str) -> Origin:
        """Only one folder of it."""
        folder = self.folder / inside
        if not folder.is_dir() or not folder.resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(f'"{inside}" is no folder of it.')
        return replace(self, folder=folder)


class _SyncedRecord(NamedTuple):
    key: Any
    source: str
    hash: str
    last_updated: str


def is_repository(text: str) -> bool:
    """Whether the text names a repository rather than a folder."""
    return _URL.fullmatch(text) is not None


def folder_origin(path: Path, name: str) -> Origin:
    """A folder; the time of a document is that of its file."""
    if not path.is_dir():
        raise UsageError(f'"{path}" is no folder; name a folder of pages, or the address of a Git repository.')
    return Origin(checked_name(name or path.resolve().name), path, _modified)


def repository_origin(address: str, name: str, *, branch: str, copies: Path) -> Origin:
    """A Git repository, cloned or brought up to date below `copies`; the time of a document is that of its last commit."""
    if branch and not _BRANCH.fullmatch(branch):
        raise UsageError(f'"{branch}" cannot be the name of a branch.')
    git = shutil.which("git")
    if git is None:
        raise UsageError(
            'A repository needs the command "git", which this machine does not have; install it, or sync a folder.'
        )
    origin_name = checked_name(name or address.rstrip("/").removesuffix(".git").replace(":", "/").rpartition("/")[2])
    copy = copies / sha256(f"{address}\0{branch}".encode()).hexdigest()[:16]
    if (copy / "HEAD").is_file():
        _git(git, copy, address, "fetch", "--quiet", "--prune", "--", address, "+refs/heads/*:refs/heads/*")
    else:
        copies.mkdir(parents=True, exist_ok=True)
        (copies / ".gitignore").write_text("*\n", "utf-8")
        shutil.rmtree(copy, ignore_errors=True)
        _git(git, copies, address, "clone", "--quiet", "--bare", "--", address, str(copy))
        # The address may carry a password, which is no file's business.
        _git(git, copy, address, "config", "--remove-section", "remote.origin")
    head = f"refs/heads/{branch}" if branch else "HEAD"
    try:
        version = _git(git, copy, address, "rev-parse", "--verify", f"{head}^{{commit}}").strip()
    except UsageError:
        raise UsageError(
            f'The repository has no branch "{branch}".' if branch else "The repository has no commit yet."
        ) from None
    tree = copy.with_name(copy.name + "-files")
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    _git(git, copy, address, "--work-tree", str(tree), "checkout", "--quiet", "--force", version, "--", ".")
    times = _commit_times(_git(git, copy, address, "log", "--format=%x00%cI", "--name-only", "-z", version))
    return Origin(origin_name, tree, lambda path: times.get(path.relative_to(tree).as_posix(), ""), version)


def sync(
    database: Any, origin: Origin, *, defaults: Mapping[str, str], allow_empty: bool = False, dry_run: bool = False
) -> SyncOutcome:
    """Make the records of this origin those that its files hold now."""
    outcome = SyncOutcome()
    sources, passed = find_sources([origin.folder])
    if not sources and not allow_empty:
        raise UsageError(
            f'"{origin.name}" holds no Markdown pages now, so all of its records would go; say --allow-empty if that is meant.'
        )
    prefix = f"{origin.name}:"
    kept: dict[tuple[str, str, str, str], _SyncedRecord] = database.read_now(lambda db: _kept(db, prefix))
    unread = {entry.place for entry in passed}
    seen: dict[tuple[str, str, str, str], str] = {}
    new: list[KnowledgeRecord] = []
    for place, label, entry in _entries(origin, sources, passed, defaults):
        record, problems = entry.record, entry.problems
        if record is not None:
            scope = (record.tenant, record.namespace, record.owner, record.id)
            other = database.read_now(lambda db, scope=scope: _source_of(db, scope)) if scope not in kept else ""
            if scope in seen:
                problems = (f'The id "{record.id}" was used at {seen[scope]} already; give each page its own.',)
            elif other:
                problems = (
                    f'The id "{record.id}" is that of a record from "{other}"; delete that one, or give another id.',
                )
            else:
                seen[scope] = place
                if _is_new(record, kept.get(scope), outcome):
                    new.append(record)
                continue
        unread.add(label)
        outcome.problems += [(place, problem) for problem in problems]
    gone = [one.key for scope, one in kept.items() if scope not in seen and one.source not in unread]
    outcome.removed = len(gone)
    if not dry_run:
        _write(database, new, gone)
    return outcome


def _entries(
    origin: Origin, sources: Iterable[Source], passed: Iterable[FileEntry], defaults: Mapping[str, str]
) -> Iterator[tuple[str, str, FileEntry]]:
    """Each entry with its place for a message, and the `source` of the records of its file."""
    for entry in passed:
        yield entry.place, entry.place, entry
    for source in sources:
        inside = source.path.relative_to(origin.folder).as_posix()
        label = f"{origin.name}:{inside}"
        for entry in read_source(source, {**defaults, "source": label}):
            record = entry.record
            if record is not None:
                time = record.last_updated or origin.changed_at(source.path)
                entry = replace(entry, record=replace(record, source=label, last_updated=time))
            yield inside, label, entry


def _is_new(record: KnowledgeRecord, old: _SyncedRecord | None, outcome: SyncOutcome) -> bool:
    """Whether it has to be written. A file that was only touched is not a change."""
    if old is None:
        outcome.added += 1
        return True
    same = replace(record, last_updated=old.last_updated).content_hash == old.hash and record.source == old.source
    if same:
        outcome.unchanged += 1
    else:
        outcome.changed += 1
    return not same


def _kept(db: Any, prefix: str) -> dict[tuple[str, str, str, str], _SyncedRecord]:
    rows = db.execute(
        """SELECT r.key, s.tenant, s.namespace, s.owner, r.id, r.source, r.hash, r.last_updated FROM record r
           JOIN scope s ON s.id = r.scope WHERE substr(r.source, 1, ?) = ?""",
        (len(prefix), prefix),
    ).fetchall()
    return {(row[1], row[2], row[3], row[4]): _SyncedRecord(row[0], row[5], row[6], row[7]) for row in rows}


def _source_of(db: Any, scope: tuple[str, str, str, str]) -> str:
    """Where the record of this tenant, namespace, owner and id is from; empty if there is none."""
    row = db.execute(
        """SELECT r.source FROM record r JOIN scope s ON s.id = r.scope
           WHERE s.tenant = ? AND s.namespace = ? AND s.owner = ? AND r.id = ?""",
        scope,
    ).fetchone()
    return "" if row is None else row[0] or "elsewhere"


def _write(database: Any, new: list[KnowledgeRecord], gone: list[Any]) -> None:
    if new or gone:
        database.write_now(writing.keep_index_current)
    tally = writing.Tally()
    for start in range(0, len(new), BATCH):
        batch = new[start : start + BATCH]
        database.write_now(lambda db, batch=batch: writing.put_records(db, batch, tally))
    for start in range(0, len(gone), BATCH):
        keys = gone[start : start + BATCH]
        database.write_now(lambda db, keys=keys: writing.remove_records(db, keys))


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f'"{name}" cannot name an origin; use --name with letters, digits, ".", "_" and "-".')
    return name


def _modified(path: Path) -> str:
    return datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat().replace("+00:00", "Z")


def _commit_times(log: str) -> dict[str, str]:
    """The time of the newest commit of each file. The log has commits from the newest on: a time, then names."""
    times: dict[str, str] = {}
    time = ""
    expects_time = False
    for word in log.split("\0"):
        word = word.removeprefix("\n")
        if not word:
            expects_time = True
        elif expects_time:
            moment = datetime.fromisoformat(word.strip()).astimezone(UTC)
            time, expects_time = moment.isoformat().replace("+00:00", "Z"), False
        else:
            times.setdefault(word, time)
    return times


def _git(git: str, folder: Path, address: str, *arguments: str) -> str:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
    }
    try:
        done = subprocess.run(
            [git, *_GIT_SAFELY, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"The repository did not answer within {_GIT_SECONDS} seconds; nothing was changed.") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        # An address may carry a password.
        said = " ".join(line for line in words[-2:]).replace(address, "the repository")
        why = "".join(letter if letter.isprintable() else " " for letter in said)[:300]
        raise UsageError(f"Git could not bring the repository here: {why or 'it gave no reason'}. Nothing was changed.")
    return done.stdout.decode(errors="replace")
