"""The port over statements: every method says which transaction it is, whether it writes, and what it must have for itself
meanwhile. A store adds only how a transaction is carried out, and who lives."""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

from handrail.contract.conversations import (
    ImportedConversation,
    ListedConversation,
    Ownership,
    Quota,
    StoredConversation,
    StoredTurn,
)
from handrail.contract.store import (
    AbandonedAudit,
    Alias,
    Approval,
    AuditCheckpoint,
    AuditPosition,
    AuditSubject,
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
    SessionOpened,
    SessionRecord,
    SettledCall,
    StoreLoad,
    StoreUnavailable,
    TurnStart,
)
from handrail.stores.credentials import StatementCredentials
from handrail.stores.documents import StatementDocuments
from handrail.stores.keys import StatementKeys
from handrail.stores.requests import StatementRequests
from handrail.stores.statements import (
    Clock,
    Transaction,
    auditing,
    conversations,
    evicting,
    ledger,
    sessions,
)
from handrail.stores.statements.conversations import Counts, NewConversation, TurnEnd, to_text
from handrail.stores.statements.transaction import AUDIT, NO_LOCKS, LockedRequest, Locks, Request
from handrail.stores.usage import StatementUsage
from handrail.stores.worker import Worker

T = TypeVar("T")
OPERATING = "operating"
"""What changed: blocks, switches, or who was forgotten."""


def system_clock() -> int:
    return time.time_ns() // 1_000_000


def _of(session_id: str) -> Locks:
    """Whoever writes a conversation decides by who has it and what it does there: one at a time."""
    return Locks(sessions=(session_id,))


class StatementConversations:
    """The `ConversationStore` of a store whose transactions are the functions in `statements`.

    What is stored is made JSON where it is asked for, because the host continues to change it while the store's thread works.
    """

    def __init__(self, store: StatementStore) -> None:
        self._store = store
        self._counts = Counts()

    async def create(self, conversation: StoredConversation, *, owner: str, quota: Quota | None = None) -> list[str]:
        new = NewConversation(conversation, to_text(conversation.document), owner)
        # Others that are opened with this key at the same moment count as well.
        names = (f"conversations {conversation.key}",) if quota is not None else ()
        locks = Locks(sessions=(conversation.session_id,), names=names)
        return await self._store._write(partial(conversations.create, new=new, quota=quota, counts=self._counts), locks)

    async def load(self, session_id: str) -> StoredConversation | None:
        return await self._store._read(partial(conversations.load, session_id=session_id))

    async def turn(self, session_id: str, message_id: str) -> StoredTurn | None:
        return await self._store._read(partial(conversations.turn, session_id=session_id, message_id=message_id))

    async def owners(self, session_ids: Sequence[str]) -> dict[str, str]:
        return await self._store._read(partial(conversations.owners, session_ids=session_ids)) if session_ids else {}

    async def standing(self, session_id: str) -> Ownership | None:
        return await self._store._read(partial(conversations.standing, session_id=session_id))

    async def take(self, session_id: str, *, owner: str, former: str, though_busy: bool) -> bool:
        statement = partial(conversations.take, session_id=session_id, owner=owner)
        return await self._store._write(partial(statement, former=former, though_busy=though_busy), _of(session_id))

    async def set_live(self, session_id: str, live: bool, *, owner: str) -> None:
        await self._store._write(
            partial(conversations.set_live, session_id=session_id, live=live, owner=owner), _of(session_id)
        )

    async def changes(self, session_id: str, after: int) -> tuple[Ownership, list[StoredTurn]] | None:
        return await self._store._read(partial(conversations.changes, session_id=session_id, after=after))

    async def remember_opener(self, session_id: str, sealed: str) -> None:
        await self._store._write(
            partial(conversations.remember_opener, session_id=session_id, sealed=sealed), _of(session_id)
        )

    async def opened_with(self, key: str, user: str | None, maximum: int) -> list[ListedConversation]:
        return await self._store._read(partial(conversations.opened_with, key=key, user=user, maximum=maximum))

    async def begin(self, session_id: str, turn: StoredTurn, *, owner: str) -> None:
        await self._store._write(
            partial(conversations.begin, session_id=session_id, turn=turn, owner=owner), _of(session_id)
        )

    async def finish(
        self, session_id: str, turn: StoredTurn | None, document: Mapping[str, Any], *, owner: str
    ) -> None:
        end = None
        if turn is not None:
            end = TurnEnd(turn, turn.state, turn.number, to_text(turn.answer), turn.last_event)
        statement = partial(conversations.finish, session_id=session_id, end=end, document=to_text(document))
        await self._store._write(partial(statement, owner=owner), _of(session_id))

    async def delete(self, session_id: str) -> bool:
        return await self._store._write(partial(conversations.delete, session_id=session_id), _of(session_id))

    async def forget(self, tenant: str, user: str, *, images: Collection[str] = ()) -> tuple[int, set[str]]:
        return await self._store._write(partial(conversations.forget, tenant=tenant, user=user, images=images))

    async def prune(self, *, unused_for: int) -> list[str]:
        return await self._store._write(partial(conversations.prune, unused_for=unused_for))

    async def imported_until(self, source: str) -> str:
        return await self._store._read(partial(conversations.imported_until, source=source))

    async def import_all(self, source: str, batch: Sequence[ImportedConversation]) -> int:
        return await self._store._write(partial(conversations.import_all, source=source, batch=batch)) if batch else 0


