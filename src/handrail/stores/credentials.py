"""The credentials of a store: which transaction each method of the port is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from handrail.contract.credentials import PendingAuthorization, StoredCredential
from handrail.stores.statements import credentials as statements

if TYPE_CHECKING:
    from handrail.stores.base import StatementStore


class StatementCredentials:
    """The `CredentialStore` of a store whose transactions are the functions in `statements`."""

    def __init__(self, store: StatementStore) -> None:
        self._store = store

    async def get(self, tenant: str, user: str, connection: str) -> StoredCredential | None:
        return await self._store._read(partial(statements.get, tenant=tenant, user=user, connection=connection))

    async def all_of(self, tenant: str, user: str) -> list[StoredCredential]:
        return await self._store._read(partial(statements.all_of, tenant=tenant, user=user))

    async def put(self, credential: StoredCredential, *, expected: int | None = None) -> bool:
        return await self._store._write(partial(statements.put, credential=credential, expected=expected))

    async def delete(
        self, tenant: str, user: str, connection: str, *, expected: int | None = None
    ) -> StoredCredential | None:
        statement = partial(statements.delete, tenant=tenant, user=user, connection=connection, expected=expected)
        return await self._store._write(statement)

    async def forget(self, tenant: str, user: str) -> list[StoredCredential]:
        return await self._store._write(partial(statements.forget, tenant=tenant, user=user))

    async def begin_refresh(self, credential: StoredCredential, *, owner: str, lease_ms: int) -> bool:
        statement = partial(statements.begin_refresh, credential=credential, owner=owner, lease_ms=lease_ms)
        return await self._store._write(statement)

    async def end_refresh(self, credential: StoredCredential, *, owner: str) -> None:
        await self._store._write(partial(statements.end_refresh, credential=credential, owner=owner))

    async def sealed_otherwise(self, key_id: str, maximum: int) -> list[StoredCredential]:
        return await self._store._read(partial(statements.sealed_otherwise, key_id=key_id, maximum=maximum))

    async def begin_authorization(self, pending: PendingAuthorization, *, lives_for: int) -> None:
        await self._store._write(partial(statements.begin_authorization, pending=pending, lives_for=lives_for))

    async def take_authorization(self, digest: str) -> PendingAuthorization | None:
        return await self._store._write(partial(statements.take_authorization, digest=digest))

    async def complete_authorization(self, digest: str, credential: StoredCredential, *, expected: int | None) -> bool:
        statement = partial(statements.complete_authorization, digest=digest, credential=credential, expected=expected)
        return await self._store._write(statement)
