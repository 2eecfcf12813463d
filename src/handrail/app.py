"""The only place that wires settings to parts: which tools are built, which registry, store and audit log are opened."""

from __future__ import annotations

import asyncio
import os.path
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from handrail.authoring.modules import look_in
from handrail.build.compiler import BuildPlan
from handrail.contract.ports import AuditPort, Clock, MetricsPort
from handrail.contract.store import Store
from handrail.observe.audit import AuditLog
from handrail.observe.metrics import Metrics
from handrail.observe.redaction import compile_redactor
from handrail.registry import Registry
from handrail.runtime.core import RuntimeCore
from handrail.runtime.policy import Policy
from handrail.settings import Settings
from handrail.stores import open_store


class SystemClock:
    """Real time."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Runtime(RuntimeCore):
    """Sessions, and the governed pipeline that their calls pass.

    `store` is a URL (`memory:`, `sqlite:///handrail.db`) or a store; `audit` a directory or a log, None keeps the newest
    events in memory. `capabilities` are the services that handlers reach through their context.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        store: str | Store = "sqlite:///handrail.db",
        capabilities: Mapping[str, Any] | None = None,
        policy: Policy | Mapping[str, Any] | None = None,
        audit: str | Path | AuditPort | None = None,
        metrics: MetricsPort | None = None,
        clock: Clock | None = None,
        crash: Callable[[str], None] | None = None,
        capability_checks: bool = True,
    ) -> None:
        rules = policy if isinstance(policy, Policy) else Policy.from_dict(policy or {})
        log: AuditPort
        if audit is None or isinstance(audit, (str, Path)):
            log = AuditLog(None if audit is None else Path(audit), redact=rules.redact)
        else:
            log = audit
        super().__init__(
            registry,
            store=open_store(store) if isinstance(store, str) else store,
            audit=log,
            metrics=metrics or Metrics(),
            clock=clock or SystemClock(),
            redactors=compile_redactor,
            capabilities=capabilities,
            policy=rules,
            crash=crash,
            capability_checks=capability_checks,
        )


def build_plan(settings: Settings, directory: str | None = None, output: str | None = None) -> BuildPlan:
    """What to build: the settings, unless the caller names another directory or another place for the artifact."""
    tools = Path(directory) if directory else settings.tools_path
    # Normalised, because the folder beside ".." is not the one that its last part suggests.
    artifact = (
        settings.artifact_path
        if directory is None
        else Path(os.path.normpath(tools.absolute())).parent / "tool_registry.json"
    )
    if output is not None:
        artifact = Path(output)
        if artifact.is_dir():
            artifact = artifact / "tool_registry.json"
    return BuildPlan(
        tools=tools,
        artifact=artifact,
        modules=settings.tools_modules,
        project=settings.project,
        tools_optional=directory is None and settings.tools_directory == "tools",
        voice_turn_ms=settings.policy.voice.turn_ms or 1500,
    )


def open_registry(settings: Settings, artifact: str | None = None) -> Registry:
    """The registry of a project, locked."""
    if settings.tools_modules:
        look_in(settings.project)
    validators = cast(Literal["eager", "lazy"], settings.registry_validators)
    registry = Registry.load(artifact or settings.artifact_path, validators=validators)
    registry.lock()
    return registry


def open_runtime(settings: Settings, registry: Registry, *, capability_checks: bool = True) -> Runtime:
    """The runtime of a project, on its store and audit log. Commands that run no tool need no capabilities."""
    return Runtime(
        registry,
        store=store_url(settings),
        policy=settings.policy,
        audit=settings.project / settings.audit_directory,
        capability_checks=capability_checks,
    )


def store_url(settings: Settings) -> str:
    """The store's URL; a relative SQLite file lies in the project's folder, wherever the command was started."""
    url = settings.store_url
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith("sqlite:////"):
        return f"sqlite:////{(settings.project / url.removeprefix(prefix)).absolute().as_posix().lstrip('/')}"
    return url
