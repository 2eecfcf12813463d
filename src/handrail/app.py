"""The only place that wires settings to parts: which tools are built, which registry, store and audit log are opened.

The runtime itself is in `handrail.standard_runtime`, so that a program that makes its own loads nothing of projects, builds and
agents.
"""

from __future__ import annotations

import os
import os.path
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from handrail.agents import AgentPolicy, Prompts, TextAgent
from handrail.agents.voice.host_port import VoicePolicy
from handrail.authoring.modules import look_in
from handrail.authoring.services import ServiceFactory, find_factory, is_available, service_types
from handrail.build.compiler import BuildPlan
from handrail.contract.errors import ArtifactError, ConfigError, UsageError, missing_extra
from handrail.contract.gates import Gate
from handrail.contract.live import LiveModel
from handrail.contract.model import Model
from handrail.contract.ports import Clock
from handrail.contract.service_config import ServiceConfig
from handrail.contract.store import Store
from handrail.identity.config import check_secret
from handrail.observe.audit import AuditLog
from handrail.observe.tracing import tracing_of, tracing_or_none
from handrail.picking import pick_tools
from handrail.plugins import import_named
from handrail.registry import Registry
from handrail.registry.artifact import read_artifact
from handrail.registry.host_policy import HostPolicy, roles_of_entries, unknown_role
from handrail.runtime.core import RuntimeCore
from handrail.runtime.gates import checked_gates
from handrail.runtime.services import Services, needed_by, reason_of
from handrail.settings import Settings
from handrail.standard_runtime import Runtime, SystemClock
from handrail.stores import open_store

if TYPE_CHECKING:
    from handrail.agents.voice.agent import VoiceAgent
    from handrail.agents.voice.spoken.recogniser import Recogniser
    from handrail.identity.connections import Connections
    from handrail.identity.tokens import TokenChecker


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
        max_tools=settings.agent_max_tools,
        voice_turn_ms=settings.policy.voice.turn_ms or 1500,
        roles=settings.access_roles,
        upstream=settings.mcp_servers,
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
        host=host_policy(settings),
    )
    registry.lock()
    return registry


def host_policy(settings: Settings) -> HostPolicy:
    """What the settings say about tools: `[policy.tools]`, `[versions]` and `[access]`."""
    return HostPolicy(
        tools=settings.tool_policies,
        versions=settings.versions,
        roles=frozenset(settings.access_roles),
        timeout_ms=settings.policy.timeout_ms,
    )


def open_runtime(
    settings: Settings,
    registry: Registry,
    *,
    capability_checks: bool = True,
    services: bool | None = None,
    serving: bool = False,
    gates: Sequence[Gate] = (),
) -> Runtime:
    """The runtime of a project, on its store and audit log. Commands that run no tool need no capabilities; `services`
    gives those that there are to a command that may run one tool's `reconcile`. A process that is `serving` has an audit
    chain of its own; commands share one."""
    needed = needed_by(registry.entries())
    wanted = capability_checks if services is None else services
    # Only what some tool needs is opened: a service that nobody uses must not stop the start.
    own = find_services(settings, needed) if wanted else Services(())
    store = open_store(store_url(settings))
    return Runtime(
        registry,
        store=store,
        services=own,
        policy=settings.policy,
        audit=open_audit(settings, serving=serving),
        capability_checks=capability_checks,
        secrets=settings.secrets,
        gates=[*gates, *find_gates(settings)],
        tracing=tracing_or_none() or (tracing_of(os.environ) if serving else None),
        connections=open_connections(settings, store) if settings.connections and wanted else None,
    )


def open_connections(settings: Settings, store: Store) -> Connections:
    """What people connect, over the credentials of this store; `ConfigError` if there is no key, or a client lacks its secret."""
    from handrail.identity.connections import Connections  # noqa: PLC0415  # an HTTP client comes with it
    from handrail.identity.vault import Vault  # noqa: PLC0415

    for config in settings.connections.values():
        check_secret(config)
    return Connections(settings.connections, store.credentials, Vault(settings.credentials_keys), now=time.time)


def known_roles(settings: Settings) -> frozenset[str]:
    """The roles that there are: those that `[access]` lists and, where it lists none, those that the built tools name."""
    if settings.access_roles:
        return frozenset(settings.access_roles)
    try:
        entries = read_artifact(settings.artifact_path).entries
    except ArtifactError:
        return frozenset()
    return roles_of_entries(entries)


