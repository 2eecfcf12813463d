"""The documents of a store: which transaction each method of the port is, and whether it writes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from handrail.contract.documents import Document
from handrail.stores.statements import documents as statements
from handrail.stores.statements.transaction import NO_LOCKS, Locks

if TYPE_CHECKING:
    from handrail.stores.base import StatementStore


class StatementDocuments:
    """The `DocumentStore` of a store whose transactions are the functions in `statements`."""

    def __init__(self, store: StatementStore) -> None:
        self._store = store

    async def get(self, kind: str, id: str) -> Document | None:
        return await self._store._read(partial(statements.get, kind=kind, id=id))

    async def put(self, document: Document) -> tuple[bool, Document]:
        body = orjson.dumps(dict(document.body)).decode()
        locks = Locks(sessions=(document.session,)) if document.session else NO_LOCKS
        return await self._store._write(partial(statements.put, document=document, body=body), locks)

    async def delete(self, kind: str, id: str) -> None:
        await self._store._write(partial(statements.delete, kind=kind, id=id))
