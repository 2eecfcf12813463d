"""Tickets and requests in a store: which transaction each method of the port is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from handrail.contract.server_requests import RequestClaim, StoredTicket
from handrail.stores.statements import requests as statements
from handrail.stores.statements.transaction import Locks

if TYPE_CHECKING:
    from handrail.stores.base import StatementStore


class StatementRequests:
    """The `RequestStore` of a store whose transactions are the functions in `statements`."""

    def __init__(self, store: StatementStore) -> None:
        self._store = store

    async def give_ticket(self, ticket: StoredTicket, *, lives_for: int) -> None:
        locks = Locks(sessions=(ticket.session_id,))
        await self._store._write(partial(statements.give_ticket, ticket=ticket, lives_for=lives_for), locks)

    async def use_ticket(self, digest: str) -> StoredTicket | None:
        return await self._store._write(partial(statements.use_ticket, digest=digest))

    async def claim(self, digest: str, *, owner: str, kept_for: int) -> RequestClaim:
        return await self._store._write(partial(statements.claim, digest=digest, owner=owner, kept_for=kept_for))

    async def answer(self, digest: str, *, owner: str, session_id: str, sealed: str) -> None:
        statement = partial(statements.answer, digest=digest, owner=owner)
        await self._store._write(partial(statement, made_session=session_id, sealed=sealed))

    async def release(self, digest: str, *, owner: str) -> None:
        await self._store._write(partial(statements.release, digest=digest, owner=owner))
