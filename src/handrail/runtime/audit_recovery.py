"""What the audit log and the store owe each other: checkpoints of the chain in the store, and a line for every answered write.

A call's line is written behind, so a process that is killed right after an answer may leave the outcome in the ledger and no
line. The store therefore knows until when everything that a process has settled has its line. Whoever starts next finds
the processes that died, and writes what they left out, marked as `recovered`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from handrail.contract.ports import DurableAudit
from handrail.contract.store import AuditedFact, AuditPosition, LedgerRow, LedgerState, Store
from handrail.runtime.envelopes import AuditTrail
from handrail.runtime.known_calls import id_of_key

if TYPE_CHECKING:
    from handrail.runtime.session import Session

CHECKPOINT_SECONDS = 1.0
_MARGIN_MS = 60_000
"""Clocks are set, and files bear the time of another clock than the store's: so much more is looked at than has to be."""


class AuditedSessions(Protocol):
    """The sessions that lines are written for."""

    async def detached_session(self, session_id: str) -> Session | None:
        """A session made from the store without taking its connection; None if it is not kept."""

    async def pseudonym_of(self, session: Session, user: str | None) -> str | None:
        """Under which name the audit log knows a person."""


async def older_than_audit(store: Store, newest_facts: Callable[[], list[AuditedFact]]) -> str | None:
    """A sentence if the log tells of something that the store does not know: it was restored from an older copy.

    A line follows what it tells of into the store, so the newest must be known, and the newest of each chain that the store has
    a checkpoint of. Other chains may be those of a store that was used before this one."""
    checkpoints = await store.audit_checkpoints()
    if not checkpoints and not await store.ledger_rows(limit=1):
        return None  # a new store
    chains = {checkpoint.position.chain for checkpoint in checkpoints if checkpoint.number}
    facts = await asyncio.to_thread(newest_facts)
    for number, fact in enumerate(reversed(facts)):
        if (number == 0 or any(chain in fact.file for chain in chains)) and not await _is_known(store, fact):
            call = f'the call {fact.ledger_key[:12]} of "{fact.tool}"' if fact.ledger_key else ""
            return (
                f"The store is older than its audit log: it does not know {call or f'the session {fact.session_id}'}, of "
                f"which the log has a line from {fact.at}. It was restored from an older copy, or the log is another store's; "
                "what was called since then may run again."
            )
    return None


async def _is_known(store: Store, fact: AuditedFact) -> bool:
    session = await store.load_session(fact.session_id)
    if session is None or fact.ledger_key is None:
        return session is not None
    # Calls of a closed session may have been pruned.
    return not session.active or await store.ledger_row(fact.ledger_key) is not None


