"""Proves an audit directory: an edited, missing, inserted or reordered line, a torn or cut tail, a deleted or copied
file. Without a key whoever can write the files can also compute every hash anew; with one, a re-stamped chain is
found. Cuts and deletions are found through `checkpoints.jsonl` and the checkpoints in the store. With a key those cannot be
forged either: who changes files and store needs older copies of both to stay unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from pathlib import Path
from typing import Any

from handrail.contract.store import AuditCheckpoint
from handrail.observe.chain import CHECKPOINT, CHECKPOINTS, GENESIS, HEAD, START, decode, encode_name, seal, split_seal
from handrail.observe.reading import audit_files, read_events

__all__ = ["AuditProblem", "read_events", "verify_directory"]

STORE = "store"
"""Where the checkpoints of the store are named as a file is."""
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
    problems: list[AuditProblem] = field(default_factory=list)

    def report(self, line: int | None, message: str) -> None:
        self.problems.append(AuditProblem(self.name, line, message))


def verify_directory(
    path: Path, key: bytes | None = None, stored: Sequence[AuditCheckpoint] | None = None
) -> list[AuditProblem]:
    """Everything that is wrong with the audit log in a directory, by file and line; empty if it can be trusted.

    `stored` are the checkpoints that the store keeps; None if there is no store to ask."""
    files: dict[str, _File] = {}
    for place in audit_files(path):
        files[place.name] = _check_file(place, key)
    problems = [problem for file in files.values() for problem in file.problems]
    problems += _check_joints(files)
    problems += _check_checkpoints(path / CHECKPOINTS, files, key)
    if stored is not None:
        problems += _check_stored(stored, files, key)
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
    elif key is not None and not start.get("keyed"):
        file.report(1, "The hashes of this file are not keyed, though there is a key: it may have been re-stamped.")
    return True


def _check_group(file: _File, group: list[bytes], stated: bytes, key: bytes | None, sound: bool) -> None:
    keyed = bool(file.start.get("keyed"))
    covered = file.head + b"\n".join(group)
    file.head = file.heads[file.last] = stated
    # A line out of place was reported already, and without the key nothing more can be said.
    if not sound or (keyed and key is None) or compare_digest(seal(key if keyed else None, covered), stated):
        return
    first = file.line - len(group) + 1
    where = "This line was" if len(group) == 1 else f"A line from {first} to {file.line} was"
    file.report(first, f"{where} edited, or the chain was re-stamped: the hash does not fit.")


# ----------------------------------------------------------------------------------------------------- files together
def _check_joints(files: dict[str, _File]) -> Iterator[AuditProblem]:
    """That each file goes on where the one before it ended."""
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
            yield AuditProblem(file.name, 1, f"It does not go on where {before} ends: lines between them were cut.")


def _check_checkpoints(place: Path, files: dict[str, _File], key: bytes | None) -> Iterator[AuditProblem]:
    try:
        content = place.read_bytes()
    except FileNotFoundError:
        if files:
            yield AuditProblem(
                CHECKPOINTS, None, "The checkpoints are missing: a cut tail or a deleted file cannot be found."
            )
        return
    records: dict[str, dict[int, tuple[int, bytes]]] = {}
    for number, line in enumerate(content.splitlines(), 1):
        if not line:
            continue
        record, trouble = _read_record(line, key)
        if trouble:
            yield AuditProblem(CHECKPOINTS, number, trouble)
        if record is not None:
            records.setdefault(str(record["file"]), {})[record["count"]] = (number, str(record["head"]).encode())
    for name, counts in records.items():
        where = {count: (f"in line {number} of {CHECKPOINTS}", head) for count, (number, head) in counts.items()}
        yield from _check_file_records(files.get(name), name, where)
    for file in files.values():
        yield from _check_recorded(file, records.get(file.name, {}), content)


def _read_record(line: bytes, key: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
    stem, mac = split_seal(line)
    record = decode(line)
    if (
        mac is None
        or record is None
        or not isinstance(record.get("count"), int)
        or not {"file", "head"} <= record.keys()
    ):
        return None, "This is not a checkpoint: it was torn by a crash or a full disk, or edited."
    if key is not None and not compare_digest(seal(key, stem), mac):
        return record, "This checkpoint was not made with the key: it was edited or forged."
    return record, None


def _check_stored(
    stored: Sequence[AuditCheckpoint], files: dict[str, _File], key: bytes | None
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
    for one in stored:
        if key is not None and not compare_digest(seal(key, one.covered()).decode(), one.mac):
            message = f"Checkpoint number {one.number} of the store was not made with the key: it was edited or forged."
            yield AuditProblem(STORE, None, message)
        if one.number:
            at = {one.position.seq: ("in the store", one.position.head.encode())}
            yield from _check_file_records(files.get(one.position.file), one.position.file, at)


def _check_file_records(file: _File | None, name: str, counts: dict[int, tuple[str, bytes]]) -> Iterator[AuditProblem]:
    most = max(counts)
    if file is None:
        yield AuditProblem(name, None, f"The file is missing; its chain had {_lines(most)} when it was last seen.")
        return
    if most > file.last:
        yield AuditProblem(name, None, f"Its tail was cut: its chain had {_lines(most)}, and ends at {file.last}.")
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


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
