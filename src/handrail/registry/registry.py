"""The registry: an artifact loaded into a process, its handlers verified, then locked.

`load` → `lock` → `snapshot`. In development `reload` puts a new generation beside the old one: snapshots that are out keep
theirs. Handlers are run by the pipeline and by nothing else.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from handrail.authoring.modules import look_in
from handrail.contract.definition import Mode
from handrail.contract.errors import ArtifactError, ConfigError, HandlerChanged, NotLocked, RegistryError
from handrail.registry.artifact import Artifact, ProviderFile, read_artifact
from handrail.registry.handlers import verified_code
from handrail.registry.host_policy import NO_HOST_POLICY, HostPolicy, roles_of_entries
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.registry.version_rules import VersionRules
from handrail.schema.validator import JSONSCHEMA_RS, SchemaCompiler

_LOG = logging.getLogger("handrail.registry")
_MAX_NAMED = 50

Environment = Literal["development", "production"]
ARTIFACT_NAME = "tool_registry.json"


class Registry:
    """Use `Registry.load`; the constructor is for generations that are already read."""

    def __init__(
        self, path: Path, generation: Snapshot, *, environment: Environment, validators: str, compiler: SchemaCompiler
    ) -> None:
        self._path = path
        self.generation = generation
        self._environment = environment
        self._validators = validators
        self._compiler = compiler
        self._locked = False
        self._tools_root: Path | None = None
        self.host = NO_HOST_POLICY
        self._roles: tuple[Snapshot | None, frozenset[str]] = None, frozenset()
        self.refused: Mapping[str, str] = {}
        """Tools that were left out because their handler changed since the build → what is said of them."""

    @classmethod
    def load(
        cls,
        path: str | Path = ARTIFACT_NAME,
        *,
        validators: Literal["eager", "lazy"] = "lazy",
        environment: Environment | None = None,
        compiler: SchemaCompiler = JSONSCHEMA_RS,
        refuse_one: bool = False,
        tools_root: str | Path | None = None,
        host: HostPolicy = NO_HOST_POLICY,
    ) -> Registry:
        """Read the artifact, check its seal and every handler's hash.

        `validators="eager"` compiles every schema now instead of at a tool's first call. `environment` is
        `HANDRAIL_ENV` unless given. A handler that changed since the build is an error, unless `refuse_one` says that in
        production its tool is left out and named in `refused`, so that the others are served. An artifact names the folder
        of its tools; one that lies outside the artifact's own folder is believed only if `tools_root` names the same. `host`
        is what this host changes in its tools, and which of several versions its sessions use.
        """
        where = Path(path).absolute()  # a process may change its folder before it reloads
        setting = environment or environment_from(os.environ.get("HANDRAIL_ENV"))  # noqa: TID251  # its documented default
        refused: dict[str, str] | None = {} if refuse_one and setting == "production" else None
        tools = None if tools_root is None else Path(tools_root).absolute()
        generation = _read(where, setting, validators, compiler, refused, tools, host)
        made = cls(where, generation, environment=setting, validators=validators, compiler=compiler)
        made._tools_root, made.host = tools, host
        made.refused = refused or {}
        return made

    @classmethod
    def empty(cls, path: Path) -> Registry:
        """A registry without tools, for what is done with a project's data whether or not its tools can be loaded."""
        artifact = Artifact(
            path=path,
            tools_root=path.parent,
            version="none",
            git_commit=None,
            build_timestamp="",
            entries=(),
            provider_file=ProviderFile(file="", sha256="", providers=()),
        )
        setting = environment_from(os.environ.get("HANDRAIL_ENV"))  # noqa: TID251  # its documented default
        made = cls(path, Snapshot(artifact, {}), environment=setting, validators="lazy", compiler=JSONSCHEMA_RS)
        made.lock()
        return made

    def lock(self) -> None:
        """From now on nothing changes but by `reload` in development, and snapshots can be taken."""
        if not self._locked:
            names = list(self.generation.tools)
            rest = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            named, commit = ", ".join(names[:_MAX_NAMED]), self.git_commit or "none"
            _LOG.info("Registry %s, commit %s, %d tools: %s%s", self.version, commit, len(names), named, rest)
        self._locked = True

    @property
    def locked(self) -> bool:
        return self._locked

    @property
    def environment(self) -> Environment:
        return self._environment

    def snapshot(self) -> Snapshot:
        """The view that a session is pinned to."""
        if not self._locked:
            raise NotLocked("The registry is not locked yet; call `registry.lock()` before `registry.snapshot()`.")
        return self.generation

    def reload(self) -> Snapshot:
        """Load a new generation beside the old one. In development only."""
        if self._environment == "production":
            raise RegistryError(
                "A registry is not reloaded in production; `handrail deploy` lets servers take a new build in."
            )
        self.take(self.read_again())
        return self.generation

    def read_again(self, host: HostPolicy | None = None) -> Snapshot:
        """The artifact as it is now, as a generation that nobody uses yet; `RegistryError` if it cannot be used. `host` is what
        this host says about it now, if that may have changed."""
        return _read(
            self._path,
            self._environment,
            self._validators,
            self._compiler,
            tools_root=self._tools_root,
            host=self.host if host is None else host,
        )

    def take(self, generation: Snapshot) -> None:
        """Sessions that are opened or resumed from now on use this generation. In development the open ones have to be resumed;
        in production they keep theirs until they end or are resumed."""
        self.generation = generation

    @property
    def path(self) -> Path:
        """Where the artifact is."""
        return self._path

    @property
    def version(self) -> str:
        return self.generation.version

    @property
    def git_commit(self) -> str | None:
        return self.generation.git_commit

    @property
    def build_timestamp(self) -> str:
        return self.generation.build_timestamp

    def roles(self) -> frozenset[str]:
        """Those that there are now: which this host lists and, where it lists none, which the tools name."""
        if self.host.roles:
            return self.host.roles
        generation, roles = self._roles
        if generation is not self.generation:
            roles = roles_of_entries(self.generation.entries)
            self._roles = self.generation, roles
        return roles

    def __len__(self) -> int:
        return len(self.generation)

    def provider_schemas(self, provider: str, mode: Mode | None = None) -> list[dict[str, Any]]:
        return self.generation.provider_schemas(provider, mode)

    def summaries(self, mode: Mode | None = None) -> dict[str, str]:
        return self.generation.summaries(mode)

    def documentation(self, tool_id: str) -> str:
        return self.generation.tool(tool_id).documentation

    def metadata(self, tool_id: str) -> dict[str, Any]:
        return self.generation.tool(tool_id).metadata()

    def entries(self) -> tuple[dict[str, Any], ...]:
        """The artifact's entries as they were read; for start-up checks that should not make every definition."""
        return self.generation.entries

    def by_category(self, category: str) -> list[str]:
        return [tool.tool_id for tool in self.generation if tool.category == category]


