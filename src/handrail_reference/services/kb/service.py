"""What handlers see as `ctx.kb`: search, get, nearest ids, links. Every call says for whom, and nobody learns of what they
may not read. All work is done off the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from handrail_reference.services.kb import record_queries, starter
from handrail_reference.services.kb.access import Access, access_by
from handrail_reference.services.kb.connection import KnowledgeConnection
from handrail_reference.services.kb.database import KnowledgeDatabase
from handrail_reference.services.kb.filtered import keys_of
from handrail_reference.services.kb.keywords import search_words
from handrail_reference.services.kb.meaning import Meaning
from handrail_reference.services.kb.pieces import snippet_of
from handrail_reference.services.kb.port import Evidence, Filter, KbUnavailable, NamespaceRefused
from handrail_reference.services.kb.query_words import INDEX_VERSION, asks_for_all, name_terms, plain_words, query_terms
from handrail_reference.services.kb.ranking import TITLES_LOOKED_AT, Ranked, ranked, with_titles
from handrail_reference.services.kb.record import KnowledgeRecord, is_link, one_form
from handrail_reference.services.kb.record_writes import forget_owner, keep_index_current
from handrail_reference.services.kb.threads import KnowledgeThreads

if TYPE_CHECKING:
    from handrail_reference.services.embeddings.port import Embedder
    from handrail_reference.services.kb.vectors import VectorSearch

_LOG = logging.getLogger("handrail.kb")
MAX_LINKS = 10
_MAX_LISTED = 1_000
"""Records of one type whose titles are compared for a list."""
_STARTER_SECONDS = 2.0
"""So long a first search waits for newer starter pages; whoever holds the file may hold it for longer."""


class KnowledgeBase:
    """A knowledge base that is opened when it is first used. `embedder` is called once, in a thread; None means words only,
    by choice. One that fails or gives None means words only, too, and that is said. `searched_by` is what a host learns about
    how it searches; `preload` imports what the embedder needs, or is None where there is nothing to import."""

    def __init__(
        self,
        place: Path | KnowledgeThreads,
        *,
        embedder: Callable[[], Embedder | None] | None = None,
        access: Access | None = None,
        with_starter: bool = False,
        searched_by: str = "",
        preload: Callable[[], None] | None = None,
    ) -> None:
        self.database = KnowledgeDatabase(place) if isinstance(place, Path) else place
        self._searched_by = searched_by
        self._preload = preload
        self.meaning = Meaning(embedder)
        self._access = access or access_by(("studio", "public"), ("studio", "public", "personal"))
        self._with_starter = with_starter
        self._index: VectorSearch | None = None
        self._lock = threading.Lock()
        self._opened = False
        self._said = logging.NOTSET  # the level at which missing vectors were reported

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
    ) -> dict[str, KnowledgeRecord]:
        """The readable ones among these records, by id. What the user may not read is not there."""
        namespaces = [namespace] if namespace in self._access(user or None, tenant) else []
        asked = {one: one_form(one) for one in ids if one.isprintable()}

        def look(db: KnowledgeConnection) -> dict[str, KnowledgeRecord]:
            self.open_now(db)
            scopes = record_queries.readable_scopes(db, tenant, namespaces, user)
            found = record_queries.records_by_id(db, scopes, list(asked.values()))
            return {one: found[known] for one, known in asked.items() if known in found}

        return await self.database.read(look)

    async def nearest_ids(
        self, ids: Sequence[str], *, user: str | None, tenant: str, namespace: str = "studio", limit: int = 3
    ) -> list[str]:
        """Ids that look like one of these, the likest first, among those that the user may read."""
        asked = [one_form(one) for one in ids if one.isprintable()]
        namespaces = [namespace] if namespace in self._access(user or None, tenant) else []

        def look(db: KnowledgeConnection) -> list[str]:
            scopes = record_queries.readable_scopes(db, tenant, namespaces, user)
            return record_queries.nearest_ids(db, scopes, asked, limit)

        return await self.database.read(look)

    async def links(
        self, *, user: str | None, tenant: str, name: str | None = None, id: str | None = None
    ) -> list[tuple[KnowledgeRecord, str]]:
        """Records of this name or id with their stored LinkedIn address, in every namespace that the user may read."""
        namespaces = sorted(self._access(user or None, tenant))

        def look(db: KnowledgeConnection) -> list[tuple[KnowledgeRecord, str]]:
            self.open_now(db)
            scopes = record_queries.readable_scopes(db, tenant, namespaces, user)
            if id is not None:
                records = record_queries.records_with_ids(db, scopes, [one_form(id)] if id.isprintable() else [])
            else:
                records = _named(record_queries.records_named(db, scopes, name_terms(name or "")), name or "")
            return [(record, link) for record in records if (link := _link_of(record))][:MAX_LINKS]

        return await self.database.read(look)

    # For the host (docs/services.md)

    def check(self) -> str:
        """What `handrail doctor` says. Only reads; a base that is not there yet is right."""
        return self.database.check(self._searched_by)

    def preload(self) -> str | None:
        """Import what a model is run with: that holds every thread, so a server does it before anybody waits for it."""
        if self._preload is None:
            return self._searched_by or None
        self._preload()
        return None

    async def warm_up(self) -> None:
        """Open the file and load what is held in memory, so that the first call need not wait for it."""

        def look(db: KnowledgeConnection) -> None:
            self.open_now(db)
            self._follow(db)

        await self.database.read(look)

    async def forget_user(self, user: str, tenant: str) -> Mapping[str, int]:
        """Delete the records that are this user's own, and what a file still has of them in unused pages."""
        if not await asyncio.to_thread(self.database.is_there):
            return {"records": 0}
        deleted = await self.database.write(lambda db: forget_owner(db, tenant, user))
        await asyncio.to_thread(self.database.scrub)
        return {"records": deleted}

    async def close(self) -> None:
        self.meaning.close()
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

    def close_now(self) -> None:
        self.meaning.close()
        self.database.close_now()

    @property
    def embedder(self) -> Embedder | None:
        """The embedder, opened at the first look; None where the knowledge base works on words alone."""
        return self.meaning.embedder

    def open_now(self, db: KnowledgeConnection) -> None:
        """Bring the file to the state in which it is used. Costs nothing once that is done, and writes only if it must."""
        if self._opened:
            return
        if db.execute("SELECT value FROM fact WHERE name = 'index'").fetchone() != (INDEX_VERSION,):
            self.database.write_now(keep_index_current)
        if self._with_starter and not starter.is_settled(db):
            self._plant(db)
        self._opened = True

    def _plant(self, db: KnowledgeConnection) -> None:
        if db.execute("SELECT 1 FROM record LIMIT 1").fetchone() is None:
            self.database.write_now(starter.plant)
            return
        try:
            self.database.write_soon(starter.plant).result(_STARTER_SECONDS)
        except (KbUnavailable, TimeoutError) as error:
            _LOG.warning(
                "The starter pages are those of an older Handrail for now: %s", str(error) or "the file is busy"
            )

    def _follow(self, db: KnowledgeConnection) -> VectorSearch | None:
        """The vectors in memory as they are in the file now; None where there are none."""
        embedder = self.embedder
        if embedder is None:
            return None
        if self._index is None:
            # The file knows how long its vectors are: a server need not be asked for that.
            space = db.execute("SELECT dimensions FROM space WHERE name = ?", (embedder.name,)).fetchone()
            if space is None:
                self._say_that_vectors_are_missing(db)
                return None
            with self._lock:
                self._index = self._index or self.database.vector_search(embedder.name, int(space[0]))
        self._index.catch_up(db)
        if not len(self._index):
            self._say_that_vectors_are_missing(db)
        return self._index

    def _say_that_vectors_are_missing(self, db: KnowledgeConnection) -> None:
        """A warning once for records of the user's own; Handrail's pages alone, as after a first start, are no cause for one."""
        if self._said >= logging.WARNING:
            return
        sources = "SELECT max(CASE WHEN r.source <> ? THEN 1 ELSE 0 END) FROM piece p JOIN record r ON r.key = p.record"
        (own,) = db.execute(sources, (starter.SOURCE,)).fetchone()
        level = logging.NOTSET if own is None else logging.WARNING if own else logging.INFO
        if level > self._said:
            self._said = level
            _LOG.log(
                level,
                "The knowledge base has no vectors, so it works on keywords alone; `handrail kb embed` makes them.",
            )

    def _searching(
        self, query: str, user: str | None, tenant: str, namespaces: Sequence[str], wanted: Filter, limit: int
    ) -> Callable[[KnowledgeConnection], list[Evidence]]:
        def look(db: KnowledgeConnection) -> list[Evidence]:
            self.open_now(db)
            index = self._follow(db)
            asked = self.meaning.ask(query) if index is not None else None  # made while the words are looked for
            with db.snapshot():
                scopes = record_queries.readable_scopes(db, tenant, namespaces, user)
                if wanted.type is not None and asks_for_all(query, wanted.type):
                    return _evidence(db, _all_of_type(db, scopes, wanted, limit), query)
                words = search_words(db, query_terms(query), scopes, wanted, limit)
                db.turn.give()  # a server may take its time
                vector = None if index is None else self.meaning.answer(asked, index.dimensions)
                db.turn.take()
                if index is not None and vector is not None:
                    close = index.search(db, vector, scopes, wanted)
                    best = ranked(words, close.scores, close.cosines, close.pieces, limit + TITLES_LOOKED_AT)
                else:
                    best = ranked(words, {}, {}, {}, limit + TITLES_LOOKED_AT)
                titles = record_queries.titles_by_key(db, [one.key for one in best])
                return _evidence(db, with_titles(best, titles, query, limit), query)

        return look

    def _check(self, namespace: str, user: str | None, tenant: str) -> None:
        if namespace not in self._access(user or None, tenant):
            raise NamespaceRefused(namespace)