def open_token_checker(settings: Settings, registry: Registry | None = None) -> TokenChecker | None:
    """What checks signed tokens of users, as `[identity]` says; None if it says nothing. `ConfigError` if it cannot be used. A
    server gives its registry: new tools may name new roles."""
    if not (settings.identity_jwks or settings.identity_secret):
        return None
    from handrail.identity.tokens import TokenChecker, TokenRules, is_address  # noqa: PLC0415  # only servers check tokens

    jwks = settings.identity_jwks
    rules = TokenRules(
        jwks=jwks if not jwks or is_address(jwks) else str(settings.project / jwks),
        secret=settings.identity_secret,
        issuer=settings.identity_issuer,
        audience=settings.identity_audience,
        algorithms=settings.identity_algorithms,
        user_claim=settings.identity_user_claim,
        roles_claim=settings.identity_roles_claim,
        tenant_claim=settings.identity_tenant_claim,
        organisation_claim=settings.identity_organisation_claim,
        leeway_seconds=settings.identity_leeway_seconds,
        cache_seconds=settings.identity_cache_seconds,
    )
    # Refused at the start; later it would look as if all tokens of all users were wrong.
    if rules.jwks and not is_address(rules.jwks) and not Path(rules.jwks).is_file():
        raise ConfigError(f'"jwks" in [identity] names "{jwks}", which is no file; no token could be checked.')
    return TokenChecker(rules, roles=registry.roles if registry is not None else partial(known_roles, settings))


def check_roles(settings: Settings, roles: Iterable[str]) -> None:
    """`UsageError` with one sentence if one of these roles does not exist."""
    known = sorted(known_roles(settings))
    for role in roles:
        if role not in known:
            raise UsageError(unknown_role(role, known))


def find_gates(settings: Settings) -> list[Gate]:
    """The gates that `[gates]` names, in the order of the file; `ConfigError` with one sentence if one cannot be used."""
    if settings.gates:
        look_in(settings.project)
    return [_gate(name, place) for name, place in settings.gates.items()]


def _gate(name: str, place: str) -> Gate:
    found = import_named(place, f'The gate "{name}"')
    try:
        # A class is made, an object with `check` is taken as it is, anything else is a factory.
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
    return find_factory(replace(config, settings={**config.settings, **changed}), settings.project, store_url(settings))


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
        declaration_tokens=settings.agent_declaration_tokens,
        guide_tokens=settings.agent_guide_tokens,
        history_tokens=settings.agent_history_tokens,
        context_window=settings.agent_context_window or None,
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
        agent_policy=_policy_in_voice(settings),
        prompts=open_prompts(settings),
        picker=pick_tools,
        recogniser=_open_recogniser(settings),
    )


def _policy_in_voice(settings: Settings) -> AgentPolicy:
    """The window is that of the model that speaks."""
    policy = agent_policy(settings)
    if not settings.voice_model and not settings.voice_context_window:
        return policy
    return replace(policy, context_window=settings.voice_context_window or None)


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
    """The zone that `[agent]` names, else the one that the services name, else this machine's; `ConfigError` if `[agent]` names
    none that is known."""
    if settings.agent_time_zone:
        if not _is_zone(settings.agent_time_zone):
            raise ConfigError(
                f'"time_zone" in [agent] is "{settings.agent_time_zone}"; name one such as "Europe/Zagreb" or "UTC".'
            )
        return settings.agent_time_zone
    zones = set(service_time_zones(settings).values())
    if len(zones) == 1:
        return zones.pop()
    local = Path("/etc/localtime")
    # Python has no call for the name of the local zone, only for its present offset, which changes in spring and autumn.
    linked = str(local.resolve()).partition("zoneinfo/")[2] if local.is_symlink() else ""
    candidates = (environment.get("TZ", "").lstrip(":"), linked, _named_in(Path("/etc/timezone")))
    return next((name for name in candidates if name and _is_zone(name)), "UTC")


def service_time_zones(settings: Settings) -> Mapping[str, str]:
    """The `time_zone` of each service that sets one: what people say to a tool of it is meant on that clock."""
    named = {name: service.settings.get("time_zone") for name, service in settings.services.items()}
    # A zone that nobody knows is for the service itself to refuse.
    return {name: str(zone) for name, zone in named.items() if isinstance(zone, str) and _is_zone(zone)}


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
