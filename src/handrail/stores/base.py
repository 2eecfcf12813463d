"""The port over statements: every method says which transaction it is, and whether it writes. A store adds only how a
transaction is carried out, and who lives."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from handrail.contract.store import (
    Alias,
    Block,
    Claim,
    ClaimResult,
    Evicted,
    Finish,
    Hold,
    HoldState,
    LedgerRow,
    LedgerState,
    Operating,
    SessionRecord,
    TurnStart,
)
from handrail.stores.statements import (
    Clock,
    Transaction,
    confirmations,
    evicting,
    forgetting,
    ledger,
    operating,
    sessions,
)
from handrail.stores.statements.claim import claim as claim_statement

T = TypeVar("T")
Request = Callable[[Transaction], T]


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class StatementStore(ABC):
    """A `Store` whose transactions are the functions in `statements`."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock or system_clock

    @abstractmethod
    async def _write(self, request: Request[T]) -> T:
        """Carry out `request` in a transaction that is durable when this returns."""

    @abstractmethod
    async def _read(self, request: Request[T]) -> T:
        """Carry out `request`, which changes nothing."""

    async def now(self) -> int:
        return self._clock()

    # Sessions and turns
    async def create_session(self, record: SessionRecord) -> None:
        await self._write(partial(sessions.create_session, record=record))

    async def load_session(self, session_id: str) -> SessionRecord | None:
        return await self._read(partial(sessions.load_session, session_id=session_id))

    async def connect(self, session_id: str, *, registry_version: str, owner: str) -> int:
        return await self._write(
            partial(sessions.connect, session_id=session_id, registry_version=registry_version, owner=owner)
        )

    async def connections(self, session_ids: Sequence[str]) -> dict[str, int]:
        return await self._read(partial(sessions.connections, session_ids=session_ids)) if session_ids else {}

    async def begin_turn(
        self,
        session_id: str,
        *,
        connection: int,
        input_id: str | None,
        left: tuple[int, Mapping[str, Any]] | None = None,
    ) -> TurnStart:
        return await self._write(
            partial(sessions.begin_turn, session_id=session_id, connection=connection, input_id=input_id, left=left)
        )

    async def save_sessions(self, saves: Sequence[tuple[str, int, Mapping[str, Any]]]) -> None:
        if saves:
            await self._write(partial(sessions.save_sessions, saves=saves))

    async def aliases(self, session_id: str) -> list[Alias]:
        return await self._read(partial(sessions.aliases, session_id=session_id))

    async def add_alias(self, session_id: str, alias: Alias) -> Alias:
        return await self._write(partial(sessions.add_alias, session_id=session_id, alias=alias))

    # Ledger
    async def claim(self, claim: Claim) -> ClaimResult:
        return await self._write(partial(claim_statement, claim=claim))

    async def finish(self, finish: Finish) -> LedgerRow:
        return await self._write(partial(ledger.finish, finish=finish))

    async def renew(self, claims: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        return await self._write(partial(ledger.renew, claims=claims, lease_ms=lease_ms)) if claims else []

    async def ledger_row(self, key: str) -> LedgerRow | None:
        row, abandoned = await self._read(partial(_look_at, key=key))
        return await self._write(partial(ledger.fresh_row, key=key)) if abandoned else row

    async def unknown_like(self, session_id: str, turn: int, tool: str, args_digest: str) -> LedgerRow | None:
        return await self._write(
            partial(ledger.unknown_like, session_id=session_id, turn=turn, tool=tool, args_digest=args_digest)
        )

    async def ledger_rows(self, *, state: LedgerState | None = None, limit: int = 100) -> list[LedgerRow]:
        return await self._write(partial(ledger.ledger_rows, state=state, limit=limit))

    async def settle(self, key: str, *, state: LedgerState, envelope: str) -> LedgerRow | None:
        return await self._write(partial(ledger.settle, key=key, state=state, envelope=envelope))

    async def evict(
        self, *, bodies_before: int, rows_before: int, most: int = 100, left_at: str | None = None
    ) -> Evicted:
        statement = partial(evicting.evict, bodies_before=bodies_before, rows_before=rows_before)
        return await self._write(partial(statement, most=most, left_at=left_at))

    # Confirmations
    async def hold(self, hold: Hold, token_hash: str) -> Hold:
        return await self._write(partial(confirmations.hold, hold=hold, token_hash=token_hash))

    async def hold_by_id(self, hold_id: str) -> Hold | None:
        return await self._read(partial(confirmations.hold_by_id, hold_id=hold_id))

    async def holds(self, session_id: str, states: Sequence[HoldState]) -> list[Hold]:
        return await self._read(partial(confirmations.holds, session_id=session_id, states=states))

    async def add_hold_token(self, hold_id: str, token_hash: str) -> None:
        await self._write(partial(confirmations.add_hold_token, hold_id=hold_id, token_hash=token_hash))

    async def hold_has_token(self, hold_id: str, token_hash: str) -> bool:
        return await self._read(partial(confirmations.hold_has_token, hold_id=hold_id, token_hash=token_hash))

    async def move_hold(self, hold_id: str, to: HoldState, *, frm: Sequence[HoldState]) -> Hold | None:
        return await self._write(partial(confirmations.move_hold, hold_id=hold_id, to=to, frm=frm))

    # Operating
    async def operating(self) -> Operating:
        return await self._read(operating.operating)

    async def block(self, block: Block) -> int:
        return await self._write(partial(operating.block, block=block))

    async def unblock(self, tenant: str, user: str) -> None:
        await self._write(partial(operating.unblock, tenant=tenant, user=user))

    async def switch(self, tool: str, off: str | None) -> None:
        await self._write(partial(operating.switch, tool=tool, off=off))

    async def count_rates(self, charges: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return await self._write(partial(operating.count_rates, charges=charges)) if charges else {}

    async def forget_user(self, tenant: str, user: str) -> Mapping[str, int]:
        return await self._write(partial(forgetting.forget_user, tenant=tenant, user=user))


def _look_at(tx: Transaction, key: str) -> tuple[LedgerRow | None, bool]:
    row = ledger.stored_row(tx, key)
    return row, row is not None and ledger.becomes_unknown(tx, row)