def _evidence(db: KnowledgeConnection, best: Sequence[Ranked], query: str) -> list[Evidence]:
    records = record_queries.records_by_key(db, [one.key for one in best])
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


def _all_of_type(db: KnowledgeConnection, scopes: Sequence[int], wanted: Filter, limit: int) -> list[Ranked]:
    """The records that fit the filter, by title: the words of the query say no more than the filter does."""
    keys = keys_of(db, scopes, wanted)[:_MAX_LISTED]
    titles = record_queries.titles_by_key(db, keys) if keys else {}
    listed = sorted(titles, key=lambda key: (titles[key].casefold(), key))[:limit]
    return [Ranked(key, 1.0, None) for key in listed]


def _link_of(record: KnowledgeRecord) -> str | None:
    """The LinkedIn address that is stored with a record: its own, or one in its metadata. Never one that is made up."""
    for value in (record.url, *record.metadata.values()):
        if isinstance(value, str) and _is_linkedin(value):
            return value
    return None


def _is_linkedin(url: str) -> bool:
    """Whether every reader of addresses takes this one for a page at LinkedIn: what some take for another host is refused."""
    if not is_link(url) or "@" in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        is_web = parts.scheme in ("http", "https") and parts.port in (None, 80, 443)
    except ValueError:
        return False
    return is_web and (host == "linkedin.com" or host.endswith(".linkedin.com")) and parts.path.strip("/") != ""


def _named(records: Sequence[KnowledgeRecord], name: str) -> list[KnowledgeRecord]:
    """Those whose title really has every word of the name; the ones that have nothing else first."""
    words = plain_words(name)
    kept = []
    for record in records:
        title = plain_words(record.title)
        if words and words <= title:
            kept.append((len(title - words), record.id, record.namespace, record))
    return [entry[-1] for entry in sorted(kept, key=lambda entry: entry[:3])]
