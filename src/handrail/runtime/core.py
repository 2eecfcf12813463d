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
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from hashlib import sha256
from typing import Any, Self
from weakref import WeakValueDictionary

from handrail.contract.credentials import ConnectionsPort
from handrail.contract.definition import Mode
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import SessionEnded, UsageError
from handrail.contract.events import IntentApplied
from handrail.contract.gates import Gate
from handrail.contract.intents import Intent
from handrail.contract.ports import AuditPort, Clock, DurableAudit, MetricsPort, TracingPort, UsagePort
from handrail.contract.store import (
    Approval,
    Block,
    Hold,
    HoldState,
    SessionRecord,
    Store,
    StoreUnavailable,
)
from handrail.registry import Registry, Snapshot
from handrail.runtime.approval import Approvals, no_such_request
from handrail.runtime.audit_recovery import AuditRecovery
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.claim_and_run import LedgerClaims
from handrail.runtime.confirmation import Confirmations
from handrail.runtime.envelopes import Answers, AuditTrail
from handrail.runtime.execution import Execution
from handrail.runtime.gates import checked_gates
from handrail.runtime.housekeeper import Housekeeper
from handrail.runtime.known_calls import Aliases
from handrail.runtime.ledger_lookup import LedgerLookup, OwnClaims, UnconfirmedClaims
from handrail.runtime.pinned_versions import check_pins, choose_versions, gone_sentence, repin
from handrail.runtime.pipeline import Pipeline
from handrail.runtime.plan import Meaning, RedactorFactory
from handrail.runtime.policy import Policy
from handrail.runtime.rates import Rates
from handrail.runtime.requirements import check_capabilities, has_conditions
from handrail.runtime.runner import Runner
from handrail.runtime.services import Services
from handrail.runtime.session import Client, Session, roles_of
from handrail.runtime.session_factory import SessionFactory, new_subject
from handrail.runtime.session_restore import restore
from handrail.runtime.shutdown import let_writes_end, name_of
from handrail.runtime.state import StateController
from handrail.runtime.statistics import CallStatistics
from handrail.runtime.traced import TracedAnswers, TracedExecution, TracedPipeline, TracedTurns
from handrail.runtime.turns import Turns
from handrail.runtime.user_blocks import block_user
from handrail.runtime.write_path import WritePath
from handrail.schema.condition import load_engine

