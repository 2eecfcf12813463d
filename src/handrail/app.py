"""The only place that wires settings to parts: which tools are built, which registry, store and audit log are opened."""

from __future__ import annotations

import asyncio
import logging
import os
import os.path
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from handrail.agents import AgentPolicy, Prompts, TextAgent
from handrail.agents.guides import Guides
from handrail.agents.voice.host_port import VoicePolicy
from handrail.authoring.modules import look_in
from handrail.authoring.services import ServiceFactory, find_factory, is_available, service_types
from handrail.build.compiler import BuildPlan
from handrail.contract.definition import Mode, ToolDefinition
from handrail.contract.errors import ConfigError, HandrailError, UsageError, missing_extra
from handrail.contract.gates import Gate
from handrail.contract.live import LiveModel
from handrail.contract.model import Model
from handrail.contract.ports import AuditPort, Clock, MetricsPort
from handrail.contract.service import ServiceConfig
from handrail.contract.store import Store
from handrail.observe.audit import AuditLog
from handrail.observe.metrics import Metrics
from handrail.observe.redaction import compile_redactor
from handrail.picking import pick_tools
from handrail.plugins import import_named
from handrail.providers import as_meant
from handrail.registry import Registry
from handrail.runtime.capabilities import PerCall, built_in
from handrail.runtime.core import RuntimeCore
from handrail.runtime.gates import checked_gates
from handrail.runtime.policy import Policy
from handrail.runtime.services import Services, call_hook, needed_by, reason_of
from handrail.runtime.session import Session
from handrail.settings import Settings
from handrail.stores import open_store

if TYPE_CHECKING:
    from handrail.agents.voice.agent import VoiceAgent
    from handrail.agents.voice.spoken.recogniser import Recogniser

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
    own, in their order (docs/gates.md).
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
    ) -> None:
        self._attributes = dict(attributes or {})
        rules = policy if isinstance(policy, Policy) else Policy.from_dict(policy or {})
        log: AuditPort
        if audit is None or isinstance(audit, (str, Path)):
            log = AuditLog(None if audit is None else Path(audit), redact=rules.redact)
        else:
            log = audit
        numbers = metrics or Metrics()
        if isinstance(numbers, Metrics):
            numbers.declared_size = lambda tool_id: _declared_size(registry, tool_id)
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
            gates=gates,
        )
        if isinstance(self.metrics, Metrics):
            self.metrics.store_load = self.store.load

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
        told = (getattr(service, "session_attributes", {}) for service in self.services.opened.values())
        known = {
            **(attributes or {}),
            **{name: value for facts in told for name, value in facts.items()},
            **self._attributes,
        }
        return await super().open_session(mode=mode, user=user, tenant=tenant, attributes=known, policy=policy)

    async def preload_services(self) -> list[str]:
        """Let services import what takes long, before anybody waits for the event loop; what they have to say to the operator."""
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


def own_capabilities(secrets: Mapping[str, str] | None = None) -> dict[str, PerCall]:
    """What every runtime gives its tools without any set-up."""
    return {**built_in(secrets), "guides": PerCall(Guides)}


def _declared_size(registry: Registry, tool_id: str) -> int | None:
    tool = registry.snapshot().get(tool_id)
    return tool.definition.max_output_bytes if tool is not None else None


def _as_meant(definition: ToolDefinition, provider: str, args: Any) -> Any:
    """What a provider's form of the arguments means; nothing is undone for a name that is none of the providers'."""
    try:
        return as_meant(definition, provider, args)
    except UsageError:
        return args


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
        reference=settings.tools_reference,
        project=settings.project,
        tools_optional=directory is None and settings.tools_directory == "tools",
        voice_turn_ms=settings.policy.voice.turn_ms or 1500,
        service_types=partial(service_types, settings.services, settings.project),
    )


def open_registry(settings: Settings, artifact: str | None = None, *, refuse_one: bool = False) -> Registry:
    """The registry of a project, locked; `refuse_one` as in `Registry.load`."""
    if settings.tools_modules:
        look_in(settings.project)
    validators = cast(Literal["eager", "lazy"], settings.registry_validators)
    registry = Registry.load(
        artifact or settings.artifact_path,
        validators=validators,
        refuse_one=refuse_one,
        tools_root=settings.project / settings.tools_directory,
    )
    registry.lock()
    return registry


