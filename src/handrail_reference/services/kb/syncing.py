"""Keeping a part of the base equal to a folder or a Git repository: new and changed documents are taken in, deleted ones go.

A run looks at every page and writes only what differs, so it may be run by a timer as often as wanted. Records of one origin are
known by their `source`, which begins with its name; others are left alone, and so are those of other tenants. A name belongs to
one folder or repository: a second one of the same name would take the records of the first away. A page that cannot be read
keeps its record.
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
from urllib.parse import urlsplit

from handrail.errors import UsageError
from handrail_reference.services.kb import record_writes
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
    place: str
    """The folder itself, or the address and the branch of a repository: what the name belongs to."""
    version: str = ""
    """The commit, of a repository."""

    def below(self, inside: str) -> Origin:
        """Only one folder of it."""
        folder = self.folder / inside
        if not folder.is_dir() or not folder.resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(f'"{inside}" is no folder of it.')
        part = folder.resolve().relative_to(self.folder.resolve()).as_posix()
        return self if part == "." else replace(self, folder=folder, place=f"{self.place}/{part}")


_Scope = tuple[str, str, str, str]
"""Tenant, namespace, owner and id: what there is one record of."""


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
    return Origin(checked_name(name or path.resolve().name), path, _modified, str(path.resolve()))


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
    branch = branch or _git(git, copy, address, "rev-parse", "--abbrev-ref", "HEAD").strip()
    tree = copy.with_name(copy.name + "-files")
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    _git(git, copy, address, "--work-tree", str(tree), "checkout", "--quiet", "--force", version, "--", ".")
    times = _commit_times(_git(git, copy, address, "log", "--format=%x00%cI", "--name-only", "-z", version))
    place = f"{_without_login(address)} ({branch})"
    return Origin(origin_name, tree, lambda path: times.get(path.relative_to(tree).as_posix(), ""), place, version)


def sync(
    database: Any,
    origin: Origin,
    *,
    defaults: Mapping[str, str],
    allow_empty: bool = False,
    dry_run: bool = False,
    moved: bool = False,
) -> SyncOutcome:
    """Make the records of this origin those that its files hold now. None of another tenant is removed."""
    outcome = SyncOutcome()
    sources, passed = find_sources([origin.folder])
    if not sources and not allow_empty:
        raise UsageError(
            f'"{origin.name}" holds no Markdown pages now, so all of its records would go; say --allow-empty if that is meant.'
        )
    _claim(database, origin, moved=moved, dry_run=dry_run)
    tenant = defaults.get("tenant", "")
    prefix = f"{origin.name}:"
    kept: dict[_Scope, _SyncedRecord] = database.read_now(lambda db: _kept(db, prefix, tenant))
    unread = {entry.place for entry in passed}
    pages: set[str] = set()
    seen: dict[_Scope, str] = {}
    new: list[KnowledgeRecord] = []
    for place, label, entry in _entries(origin, sources, passed, defaults):
        pages.add(label)
        record, problems = entry.record, entry.problems
        if record is not None:
            scope = (record.tenant, record.namespace, record.owner, record.id)
            old = kept.get(scope) or database.read_now(lambda db, scope=scope: _record_at(db, scope))
            if scope in seen:
                problems = (f'The id "{record.id}" was used at {seen[scope]} already; give each page its own.',)
            elif old is not None and not old.source.startswith(prefix):
                problems = (
                    f'The id "{record.id}" is that of a record from "{old.source or "elsewhere"}"; delete that one, or give '
                    "another id.",
                )
            else:
                seen[scope] = place
                if _is_new(record, old, outcome):
                    new.append(record)
                continue
        unread.add(label)
        outcome.problems += [(place, problem) for problem in problems]
    gone = [
        one.key
        for scope, one in kept.items()
        if scope not in seen
        and one.source not in unread
        # A page may be in several namespaces, by a run for each: those that this run does not make go when the page does.
        and (_is_made_with(defaults, scope) or one.source not in pages)
    ]
    outcome.removed = len(gone)
    if not dry_run:
        _write(database, new, gone)
    return outcome


def _claim(database: Any, origin: Origin, *, moved: bool, dry_run: bool) -> None:
    """Let the name belong to this folder or repository; `UsageError` where it belongs to another, unless that has moved here."""
    fact = f"origin {origin.name}"

    def claim(db: Any) -> bool:
        """Whether it has to be written."""
        known = record_writes.get_fact(db, fact)
        if known not in (None, origin.place) and not moved:
            raise UsageError(
                f'The name "{origin.name}" belongs to "{known}", and this is "{origin.place}"; give this one another name by '
                "--name, or say --moved if it has taken the place of the other."
            )
        return known != origin.place

    def write(db: Any) -> None:
        if claim(db):
            record_writes.set_fact(db, fact, origin.place)

    if database.read_now(claim) and not dry_run:
        database.write_now(write)


def _is_made_with(defaults: Mapping[str, str], scope: _Scope) -> bool:
    _, namespace, owner, _ = scope
    return namespace == defaults.get("namespace", namespace) and owner == defaults.get("owner", owner)


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


def _kept(db: Any, prefix: str, tenant: str) -> dict[_Scope, _SyncedRecord]:
    rows = db.execute(
        """SELECT s.tenant, s.namespace, s.owner, r.id, r.key, r.source, r.hash, r.last_updated FROM record r
           JOIN scope s ON s.id = r.scope WHERE s.tenant = ? AND substr(r.source, 1, ?) = ?""",
        (tenant, len(prefix), prefix),
    ).fetchall()
    return {tuple(row[:4]): _SyncedRecord(*row[4:]) for row in rows}


def _record_at(db: Any, scope: _Scope) -> _SyncedRecord | None:
    """The record of this tenant, namespace, owner and id, whatever it is from."""
    row = db.execute(
        """SELECT r.key, r.source, r.hash, r.last_updated FROM record r JOIN scope s ON s.id = r.scope
           WHERE s.tenant = ? AND s.namespace = ? AND s.owner = ? AND r.id = ?""",
        scope,
    ).fetchone()
    return None if row is None else _SyncedRecord(*row)


def _write(database: Any, new: list[KnowledgeRecord], gone: list[Any]) -> None:
    if new or gone:
        database.write_now(record_writes.keep_index_current)
    tally = record_writes.Tally()
    for start in range(0, len(new), BATCH):
        batch = new[start : start + BATCH]
        database.write_now(lambda db, batch=batch: record_writes.put_records(db, batch, tally))
    for start in range(0, len(gone), BATCH):
        keys = gone[start : start + BATCH]
        database.write_now(lambda db, keys=keys: record_writes.remove_records(db, keys))


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f'"{name}" cannot name an origin; use --name with letters, digits, ".", "_" and "-".')
    return name


def _without_login(address: str) -> str:
    """An address as it may be kept: who signs in, and by what, is left out."""
    parts = urlsplit(address)
    if not parts.scheme:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


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


def _without_password(address: str) -> str:
    """The address of a repository as it may be shown: before the host and in the query may be a password or a token."""
    parts = urlsplit(address)
    return (
        f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if parts.scheme and parts.netloc
        else "the repository"
    )


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
        shown = _without_password(address)
        said = (
            " ".join(line for line in words[-2:]).replace(address, shown).replace(f"{shown}/'", f"{shown}'")
        )  # as git ends it
        why = "".join(letter if letter.isprintable() else " " for letter in said)[:300]
        raise UsageError(f"Git could not bring the repository here: {why or 'it gave no reason'}. Nothing was changed.")
    return done.stdout.decode(errors="replace")
