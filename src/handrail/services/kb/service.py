"""What handlers see as `ctx.kb`: search, get, nearest ids, links. Every call says for whom, and nobody is told of what they
may not read. All work is done off the event loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import HandrailError
from handrail.services.kb import reading, starter
from handrail.services.kb.access import Access, access_by
from handrail.services.kb.database import Connection, Database
from handrail.services.kb.keywords import search_words
from handrail.services.kb.pieces import snippet_of
from handrail.services.kb.port import Evidence, Filter, NamespaceRefused
from handrail.services.kb.ranking import TITLES_LOOKED_AT, Ranked, ranked, with_titles
from handrail.services.kb.record import Record
from handrail.services.kb.words import INDEX_VERSION, name_terms, plain_words, query_terms
from handrail.services.kb.writing import keep_index_current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from handrail.services.embeddings.port import Embedder
    from handrail.services.kb.vectors import VectorIndex

_LOG = logging.getLogger("handrail.kb")
MAX_LINKS = 10


class KnowledgeBase:
    """A knowledge base that is opened when it is first used. `embedder` is called once, in a thread; None means words only."""

    def __init__(
        self,
        path: Path,
        *,
        embedder: Callable[[], Embedder | None] | None = None,
        access: Access | None = None,
        with_starter: bool = False,
    ) -> None:
        self.database = Database(path)
        self._make_embedder = embedder
        self._access = access or access_by(("studio", "public"), ("studio", "public", "personal"))
        self._with_starter = with_starter
        self._embedder: Embedder | None = None
        self._index: VectorIndex | None = None
        self._lock = threading.Lock()
        self._opened = False

    # For handlers

    async def search(
        self,
        query: str,
        *,
        user: str | None,
        tenant: str,
        namespace: str = "studio",
        wanted: Filter | None = None,
        limit: int = 5,
        seconds: float | None = None,
    ) -> list[Evidence]:
        """The records that fit best, best first. `NamespaceRefused` where the user may not look, `KbTooSlow` past the time."""
        self._check(namespace, user, tenant)
        work = self._searching(query, user, tenant, [namespace], wanted or Filter(), limit)
        return await self.database.read(work, seconds)

    async def get(
        self, ids: Sequence[str], *, user: str | None, tenant: str, namespace: str = "studio"
    ) -> dict[str, Record]:
        """The readable ones among these records, by id. What the user may not read is not there."""
        namespaces = [namespace] if namespace in self._access(user or None, tenant) else []
        clean = [one for one in ids if one.isprintable()]

        def look(db: Connection) -> dict[str, Record]:
            self.open_now(db)
            scopes = reading.readable_scopes(db, tenant, namespaces, user)
            return reading.records_by_id(db, scopes, clean)

        return await self.database.read(look)

    async def nearest_ids(
        self, id: str, *, user: str | None, tenant: str, namespace: str = "studio", limit: int = 3
    ) -> list[str]:
        """Ids that look like this one, among those that the user may read."""
        namespaces = [namespace] if namespace in self._access(user or None, tenant) else []

        def look(db: Connection) -> list[str]:
            scopes = reading.readable_scopes(db, tenant, namespaces, user)
            return reading.nearest_ids(db, scopes, id, limit)

        return await self.database.read(look)

    async def links(
        self, *, user: str | None, tenant: str, name: str | None = None, id: str | None = None
    ) -> list[tuple[Record, str]]:
        """Records of this name or id with their stored LinkedIn address, in every namespace that the user may read."""
        namespaces = sorted(self._access(user or None, tenant))

        def look(db: Connection) -> list[tuple[Record, str]]:
            self.open_now(db)
            scopes = reading.readable_scopes(db, tenant, namespaces, user)
            if id is not None:
                records = list(reading.records_by_id(db, scopes, [id] if id.isprintable() else []).values())
            else:
                records = _named(reading.records_named(db, scopes, name_terms(name or "")), name or "")
            return [(record, link) for record in records if (link := _link_of(record))][:MAX_LINKS]

        return await self.database.read(look)

    async def open(self) -> None:
        """Open the file and load what is held in memory, so that the first call need not wait for it."""
        await self.database.read(self.open_now)

    async def close(self) -> None:
        await self.database.close()

    # For commands, and on the threads

    def search_now(
        self,
        query: str,
        *,
        namespaces: Collection[str],
        tenant: str = "",
        user: str | None = None,
        wanted: Filter | None = None,
        limit: int = 5,
    ) -> list[Evidence]:
        """A search by the operator, who may name any namespace."""
        return self.database.read_now(
            self._searching(query, user, tenant, sorted(namespaces), wanted or Filter(), limit)
        )

    @property
    def embedder(self) -> Embedder | None:
        """The embedder, opened at the first look; None where the knowledge base works on words alone."""
        with self._lock:
            if self._make_embedder is not None:
                make, self._make_embedder = self._make_embedder, None
                self._embedder = make()
                if self._embedder is None:
                    _LOG.info("The knowledge base works on keywords alone; `handrail models install` adds embeddings.")
            return self._embedder

    def open_now(self, db: Connection) -> None:
        """Bring the file and the memory to the state in which they are used. Costs one look once that is done."""
        if not self._opened:
            if db.execute("SELECT value FROM fact WHERE name = 'index'").fetchone() != (INDEX_VERSION,):
                self.database.write_now(keep_index_current)
            if self._with_starter:
                self.database.write_now(starter.plant)
            self._opened = True
        if self.embedder is not None:
            if self._index is None:
                from handrail.services.kb.vectors import VectorIndex  # noqa: PLC0415 - numpy only with embeddings

                with self._lock:
                    self._index = self._index or VectorIndex(self.embedder_name, self.embedder_dimensions)
            self._index.follow(db)

    @property
    def embedder_name(self) -> str:
        return self._embedder.name if self._embedder else ""

    @property
    def embedder_dimensions(self) -> int:
        return self._embedder.dimensions if self._embedder else 0

    def _searching(
        self, query: str, user: str | None, tenant: str, namespaces: Sequence[str], wanted: Filter, limit: int
    ) -> Callable[[Connection], list[Evidence]]:
        def look(db: Connection) -> list[Evidence]:
            self.open_now(db)
            vector = self._vector_of(query)
            with _snapshot(db):
                scopes = reading.readable_scopes(db, tenant, namespaces, user)
                words = search_words(db, query_terms(query), scopes, wanted, limit)
                if vector is not None and self._index is not None:
                    close = self._index.search(db, vector, scopes, wanted)
                    best = ranked(words, close.scores, close.cosines, close.pieces, limit + TITLES_LOOKED_AT)
                else:
                    best = ranked(words, {}, {}, {}, limit + TITLES_LOOKED_AT)
                titles = reading.titles_by_key(db, [one.key for one in best])
                return _evidence(db, with_titles(best, titles, query, limit), query)

        return look

    def _vector_of(self, query: str) -> Any:
        """The query as a vector; None where there is none to be had, and then words alone must do."""
        if self._embedder is None or not self._index or not query.strip():
            return None
        try:
            return self._embedder.embed([query])[0]
        except HandrailError as error:
            _LOG.warning("A search went by keywords alone: %s", error)
            return None

    def _check(self, namespace: str, user: str | None, tenant: str) -> None:
        if namespace not in self._access(user or None, tenant):
            raise NamespaceRefused(namespace)


@contextmanager
def _snapshot(db: Connection) -> Iterator[None]:
    """Everything inside sees one state of the file, whoever writes meanwhile."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("COMMIT")