_MAX_LABELS = 256


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
        services: Services | None = None,
        policy: Policy | None = None,
        crash: Callable[[str], None] | None = None,
        capability_checks: bool = True,
        meaning: Meaning | None = None,
        misspelt: Callable[[str], str] = lambda name: "",
        gates: Sequence[Gate] = (),
        tracing: TracingPort | None = None,
        usage: Callable[[str], UsagePort | None] | None = None,
        connections: ConnectionsPort | None = None,
    ) -> None:
        """`usage` makes the statistics by day for the owner of that name; without it there are none. `misspelt` gives a sentence
        about a name that looks like a provider's and is none, and nothing about any other."""
        self.registry = registry
        self.connections = connections
        """What people have connected; None where nothing is configured."""
        self.tracing = tracing
        """None where nobody configured any: then nothing on a call's way knows of it."""
        self.store = store
        self.audit = audit
        self.durable_audit = audit if isinstance(audit, DurableAudit) else None
        self.metrics = metrics
        self.clock = clock
        self.now = audit.clock
        self.capabilities: dict[str, Any] = dict(capabilities or {})
        self.services = services or Services(())
        self.gates = checked_gates(gates)
        """Those of the host, in their order."""
        self.policy = policy or Policy()
        self.log = logging.getLogger("handrail.runtime")
        self.owner = f"owner-{secrets.token_hex(8)}"
        self.crash: Callable[[str], None] = crash or (lambda point: None)
        """Told of named moments of a writing call's way, at which tests end the process."""
        self.provider_labels: set[str] = set()
        """What hosts called the providers of calls, and was looked at: each name is looked at once, not with each call."""
        self._misspelt = misspelt
        self.blocks: Mapping[tuple[str, str], int] = {}
        self.switches: Mapping[str, str] = {}
        self.rates = Rates(clock)
        self.unsaved_blocks: dict[tuple[str, str], int] = {}
        self.runner = Runner(self.policy.workers, self._late, metrics.straggling)
        self.trail = AuditTrail(audit, self.log)
        self._factory = SessionFactory(
            self,
            registry,
            store,
            self.trail,
            policy=self.policy,
            gates=self.gates,
            redactors=redactors,
            meaning=meaning,
            durable_audit=self.durable_audit,
            log=self.log,
        )
        jitter = random.Random().random  # noqa: S311
        self.usage = usage(self.owner) if usage is not None else None
        self.statistics = CallStatistics(self.usage, audit.clock) if self.usage is not None else None
        answering = self.trail, metrics, clock, self.statistics
        executing = self.runner, self.capabilities, clock, jitter, self.log
        self.answers = TracedAnswers(tracing, *answering) if tracing else Answers(*answering)
        self.execution = TracedExecution(tracing, *executing) if tracing else Execution(*executing)
        self.own_claims = OwnClaims(self.owner)
        counting = store, self.trail, metrics, self.rates, self.statistics
        named: dict[str, Any] = {"save": self.save, "lost_connection": self.lost_connection, "log": self.log}
        self.turns = TracedTurns(tracing, *counting, **named) if tracing else Turns(*counting, **named)
        self._make_write_path()
        parts = (
            self.answers, self.execution, self.lookup, self.confirmations, self.write_path, self.apply_intents
        )  # fmt: skip
        self.pipeline = TracedPipeline(tracing, *parts) if tracing else Pipeline(*parts)
        self.housekeeper = Housekeeper(self)
        self.sessions: dict[str, Session] = {}
        self.forgettings = 0
        """How often somebody was forgotten, as far as this process knows."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._housekeeper: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where the runtime lives, while it is open; other threads reach it there."""
        self._resuming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By session id: one resumption at a time, so that what happens to the connection has one order."""
        self._opening = asyncio.Lock()
        self._opened = False
        self._closing = False
        if capability_checks:
            check_capabilities(registry.entries(), self.capabilities, self.services)

    def _make_write_path(self) -> None:
        """The parts of steps 9 to 16, each made of those that it may use."""
        # In the order of who uses whom: each is given what it needs when it is made, and nothing is set afterwards.
        store, clock = self.store, self.clock
        self.audit_recovery = AuditRecovery(store, self.trail, self, self.owner, self.log)
        self.aliases = Aliases(store, self.log)
        self.lookup = LedgerLookup(store, clock, self.answers, self.own_claims)
        self.confirmations = Confirmations(
            store,
            self.answers,
            self.execution,
            self.lookup,
            self.aliases,
            self.trail,
            self.metrics,
            log=self.log,
            crash=self.crash,
            spawn=self.spawn,
            usage=self.statistics,
        )
        self.claims = LedgerClaims(
            store,
            self.own_claims,
            self.answers,
            self.execution,
            self.lookup,
            self.aliases,
            self.trail,
            self.audit_recovery,
            apply_intents=self.apply_intents,
            lost_connection=self.lost_connection,
            clock=clock,
            log=self.log,
            crash=self.crash,
        )
        self.approvals = Approvals(
            store,
            self,
            self.confirmations,
            self.claims,
            UnconfirmedClaims(store, self.own_claims, self.policy.lease_ms),
            self.lookup,
            self.trail,
            policy=self.policy,
            clock=clock,
            log=self.log,
            crash=self.crash,
            spawn=self.spawn,
            usage=self.statistics,
        )
        self.write_path = WritePath(
            store, clock, self.answers, self.lookup, self.aliases, self.confirmations, self.claims, self.turns
        )

    # Opening and closing

    async def open(self) -> None:
        """Open the services and the store, and start the housekeeper. Done by the first session if nobody does it."""
        if self._closing:
            raise StoreUnavailable("The runtime is stopping, and begins nothing new; nothing was changed.")
        if not self._opened:
            # Sessions that come at the same time open it together.
            async with self._opening:
                await self._open_once()

    async def _open_once(self) -> None:
        if self._opened:
            return
        # First: a service that cannot be opened stops the start before the store knows of it.
        self.capabilities.update(await self.services.open())
        try:
            await self._open_store()
        except BaseException:
            await self.services.close()
            raise
        self.loop = asyncio.get_running_loop()
        self._housekeeper = self.loop.create_task(self.housekeeper.work())
        self._opened = True

    async def _open_store(self) -> None:
        if not self.registry.locked:
            self.registry.lock()
        if has_conditions(self.registry.entries()):
            await asyncio.to_thread(load_engine)  # most of a second that no call should wait for
        await self.store.open()
        try:
            await self.store.register_owner(self.owner)
            # Before the first call: a user who was blocked, or a tool that was switched off, while this process was down stays
            # so.
            await self.housekeeper.learn()
            # Before anything is recovered: those lines come from this store, and as the log's newest would hide that it is an old
            # copy.
            await self.audit_recovery.compare()
            await self.audit_recovery.recover()
            sentence = gone_sentence(self.registry.snapshot(), await self.store.pinned_versions())
            if sentence is not None:
                self.log.warning("%s They get another version when they are resumed.", sentence)
        except BaseException:
            await self.store.close()
            raise

    async def close(self, *, within: float | None = None) -> None:
        """Let running writes finish by their deadlines, or `within` seconds; then write what is pending and close everything."""
        if not self._opened:
            return
        # First of all, so that nobody opens it again while the last calls are let finish.
        self._opened, self._closing = False, True
        try:
            await self._close(within)
        finally:
            await self.services.close()
            self._closing = False
            if self.tracing is not None:
                self.metrics.fold()
                await asyncio.to_thread(self.tracing.close)  # it may wait for a collector

    def running_calls(self) -> list[str]:
        """The calls whose handlers run now, stragglers included, as an operator finds them in the audit. Any thread may ask."""
        started = (one for session in list(self.sessions.values()) for one in list(session.running))
        return sorted(map(name_of, [*self.runner.outliving(), *started]))

    async def _close(self, within: float | None) -> None:
        # Before anything is cancelled: while writing calls end, the housekeeper still renews their leases.
        await let_writes_end(self.claims.tasks, self.log, within)
        if self._housekeeper is not None:
            self._housekeeper.cancel()
            await asyncio.gather(self._housekeeper, return_exceptions=True)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Outcomes first, leases last: nobody may take over a call whose outcome is still to be written. Each by itself, so that
        # one that fails does not keep the others from the store.
        finish, store_ids = self.claims.store_unstored, self.aliases.store_unstored
        chores = (self.housekeeper.write_last, self.save_blocks, self._store_usage, self.housekeeper.give_up_leases)
        for write in (finish, store_ids, *chores):
            try:
                await write()
            except StoreUnavailable as error:
                self.log.warning("What was pending could not be written: %s", error)
        if left := self.running_calls():
            self.log.error("Stopped although these calls still run: %s", ", ".join(left))
        self.runner.close()
        try:
            await self.audit_recovery.close()
        except StoreUnavailable as error:
            self.log.warning("The last checkpoint of the audit log could not be stored: %s", error)
        try:
            await self.store.release_owner(self.owner)
        except StoreUnavailable as error:
            self.log.warning("%s", error)
        await self.store.close()
        self.audit.close()

    async def _store_usage(self) -> None:
        if self.usage is not None:
            await self.usage.close(self.store.usage)

    async def take_registry(self, generation: Snapshot) -> None:
        """Use these tools for sessions that are opened or resumed from now on; `UsageError` if this host lacks what they need,
        `RegistryError` if they lack a version that open sessions are pinned to. Then everything stays as it is."""
        # Whatever can refuse the new tools comes before the registry is changed.
        check_capabilities(generation.entries, self.capabilities, self.services)
        await check_pins(generation, self.store)
        if has_conditions(generation.entries):
            await asyncio.to_thread(load_engine)
        before = self.registry.version
        self.registry.take(generation)
        facts = {"registryVersion": generation.version, "previousVersion": before, "tools": len(generation)}
        self.audit.emit("registry", {**facts, "ok": True})

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Let something happen beside the calls."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned)

    def _spawned(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Exception):
            self.log.error("Something beside the calls failed", exc_info=task.exception())

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # Sessions

    def check_provider(self, name: str | None) -> None:
        """`UsageError` for a misspelt name: its calls would not be read in the form that the provider sends, without a word."""
        if not isinstance(name, str):
            return
        if sentence := self._misspelt(name):
            raise UsageError(sentence)
        if len(self.provider_labels) < _MAX_LABELS:
            self.provider_labels.add(name)

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
        facts = dict(attributes or {})
        if "roles" in facts:
            facts["roles"] = sorted(roles_of(facts))  # as it is stored
        await self.open()
        session_id = f"ses_{secrets.token_hex(12)}"
        snapshot = self.registry.snapshot()
        pins: Mapping[str, str] = {}
        if snapshot.versions:
            pins = choose_versions(snapshot, session_id, tenant, user, facts)
            snapshot = snapshot.pinned(pins)
        rules = self._factory.policy_for(policy)
        session = self._factory.make(
            id=session_id,
            token=secrets.token_urlsafe(24),
            user=user,
            tenant=tenant,
            attributes=facts,
            state=StateController({"mode": mode}),
            snapshot=snapshot,
            policy=rules,
            connection=1,
        )
        opened = await self.store.create_session(
            SessionRecord(
                session_id=session.id,
                token_hash=_hash(session.token),
                tenant=tenant,
                user=user,
                mode=mode,
                attributes=session.attributes,
                registry_version=snapshot.version,
                owner=self.owner,
                policy=rules.changes_from(self.policy),
                versions=pins,
            ),
            new_subject() if user is not None else None,
        )
        self._factory.introduce(session, opened.subject)
        # Another process may have blocked the user after this one last looked.
        if opened.blocked_until is not None and user is not None:
            self.blocks = {**self.blocks, (tenant, user): opened.blocked_until}
        self.sessions[session.id] = session
        # Only what the store has taken is opened: until here an exception leaves nothing behind.
        self.metrics.session_opened(session.id)
        self.trail.audit_session("session_start", session, **({"versions": dict(pins)} if pins else {}))
        return session

    async def resume_session(
        self,
        session_id: str,
        *,
        token: str,
        restored_calls: Sequence[str] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
    ) -> Session:
        """The model stream reconnects: the same session and turn under the next connection number. Where this process has the
        session, it is the same object.

        `restored_calls` are the ids of calls that the model still remembers; unknown means none.
        """
        await self.open()
        record = await self._authentic(session_id, token)
        if not record.active:
            raise SessionEnded("The session has ended; open a new one.")
        return await self._resume(record, token, restored_calls, policy)

    async def take_session(self, session_id: str, *, renew: bool = False) -> Session | None:
        """The session for a host that has found out itself whose it is, and gave its token to nobody: as it is here, or resumed
        from wherever it was; with `renew` in any case, so that it has the newest registry. None if it has ended."""
        await self.open()
        session = self.sessions.get(session_id)
        if session is not None and self.has_connection(session) and not renew:
            return session
        record = await self.store.load_session(session_id)
        return await self._resume(record, "") if record is not None and record.active else None

    async def _resume(
        self,
        record: SessionRecord,
        token: str,
        restored_calls: Sequence[str] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
    ) -> Session:
        session_id = record.session_id
        async with self._resuming.setdefault(session_id, asyncio.Lock()):
            snapshot, gone = self._factory.pinned_for(record)
            # The store gives the numbers: of two processes that resume the session at once, one has the newest, and the other is
            # refused from then on.
            connection = await self.store.connect(session_id, registry_version=snapshot.version, owner=self.owner)
            session = self.sessions.get(session_id)
            # A connection that the store made unheard is ours all the same.
            unheard = record.owner == self.owner and record.connection == connection - 1
            if session is not None and session.connection != connection - 1 and not unheard:
                session.is_taken_over = True  # resumed elsewhere since: what this process knows of it is old
                session = None
            before = session.snapshot.version if session is not None else record.registry_version
            rules = self._factory.policy_for(policy) if policy is not None else None
            if session is not None:
                rules = rules or session.policy
                plans = self._factory.plans_for(snapshot, rules, session.user, session.roles)
                # A user keeps their name in the audit log; how their words stand there is up to the policy.
                is_new_to_log = session.pseudonym is None or session.policy.audit_arguments != rules.audit_arguments
                session.reattach(connection, snapshot, plans, rules)
                if is_new_to_log:
                    await self._factory.introduced(session)
            else:
                session = self._factory.from_record(
                    record, token=token, snapshot=snapshot, policy=rules, connection=connection
                )
                await self._factory.introduced(session)
                if record.current_turn:
                    self._factory.within_its_turn(session, record)
                self.sessions[session_id] = session
            await restore(
                session,
                restored_calls or (),
                store=self.store,
                aliases=self.aliases,
                confirmations=self.confirmations,
            )
        session.dirty = True
        if snapshot.pins != record.versions:
            await repin(self, session, gone)
        if before != snapshot.version:
            self.trail.audit_session("session_repinned", session, previousVersion=before)
        self.trail.audit_session("session_resume", session)
        return session

    async def set_roles(self, session: Session, roles: Collection[str]) -> None:
        """The user has these roles from now on: what they may use changes with the next call and the next offer."""
        facts = {**session.attributes, "roles": sorted(roles)}
        now = roles_of(facts)
        if now == session.roles:
            return
        # Stored first: whoever resumes the session elsewhere must not find roles that were taken away.
        await self.store.save_sessions([(session.id, session.connection, {"attributes": facts})])
        session.attributes, session.roles, session.hidden = facts, now, {}
        session.plans = self._factory.plans_for(session.snapshot, session.policy, session.user, now)
        self.trail.audit_session("session_roles", session, roles=facts["roles"])

    async def lost_connection(self, session: Session, connection: int | None) -> bool:
        """The store has a newer connection than this one. Whether it was made here; else another process has the session."""
        resuming = self._resuming.get(session.id)
        if resuming is not None:
            async with resuming:  # it may be about to make known the newer one
                pass
        if connection == session.connection:
            session.is_taken_over = True
        return not session.is_taken_over

    async def view_session(self, session_id: str, *, token: str) -> Session:
        """The session as it is stored, for somebody who only looks: whoever has its connection keeps it."""
        await self.open()
        record = await self._authentic(session_id, token)
        if not record.active:
            raise SessionEnded("The session has ended; open a new one.")
        return self._factory.within_its_turn(self._factory.from_record(record, token=token), record)

    async def attach(self, session_id: str, *, token: str) -> Client:
        """The user's page reloads: open requests are sent to it again, with fresh tokens."""
        await self.open()
        record = await self._authentic(session_id, token)
        session = self.sessions.get(session_id)
        if session is None:
            session = await self._factory.introduced(self._factory.from_record(record, token=token))
        # It listens before the requests are announced, and so misses none of them.
        client = Client(self, session_id, session.events_queue)
        holds = await self.store.holds(session_id, (HoldState.PENDING,))
        await asyncio.gather(*(self.confirmations.announce_again(session, hold) for hold in holds))
        return client

    async def approve(
        self, confirmation: str | Hold, *, token: str, approver: str | None = None, via: str | None = None
    ) -> ToolResponse:
        """A person approves a held call, by its id, as it was shown with this token; the envelope that it ended in. If it is no
        longer what was shown, nothing runs: `CONFIRMATION_REQUIRED`, and the session's events have it anew. `approver` is the
        id of the person, whom the audit names by a pseudonym; without one, the session's user. `via` says how they did it,
        such as by which key or channel, and stands there as it is."""
        await self.open()
        hold = await self._held_call(confirmation)
        if hold is None:
            return self.approvals.not_found(confirmation)
        return await self.approvals.approve(hold, token, Approval(approver, via))

    async def show(self, confirmation_id: str, *, token: str) -> Mapping[str, Any] | None:
        """An open request as the event `confirmation` has it, its facts looked up now, with a fresh token. `token` is an earlier
        one. None if the request was answered, its time is over, or there is none with this token."""
        await self.open()
        hold = await self.approvals.find(confirmation_id)
        return await self.approvals.show_again(hold, token) if hold is not None else None

    async def decline(self, confirmation: str | Hold, *, token: str) -> ToolResponse:
        """A person declines a held call, by its id: it never runs."""
        if not self._closing:  # a no is taken while the store is there
            await self.open()
        hold = await self._held_call(confirmation)
        return await self.approvals.decline(hold, token) if hold is not None else no_such_request()

    async def _held_call(self, confirmation: str | Hold) -> Hold | None:
        return confirmation if isinstance(confirmation, Hold) else await self.approvals.find(confirmation)

    async def interrupt(self, session: Session, call_ids: Collection[str] | None = None) -> None:
        if call_ids is None:
            session.interruptions += 1  # what waits for its start is cancelled there
            if session.turn is not None and not session.turn.ended:
                session.turn.interrupted = True
        for attempt, task in list(session.running.items()):
            if call_ids is not None and attempt.call.call_id not in call_ids:
                continue
            # An effect that has begun is finished and recorded; to break it off would only make its outcome unknown.
            if attempt.plan.writes or attempt.plan.definition.on_interrupt == "finish" or task is None:
                continue
            attempt.interrupted = True
            task.cancel()
        self.trail.note("interrupt", session, self.trail.who(session))

    async def save(self, *sessions: Session) -> None:
        saves = [(session.id, session.connection, session.fields()) for session in sessions]
        late = [turn for session in sessions for turn in session.unstored_turns()]
        for turn in late:
            # Before the store is asked: what is counted while it answers is not part of this save, and takes the mark away
            # again.
            turn.is_stored_as_left, turn.total_stored = True, turn.total_used
        try:
            await self.store.save_sessions(saves)
        except BaseException:
            for turn in late:
                turn.is_stored_as_left = False
            raise

    async def close_session(self, session: Session) -> None:
        if self.sessions.get(session.id) is not session:
            return  # ended before, or another connection has it now
        if session.is_active:
            session.state.set("isActive", False)
        self.turns.end(session)
        session.dirty = True  # whoever closes it again, or the housekeeper, stores it if this does not
        try:
            await self.save(session)
            self.sessions.pop(session.id, None)
            self.left_session(session)
        finally:
            if not session.events_queue.is_closed:
                session.events_queue.close()
                self.trail.audit_session("session_end", session)

    async def drop_forgotten(self) -> None:
        """Somebody was forgotten, here or by another process: of their sessions nothing is kept, and nothing written back."""
        for session_id in await self.store.forgotten_sessions(list(self.sessions)):
            session = self.sessions.get(session_id)
            if session is not None:
                await self.drop(session)

    async def drop(self, session: Session) -> None:
        """Let go of a session whose user was forgotten: its reads are cancelled, whoever listens hears that it is closed."""
        session.is_forgotten = session.is_taken_over = True
        session.dirty = False
        if session.is_active:
            session.state.set("isActive", False)
        await self.interrupt(session)
        if session.user is not None:
            self.unsaved_blocks.pop((session.tenant, session.user), None)
        self.sessions.pop(session.id, None)
        self.left_session(session)
        if not session.events_queue.is_closed:
            session.events_queue.close()
            self.trail.audit_session("session_end", session)

    def left_session(self, session: Session) -> None:
        """This process has a session no more: it has ended, or another process may continue with it."""
        self.metrics.session_closed(session.id)
        if self.statistics is not None:
            self.statistics.session_closed(session)

    def has_connection(self, session: Session) -> bool:
        """Whether the session's model stream is attached to this process."""
        return self.sessions.get(session.id) is session and not session.is_taken_over

    def open_session_of(self, hold: Hold) -> Session | None:
        """The session of a held call, if this process has it."""
        return self.sessions.get(hold.session_id)

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
        made = await self._factory.introduced(self._factory.from_record(record))
        return self._factory.within_its_turn(made, record)

    # What calls leave behind

    def apply_intents(
        self, session: Session, attempt: Attempt, intents: Sequence[Intent], *, stored: bool = False
    ) -> None:
        """Apply what a handler asked for, once. `stored`: the store has it already, with the outcome."""
        for intent in intents:
            verdict = session.state.apply_intent(intent)
            fields = {
                "intent": intent.to_dict(),
                "ok": verdict.applied,
                "callId": attempt.call.call_id,
                "toolId": attempt.plan.tool_id,
                "toolVersion": attempt.plan.version,
            }
            self.trail.note("intent", session, {**self.trail.who(session), **fields, "reason": verdict.reason})
            if not verdict.applied:
                continue
            if intent.type == "BLOCK_USER":
                self._block((session.tenant, session.blocked_as), int(intent.fields["until"] * 1000), stored)
            session.dirty = True
            session.events_queue.emit(IntentApplied(intent))

    def _block(self, whom: tuple[str, str], until: int, stored: bool) -> None:
        # A shorter block that comes later takes nothing off the one that there is.
        until = max(until, self.blocks.get(whom, 0))
        self.blocks = {**self.blocks, whom: until}
        if not stored:
            self.unsaved_blocks[whom] = until
            self.spawn(self._save_blocks_now())

    async def block_user(self, user: str, seconds: float, *, tenant: str = "") -> float:
        """Block a user for so long from now on; a longer block stays. The time at which it ends, in seconds since 1970."""
        until = await block_user(self, user, seconds, tenant)
        self._block((tenant, user), until, stored=True)
        return until / 1000

    async def _save_blocks_now(self) -> None:
        try:
            await self.save_blocks()
        except StoreUnavailable as error:
            self.log.warning("A block could not be stored yet: %s", error)

    async def save_blocks(self) -> None:
        for (tenant, user), until in list(self.unsaved_blocks.items()):
            await self.store.block(Block(tenant=tenant, user=user, until=until))
            # A longer one may have come while the store answered; that is still to be stored.
            if self.unsaved_blocks.get((tenant, user)) == until:
                del self.unsaved_blocks[(tenant, user)]

    def _late(self, attempt: Attempt, late: asyncio.Future[Any]) -> None:
        self.spawn(self.claims.record_late(attempt, late))

    # Inside

    async def pseudonym_of(self, session: Session, user: str | None) -> str | None:
        """Under which name the audit log knows a person."""
        return await self._factory.pseudonym_of(session, user)

    async def _authentic(self, session_id: str, token: str) -> SessionRecord:
        known = isinstance(session_id, str) and session_id.isascii()
        record = await self.store.load_session(session_id) if known else None
        # Compared even where there is none, so that time does not tell which ids exist.
        good = hmac.compare_digest(
            _hash(token if isinstance(token, str) else ""), record.token_hash if record else _hash("no session")
        )
        if record is None or not good:
            raise UsageError("There is no such session.")
        return record


def _hash(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