def open_runtime(
    settings: Settings,
    registry: Registry,
    *,
    capability_checks: bool = True,
    services: bool | None = None,
    serving: bool = False,
) -> Runtime:
    """The runtime of a project, on its store and audit log. Commands that run no tool need no capabilities; `services`
    gives those that there are to a command that may run one tool's `reconcile`. A process that is `serving` has an audit
    chain of its own; commands share one."""
    needed = needed_by(registry.entries())
    wanted = capability_checks if services is None else services
    own = find_services(settings, needed) if wanted else Services(())
    return Runtime(
        registry,
        store=store_url(settings),
        services=own,
        policy=settings.policy,
        audit=open_audit(settings, serving=serving),
        capability_checks=capability_checks,
        secrets=settings.secrets,
        gates=find_gates(settings),
    )


def find_gates(settings: Settings) -> list[Gate]:
    """The gates that `[gates]` names, in the order of the file; `ConfigError` with one sentence if one cannot be used."""
    if settings.gates:
        look_in(settings.project)
    return [_gate(name, place) for name, place in settings.gates.items()]


def _gate(name: str, place: str) -> Gate:
    found = import_named(place, f'The gate "{name}"')
    try:
        gate = found() if isinstance(found, type) or not hasattr(found, "check") else found
    except Exception as error:  # an author's code may raise anything
        raise ConfigError(f'The gate "{name}": "{place}" could not be made: {reason_of(error)}.') from error
    try:
        (checked,) = checked_gates([gate])
    except UsageError as error:
        raise ConfigError(f'The gate "{name}" of [gates] cannot be used: {error}') from error
    if checked.name != name:
        raise ConfigError(
            f'The gate "{name}" of [gates] calls itself "{checked.name}"; write {checked.name} = "{place}".'
        )
    return checked


def find_services(settings: Settings, names: Iterable[str]) -> Services:
    """The services among these names that the project configures or an installed package supplies, ready to be opened.

    The other names are capabilities of the runtime's own, or missing, which the runtime says.
    """
    chosen = [name for name in sorted(set(names)) if is_available(name, settings.services)]
    return Services([service_factory(settings, name) for name in chosen], configured=settings.services)


def service_factory(settings: Settings, name: str, /, **changed: Any) -> ServiceFactory:
    """The factory of one service; `changed` are settings that a command overrides."""
    config = settings.services.get(name, ServiceConfig(name=name))
    return find_factory(replace(config, settings={**config.settings, **changed}), settings.project)


def open_audit(settings: Settings, *, serving: bool) -> AuditLog:
    """The audit log of a project; its own chain for a process that is `serving`, that of the day's commands for others."""
    return AuditLog(
        settings.project / settings.audit_directory,
        key=audit_key(settings),
        shared=not serving,
        redact=settings.policy.redact,
    )


def audit_key(settings: Settings) -> bytes | None:
    return settings.audit_key.strip().encode() or None


def open_prompts(settings: Settings) -> Prompts:
    """Handrail's prompts, with the project's own in their place."""
    directory = settings.project / settings.prompts_directory if settings.prompts_directory else None
    return Prompts.load(directory, guide_tokens=settings.agent_guide_tokens)


def open_agent(
    settings: Settings, runtime: RuntimeCore, model: Model | None = None, *, listen: bool = True
) -> TextAgent:
    """The text agent of a project; `listen` as in `TextAgent`. Without a `model`, the one that the settings choose."""
    if model is None:
        from handrail.text_model import open_model  # noqa: PLC0415  # only those who talk need it

        model = open_model(settings)
    return TextAgent(
        runtime,
        model,
        prompts=open_prompts(settings),
        policy=agent_policy(settings),
        picker=pick_tools,
        listen=listen,
    )


def agent_policy(settings: Settings) -> AgentPolicy:
    """What `[agent]` says, for either agent."""
    return AgentPolicy(
        rounds=settings.agent_rounds,
        max_tools=settings.agent_max_tools,
        picked_tools=settings.agent_picked_tools,
        guide_tokens=settings.agent_guide_tokens,
        history_tokens=settings.agent_history_tokens,
        time_zone=time_zone_of(settings, os.environ),
    )