class StatementStore(ABC):
    """A `Store` whose transactions are the functions in `statements`."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock or system_clock
        self.conversations = StatementConversations(self)
        self.credentials = StatementCredentials(self)
        self.keys = StatementKeys(self)
        self.documents = StatementDocuments(self)
        self.requests = StatementRequests(self)
        self.usage = StatementUsage(self)

    @abstractmethod
    async def _write(self, request: Request[T], locks: Locks = NO_LOCKS) -> T:
        """Carry out `request` in a transaction that is durable when this returns, and has `locks` before it looks."""

    @abstractmethod
    async def _read(self, request: Request[T]) -> T:
        """Carry out `request`, which changes nothing."""

    def _tell(self, topic: str) -> None:  # noqa: B027 - not every store can
        """Wake those who wait for this in any process: for `OPERATING`, or for the id of a held call."""

    def changed(self, hold_id: str | None = None) -> asyncio.Future[None]:
        del hold_id
        return asyncio.get_running_loop().create_future()

    async def now(self) -> int:
        return self._clock()

    async def try_writing(self) -> None:
        await self._write(sessions.try_writing)

    async def owner_lives(self, owner: str) -> bool:
        return await self._read(lambda transaction: transaction.alive(owner))

    def is_heard(self) -> bool:
        return True

    # Sessions and turns
    async def create_session(self, record: SessionRecord, subject: AuditSubject | None = None) -> SessionOpened:
        return await self._write(partial(_open_session, record=record, subject=subject))

    async def load_session(self, session_id: str) -> SessionRecord | None:
        return await self._read(partial(sessions.load_session, session_id=session_id))

    async def connect(self, session_id: str, *, registry_version: str, owner: str) -> int:
        return await self._write(
            partial(sessions.connect, session_id=session_id, registry_version=registry_version, owner=owner),
            Locks(sessions=(session_id,)),
        )

    async def pinned_versions(self) -> dict[tuple[str, str], int]:
        return await self._read(sessions.pinned_versions)

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
        return await self._write(sessions.TurnRequest(session_id, connection, input_id, left))

    async def save_sessions(self, saves: Sequence[tuple[str, int, Mapping[str, Any]]]) -> None:
        if saves:
            locks = Locks(sessions=[session_id for session_id, _, _ in saves])
            await self._write(partial(sessions.save_sessions, saves=saves), locks)

    async def aliases(self, session_id: str) -> list[Alias]:
        return await self._read(partial(sessions.aliases, session_id=session_id))

    async def add_alias(self, session_id: str, alias: Alias) -> Alias:
        locks = Locks(sessions=(session_id,))
        return await self._write(partial(sessions.add_alias, session_id=session_id, alias=alias), locks)

    # Ledger
    async def claim(self, claim: Claim) -> ClaimResult:
        result = await self._write(ledger.ClaimRequest(claim))
        if claim.hold_id is not None:
            # Only now: whoever is woken looks at once, and must find what was committed.
            self._tell(claim.hold_id)
        return result

    async def finish(self, finish: Finish) -> LedgerRow:
        row = await self._write(ledger.FinishRequest(finish))
        if row.hold_id is not None:
            self._tell(row.hold_id)
        if finish.block is not None:
            self._tell(OPERATING)
        return row

    async def renew(self, claims: Sequence[tuple[str, int]], lease_ms: int) -> list[str]:
        return await self._write(partial(ledger.renew, claims=claims, lease_ms=lease_ms)) if claims else []

    async def ledger_row(self, key: str) -> LedgerRow | None:
        # A read for nearly every row. Only one that its owner has abandoned is written, and so waits for the writer.
        row, abandoned = await self._read(partial(_look_at, key=key))
        if not abandoned:
            return row
        return await self._write(partial(ledger.fresh_row, key=key), Locks(sessions_of_calls=(key,)))

    async def unknown_like(self, session_id: str, turn: int, tool: str, args_digest: str) -> LedgerRow | None:
        return await self._write(
            partial(ledger.unknown_like, session_id=session_id, turn=turn, tool=tool, args_digest=args_digest),
            Locks(sessions=(session_id,)),
        )

    async def ledger_rows(self, *, state: LedgerState | None = None, limit: int = 100) -> list[LedgerRow]:
        return await self._write(partial(ledger.ledger_rows, state=state, limit=limit))

    async def settle(self, key: str, *, state: LedgerState, envelope: str) -> LedgerRow | None:
        locks = Locks(sessions_of_calls=(key,))
        return await self._write(partial(ledger.settle, key=key, state=state, envelope=envelope), locks)

    async def evict(
        self, *, bodies_before: int, rows_before: int, batch_size: int = 100, left_at: str | None = None
    ) -> Evicted:
        statement = partial(evicting.evict, bodies_before=bodies_before, rows_before=rows_before)
        return await self._write(partial(statement, batch_size=batch_size, left_at=left_at), Locks(every_session=True))

    # Confirmations
    async def hold(self, hold: Hold, token_hash: str, shown: str = "") -> Hold:
        locks = Locks(sessions=(hold.session_id,))
        return await self._write(partial(sessions.hold, hold=hold, token_hash=token_hash, shown=shown), locks)

    async def hold_by_id(self, hold_id: str) -> Hold | None:
        return await self._read(partial(sessions.hold_by_id, hold_id=hold_id))

    async def holds(self, session_id: str, states: Sequence[HoldState]) -> list[Hold]:
        return await self._read(partial(sessions.holds, session_id=session_id, states=states))

    async def ask_again(self, hold_id: str, turn: int) -> None:
        await self._write(partial(sessions.ask_again, hold_id=hold_id, turn=turn), Locks(sessions_of_holds=(hold_id,)))

    async def add_hold_token(
        self, hold_id: str, token_hash: str, shown: str = "", *, preview: str | None = None
    ) -> Hold:
        statement = partial(sessions.add_hold_token, hold_id=hold_id, token_hash=token_hash)
        return await self._write(partial(statement, shown=shown, preview=preview), Locks(sessions_of_holds=(hold_id,)))

    async def shown_with(self, hold_id: str, token_hash: str) -> str | None:
        return await self._read(partial(sessions.shown_with, hold_id=hold_id, token_hash=token_hash))

    async def outcome_delivered(self, hold_id: str, turn: int) -> None:
        await self._write(
            partial(sessions.outcome_delivered, hold_id=hold_id, turn=turn), Locks(sessions_of_holds=(hold_id,))
        )

    async def move_hold(
        self, hold_id: str, to: HoldState, *, expected: Sequence[HoldState], approval: Approval | None = None
    ) -> Hold | None:
        moved = await self._write(
            partial(sessions.move_hold, hold_id=hold_id, to=to, expected=expected, approval=approval),
            Locks(sessions_of_holds=(hold_id,)),
        )
        self._tell(hold_id)
        return moved

    async def decline_hold(self, hold_id: str, *, expected: Sequence[HoldState], left: str) -> Hold | None:
        locks = Locks(sessions_of_holds=(hold_id,))
        moved = await self._write(partial(_decline_hold, hold_id=hold_id, expected=expected, left=left), locks)
        self._tell(hold_id)
        return moved

    # Audit
    async def audit_checkpoints(self) -> list[AuditCheckpoint]:
        return await self._read(auditing.audit_checkpoints)

    async def audit_checkpoint_of(self, chain: str) -> AuditCheckpoint | None:
        return await self._read(partial(auditing.audit_checkpoint_of, chain=chain))

    async def save_audit_checkpoint(
        self,
        position: AuditPosition,
        *,
        seal: Callable[[bytes], str],
        after: AuditPosition | None,
        follows: bool,
        owner: str | None = None,
        audited_until: int = 0,
    ) -> bool:
        return await self._write(
            partial(
                auditing.save_audit_checkpoint,
                position=position,
                seal=seal,
                after=after,
                follows=follows,
                owner=owner,
                audited_until=audited_until,
            ),
            AUDIT,
        )

    async def begin_audit(self, owner: str) -> None:
        await self._write(partial(auditing.begin_audit, owner=owner))

    async def end_audit(self, owner: str) -> None:
        await self._write(partial(auditing.end_audit, owner=owner))

    async def abandoned_audits(self, taker: str) -> list[AbandonedAudit]:
        if not await self._read(auditing.has_audits):
            return []
        return await self._write(partial(auditing.abandoned_audits, taker=taker), AUDIT)

    async def answered_by(self, owner: str, since: int) -> list[tuple[LedgerRow, str | None]]:
        return await self._read(partial(auditing.answered_by, owner=owner, since=since))

    async def calls_to_audit(self) -> list[SettledCall]:
        return await self._read(auditing.calls_to_audit)

    # Operating
    async def operating(self) -> Operating:
        return await self._read(sessions.operating)

    async def block(self, block: Block) -> int:
        until = await self._write(partial(sessions.block, block=block))
        self._tell(OPERATING)
        return until

    async def unblock(self, tenant: str, user: str) -> None:
        await self._write(partial(sessions.unblock, tenant=tenant, user=user))
        self._tell(OPERATING)

    async def switch(self, tool: str, off: str | None) -> None:
        await self._write(partial(sessions.switch, tool=tool, off=off))
        self._tell(OPERATING)

    async def count_rates(
        self, charges: Mapping[tuple[str, int], int], since: Mapping[str, int] | None = None
    ) -> dict[tuple[str, int], int]:
        if not charges and not since:
            return {}
        # Limits that are only looked at need no lock: what is read late is learnt with the next round.
        locks = Locks(names=[ledger.limit_name(scope) for scope, _ in charges])
        return await self._write(partial(sessions.count_rates, charges=charges, since=since or {}), locks)

    # Forgetting
    async def forget_user(self, tenant: str, user: str, *, keep_block: bool = True) -> Mapping[str, int]:
        statement = partial(evicting.forget_user, tenant=tenant, user=user, keep_block=keep_block)
        wiped = await self._write(statement, Locks(every_session=True))
        self._tell(OPERATING)
        return wiped

    async def forgotten_sessions(self, session_ids: Sequence[str]) -> set[str]:
        if not session_ids:
            return set()
        return await self._read(partial(sessions.forgotten_sessions, session_ids=session_ids))

    async def audit_subject(self, tenant: str, user: str, new: AuditSubject | None = None) -> AuditSubject | None:
        # Asked first, because a user has one for years; two that name a new one at once are settled by the statement.
        known = await self._read(partial(auditing.subject_of, tenant=tenant, user=user))
        if known is not None or new is None:
            return known
        return await self._write(partial(auditing.name_subject, tenant=tenant, user=user, new=new))

    async def audit_users(self, pseudonyms: Sequence[str]) -> Mapping[str, str]:
        return await self._read(partial(auditing.audit_users, pseudonyms=pseudonyms)) if pseudonyms else {}

    async def audit_secrets(self, pseudonyms: Sequence[str]) -> Mapping[str, bytes]:
        return await self._read(partial(auditing.audit_secrets, pseudonyms=pseudonyms)) if pseudonyms else {}


class ThreadedStore(StatementStore):
    """A store with a thread that writes, everything that waits at once, and one that reads and never waits for a commit. Several
    runtimes may share one object, each opening and closing it."""

    _takes_locks: ClassVar[bool] = False
    """Whether its requests take the locks that they declare. A database that lets one write at a time needs none."""

    def __init__(self, clock: Clock | None, *, title: str, limit: float) -> None:
        """`title` begins the sentences about it; `limit` is how many seconds anybody waits for an answer."""
        super().__init__(clock)
        self._title = title
        self._limit = limit
        self._timeouts = 0
        self._users = 0
        self._process = 0
        self._turnstile = asyncio.Lock()
        self._writer: Worker | None = None
        self._reader: Worker | None = None

    @abstractmethod
    async def _start(self) -> tuple[Worker, Worker]:
        """The writer and the reader, whose `carry_out` are the two ways to the database."""

    @abstractmethod
    def _stop(self, writer: Worker, reader: Worker) -> None:
        """Wait for what was asked for, then let go of the database and of every owner that was registered here. Blocks."""

    async def open(self) -> None:
        async with self._turnstile:
            if not self._users:
                self._writer, self._reader = await self._start()
                self._process = os.getpid()
            self._users += 1

    async def close(self) -> None:
        """Wait for what was asked for, then let go of the database and of every owner that was registered here."""
        async with self._turnstile:
            self._users = max(0, self._users - 1)
            if self._users or self._writer is None or self._reader is None:
                return
            writer, reader, self._writer, self._reader = self._writer, self._reader, None, None
            if self._process != os.getpid():
                return  # forked: threads and connections are those of the process that opened them
            for worker in (writer, reader):
                # What was asked for in this round of the loop has not reached the thread yet.
                worker.hand_over(asyncio.get_running_loop())
            await asyncio.to_thread(self._stop, writer, reader)
            self._timeouts += writer.timeouts + reader.timeouts

    def load(self) -> StoreLoad:
        workers = [worker for worker in (self._writer, self._reader) if worker is not None]
        return StoreLoad(
            waiting=self._writer.waiting if self._writer is not None else 0,
            timeouts=self._timeouts + sum(worker.timeouts for worker in workers),
        )

    async def _write(self, request: Request[T], locks: Locks = NO_LOCKS) -> T:
        if self._writer is None:
            raise self._not_open()
        if self._takes_locks and locks is not NO_LOCKS:
            request = LockedRequest(request, locks)
        return await self._writer.submit(request)

    async def _read(self, request: Request[T]) -> T:
        if self._reader is None:
            raise self._not_open()
        return await self._reader.submit(request)

    def _not_open(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._title} is not open; call open() first.")


def _open_session(tx: Transaction, record: SessionRecord, subject: AuditSubject | None) -> SessionOpened:
    sessions.create_session(tx, record)
    if record.user is None:
        return SessionOpened(None, None)
    known = auditing.name_subject(tx, record.tenant, record.user, subject) if subject is not None else None
    return SessionOpened(known, sessions.revive_block(tx, record.tenant, record.user))


def _decline_hold(tx: Transaction, hold_id: str, expected: Sequence[HoldState], left: str) -> Hold | None:
    held = sessions.move_hold(tx, hold_id, HoldState.DECLINED, expected)
    if held is not None and held.state is HoldState.DECLINED:
        # In the same transaction: between the no and this, another process could take the abandoned call over and run it.
        ledger.settle_abandoned(tx, held.ledger_key, left)
    return held


def _look_at(tx: Transaction, key: str) -> tuple[LedgerRow | None, bool]:
    row = ledger.stored_row(tx, key)
    if row is None or not ledger.is_abandoned(tx, row):
        return row, False
    # What may be taken over is returned with a lease that is over, whatever the clock of its owner said.
    return row._replace(lease_until=min(row.lease_until, tx.now - 1)), row.effects == "unsafe"


@dataclass(slots=True)
class Group:
    """Neighbouring claims, finishes and turns that are carried out together; or one request of another kind."""

    requests: list[Request[Any]]
    claims: list[Claim] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    turns: list[sessions.TurnRequest] = field(default_factory=list)

    @property
    def is_together(self) -> bool:
        return bool(self.claims or self.finishes or self.turns)


def grouped(requests: Sequence[Request[Any]], largest: int) -> list[Group]:
    """The requests in their order, each group as large as it may be, and no larger than `largest`."""
    groups: list[Group] = []
    met: set[Hashable] | None = None
    for request in requests:
        names = _names_of(request)
        # A group ends at whatever one of its members could refuse or undo, so that carrying it out at once and one by one come
        # to the same.
        if (
            names is None
            or met is None
            or len(groups[-1].requests) == largest
            or names.refused_by in met
            or not met.isdisjoint(names.own)
        ):
            groups.append(Group([]))
            met = None if names is None else set()
        group = groups[-1]
        group.requests.append(request)
        if names is None or met is None:
            continue
        met.update(names.own)
        met.add(names.left)
        if isinstance(request, ledger.ClaimRequest):
            group.claims.append(request.claim)
        elif isinstance(request, ledger.FinishRequest):
            group.finishes.append(request.finish)
        elif isinstance(request, sessions.TurnRequest):
            group.turns.append(request)
    return groups


class _Names(NamedTuple):
    """By which two requests know that they cannot be in one group, because one could refuse the other or undo what it wrote."""

    own: Collection[Hashable]
    """Nobody else in the group has one of these."""
    left: Hashable = None
    """For those that come later."""
    refused_by: Hashable = ""
    """Nobody before it has left this."""


def _names_of(request: Request[Any]) -> _Names | None:
    """None: it cannot be in a group with others."""
    if isinstance(request, ledger.ClaimRequest):
        wish = request.claim
        # Grants and limits per user are counted while they are looked at, which one statement for many claims cannot do.
        if wish.hold_id is None and wish.rate is None and wish.left is None and wish.check_connection:
            own: tuple[Hashable, ...] = (wish.key, (wish.session_id, wish.turn, wish.tool, wish.args_digest))
            if wish.alias is not None:
                own = (*own, (wish.session_id, wish.alias.call_id))
            # Both write the session's counters.
            return _Names(own, ("claims", wish.session_id), ("turns", wish.session_id))
    elif isinstance(request, ledger.FinishRequest):
        end = request.finish
        known = end.claimed is not None and end.claimed.fence == end.fence and end.state is not LedgerState.RUNNING
        if known and end.block is None and end.session_state is None:
            return _Names((end.key,))
    elif isinstance(request, sessions.TurnRequest):
        turns = ("turns", request.session_id)
        return _Names((turns,), turns, ("claims", request.session_id))
    return None
