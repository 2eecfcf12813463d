"""The conversations of a store: which transaction each method of the port is, and whether it writes.

What is stored is made JSON where it is asked for, because the host goes on to change it while the store's thread works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from handrail.contract.conversations import (
    ImportedConversation,
    ListedConversation,
    Ownership,
    Quota,
    StoredConversation,
    StoredTurn,
)
from handrail.stores.statements import conversations as statements
from handrail.stores.statements.conversations import Counts, NewConversation, TurnEnd, to_text
from handrail.stores.statements.locks import NO_LOCKS, Locks

if TYPE_CHECKING:
    from handrail.stores.base import StatementStore


def _of(session_id: str) -> Locks:
    """Whoever writes a conversation decides by who has it and what it does there: one at a time."""
    return Locks(sessions=(session_id,))


class StatementConversations:
    """The `ConversationStore` of a store whose transactions are the functions in `statements`."""

    def __init__(self, store: StatementStore) -> None:
        self._store = store
        self._counts = Counts()

    async def create(self, conversation: StoredConversation, *, owner: str, quota: Quota | None = None) -> list[str]:
        new = NewConversation(conversation, to_text(conversation.document), owner)
        # Others that are opened with this key at the same moment count as well.
        locks = Locks(names=(f"conversations {conversation.key}",)) if quota is not None else NO_LOCKS
        return await self._store._write(partial(statements.create, new=new, quota=quota, counts=self._counts), locks)

    async def load(self, session_id: str) -> StoredConversation | None:
        return await self._store._read(partial(statements.load, session_id=session_id))

    async def turn(self, session_id: str, message_id: str) -> StoredTurn | None:
        return await self._store._read(partial(statements.turn, session_id=session_id, message_id=message_id))

    async def owners(self, session_ids: Sequence[str]) -> dict[str, str]:
        return await self._store._read(partial(statements.owners, session_ids=session_ids)) if session_ids else {}

    async def standing(self, session_id: str) -> Ownership | None:
        return await self._store._read(partial(statements.standing, session_id=session_id))

    async def take(self, session_id: str, *, owner: str, former: str, though_busy: bool) -> bool:
        statement = partial(statements.take, session_id=session_id, owner=owner)
        return await self._store._write(partial(statement, former=former, though_busy=though_busy), _of(session_id))

    async def set_live(self, session_id: str, live: bool, *, owner: str) -> None:
        await self._store._write(
            partial(statements.set_live, session_id=session_id, live=live, owner=owner), _of(session_id)
        )

    async def changes(self, session_id: str, after: int) -> tuple[Ownership, list[StoredTurn]] | None:
        return await self._store._read(partial(statements.changes, session_id=session_id, after=after))

    async def remember_opener(self, session_id: str, sealed: str) -> None:
        await self._store._write(
            partial(statements.remember_opener, session_id=session_id, sealed=sealed), _of(session_id)
        )

    async def opened_with(self, key: str, user: str | None, maximum: int) -> list[ListedConversation]:
        return await self._store._read(partial(statements.opened_with, key=key, user=user, maximum=maximum))

    async def begin(self, session_id: str, turn: StoredTurn, *, owner: str) -> None:
        await self._store._write(
            partial(statements.begin, session_id=session_id, turn=turn, owner=owner), _of(session_id)
        )

    async def finish(
        self, session_id: str, turn: StoredTurn | None, document: Mapping[str, Any], *, owner: str
    ) -> None:
        end = None
        if turn is not None:
            end = TurnEnd(turn, turn.state, turn.number, to_text(turn.answer), turn.last_event)
        statement = partial(statements.finish, session_id=session_id, end=end, document=to_text(document))
        await self._store._write(partial(statement, owner=owner), _of(session_id))

    async def delete(self, session_id: str) -> bool:
        return await self._store._write(partial(statements.delete, session_id=session_id), _of(session_id))

    async def forget(self, tenant: str, user: str) -> tuple[int, set[str]]:
        return await self._store._write(partial(statements.forget, tenant=tenant, user=user))

    async def prune(self, *, unused_for: int) -> list[str]:
        return await self._store._write(partial(statements.prune, unused_for=unused_for))

    async def imported_until(self, source: str) -> str:
        return await self._store._read(partial(statements.imported_until, source=source))

    async def import_all(self, source: str, batch: Sequence[ImportedConversation]) -> int:
        return await self._store._write(partial(statements.import_all, source=source, batch=batch)) if batch else 0