def open_live_model(settings: Settings, model: Model, clock: Clock | None = None) -> LiveModel:
    """The live model that `[voice]` names; without one the text model, which the client hears and speaks for."""
    if settings.voice_model == "":
        from handrail.agents.voice.text_model_adapter import TextModelAdapter  # noqa: PLC0415  # only those who speak need it

        return TextModelAdapter(model, clock=(clock or SystemClock()).time, policy=agent_policy(settings))
    from handrail.clients import live  # noqa: PLC0415  # brings an SDK with it

    return live.open_live_model(settings.voice_model, environment=os.environ, base_url=settings.voice_base_url)


def live_missing(settings: Settings) -> str | None:
    """What has to be installed or set before there is voice, in a sentence; None if nothing."""
    if settings.voice_recogniser == "local" and find_spec("pocketsphinx") is None:
        return str(missing_extra("The local recogniser", "speech"))
    if settings.voice_model == "":
        return None
    from handrail.clients import live  # noqa: PLC0415  # only those who speak need it

    return live.whats_missing_live(settings.voice_model, environment=os.environ, base_url=settings.voice_base_url)


def open_voice(settings: Settings, runtime: RuntimeCore, model: Model, live: LiveModel | None = None) -> VoiceAgent:
    """The voice agent of a project; `model` is the text agent's, which speaks where the settings name no live one."""
    from handrail.agents.voice.agent import VoiceAgent  # noqa: PLC0415  # only those who speak need it

    return VoiceAgent(
        runtime,
        live or open_live_model(settings, model, runtime.clock),
        policy=voice_policy(settings),
        agent_policy=agent_policy(settings),
        prompts=open_prompts(settings),
        picker=pick_tools,
        recogniser=_open_recogniser(settings),
    )


def _open_recogniser(settings: Settings) -> Recogniser | None:
    """The second pair of ears for spoken confirmations, if the settings want one; it is an extra."""
    if settings.voice_recogniser != "local":
        return None
    from handrail.agents.voice.spoken.sphinx_recogniser import SphinxRecogniser  # noqa: PLC0415  # an extra

    return SphinxRecogniser()


def voice_policy(settings: Settings) -> VoicePolicy:
    """What `[voice]` says, for the agent."""
    return VoicePolicy(
        model=settings.voice_model,
        base_url=settings.voice_base_url,
        voice=settings.voice_voice,
        language=settings.voice_language,
        recogniser=cast(Literal["provider", "local"], settings.voice_recogniser),
        filler=settings.voice_filler,
        idle_seconds=float(settings.voice_idle_seconds),
        grace_seconds=float(settings.voice_grace_seconds),
    )


def time_zone_of(settings: Settings, environment: Mapping[str, str]) -> str:
    """The zone that the settings name, or this machine's; `ConfigError` if the settings name none that is known."""
    if settings.agent_time_zone:
        if not _is_zone(settings.agent_time_zone):
            raise ConfigError(
                f'"time_zone" in [agent] is "{settings.agent_time_zone}"; name one such as "Europe/Zagreb" or "UTC".'
            )
        return settings.agent_time_zone
    local = Path("/etc/localtime")
    linked = str(local.resolve()).partition("zoneinfo/")[2] if local.is_symlink() else ""
    candidates = (environment.get("TZ", "").lstrip(":"), linked, _named_in(Path("/etc/timezone")))
    return next((name for name in candidates if name and _is_zone(name)), "UTC")


def _named_in(path: Path) -> str:
    """The zone that a system writes down by name, where its local time is a copy and no link."""
    try:
        return path.read_text("utf-8")[:100].strip()
    except (OSError, ValueError):
        return ""


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def store_url(settings: Settings) -> str:
    """The store's URL; a relative SQLite file lies in the project's folder, wherever the command was started."""
    url = settings.store_url
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith("sqlite:////"):
        return f"sqlite:////{(settings.project / url.removeprefix(prefix)).absolute().as_posix().lstrip('/')}"
    return url


def has_store(settings: Settings) -> bool:
    """Whether something may be stored already; a file is made by the first process that opens it."""
    path = store_path(settings)
    return path is None or path.is_file()


def store_path(settings: Settings) -> Path | None:
    """The store's file; None if it is not in one."""
    url = store_url(settings)
    return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None
