"""Makes session objects: which tools, policy and version a session has, and how its user stands in the audit log."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import ConfigError
from handrail.contract.gates import Gate
from handrail.contract.ports import DurableAudit
from handrail.contract.store import AuditSubject, SessionRecord, Store
from handrail.registry import Registry, Snapshot
from handrail.runtime.envelopes import AuditTrail
from handrail.runtime.pinned_versions import pinned_snapshot
from handrail.runtime.plan import Meaning, Plans, RedactorFactory
from handrail.runtime.policy import Policy
from handrail.runtime.session import Session, roles_of
from handrail.runtime.state import StateController

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore


class SessionFactory:
    """One runtime's. It opens nothing and stores no session: whoever asks for one decides what becomes of it."""

    def __init__(
        self,
        core: RuntimeCore,
        registry: Registry,
        store: Store,
        trail: AuditTrail,
        *,
        policy: Policy,
        gates: Sequence[Gate],
        redactors: RedactorFactory,
        meaning: Meaning | None,
        durable_audit: DurableAudit | None,
        log: logging.Logger,
    ) -> None:
        self._core = core
        self._registry = registry
        self._store = store
        self._trail = trail
        self._gates = gates
        self._policy = self._checked(policy)
        self._redactors = redactors
        self._meaning = meaning
        self._durable_audit = durable_audit
        self._log = log
        self._plans: dict[tuple[str, tuple[str, ...], frozenset[str]], Plans] = {}

    # Sessions

    def make(
        self, *, snapshot: Snapshot, policy: Policy, user: str | None, attributes: Mapping[str, Any], **facts: Any
    ) -> Session:
        plans = self.plans_for(snapshot, policy, user, roles_of(attributes))
        return Session(
            self._core, snapshot=snapshot, plans=plans, policy=policy, user=user, attributes=attributes, **facts
        )

    def from_record(
        self,
        record: SessionRecord,
        *,
        token: str = "",
        snapshot: Snapshot | None = None,
        policy: Policy | None = None,
        connection: int | None = None,
    ) -> Session:
        """The session as it is stored; what is not given is as the record has it."""
        return self.make(
            id=record.session_id,
            token=token,
            user=record.user,
            tenant=record.tenant,
            attributes=dict(record.attributes),
            state=StateController({**record.state, "mode": record.mode, "isActive": record.active}),
            snapshot=snapshot if snapshot is not None else self.pinned_for(record)[0],
            policy=policy if policy is not None else self.policy_of(record),
            connection=record.connection if connection is None else connection,
        )

    def within_its_turn(self, session: Session, record: SessionRecord) -> Session:
        """The session, in the turn that it had reached and with what that turn had used."""
        session.enter_turn(record.current_turn, perf_counter()).restore(record.counters)
        return session

    def pinned_for(self, record: SessionRecord) -> tuple[Snapshot, dict[str, str]]:
        """The tools of a stored session, and the versions it was pinned to that are gone."""
        return pinned_snapshot(self._registry.snapshot(), record)

    def plans_for(self, snapshot: Snapshot, policy: Policy, user: str | None, roles: frozenset[str]) -> Plans:
        allowed = policy.tools_of(user)
        asked = roles & snapshot.roles  # others make no difference
        key = (snapshot.key, allowed, asked)
        # Plans are costly, and with the process's own policy they are the same for everybody with these tools and roles.
        plans = self._plans.get(key) if policy is self._policy else None
        if plans is None:
            plans = Plans(
                snapshot, policy, self._trail.observe, self._redactors, allowed, self._meaning, self._gates, asked
            )
            if policy is self._policy:
                of_version = snapshot.version
                self._plans = {
                    known: kept for known, kept in self._plans.items() if known[0].partition("/")[0] == of_version
                }
                self._plans[key] = plans
        return plans

    # Policies

    def policy_for(self, policy: Policy | Mapping[str, Any] | None) -> Policy:
        """The policy of a session that a host opens with this one; without one, the process's own."""
        if policy is None:
            return self._policy
        return self._checked(policy if isinstance(policy, Policy) else Policy.from_dict(policy, self._policy))

    def policy_of(self, record: SessionRecord) -> Policy:
        """The policy that a session was opened with, over this process's own."""
        if not record.policy:
            return self._policy
        try:
            return self._checked(Policy.from_dict(record.policy, self._policy))
        except ConfigError as error:
            self._log.warning("The policy of session %s is not understood here: %s", record.session_id, error)
            return self._policy

    def _checked(self, policy: Policy) -> Policy:
        policy.check_observed(gate.name for gate in self._gates)
        return policy

    # How the audit log names people

    def introduce(self, session: Session, subject: AuditSubject | None) -> None:
        """Under which name the user of a session stands in the audit log, and how what they say does."""
        session.pseudonym = subject.pseudonym if subject is not None else None
        session.subject = None
        how = session.policy.audit_arguments
        if how == "none":
            session.subject = AuditSubject(session.pseudonym or "", b"")
        elif how == "erasable" and self._durable_audit is not None and self._durable_audit.is_durable:
            session.subject = subject

    async def introduced(self, session: Session) -> Session:
        """The session, after the store was asked for its user's name in the audit log."""
        user = session.user
        known = await self._store.audit_subject(session.tenant, user, new_subject()) if user is not None else None
        self.introduce(session, known)
        return session

    async def pseudonym_of(self, session: Session, user: str | None) -> str | None:
        """Under which name a person stands in the audit log who did something in a session, their own or another's."""
        if user is None or user == session.user:
            return session.pseudonym
        known = await self._store.audit_subject(session.tenant, user, new_subject())
        return known.pseudonym if known is not None else None


def new_subject() -> AuditSubject:
    """A pseudonym for somebody who has none yet, and the key that their words are sealed with."""
    return AuditSubject(f"user_{secrets.token_hex(8)}", secrets.token_bytes(32))
