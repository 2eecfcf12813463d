"""A snapshot: the immutable view of a registry that a session is pinned to, handlers included.

Nothing is built for a tool before it is needed: its definition, validator and handler are made at first use from data
whose integrity was checked at load, and kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, get_args

import orjson

from handrail.contract.definition import Mode, ToolDefinition
from handrail.contract.errors import RegistryError, UsageError
from handrail.providers.catalogue import find_provider
from handrail.registry.artifact import Artifact, read_providers, versioned_name
from handrail.registry.handlers import Handler, HandlerCode
from handrail.registry.version_rules import VersionRules, is_version
from handrail.schema.validator import CompiledSchema, SchemaCompiler, for_results

_NONE: Mapping[str, Any] = MappingProxyType({})
_MAX_VIEWS = 256


class LoadedTool:
    """One tool of a snapshot. Cheap to make; what costs something is made when first asked for."""

    __slots__ = (
        "_code",
        "_compiler",
        "_definition",
        "_entry",
        "_handler",
        "_output",
        "_validator",
        "category",
        "compiled_at",
        "hash",
        "is_conditional",
        "modes",
        "roles",
        "tool_id",
        "version",
    )

    def __init__(self, entry: Mapping[str, Any], code: HandlerCode, compiler: SchemaCompiler) -> None:
        self.tool_id: str = entry["toolId"]
        self.version: str = entry["version"]
        self.hash: str = entry["hash"]
        self.category: str = entry["category"]
        self.modes: tuple[Mode, ...] = tuple(entry["allowedModes"])
        permissions = entry.get("permissions")
        self.roles: tuple[str, ...] = tuple(permissions.get("roles", ())) if permissions else ()
        self.is_conditional = permissions is not None or "availability" in entry or "noSchemaMode" in entry
        """Whether it may be unavailable to somebody who may use it."""
        self.compiled_at: str | None = None
        self._entry = entry
        self._code = code
        self._compiler = compiler
        self._definition: ToolDefinition | None = None
        self._validator: CompiledSchema | None = None
        self._output: CompiledSchema | None = None
        self._handler: Handler | None = None

    @property
    def summary(self) -> str:
        summary: str = self._entry["summary"]
        return summary

    @property
    def documentation(self) -> str:
        documentation: str = self._entry["documentation"]
        return documentation

    @property
    def upstream_server(self) -> str | None:
        """The MCP server that it is a tool of; None for a tool of the project."""
        return self._code.upstream.server if self._code.upstream is not None else None

    @property
    def definition(self) -> ToolDefinition:
        if self._definition is None:
            self._definition = ToolDefinition.from_checked({**self._entry, "parameters": self._entry["jsonSchema"]})
        return self._definition

    @property
    def validator(self) -> CompiledSchema:
        """The compiled parameter schema; compiled now if it was not yet."""
        if self._validator is None:
            self._validator = self._compiler.compile(self._entry["jsonSchema"], trusted=True)
            self.compiled_at = datetime.now(UTC).isoformat(timespec="milliseconds")  # noqa: TID251  # provenance only
        return self._validator

    @property
    def output_validator(self) -> CompiledSchema | None:
        """The compiled schema of `data`, where the tool has one."""
        if self._output is None and self._entry.get("outputSchema") is not None:
            self._output = for_results(self._compiler.compile(self._entry["outputSchema"], trusted=True))
        return self._output

    @property
    def validator_name(self) -> tuple[str, str]:
        return self._compiler.name, self._compiler.version

    @property
    def handler(self) -> Handler:
        """The handler, loaded from the bytes that were verified. For the pipeline, and nothing else."""
        if self._handler is None:
            self._handler = self._code.load()
        return self._handler

    def is_for(self, roles: Collection[str]) -> bool:
        """Whether it is for a user who has these roles."""
        return not self.roles or not set(self.roles).isdisjoint(roles)

    def metadata(self) -> dict[str, Any]:
        """The definition's fields as plain data, with the tool's hash."""
        return {**self.definition.to_dict(), "hash": self.hash}


class Snapshot:
    """An immutable view of one generation of the registry. Of a tool in several versions it has one."""

    __slots__ = (
        "_artifact",
        "_base",
        "_providers",
        "_rules",
        "_views",
        "by_mode",
        "conditional",
        "key",
        "pins",
        "roles",
        "tools",
        "version",
        "versions",
    )

    def __init__(
        self,
        artifact: Artifact,
        tools: Mapping[str, LoadedTool],
        *,
        versions: Mapping[str, Mapping[str, LoadedTool]] = _NONE,
        rules: Mapping[str, VersionRules] = _NONE,
        base: Snapshot | None = None,
    ) -> None:
        self._artifact = artifact
        self._providers: bytes | None = None
        self._base = base
        self._rules = rules
        self._views: dict[tuple[tuple[str, str], ...], Snapshot] = {}
        self.version = artifact.version
        self.versions = versions
        """Of the tools that there are in several versions: each by its version."""
        self.pins: Mapping[str, str] = {name: tools[name].version for name in versions}
        """The version of each of them in this view."""
        self.key = "/".join((artifact.version, *(versioned_name(*pin) for pin in sorted(self.pins.items()))))
        """Stands for what is in it: views with other versions of tools have another."""
        self.tools: Mapping[str, LoadedTool] = MappingProxyType(dict(tools))
        by_mode: dict[Mode | None, tuple[LoadedTool, ...]] = {None: tuple(tools.values())}
        for mode in get_args(Mode):
            by_mode[mode] = tuple([tool for tool in by_mode[None] if mode in tool.modes])
        self.by_mode: Mapping[Mode | None, tuple[LoadedTool, ...]] = MappingProxyType(by_mode)
        """The tools of a mode; under None all of them."""
        self.conditional = tuple([tool for tool in by_mode[None] if tool.is_conditional])
        self.roles = frozenset(role for tool in self.conditional for role in tool.roles)
        """Those that some tool asks for."""

    def choose(self, session_id: str, *, tenant: str, organisation: str, user: str | None) -> dict[str, str]:
        """The versions that the host's rules give a session, of tools that there are in several."""
        return {name: self._rules[name].choose(session_id, tenant, organisation, user) for name in self.versions}

    def pinned(self, pins: Mapping[str, str]) -> Snapshot:
        """The view with these versions of tools, which must be there; those that are not named stay as they are."""
        wanted = tuple(sorted({**self.pins, **pins}.items()))
        if dict(wanted) == self.pins:
            return self
        base = self._base or self
        found = base._views.get(wanted)
        if found is None:
            tools = {**self.tools, **{name: self.versions[name][version] for name, version in wanted}}
            if len(base._views) >= _MAX_VIEWS:
                base._views.clear()
            found = base._views[wanted] = Snapshot(
                self._artifact, tools, versions=self.versions, rules=self._rules, base=base
            )
        return found

    def __len__(self) -> int:
        return len(self.tools)

    def __iter__(self) -> Iterator[LoadedTool]:
        return iter(self.tools.values())

    def __contains__(self, tool_id: object) -> bool:
        return tool_id in self.tools

    @property
    def git_commit(self) -> str | None:
        return self._artifact.git_commit

    @property
    def build_timestamp(self) -> str:
        return self._artifact.build_timestamp

    @property
    def entries(self) -> tuple[dict[str, Any], ...]:
        return self._artifact.entries

    def get(self, tool_id: str) -> LoadedTool | None:
        return self.tools.get(tool_id)

    def tool(self, tool_id: str) -> LoadedTool:
        """The tool, in one of several versions as `NAME@VERSION`; `UsageError` with the nearest name if there is none."""
        found = self.tools.get(tool_id)
        if found is None and "@" in tool_id:
            name, _, label = tool_id.partition("@")
            fitting = [tool for version, tool in self.versions.get(name, {}).items() if is_version(label, version)]
            found = fitting[0] if len(fitting) == 1 else None
        if found is None:
            near = get_close_matches(tool_id, self.tools, n=1)
            raise UsageError(f'There is no tool "{tool_id}"' + (f'; did you mean "{near[0]}"?' if near else "."))
        return found

    def provider_schemas(self, provider: str, mode: Mode | None = None) -> list[dict[str, Any]]:
        """What a model of this provider is offered, sorted by tool, as fresh data that the caller may change."""
        known = self._artifact.provider_file.providers
        meant = None if provider in known else find_provider(provider)
        wanted = provider if meant is None else meant.name
        for line in self._provider_lines() if wanted in known else ():
            if line.startswith(b'{"provider":"%s"' % wanted.encode()):
                schemas = orjson.loads(line)["schemas"]
                return [
                    schemas[
                        versioned_name(tool.tool_id, tool.version) if tool.tool_id in self.versions else tool.tool_id
                    ]
                    for tool in self._of_mode(mode)
                ]
        raise RegistryError(f'The artifact has no schemas for "{provider}"; it was built for {", ".join(known)}.')

    def _of_mode(self, mode: Mode | None) -> tuple[LoadedTool, ...]:
        try:
            return self.by_mode[mode]
        except KeyError:
            raise UsageError(f'There is no mode "{mode}"; there are "text" and "voice".') from None

    def _provider_lines(self) -> list[bytes]:
        if self._base is not None:
            return self._base._provider_lines()
        if self._providers is None:
            # Kept, so that a snapshot continues when later builds have cleaned the file away.
            self._providers = read_providers(self._artifact)
        return self._providers.splitlines()

    def summaries(self, mode: Mode | None = None) -> dict[str, str]:
        return {tool.tool_id: tool.summary for tool in self._of_mode(mode)}
