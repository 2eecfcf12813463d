"""The usage of tools in a store: which transaction each method of the port is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from handrail.contract.usage import UsageRow
from handrail.stores.statements import usage as statements
from handrail.stores.statements.transaction import Locks

if TYPE_CHECKING:
    from handrail.stores.base import StatementStore

_USAGE = Locks(names=("usage",))
"""Rows are read, added to and written back."""


class StatementUsage:
    """The `UsageStore` of a store whose transactions are the functions in `statements`."""

    def __init__(self, store: StatementStore) -> None:
        self._store = store

    async def add(self, rows: Sequence[UsageRow], *, writer: str, batch: int) -> bool:
        if not rows:
            return True
        return await self._store._write(partial(statements.add, rows=rows, writer=writer, batch=batch), _USAGE)

    async def rows(self, *, since: str = "", until: str = "9999", tool: str | None = None) -> list[UsageRow]:
        return await self._store._read(partial(statements.rows, since=since, until=until, tool=tool))

    async def tools_by_calls(
        self, *, since: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[tuple[str, int]]:
        return await self._store._read(partial(statements.tools_by_calls, since=since, limit=limit, tenant=tenant))

    async def prune(self, *, before: str) -> int:
        return await self._store._write(partial(statements.prune, before=before), _USAGE)
