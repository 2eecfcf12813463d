"""What a knowledge base asks of its database: statements, one state for the length of a search, and the two indexes that SQLite
and PostgreSQL each have in their own way. Statements are written for SQLite, in words that PostgreSQL knows as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from handrail_reference.services.kb.pieces import Piece
from handrail_reference.services.kb.port import Filter
from handrail_reference.services.kb.record import KnowledgeRecord

T = TypeVar("T")
_TURN_SECONDS = 0.25
"""A search takes a few hundredths of a second; whoever has waited so long waits for one that is stuck."""


class ComputeTurn:
    """One thread computes at a time. They share one interpreter: several at once are no quicker together, and the event loop
    would have to wait for each of them in its turn. Whoever waits for something else gives the turn away meanwhile."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._is_mine = False

    def take(self) -> None:
        """Wait for it, and continue without it after a while."""
        self._is_mine = self._lock.acquire(timeout=_TURN_SECONDS)

    def give(self) -> None:
        if self._is_mine:
            self._is_mine = False
            self._lock.release()


class ResultRows(Protocol):
    """The rows that a statement gave."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class TextPart(Enum):
    """What is searched for words: the pieces of the texts, and the heads (title, tags and beginning) of the records."""

    PIECES = "piece_words"
    HEADS = "head_words"


@dataclass(frozen=True, slots=True)
class Reach:
    """The rows that a search reaches. `rows` are the readable pieces. `is_all`: every row is the reader's; `is_little`: few are,
    so that it is quicker to look for theirs. With `keys` only these records count, whatever else is wanted."""

    scopes: Sequence[int]
    wanted: Filter
    rows: int
    is_all: bool
    is_little: bool
    keys: list[int] | None


Groups = Sequence[Sequence[str]]
"""A query for words: of each group, a row has at least one term."""
Scored = tuple[int, int, float]
"""A row of an index, its record, and its score; more is better."""


class Indexed(NamedTuple):
    """A record as it goes into the index: its key, its scope, and its pieces with their numbers."""

    key: int
    scope: int
    record: KnowledgeRecord
    pieces: Sequence[tuple[int, Piece]]


class WordIndex(Protocol):
    """Full text. `scopes` and `wanted` of a reach are conditions that hold for every row that is given."""

    def pieces_in(self, scopes: Sequence[int], *, is_all: bool) -> int: ...

    def counts(self, part: TextPart, terms: Sequence[str], reach: Reach, max_rows: int) -> dict[str, int]:
        """In how many readable rows each term is; `max_rows` if it is in more."""
        ...

    def best(
        self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int], limit: int
    ) -> list[Scored]: ...

    def newest(
        self, part: TextPart, groups: Groups, reach: Reach, counts: Mapping[str, int], limit: int
    ) -> list[Scored]: ...

    def terms_of(self, part: TextPart, row: int, terms: Sequence[str]) -> set[str]:
        """Which of the terms a row has."""
        ...

    def titled(self, scopes: Sequence[int], groups: Groups, limit: int) -> list[int]:
        """Keys of readable records whose title has such words."""
        ...

    def put(self, rows: Sequence[Indexed]) -> None: ...

    def remove(self, rows: Sequence[Indexed]) -> None:
        """What was put in for these records, whose pieces are found where they are stored."""
        ...

    def clear(self) -> None: ...

    def optimize(self) -> None: ...


class KnowledgeConnection(Protocol):
    """A connection, with what the threads of a process agree on."""

    batch: int
    """How many records are best written together."""
    turn: ComputeTurn
    is_searched_beside: Callable[[], bool]
    """Whether another thread of this process searches at this moment."""

    @property
    def words(self) -> WordIndex: ...

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> ResultRows: ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> Any: ...

    def each(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
        """The first row, or None, that a statement gives with each of these values."""
        ...

    def insert_each(self, statement: str, number: str, rows: Iterable[Sequence[Any]]) -> list[int]:
        """Insert a row with each of these values; what the database numbered them with, in the column `number`."""
        ...

    def stream(self, statement: str, values: Sequence[Any] = ...) -> Iterator[Any]:
        """ResultRows of which there may be too many for the memory."""
        ...

    def remembered(self, what: object, find: Callable[[], T]) -> T:
        """What `find` gives, asked for once for each state of the base."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything inside sees one state of the base, whoever writes meanwhile."""
        ...

    def put_vectors(self, space: int, vectors: Sequence[tuple[int, bytes]]) -> int:
        """Store vectors (half precision) of pieces that still exist; how many."""
        ...

    def index_vectors(self, space: int, dimensions: int) -> None:
        """Make what searches in many vectors need."""
        ...

    def bytes_used(self) -> int: ...

    def interrupt(self) -> None:
        """Stop the statement that another thread runs."""
        ...
