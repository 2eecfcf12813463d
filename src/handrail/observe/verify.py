"""Proves an audit directory: an edited, missing, inserted or reordered line, a torn or cut tail, a deleted or copied
file. Without a key whoever can write the files can also compute every hash anew; with one, a re-stamped chain is
found. Cuts and deletions are found through `checkpoints.jsonl` and the checkpoints in the store. With a key those cannot be
forged either: who changes files and store needs older copies of both to stay unnoticed.

Files from before a key was introduced are trusted as far as a keyed file vouches for them: its first line, which is keyed, has
the hash of the checkpoints that there were when it was begun.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Any

from handrail.contract.store import AuditCheckpoint, SettledCall
from handrail.observe.audit_files import audit_files, keys_of_outcomes, read_events
from handrail.observe.chain import (
    CHECKPOINT,
    CHECKPOINTS,
    GENESIS,
    HEAD,
    START,
    decode,
    encode_name,
    seal,
    split_seal,
    stamp,
)

__all__ = ["AuditProblem", "read_events", "verify_directory"]

STORE = "store"
"""Where the checkpoints of the store are named as a file is."""
_MAX_CALLS = 50
"""How many calls without a line are named."""
_CHECKPOINT_NAME = encode_name(CHECKPOINT)


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """Something about the log that cannot be trusted. `line` is None where it is about the file as a whole."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.message}"


@dataclass(slots=True)
class _File:
    """What was learnt about one file while its lines were read."""

    name: str
    start: dict[str, Any] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    line: int = 0
    head: bytes = GENESIS
    heads: dict[int, bytes] = field(default_factory=dict)
    """The hash of each line that has one, by its number in the chain."""
    checkpoints: list[int] = field(default_factory=list)
    is_begun_with_key: bool = False
    """Whether the hash of its first line fits, and is keyed."""
    problems: list[AuditProblem] = field(default_factory=list)

    def report(self, line: int | None, message: str) -> None:
        self.problems.append(AuditProblem(self.name, line, message))


def verify_directory(
    path: Path,
    key: bytes | None = None,
    stored: Sequence[AuditCheckpoint] | None = None,
    calls: Sequence[SettledCall] = (),
) -> list[AuditProblem]:
    """Everything that is wrong with the audit log in a directory, by file and line; empty if it can be trusted.

    `stored` are the checkpoints that the store keeps; None if there is no store to ask. `calls` are those of its ledger that must
    have a line each: whoever deletes the whole log and its checkpoints leaves them behind."""
    files: dict[str, _File] = {}
    for place in audit_files(path):
        files[place.name] = _check_file(place, key)
    problems = [problem for file in files.values() for problem in file.problems]
    problems += _check_joints(files)
    records = _Records.read(path / CHECKPOINTS, files, key)
    problems += _check_checkpoints(records, files, key)
    if key is not None:
        problems += _check_unkeyed(files, records)
    if stored is not None:
        problems += _check_stored(stored, files, records, key)
    if calls:
        problems += _check_calls(calls, keys_of_outcomes(path))
    return list(dict.fromkeys(problems))


# ------------------------------------------------------------------------------------------------------------- one file
def _check_file(place: Path, key: bytes | None) -> _File:
    file = _File(place.name)
    group: list[bytes] = []
    sound = True
    with place.open("rb") as stream:
        for line in stream:
            file.line += 1
            if not line.endswith(b"\n"):
                file.report(
                    file.line, "The file ends inside a line: its process crashed while writing, or its tail was cut."
                )
                group.clear()
                break
            stem, stated = split_seal(line[:-1])
            sound = _check_line(file, line, key) and sound
            group.append(stem)
            if stated is not None:
                _check_group(file, group, stated, key, sound)
                group.clear()
                sound = True
    if file.line == 0:
        file.report(None, "The file is empty: it had a first line when its process opened it.")
    elif group:
        file.report(file.line, f"The last {_lines(len(group))} have no hash: the tail was cut, or its process crashed.")
    return file


def _check_line(file: _File, line: bytes, key: bytes | None) -> bool:
    """Whether the line stands where its number says."""
    head = HEAD.match(line)
    if head is None:
        file.report(file.line, "This is not a line that an audit log wrote.")
        return False
    seq = int(head[3])
    if file.line == 1:
        file.first, file.last = seq, seq
        return _check_start(file, line, key)
    if head[1] == _CHECKPOINT_NAME:
        file.checkpoints.append(seq)
    expected, file.last = file.last + 1, max(file.last, seq)
    if seq > expected:
        file.report(file.line, f"Line number {expected} should stand here, not {seq}: lines are missing or reordered.")
    elif seq < expected:
        file.report(file.line, f"Line number {expected} should stand here, not {seq}: a line was inserted or moved.")
    return seq == expected