def environment_from(value: str | None) -> Environment:
    if value in (None, "", "development"):
        return "development"
    if value == "production":
        return "production"
    raise RegistryError(f'HANDRAIL_ENV is "{value}"; it must be "development" or "production".')


def _is_foreign(artifact: Artifact, tools_root: Path | None) -> bool:
    """Whether the artifact names a folder of tools that is neither in its own folder nor the one that the operator gave."""
    named = artifact.tools_root.resolve()
    given = tools_root is not None and tools_root.resolve() == named
    return not given and not named.is_relative_to(artifact.path.parent.resolve())


def _read(
    path: Path,
    environment: Environment,
    validators: str,
    compiler: SchemaCompiler,
    refused: dict[str, str] | None = None,
    tools_root: Path | None = None,
    host: HostPolicy = NO_HOST_POLICY,
) -> Snapshot:
    """One generation. A changed handler is an error, or noted in `refused` where that is given and others are left."""
    # Loading makes many objects and no garbage; collecting in between would make large catalogues cost more per tool.
    collecting = gc.isenabled()
    gc.disable()
    try:
        artifact = host.applied(read_artifact(path))
        production = environment == "production"
        root = None if _is_foreign(artifact, tools_root) else str(artifact.tools_root)
        tools: dict[str, LoadedTool] = {}
        several: dict[str, dict[str, LoadedTool]] = {}
        looking = False
        for entry in artifact.entries:
            if not looking and entry["handler"]["kind"] not in ("directory", "mcp"):
                look_in(path.parent, first=False)  # decorated tools are modules of the project that it was built in
                looking = True
            try:
                code = verified_code(entry, root, production=production)
            except HandlerChanged as error:
                if refused is None or len(refused) + 1 == len(artifact.entries):
                    raise
                refused[entry["toolId"]] = str(error)
                continue
            tool = LoadedTool(entry, code, compiler)
            first = tools.setdefault(tool.tool_id, tool)
            if first is not tool:
                several.setdefault(tool.tool_id, {first.version: first})[tool.version] = tool
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # Sealed, and still not what a build writes.
        raise ArtifactError(f'"{path.name}" has a tool that cannot be read ({error}); run `handrail build`.') from None
    finally:
        if collecting:
            gc.enable()
    snapshot = _snapshot(artifact, tools, several, host.versions, refused or {})
    if validators == "eager":
        for tool in snapshot:
            _ = tool.validator, tool.output_validator
    return snapshot


def _snapshot(
    artifact: Artifact,
    tools: dict[str, LoadedTool],
    several: dict[str, dict[str, LoadedTool]],
    rules: Mapping[str, VersionRules],
    refused: Mapping[str, str],
) -> Snapshot:
    """The view with the default version of each tool; `several` has all versions of those with more than one. Of a tool with
    a handler that is refused, no version is served."""
    for name in refused:
        tools.pop(name, None)
        several.pop(name, None)
    for name in rules:
        if name not in tools and name not in refused:
            near = get_close_matches(name, list(tools), n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "."
            raise ConfigError(f'[versions.{name}] is for a tool "{name}", which there is not{hint}')
    chosen = {}
    for name, only in tools.items():
        if name in several or name in rules:
            versions = several.get(name) or {only.version: only}
            chosen[name] = rules.get(name, VersionRules(tool=name)).resolved(versions)
            tools[name] = versions[chosen[name].default]
    return Snapshot(artifact, tools, versions=several, rules=chosen)
