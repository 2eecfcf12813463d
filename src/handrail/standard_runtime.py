"""The runtime that a program makes: `RuntimeCore` with a store by its URL, our audit log, metrics and tracing, and the
capabilities that every tool may name. It knows no settings: `handrail.app` gives it what a project configures.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.agents.guides import Guides
from handrail.contract.credentials import ConnectionsPort
from handrail.contract.definition import Mode, ToolDefinition
from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.gates import Gate
from handrail.contract.ports import AuditPort, Clock, MetricsPort, TracingPort
from handrail.contract.store import Store
from handrail.observe.audit import AuditLog
from handrail.observe.metrics import Metrics
from handrail.observe.redaction import compile_redactor
from handrail.observe.tracing import Tracing, tracing_or_none
from handrail.observe.usage_log import UsageLog
from handrail.providers import as_meant
from handrail.providers.catalogue import misspelt
from handrail.registry import Registry
from handrail.runtime.capabilities import PerCall, built_in
from handrail.runtime.core import RuntimeCore
from handrail.runtime.policy import Policy
from handrail.runtime.services import Services, call_hook
from handrail.runtime.session import Session
from handrail.stores import open_store

if TYPE_CHECKING:
    from handrail.agents.tool_search import ToolSearch
    from handrail.runtime.call_attempt import Attempt

_LOG = logging.getLogger("handrail")


class SystemClock:
    """Real time."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Runtime(RuntimeCore):
    """Sessions, and the governed pipeline that their calls pass.

    `store` is a URL (`memory:`, `sqlite:///handrail.db`) or a store; `audit` a directory or a log, None keeps the newest
    events in memory. `capabilities` are the services that handlers reach through their context, beside those that every
    runtime has (`handrail.runtime.capabilities`); one of the same name takes its place. `services` are those that the runtime
    itself opens and closes, as `[services.NAME]` does. `secrets` are given to tools that ask
    for that capability; `attributes` are the host's word about every session, for the tools' conditions. `gates` are the host's
    own, in their order (docs/gates.md). `tracing` is found by itself where the host has configured OpenTelemetry before.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        store: str | Store = "sqlite:///handrail.db",
        capabilities: Mapping[str, Any] | None = None,
        services: Services | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
        audit: str | Path | AuditPort | None = None,
        metrics: MetricsPort | None = None,
        clock: Clock | None = None,
        crash: Callable[[str], None] | None = None,
        capability_checks: bool = True,
        secrets: Mapping[str, str] | None = None,
        attributes: Mapping[str, Any] | None = None,
        gates: Sequence[Gate] = (),
        tracing: TracingPort | None = None,
        connections: ConnectionsPort | None = None,
    ) -> None:
        self._attributes = dict(attributes or {})
        rules = policy if isinstance(policy, Policy) else Policy.from_dict(policy or {})
        log: AuditPort
        if audit is None or isinstance(audit, (str, Path)):
            log = AuditLog(None if audit is None else Path(audit), redact=rules.redact)
        else:
            log = audit
        numbers = metrics or Metrics()
        # A host may bring metrics of its own; what follows is only for ours, which know the registry and the store.
        if isinstance(numbers, Metrics):
            numbers.versioned = VersionedTools(registry)
        super().__init__(
            registry,
            store=open_store(store) if isinstance(store, str) else store,
            audit=log,
            metrics=numbers,
            clock=clock or SystemClock(),
            redactors=compile_redactor,
            capabilities={
                **own_capabilities(secrets),
                **(capabilities or {}),
            },
            services=services,
            policy=rules,
            crash=crash,
            capability_checks=capability_checks,
            meaning=_as_meant,
            misspelt=misspelt,
            gates=gates,
            tracing=tracing or tracing_or_none(),
            usage=partial(_usage_log, numbers, log),
            connections=connections,
        )
        if isinstance(self.metrics, Metrics):
            self.metrics.store_load = self.store.load
            if isinstance(self.tracing, Tracing):
                self.tracing.observe(self.metrics)

    async def open_session(
        self,
        *,
        mode: Mode = "text",
        user: str | None = None,
        tenant: str = "",
        attributes: Mapping[str, Any] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
    ) -> Session:
        """A new session, pinned to the registry as it is now. What the host says of every session wins over `attributes`."""
        await self.open()
        # After opening: the services may have facts about every session.
        known = {**(attributes or {}), **self._host_attributes()}
        return await super().open_session(mode=mode, user=user, tenant=tenant, attributes=known, policy=policy)

    async def set_roles(self, session: Session, roles: Collection[str]) -> None:
        """As in `RuntimeCore`; what the host says of every session stays."""
        if "roles" not in self._host_attributes():
            await super().set_roles(session, roles)

    def _host_attributes(self) -> dict[str, Any]:
        known = (getattr(service, "session_attributes", {}) for service in self.services.opened.values())
        return {**{name: value for facts in known for name, value in facts.items()}, **self._attributes}

    async def preload_services(self) -> list[str]:
        """Let services import what takes long, before anybody waits for the event loop; what they have to say to the operator."""
        # A service that cannot be preloaded keeps nothing from starting: it is said here, and again by each call that needs it.
        said: list[str] = []
        for service in self.services.opened.values():
            try:
                sentence = await call_hook(service, "preload")
            except HandrailError as error:
                sentence = str(error)
            if isinstance(sentence, str):
                said.append(sentence)
        return said

    async def warm_up_services(self) -> None:
        """Let services load what they hold in memory, such as a model, so that no first call waits for it. One that cannot says
        so here, and to each call."""
        for service in self.services.opened.values():
            try:
                await call_hook(service, "warm_up")
            except HandrailError as error:
                _LOG.warning("%s", error)


def _usage_log(metrics: MetricsPort, audit: AuditPort, owner: str) -> UsageLog | None:
    """The statistics by day, which count the calls that the metrics have. A host's own metrics hand over none."""
    if not isinstance(metrics, Metrics):
        return None
    usage = UsageLog(owner, audit.clock)
    metrics.forward, usage.before_fold = usage.executed, metrics.fold
    return usage


class VersionedTools(Collection[str]):
    """The tools that a registry has in several versions now."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __contains__(self, name: object) -> bool:
        return name in self._registry.generation.versions

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry.generation.versions)

    def __len__(self) -> int:
        return len(self._registry.generation.versions)


def own_capabilities(secrets: Mapping[str, str] | None = None) -> dict[str, PerCall]:
    """What every runtime gives its tools without any set-up."""
    return {**built_in(secrets), "guides": PerCall(Guides), "tool_search": PerCall(_tool_search)}


def _tool_search(attempt: Attempt) -> ToolSearch:
    from handrail.agents.tool_search import ToolSearch  # noqa: PLC0415  # the picking that it brings is for large catalogues

    return ToolSearch(attempt)


def _as_meant(definition: ToolDefinition, provider: str, args: Any) -> Any:
    """What a provider's form of the arguments means; nothing is undone for a name that is none of the providers'."""
    try:
        return as_meant(definition, provider, args)
    except UsageError:
        return args