def _check_start(file: _File, line: bytes, key: bytes | None) -> bool:
    start = decode(line) or {}
    if start.get("event") != START or not isinstance(start.get("prev"), str):
        file.report(1, f'The first line must be an "{START}" event: the beginning of the file is missing.')
        return False
    file.start = start
    file.head = start["prev"].encode()
    if start.get("file") != file.name:
        file.report(1, f"This file was written as {start.get('file')}: it was renamed or copied.")
    if start.get("keyed") and key is None:
        file.report(1, "The hashes of this file are keyed: they cannot be checked without the key.")
    return True


def _check_group(file: _File, group: list[bytes], stated: bytes, key: bytes | None, sound: bool) -> None:
    keyed = bool(file.start.get("keyed"))
    covered = file.head + b"\n".join(group)
    file.head = file.heads[file.last] = stated
    first = file.line - len(group) + 1
    # A line out of place was reported already, and without the key nothing more can be said.
    if not sound or (keyed and key is None):
        return
    if compare_digest(seal(key if keyed else None, covered), stated):
        file.is_begun_with_key = file.is_begun_with_key or (keyed and first == 1)
        return
    where = "This line was" if len(group) == 1 else f"A line from {first} to {file.line} was"
    file.report(first, f"{where} edited, or the chain was re-stamped: the hash does not fit.")


# ----------------------------------------------------------------------------------------------------- files together
def _check_joints(files: dict[str, _File]) -> Iterator[AuditProblem]:
    """That each file continues where the one before it ended."""
    for file in files.values():
        if not file.start:
            continue
        before = file.start.get("previous")
        if before is None:
            if file.first != 1 or file.start["prev"].encode() != GENESIS:
                yield AuditProblem(file.name, 1, "This file does not begin its chain, and names none before it.")
        elif before not in files:
            yield AuditProblem(file.name, 1, f"The file before it, {before}, is missing.")
        elif (files[before].last + 1, files[before].head) != (file.first, file.start["prev"].encode()):
            yield AuditProblem(file.name, 1, f"It does not continue where {before} ends: lines between them were cut.")


@dataclass(slots=True)
class _Records:
    """What `checkpoints.jsonl` says."""

    content: bytes | None
    of_files: dict[str, dict[int, tuple[int, bytes]]] = field(default_factory=dict)
    """By file and number of a line in its chain: the line of the record, and the hash."""
    vouched: dict[str, int] = field(default_factory=dict)
    """For each file without keyed hashes, up to which line of its chain a keyed file vouches for it."""
    problems: list[AuditProblem] = field(default_factory=list)

    @classmethod
    def read(cls, place: Path, files: dict[str, _File], key: bytes | None) -> _Records:
        try:
            content = place.read_bytes()
        except FileNotFoundError:
            return cls(None)
        found = cls(content)
        end, anchored = 0, _anchored(content, files)
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            end += len(line)
            if line.strip():
                found._take(number, line.rstrip(b"\n"), key, end <= anchored)
        return found

    def _take(self, number: int, line: bytes, key: bytes | None, is_anchored: bool) -> None:
        record, trouble, keyed = _read_record(line, key, is_anchored)
        if trouble:
            self.problems.append(AuditProblem(CHECKPOINTS, number, trouble))
        if record is None:
            return
        name, count = str(record["file"]), record["count"]
        self.of_files.setdefault(name, {})[count] = (number, str(record["head"]).encode())
        if is_anchored and not keyed:
            self.vouched[name] = max(count, self.vouched.get(name, 0))


def _anchored(content: bytes, files: dict[str, _File]) -> int:
    """How many bytes of the checkpoints stand under the key, by way of the first line of a keyed file."""
    highest = 0
    for file in files.values():
        anchor = file.start.get("anchor")
        if file.is_begun_with_key and isinstance(anchor, dict) and isinstance(anchor.get("bytes"), int):
            before = content[: anchor["bytes"]]
            if hashlib.sha256(before).hexdigest() == anchor.get("sha256"):
                highest = max(highest, len(before))
    return highest


def _check_unkeyed(files: dict[str, _File], records: _Records) -> Iterator[AuditProblem]:
    """There is a key: that the files without keyed hashes are from before it was introduced, and have not changed since."""
    for file in files.values():
        if not file.start or file.start.get("keyed"):
            continue
        vouched = records.vouched.get(file.name, 0)
        if vouched < file.first:
            message = "The hashes of this file are not keyed, though there is a key: it may have been re-stamped."
            yield AuditProblem(file.name, 1, message)
        elif vouched < file.last:
            message = (
                f"The lines after number {vouched} are not keyed, though there is a key: they may have been re-stamped."
            )
            yield AuditProblem(file.name, vouched - file.first + 2, message)


