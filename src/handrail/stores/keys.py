"""The keys of a store: which transaction each method of the port is, and whether it writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from handrail.contract.keys import Key
from handrail.stores.statements import keys as statements

if TYPE_CHECKING:
    from handrail.stores.base import StatementStore


class StatementKeys:
    """The `KeyStore` of a store whose transactions are the functions in `statements`."""

    def __init__(self, store: StatementStore) -> None:
        self._store = store

    async def all(self) -> list[Key]:
        return await self._store._read(statements.all_keys)

    async def changes(self) -> int:
        return await self._store._read(statements.changes)

    async def add(self, key: Key, *, replace: bool) -> None:
        await self._store._write(partial(statements.add, new=key, may_replace=replace))

    async def add_numbered(self, key: Key) -> Key:
        return await self._store._write(partial(statements.add_numbered, new=key))

    async def revoke(self, name: str) -> Key | None:
        return await self._store._write(partial(statements.revoke, name=name))

    async def revoke_of(self, user: str) -> list[Key]:
        return await self._store._write(partial(statements.revoke_of, owner=user))

    async def import_all(self, source: str, keys: Sequence[Key]) -> int:
        return await self._store._write(partial(statements.import_all, source=source, keys=keys))