def _evidence(db: Connection, best: Sequence[Ranked], query: str) -> list[Evidence]:
    records = reading.records_by_key(db, [one.key for one in best])
    pieces = {
        row[0]: (row[1], row[2])
        for row in db.execute(
            f"SELECT id, start, stop FROM piece WHERE id IN ({', '.join('?' * len(best))})",  # noqa: S608
            [one.piece for one in best],
        )
    }
    found = []
    for one in best:
        record = records.get(one.key)
        if record is None:
            continue
        start, stop = pieces.get(one.piece or 0, (0, 2_000))
        found.append(Evidence(record, one.score, snippet_of(record.text[start:stop], query)))
    return found


def _link_of(record: Record) -> str | None:
    """The LinkedIn address that is stored with a record: its own, or one in its metadata. Never one that is made up."""
    for value in (record.url, *record.metadata.values()):
        if isinstance(value, str) and value.startswith(("https://", "http://")) and _is_linkedin(value):
            return value
    return None


def _is_linkedin(url: str) -> bool:
    host = url.split("/")[2].lower().rpartition("@")[2].partition(":")[0]
    return host == "linkedin.com" or host.endswith(".linkedin.com")


def _named(records: Sequence[Record], name: str) -> list[Record]:
    """Those whose title really has every word of the name; the ones that have nothing else first."""
    words = plain_words(name)
    kept = []
    for record in records:
        title = plain_words(record.title)
        if words and words <= title:
            kept.append((len(title - words), record.id, record.namespace, record))
    return [entry[-1] for entry in sorted(kept, key=lambda entry: entry[:3])]