def _check_checkpoints(records: _Records, files: dict[str, _File], key: bytes | None) -> Iterator[AuditProblem]:
    if records.content is None:
        if files:
            yield AuditProblem(
                CHECKPOINTS, None, "The checkpoints are missing: a cut tail or a deleted file cannot be found."
            )
        return
    yield from records.problems
    for name, counts in records.of_files.items():
        where = {count: (f"in line {number} of {CHECKPOINTS}", head) for count, (number, head) in counts.items()}
        yield from _check_file_records(files.get(name), name, where)
    for file in files.values():
        yield from _check_recorded(file, records.of_files.get(file.name, {}), records.content)


def _read_record(line: bytes, key: bytes | None, is_anchored: bool) -> tuple[dict[str, Any] | None, str | None, bool]:
    """A record, what is wrong with it, and whether it was made with the key."""
    stem, mac = split_seal(line)
    record = decode(line)
    if (
        mac is None
        or record is None
        or not isinstance(record.get("count"), int)
        or not {"file", "head"} <= record.keys()
    ):
        return None, "This is not a checkpoint: it was torn by a crash or a full disk, or edited.", False
    is_keyed = key is not None and compare_digest(seal(key, stem), mac)
    if key is None or is_keyed or (is_anchored and compare_digest(seal(None, stem), mac)):
        return record, None, is_keyed
    return record, "This checkpoint was not made with the key: it was edited or forged.", False


def _check_stored(
    stored: Sequence[AuditCheckpoint], files: dict[str, _File], records: _Records, key: bytes | None
) -> Iterator[AuditProblem]:
    """That the store's checkpoints are all there and ours, and that the files lead to them."""
    if not stored:
        if key is not None and any(file.start.get("keyed") for file in files.values()):
            yield AuditProblem(STORE, None, "The store has no checkpoint of any chain: they were deleted.")
        return
    numbers = [one.number for one in stored]
    total = next((one.position.seq for one in stored if one.number == 0), None)
    expected = set(range(max(total or 0, *numbers) + 1))
    if missing := sorted(expected - set(numbers)):
        yield AuditProblem(STORE, None, f"Checkpoint number {missing[0]} of the store is missing: a chain may be gone.")
    keyed = {one.number for one in stored if key is None or compare_digest(seal(key, one.covered()).decode(), one.mac)}
    first_keyed = min(keyed - {0}, default=0)
    for one in stored:
        is_older = 0 < one.number < first_keyed and one.position.seq <= records.vouched.get(one.position.file, 0)
        if one.number not in keyed and not is_older:
            message = f"Checkpoint number {one.number} of the store was not made with the key: it was edited or forged."
            yield AuditProblem(STORE, None, message)
        if one.number:
            at = {one.position.seq: ("in the store", one.position.head.encode())}
            yield from _check_file_records(files.get(one.position.file), one.position.file, at)


def _check_file_records(file: _File | None, name: str, counts: dict[int, tuple[str, bytes]]) -> Iterator[AuditProblem]:
    highest = max(counts)
    if file is None:
        yield AuditProblem(name, None, f"The file is missing; its chain had {_lines(highest)} when it was last seen.")
        return
    if highest > file.last:
        yield AuditProblem(name, None, f"Its tail was cut: its chain had {_lines(highest)}, and ends at {file.last}.")
    for count, (where, head) in counts.items():
        if file.first <= count <= file.last and file.heads.get(count) != head:
            message = f"Line number {count} is not the one of the checkpoint {where}: re-stamped."
            yield AuditProblem(name, count - file.first + 1, message)


def _check_recorded(file: _File, known: dict[int, Any], content: bytes) -> Iterator[AuditProblem]:
    """That nothing was taken out of the checkpoints."""
    # A process that crashes may leave its newest ones unrecorded, but never one that is older than a recorded one.
    newest = max(known, default=0)
    missing = [seq for seq in (file.first, *file.checkpoints) if seq < newest and seq not in known]
    if not known and file.last > file.first:
        yield AuditProblem(CHECKPOINTS, None, f"No checkpoint names {file.name}, which had one when it was begun.")
    elif missing:
        yield AuditProblem(CHECKPOINTS, None, f"The checkpoint of line number {missing[0]} of {file.name} is missing.")
    anchor = file.start.get("anchor")
    if isinstance(anchor, dict):
        digest = hashlib.sha256(content[: anchor.get("bytes", 0)]).hexdigest()
        if digest != anchor.get("sha256"):
            message = f"The checkpoints from before {file.name} was begun were cut or edited."
            yield AuditProblem(CHECKPOINTS, None, message)


def _check_calls(calls: Sequence[SettledCall], audited: set[str]) -> Iterator[AuditProblem]:
    """That every call of the ledger has its line."""
    missing = [call for call in calls if call.key not in audited]
    for call in missing[:_MAX_CALLS]:
        when = stamp(call.finished_at // 1000).decode()
        yield AuditProblem(STORE, None, f'The call {call.key} to "{call.tool}", which ended at {when}Z, has no line.')
    if len(missing) > _MAX_CALLS:
        yield AuditProblem(STORE, None, f"{len(missing) - _MAX_CALLS} more calls of the ledger have no line.")


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