class AuditRecovery:
    """Keeps the audit log of one runtime and its store in step. Does nothing for a log that ends with the process."""

    __slots__ = (
        "_log",
        "_looked",
        "_notes",
        "_owner",
        "_saved",
        "_sessions",
        "_store",
        "_trail",
        "_turnstile",
        "has_begun",
    )

    def __init__(
        self, store: Store, trail: AuditTrail, sessions: AuditedSessions, owner: str, notes: logging.Logger
    ) -> None:
        self._store = store
        self._trail = trail
        self._sessions = sessions
        self._owner = owner
        self._notes = notes
        log = trail.durable
        self._log: DurableAudit | None = log if log is not None and log.is_durable else None
        self.has_begun = self._log is None
        self._saved: AuditPosition | None = None
        self._looked = 0.0
        self._turnstile = asyncio.Lock()

    async def begin(self) -> None:
        """Before the first claim: from now on this process may leave answered calls without a line."""
        if not self.has_begun:
            await self._store.begin_audit(self._owner)
            self.has_begun = True

    async def checkpoint_in_time(self) -> None:
        now = perf_counter()
        if self._log is not None and now >= self._looked + CHECKPOINT_SECONDS:
            self._looked = now
            await self.checkpoint()

    async def checkpoint(self) -> None:
        """Store how far the chain is written, if that has changed."""
        log, store = self._log, self._store
        if log is None or (log.position == self._saved and not log.has_more):
            return
        async with self._turnstile:
            # What is settled before this moment was noted before it, so that it is among the lines that are written now.
            until = await store.now()
            if await asyncio.to_thread(log.flush, to_disk=True):
                await self._save(log, until)

    async def _save(self, log: DurableAudit, until: int) -> bool:
        store, position = self._store, log.position
        if position is None or position == self._saved:
            return True
        stored = await store.audit_checkpoint_of(position.chain)
        known = stored.position if stored is not None else None
        if known is not None and known.seq >= position.seq:
            # Another command is further, or lines are gone, which the checkpoint that stays there tells.
            self._saved = position
            return True
        follows = known is None or known == self._saved or await asyncio.to_thread(log.leads_to_here, known)
        if not follows:
            self._notes.error("Lines of the audit chain %s are gone that were there before", position.chain)
        moved = await store.save_audit_checkpoint(
            position,
            seal=log.seal,
            after=known,
            follows=follows,
            owner=self._owner if self.has_begun else None,  # who has claimed nothing leaves nothing out
            audited_until=until,
        )
        if moved:
            self._saved = position
        return moved

    async def close(self) -> None:
        """The log is closed: store its last checkpoint, and that nothing is left out."""
        log = self._log
        if log is None:
            return
        until = await self._store.now()
        if not await asyncio.to_thread(log.end):
            return  # what is missing is written at the next start
        await self._save(log, until)
        if self.has_begun:
            await self._store.end_audit(self._owner)

    async def compare(self) -> None:
        """Say so if the store is older than the log."""
        if self._log is not None:
            sentence = await older_than_audit(self._store, self._log.newest_facts)
            if sentence is not None:
                self._notes.error("%s", sentence)

    async def recover(self) -> None:
        """Write the lines that processes left out when they died. By one process alone, and once."""
        log, store = self._log, self._store
        if log is None:
            return
        for left in await store.abandoned_audits(self._owner):
            since = left.audited_until - _MARGIN_MS
            # A little more than can be missing, because clocks differ; those that have their line are sorted out next.
            rows = await store.answered_by(left.owner, since)
            audited = await asyncio.to_thread(log.audited, {row.key for row, _ in rows}, since / 1000)
            missing = [(row, call) for row, call in rows if row.key not in audited]
            for row, call in missing:
                await self._write(row, call)
            if missing:
                self._notes.warning("%d audit lines that a process left out when it died were written", len(missing))
            if not await asyncio.to_thread(log.flush, to_disk=True):
                return  # tried again by the next that starts
            # Only now that the lines are on the disk: until here a crash leaves everything to be found again.
            await store.end_audit(left.owner)

    async def _write(self, row: LedgerRow, call: str | None) -> None:
        """A line as `AuditTrail.audit_call` writes it, from what the ledger knows."""
        session = await self._sessions.detached_session(row.session_id)
        plan = session.plans[row.tool] if session is not None else None
        envelope = orjson.loads(row.envelope) if row.envelope else {}
        meta, error = envelope.get("meta") or {}, envelope.get("error") or {}
        args = orjson.loads(row.args)
        if plan is None:
            args = None  # without its definition nobody knows what has to be hidden
        elif plan.redact is not None:
            args = plan.redact(args)
        line: dict[str, Any] = {
            "sessionId": row.session_id,
            "turnId": row.turn,
            "connection": session.connection if session is not None else None,
            "mode": session.mode if session is not None else None,
            "provider": None,
            "toolId": row.tool,
            "toolVersion": plan.version if plan is not None else None,
            "registryVersion": row.registry_version,
            "category": plan.facts.category if plan is not None else None,
            "callId": id_of_key(call) if call is not None else None,
            "idempotencyKey": call,
            "ledgerKey": row.key,
            "confirmationId": row.hold_id,
            "duration": meta.get("duration"),
            "ok": row.state is LedgerState.SUCCEEDED,
            "errorType": error.get("type"),
            "args": args,
            "finishedAt": row.finished_at,
            "recovered": True,
        }
        hold = await self._store.hold_by_id(row.hold_id) if row.hold_id is not None else None
        if hold is not None and session is not None:
            # The line of the approval may be lost as well.
            line["approver"] = await self._sessions.pseudonym_of(session, hold.approver)
            line["approvedVia"] = hold.approved_via
        if session is None:
            self._trail.audit.emit("execution", line)
        else:
            self._trail.note("execution", session, line)
