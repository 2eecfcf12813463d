"""The runtime's centre: sessions, and the parts that their calls pass through. Ports are given to it; `app.py` chooses them.

A housekeeper task does what must happen in time but on nobody's call: leases renewed, counters and audit lines written,
blocks and switches of other processes learnt, approvals given elsewhere carried out.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import random  # noqa: TID251  # only spreads retries out
import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from time import perf_counter
from typing import Any

from handrail.contract.call import Call
from handrail.contract.definition import Mode
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.intents import Intent
from handrail.contract.ports import AuditPort, Clock, MetricsPort
from handrail.contract.store import Hold, HoldState, LedgerState, SessionRecord, Store, StoreUnavailable
from handrail.registry import Registry, Snapshot
from handrail.runtime.attempt import Attempt, Refusal
from handrail.runtime.confirm import Confirmations
from handrail.runtime.events import Events
from handrail.runtime.pipeline import Pipeline
from handrail.runtime.plan import Plans, RedactorFactory
from handrail.runtime.policy import Policy
from handrail.runtime.rates import Rates
from handrail.runtime.replays import Entry
from handrail.runtime.runner import Runner
from handrail.runtime.session import Client, Session
from handrail.runtime.state import StateController
from handrail.runtime.writing import Writing, settle_from_row

TICK_SECONDS = 0.25
IDLE_SECONDS = 900.0


class RuntimeCore:
    """Use `handrail.Runtime`, which opens the store and the audit log by their settings."""

    def __init__(
        self,
        registry: Registry,
        *,
        store: Store,
        audit: AuditPort,
        metrics: MetricsPort,
        clock: Clock,
        redactors: RedactorFactory,
        capabilities: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
        crash: Callable[[str], None] | None = None,
        capability_checks: bool = True,
    ) -> None:
        self.registry = registry
        self.store = store
        self.audit = audit
        self.metrics = metrics
        self.clock = clock
        self.capabilities: Mapping[str, Any] = dict(capabilities or {})
        self.policy = policy or Policy()
        self.log = logging.getLogger("handrail.runtime")
        self.owner = f"owner-{secrets.token_hex(8)}"
        self.crash: Callable[[str], None] = crash or _no_crash
        self.jitter: Callable[[], float] = random.Random().random  # noqa: S311
        self.blocks: Mapping[tuple[str, str], int] = {}
        self.switches: Mapping[str, str] = {}
        self.rates = Rates(clock)
        self.runner = Runner(self.policy.workers)
        self.pipeline = Pipeline(self)
        self.writing = Writing(self)
        self.confirmations = Confirmations(self)
        self.sessions: dict[str, Session] = {}
        self.clients: dict[str, list[Events]] = {}
        self._redactors = redactors
        self._plans: dict[tuple[str, int], Plans] = {}
        self._housekeeper: asyncio.Task[None] | None = None
        self._opened = False
        if capability_checks:
            self._check_capabilities()

    # Opening and closing

    async def open(self) -> None:
        """Open the store and start the housekeeper. Done by the first session if nobody does it."""
        if self._opened:
            return
        self._opened = True
        if not self.registry.locked:
            self.registry.lock()
        await self.store.open()
        await self.store.register_owner(self.owner)
        await self._learn()
        self._housekeeper = asyncio.get_running_loop().create_task(self._keep_house())

    async def close(self) -> None:
        """Let running writes finish, write what is pending, and close the store."""
        if not self._opened:
            return
        if self.writing.tasks:
            await asyncio.wait(self.writing.tasks, timeout=self.policy.timeout_ms / 1000)
        if self._housekeeper is not None:
            self._housekeeper.cancel()
            await asyncio.gather(self._housekeeper, return_exceptions=True)
        await self._write_behind()
        self.runner.close()
        await self.store.release_owner(self.owner)
        await self.store.close()
        self.audit.close()
        self._opened = False

    async def __aenter__(self) -> RuntimeCore:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # Sessions

    async def open_session(
        self,
        *,
        mode: Mode = "text",
        user: str | None = None,
        tenant: str = "",
        attributes: Mapping[str, Any] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
    ) -> Session:
        """A new session, pinned to the registry as it is now."""
        if mode not in ("text", "voice"):
            raise UsageError(f'"{mode}" is not a mode; choose "text" or "voice".')
        await self.open()
        snapshot = self.registry.snapshot()
        rules = self._session_policy(policy)
        session = self._make(
            id=f"ses_{secrets.token_hex(12)}",
            token=secrets.token_urlsafe(24),
            user=user,
            tenant=tenant,
            attributes=dict(attributes or {}),
            state=StateController({"mode": mode}),
            snapshot=snapshot,
            policy=rules,
            connection=1,
            resumed=False,
        )
        await self.store.create_session(
            SessionRecord(
                session_id=session.id,
                token_hash=_hash(session.token),
                tenant=tenant,
                user=user,
                mode=mode,
                attributes=session.attributes,
                registry_version=snapshot.version,
                owner=self.owner,
            )
        )
        self.sessions[session.id] = session
        self.metrics.session_opened(session.id)
        self.audit_session("session_start", session)
        return session

    async def resume_session(
        self,
        session_id: str,
        *,
        token: str,
        restored_calls: Sequence[str] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
    ) -> Session:
        """The model stream reconnects: the same session and turn under the next connection number.

        `restored_calls` are the ids of calls that the model still remembers; unknown means none.
        """
        await self.open()
        record = await self._authentic(session_id, token)
        if not record.active:
            raise UsageError("The session has ended; open a new one.")
        snapshot = self.registry.snapshot()
        connection = await self.store.connect(session_id, registry_version=snapshot.version, owner=self.owner)
        old = self.sessions.get(session_id)
        session = self._from_record(record, token, snapshot, self._session_policy(policy), connection)
        if old is not None:
            old.is_stale = True
            session.events_queue = old.events_queue
            session.replays = old.replays
            session.writes = {key: entry for key, entry in old.writes.items() if not entry.settled}
        self.sessions[session_id] = session
        await self._restore(session, record, restored_calls or ())
        if record.registry_version != snapshot.version:
            self.audit_session("session_repinned", session, previousVersion=record.registry_version)
        self.audit_session("session_resume", session)
        return session

    async def attach(self, session_id: str, *, token: str) -> Client:
        """The user's page reloads: open requests are sent to it again, with fresh tokens."""
        await self.open()
        record = await self._authentic(session_id, token)
        session = self.sessions.get(session_id)
        if session is None:
            session = self._from_record(record, token, self.registry.snapshot(), self.policy, record.connection)
        client = Client(self, session_id, session.events_queue)
        for hold in await self.store.holds(session_id, (HoldState.PENDING,)):
            await self.confirmations.announce_again(session, hold)
        return client

    async def approve(self, confirmation_id: str, *, token: str) -> ToolResponse:
        """A person approves a held call; the envelope that it ended in."""
        await self.open()
        return await self.confirmations.approve(confirmation_id, token)

    async def decline(self, confirmation_id: str, *, token: str) -> ToolResponse:
        await self.open()
        return await self.confirmations.decline(confirmation_id, token)

    async def begin_turn(self, session: Session, input_id: str | None) -> int:
        started = await self.store.begin_turn(session.id, connection=session.connection, input_id=input_id)
        if started.turn == 0:
            session.is_stale = True
            if session.turn is None:
                session.enter_turn(0, perf_counter())
            return session.turn.number if session.turn else 0
        if session.turn is not None and session.turn.number != started.turn:
            self.end_turn(session)
        fresh = started.turn not in session.turns
        session.enter_turn(started.turn, perf_counter())
        if fresh:
            self.metrics.turn_started(session.id)
        session.dirty = True
        return started.turn

    def end_turn(self, session: Session) -> None:
        turn = session.turn
        if turn is None:
            return
        duration = (perf_counter() - turn.started) * 1000
        self.audit.emit(
            "turn_summary",
            {
                **self._who(session),
                "duration": round(duration, 3),
                "calls": turn.total_used,
                "retrieval": turn.retrieval_used,
                "refusals": turn.refusals,
            },
        )
        limit = session.limits.turn_ms
        if limit is not None and duration > limit:
            self.log.info("A turn took %.0f ms; the budget of a %s turn is %d ms", duration, session.mode, limit)

    async def interrupt(self, session: Session) -> None:
        for attempt, task in list(session.running.items()):
            if attempt.plan.writes or attempt.plan.definition.on_interrupt == "finish" or task is None:
                continue
            attempt.interrupted = True
            task.cancel()
        self.audit.emit("interrupt", self._who(session))

    async def save(self, session: Session) -> None:
        await self.store.save_sessions([(session.id, session.connection, self._fields(session))])

    async def close_session(self, session: Session) -> None:
        if session.is_active:
            session.state.set("isActive", False)
        self.end_turn(session)
        await self.save(session)
        session.events_queue.close()
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
        self.metrics.session_closed(session.id)
        self.audit_session("session_end", session)

    def has_connection(self, session: Session) -> bool:
        """Whether the session's model stream is attached to this process."""
        return self.sessions.get(session.id) is session and not session.is_stale

    async def session_for(self, hold: Hold) -> Session | None:
        """The session of a held call: the one that is open here, or one made from the store for this approval."""
        session = self.sessions.get(hold.session_id)
        if session is not None:
            return session
        made = await self.detached_session(hold.session_id)
        return made if made is not None and made.is_active else None

    async def detached_session(self, session_id: str) -> Session | None:
        """A session made from the store without taking its connection; None if it is not kept."""
        record = await self.store.load_session(session_id)
        if record is None:
            return None
        made = self._from_record(record, "", self.registry.snapshot(), self.policy, record.connection)
        made.enter_turn(record.turn, perf_counter()).restore(record.counters)
        return made

    # What calls leave behind

    def deliver(
        self,
        session: Session,
        call_id: str | None,
        tool: str,
        answer: ToolResponse,
        *,
        hold_id: str | None = None,
        silent: bool = False,
    ) -> None:
        """A late envelope: the call's id was answered already, so the host tells the model in words of its own."""
        session.events_queue.emit(
            "envelope",
            {
                "callId": call_id,
                "toolId": tool,
                "envelope": answer.to_dict(),
                "confirmationId": hold_id,
                "silent": silent,
            },
        )

    def apply_intents(self, session: Session, attempt: Attempt, intents: Sequence[Intent]) -> None:
        for intent in intents:
            verdict = session.state.apply_intent(intent)
            fields = {
                "intent": intent.to_dict(),
                "ok": verdict.applied,
                "callId": attempt.call.call_id,
                "toolId": attempt.plan.tool_id,
            }
            self.audit.emit("intent", {**self._who(session), **fields, "reason": verdict.reason})
            if not verdict.applied:
                continue
            if intent.type == "BLOCK_USER" and session.user is not None:
                until = int(intent.fields["until"] * 1000)
                blocks = dict(self.blocks)
                key = (session.tenant, session.user)
                blocks[key] = max(until, blocks.get(key, 0))
                self.blocks = blocks
            session.dirty = True
            session.events_queue.emit("intent", intent.to_dict())

    def audit_call(self, event: str, attempt: Attempt, duration: float, ok: bool, error_type: str | None) -> None:
        session, plan, call = attempt.session, attempt.plan, attempt.call
        redact = plan.redact
        self.audit.emit(
            event,
            {
                "sessionId": session.id,
                "turnId": attempt.turn.number,
                "connection": session.connection,
                "callId": call.call_id,
                "idempotencyKey": attempt.key,
                "toolId": plan.tool_id,
                "toolVersion": plan.definition.version,
                "registryVersion": session.snapshot.version,
                "category": plan.definition.category,
                "mode": session.mode,
                "provider": call.provider,
                "duration": round(duration, 3),
                "ok": ok,
                "errorType": error_type,
                "args": attempt.args if redact is None else redact(attempt.args),
                "clamped": attempt.clamped,
                "defaulted": attempt.defaulted,
                "repaired": attempt.repaired,
            },
        )

    def audit_refusal(self, attempt: Attempt, refusal: Refusal, duration: float, event: str = "refusal") -> None:
        session, plan, call = attempt.session, attempt.plan, attempt.call
        self.audit.emit(
            event,
            {
                **self._who(session),
                "callId": call.call_id,
                "idempotencyKey": attempt.key,
                "toolId": plan.tool_id,
                "toolVersion": plan.definition.version,
                "category": plan.definition.category,
                "provider": call.provider,
                "duration": round(duration, 3),
                **_refusal_fields(refusal),
            },
        )

    def audit_unknown(self, session: Session, call: Call, refusal: Refusal, duration: float) -> None:
        name = call.name[:128] if isinstance(call.name, str) else None
        fields = {"callId": call.call_id, "toolId": name, "provider": call.provider, "duration": round(duration, 3)}
        self.audit.emit("refusal", {**self._who(session), **fields, **_refusal_fields(refusal)})

    def audit_hold(
        self, event: str, session: Session, hold: Hold, call_id: str | None, refusal: Refusal | None = None
    ) -> None:
        fields: dict[str, Any] = {
            "confirmationId": hold.hold_id,
            "toolId": hold.tool,
            "callId": call_id or (hold.alias and hold.alias.call_id),
        }
        self.audit.emit(
            event, {**self._who(session), **fields, **(_refusal_fields(refusal) if refusal else {"ok": True})}
        )

    def audit_session(self, event: str, session: Session, **facts: Any) -> None:
        self.audit.emit(event, {**self._who(session), "user": session.user, "tenant": session.tenant, **facts})

    def observe(self, attempt: Attempt, refusal: Refusal) -> None:
        """A gate that only observes: what it would have refused is written down, and the call passes."""
        self.audit_refusal(attempt, refusal, (perf_counter() - attempt.started) * 1000, event="would_refuse")

    def warn_latency(self, attempt: Attempt, duration: float) -> None:
        limit = attempt.plan.definition.latency_budget_ms
        self.log.warning("%s took %.0f ms; its budget is %d ms", attempt.plan.tool_id, duration, limit)

    @staticmethod
    def digest_of(raw: bytes | str) -> str:
        return sha256(raw if isinstance(raw, bytes) else raw.encode()).hexdigest()

    # Inside

    def _check_capabilities(self) -> None:
        """A host that lacks what a tool needs fails at start, not at the first call."""
        for entry in self.registry.entries():
            missing = [name for name in entry.get("capabilities", ()) if name not in self.capabilities]
            if missing:
                raise UsageError(
                    f'The tool "{entry["toolId"]}" needs the capability "{missing[0]}", which this host does not have.'
                )

    def _session_policy(self, policy: Policy | Mapping[str, Any] | None) -> Policy:
        if policy is None or isinstance(policy, Policy):
            return policy or self.policy
        return Policy.from_dict(policy, self.policy)

    def _make(self, *, snapshot: Snapshot, policy: Policy, **facts: Any) -> Session:
        plans = self._plans.get((snapshot.version, id(policy)))
        if plans is None:
            plans = Plans(snapshot, policy, self.observe, self._redactors)
            if policy is self.policy:
                self._plans = {key: kept for key, kept in self._plans.items() if key[0] == snapshot.version}
                self._plans[(snapshot.version, id(policy))] = plans
        return Session(self, snapshot=snapshot, plans=plans, policy=policy, **facts)

    def _from_record(
        self, record: SessionRecord, token: str, snapshot: Snapshot, policy: Policy, connection: int
    ) -> Session:
        return self._make(
            id=record.session_id,
            token=token,
            user=record.user,
            tenant=record.tenant,
            attributes=dict(record.attributes),
            state=StateController({**record.state, "mode": record.mode, "isActive": record.active}),
            snapshot=snapshot,
            policy=policy,
            connection=connection,
            resumed=True,
        )

    async def _authentic(self, session_id: str, token: str) -> SessionRecord:
        record = await self.store.load_session(session_id) if isinstance(session_id, str) else None
        # Compared even where there is none, so that time does not tell which ids exist.
        good = hmac.compare_digest(
            _hash(token if isinstance(token, str) else ""), record.token_hash if record else _hash("no session")
        )
        if record is None or not good:
            raise UsageError("There is no such session.")
        return record

    async def _restore(self, session: Session, record: SessionRecord, restored: Sequence[str]) -> None:
        if record.turn:
            session.enter_turn(record.turn, perf_counter()).restore(record.counters)
        ledger_keys: dict[str, str] = {}
        for alias in await self.store.aliases(session.id):
            entry = Entry(alias.tool, alias.raw_digest, ledger_key=alias.ledger_key, hold_id=alias.hold_id)
            session.calls_by_id[alias.call_id] = entry
            if alias.ledger_key is None:
                continue
            ledger_keys[alias.call_id.rsplit(":", 1)[-1]] = alias.ledger_key
            row = await self.store.ledger_row(alias.ledger_key)
            if row is not None and row.state is not LedgerState.RUNNING:
                settle_from_row(entry, row)
        turn = session.turn
        for call_id in restored:
            key = ledger_keys.get(str(call_id))
            row = await self.store.ledger_row(key) if key is not None else None
            if row is not None and turn is not None and row.turn == turn.number:
                pair = (row.tool, row.args_digest)
                turn.ordinals[pair] = turn.ordinals.get(pair, 0) + 1
        await self.confirmations.restore(session)

    async def _keep_house(self) -> None:
        beat = 0.0
        while True:
            await self.clock.sleep(TICK_SECONDS)
            try:
                self.audit.flush()
                await self._write_behind()
                await self._learn()
                beat += TICK_SECONDS
                if beat * 3000 >= self.policy.lease_ms:
                    beat = 0.0
                    await self._renew()
                for session in [session for session in self.sessions.values() if session.holds]:
                    await self.confirmations.run_approved(session)
                self._forget_idle()
            except StoreUnavailable as error:
                self.log.warning("The store is away: %s", error)
            except Exception:
                self.log.exception("The housekeeper stumbled; it goes on")

    async def _write_behind(self) -> None:
        dirty = [session for session in self.sessions.values() if session.dirty]
        for session in dirty:
            session.dirty = False
        try:
            if dirty:
                await self.store.save_sessions(
                    [(session.id, session.connection, self._fields(session)) for session in dirty]
                )
            await self.rates.synchronise(self.store)
        except StoreUnavailable:
            for session in dirty:
                session.dirty = True
            raise

    async def _learn(self) -> None:
        operating = await self.store.operating()
        self.blocks, self.switches = operating.blocks, operating.switches
        newest = self.registry.snapshot().version
        for session in self.sessions.values():
            session.superseded_version = "" if session.snapshot.version == newest else newest

    async def _renew(self) -> None:
        claims = list(self.writing.claims.items())
        if claims:
            for lost in await self.store.renew(claims, self.policy.lease_ms):
                self.log.warning("The claim %s is no longer ours", lost)

    def _forget_idle(self) -> None:
        """A session that has been idle for long gives the memory of its replays back."""
        oldest = perf_counter() - IDLE_SECONDS
        for session in self.sessions.values():
            if session.last_used < oldest and len(session.replays):
                session.replays.clear()

    def _fields(self, session: Session) -> dict[str, Any]:
        return {
            "mode": session.mode,
            "active": session.is_active,
            "state": session.state.snapshot(),
            "counters": session.turn.counters() if session.turn is not None else {},
        }

    def _who(self, session: Session) -> dict[str, Any]:
        return {
            "sessionId": session.id,
            "turnId": session.turn.number if session.turn is not None else None,
            "connection": session.connection,
            "registryVersion": session.snapshot.version,
            "mode": session.mode,
        }


def _refusal_fields(refusal: Refusal) -> dict[str, Any]:
    return {
        "ok": False,
        "errorType": refusal.type.value,
        "gate": refusal.gate,
        "rule": refusal.rule,
        "value": refusal.value,
        "limit": refusal.limit,
        "message": refusal.message,
    }


def _hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _no_crash(point: str) -> None:
    return None
