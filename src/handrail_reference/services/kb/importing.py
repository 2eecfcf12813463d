"""Import: files → records → the base, in batches that are whole or not there. Run again, it continues where it was stopped,
because what is stored already costs one look. Vectors are made afterwards, for every piece that has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from handrail_reference.services.kb import record_writes
from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.files import FileEntry, Source, read_source
from handrail_reference.services.kb.pausing import unhurried
from handrail_reference.services.kb.record import KnowledgeRecord
from handrail_reference.services.kb.record_writes import Tally
from handrail_reference.services.kb.threads import KnowledgeThreads

if TYPE_CHECKING:
    from handrail_reference.services.embeddings.port import Embedder

BATCH = 500
EMBED_BATCH = 32
_WORTH_OPTIMIZING = 2_000
_PARTS = 64
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ImportOutcome:
    """What an import did. `problems` are (place, sentence); with `refused` nothing was changed."""

    tally: Tally = field(default_factory=Tally)
    problems: list[tuple[str, str]] = field(default_factory=list)
    skipped: int = 0
    refused: bool = False


def import_sources(
    database: KnowledgeThreads,
    sources: Sequence[Source],
    passed: Iterable[FileEntry],
    *,
    defaults: Mapping[str, str] | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    on_problem: Callable[[str, str], None] | None = None,
) -> ImportOutcome:
    """Import every file. Bad records are named and skipped; with `strict`, one of them and nothing is imported."""
    outcome = ImportOutcome()
    defaults = defaults or {}
    tell = progress or _quiet
    if strict:
        for _ in _good(_entries(sources, passed, defaults, _quiet), outcome, on_problem):
            pass
        if outcome.problems:
            outcome.refused = True
            return outcome
    database.write_now(record_writes.keep_index_current)
    for batch in _batches(_good(_entries(sources, passed, defaults, tell), outcome, on_problem)):
        _store(database, batch, outcome.tally)
    if outcome.tally.touched >= _WORTH_OPTIMIZING:
        database.write_now(lambda db: db.words.optimize())
    return outcome


def embed_missing(
    database: KnowledgeThreads, embedder: Embedder, *, progress: Progress | None = None, batch: int = EMBED_BATCH
) -> int:
    """Make the vectors that are missing in the embedder's space, a batch at a time; how many were made."""
    from handrail_reference.services.kb.vectors import packed  # noqa: PLC0415 - numpy only with embeddings

    space = database.write_now(lambda db: record_writes.space_id(db, embedder.name, embedder.dimensions))
    total = database.read_now(lambda db: missing_vectors(db, embedder.name))
    done, after = 0, 0
    while True:
        rows = database.read_now(lambda db, after=after: _without_vectors(db, space, after, batch))  # type: ignore[misc]
        if not rows:
            database.write_now(lambda db: db.index_vectors(space, embedder.dimensions))
            return done
        made = embedder.embed([text for _, text in rows])
        vectors = [(piece, packed(vector)) for (piece, _), vector in zip(rows, made, strict=True)]
        done += database.write_now(lambda db, vectors=vectors: db.put_vectors(space, vectors))  # type: ignore[misc]
        after = rows[-1][0]
        if progress is not None:
            progress(min(done, total), max(total, done))


def missing_vectors(db: KnowledgeConnection, space: str) -> int:
    """How many pieces have no vector in this space."""
    row = db.execute(
        """SELECT (SELECT count(*) FROM piece) - count(*) FROM vector v JOIN space s ON s.id = v.space WHERE s.name = ?""",
        (space,),
    ).fetchone()
    return int(row[0])


def _without_vectors(db: KnowledgeConnection, space: int, after: int, batch: int) -> list[tuple[int, str]]:
    rows = db.execute(
        """SELECT p.id, r.title, substr(r.text, p.start + 1, p.stop - p.start) FROM piece p
           JOIN record r ON r.key = p.record LEFT JOIN vector v ON v.piece = p.id AND v.space = ?
           WHERE p.id > ? AND v.id IS NULL ORDER BY p.id LIMIT ?""",
        (space, after, batch),
    )
    # The title goes before each piece: a piece from the middle of a text rarely says what the text is about.
    return [(row[0], f"{row[1]}\n{row[2]}".strip()) for row in rows]


def _store(database: KnowledgeThreads, batch: Sequence[KnowledgeRecord], tally: Tally) -> None:
    added = Tally(scopes=dict(tally.scopes))
    database.write_now(lambda db: record_writes.put_records(db, batch, added))
    # Counted when the batch is there: a batch that failed was not.
    tally.added += added.added
    tally.changed += added.changed
    tally.unchanged += added.unchanged
    tally.scopes = added.scopes


def _entries(
    sources: Sequence[Source], passed: Iterable[FileEntry], defaults: Mapping[str, str], tell: Progress
) -> Iterator[FileEntry]:
    yield from passed
    total = max(1, sum(source.size for source in sources))
    before = 0
    for source in sources:
        for entry in read_source(source, defaults):
            yield entry
            tell(min(before + entry.done, total), total)
        before += source.size
        tell(min(before, total), total)


def _good(
    entries: Iterable[FileEntry], outcome: ImportOutcome, on_problem: Callable[[str, str], None] | None
) -> Iterator[KnowledgeRecord]:
    """The records among the entries; the others, and those whose id came before, are noted."""
    # Many dicts of plain strings: a large one holds up all threads when it grows, and one of tuples at every full collection.
    seen: defaultdict[tuple[str, str, str, int], dict[str, str]] = defaultdict(dict)
    for entry in unhurried(entries):
        problems = entry.problems
        if (record := entry.record) is not None:
            part = seen[record.tenant, record.namespace, record.owner, hash(record.id) % _PARTS]
            first = part.setdefault(record.id, entry.place)
            if first is entry.place:
                yield record
                continue
            problems = (f'The id "{record.id}" was used at {first} already; give each record its own.',)
        outcome.skipped += 1
        for problem in problems:
            outcome.problems.append((entry.place, problem))
            if on_problem is not None:
                on_problem(entry.place, problem)


def _batches(records: Iterable[KnowledgeRecord]) -> Iterator[list[KnowledgeRecord]]:
    batch: list[KnowledgeRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _quiet(done: int, total: int) -> None:
    return None
