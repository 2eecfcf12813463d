"""A pinned tool and the project's policy → one definition, as from a folder or a decorator.

Policy comes from the project. The server's annotations are hints: they tighten it, and loosen nothing unless the project says
that it trusts them. What nobody has said writes, and asks a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handrail.authoring.mcp.inspection import plain_schema, refusals, tool_id_of
from handrail.authoring.mcp.lock import LOCK_FILE, pin_of, read_lock
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.authoring.source import UPSTREAM_CAPABILITY, ToolSource, UpstreamTool
from handrail.contract.definition import SideEffects, ToolDefinition
from handrail.contract.errors import ConfigError

_DESCRIPTION, _SUMMARY = 1024, 250
_LATENCY_MS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEffects:
    """What a tool of a server may do, as far as the project believes it."""

    side_effects: SideEffects
    idempotent: bool
    confirm: bool
    tightened: tuple[str, ...] = ()
    """The hints of the server that made the policy stricter than the project wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPins:
    """A server whose entry in the lock was edited by hand: nobody has taken what stands there, so its tools are left out."""

    server: str
    message: str


def effects_of(config: UpstreamConfig, definition: Mapping[str, Any]) -> UpstreamEffects:
    """Side effects, idempotence and confirmation of a tool, of its policy and its annotations."""
    policy = config.policy(definition["name"])
    given = definition.get("annotations")
    way = policy.annotations or config.annotations
    hints: Mapping[str, Any] = given if isinstance(given, Mapping) and way != "ignore" else {}
    changes = hints.get("readOnlyHint") is False or hints.get("destructiveHint") is True
    trusted = way == "trust" and hints.get("readOnlyHint") is True and not changes
    effects = policy.side_effects or ("read_only" if trusted else "writes")
    tightened: list[str] = []
    if effects != "writes" and changes:
        effects = "writes"
        tightened.append("readOnlyHint" if hints.get("readOnlyHint") is False else "destructiveHint")
    elif effects == "none" and hints.get("openWorldHint") is True:
        effects = "read_only"
        tightened.append("openWorldHint")
    writes = effects == "writes"
    idempotent = not writes if policy.idempotent is None else policy.idempotent
    if writes and idempotent and hints.get("idempotentHint") is False:
        idempotent = False
        tightened.append("idempotentHint")
    confirm = writes if policy.confirm is None else policy.confirm
    if writes and not confirm and hints.get("destructiveHint") is True:
        confirm = True
        tightened.append("destructiveHint")
    return UpstreamEffects(
        side_effects=effects, idempotent=idempotent, confirm=confirm, tightened=tuple(dict.fromkeys(tightened))
    )


def definition_of(config: UpstreamConfig, definition: Mapping[str, Any]) -> ToolDefinition:
    """The definition of a pinned tool that `refusals` let pass."""
    name, policy = definition["name"], config.policy(definition["name"])
    effects = effects_of(config, definition)
    output = definition.get("outputSchema")
    reads = effects.side_effects != "writes" and effects.idempotent
    return ToolDefinition(
        tool_id=tool_id_of(config, name),
        version="1.0.0",
        description=_cut(_words(config, definition), _DESCRIPTION),
        category="retrieval" if reads else "action",
        side_effects=effects.side_effects,
        idempotent=effects.idempotent,
        requires_confirmation=effects.confirm,
        allowed_modes=policy.modes or config.modes,
        latency_budget_ms=policy.latency_budget_ms or _LATENCY_MS,
        parameters=plain_schema(definition["inputSchema"]),
        timeout_ms=policy.timeout_ms or round(config.call_seconds * 1000),
        output_schema=None if output is None else plain_schema(output),
        max_output_bytes=policy.max_result_bytes or config.max_result_bytes,
        capabilities=(UPSTREAM_CAPABILITY, "client", *(("secrets",) if config.connection else ())),
        tags=(f"mcp:{config.name}",),
        preview=policy.preview,
        dedupe_fields=policy.dedupe_fields,
    )


def read_upstream(servers: Mapping[str, UpstreamConfig], project: Path) -> list[ToolSource | BrokenPins]:
    """The tools of the configured servers, as they are pinned; `ConfigError` for a server that is not, or a lock that cannot
    be read at all."""
    enabled = {name: config for name, config in servers.items() if config.enabled}
    if not enabled:
        return []
    lock = read_lock(project)
    pinned = lock.servers
    sources: list[ToolSource | BrokenPins] = []
    for name, config in sorted(enabled.items()):
        if name in lock.broken:
            sources.append(BrokenPins(server=name, message=lock.broken[name].fault))
            continue
        if name not in pinned:
            raise ConfigError(
                f'The tools of the MCP server "{name}" are not pinned in {LOCK_FILE} yet; '
                f"`handrail mcp update {name}` shows and pins them, "
                f"and `enabled = false` in [mcp.servers.{name}] leaves the server out."
            )
        tools = pinned[name].tools
        unknown = [tool for tool in config.tools if tool not in tools and tool not in pinned[name].refused]
        if unknown:
            raise ConfigError(
                f'[mcp.servers.{name}.tools.{unknown[0]}] is about a tool that the server "{name}" does not have.'
            )
        # What is refused depends on this configuration too, and a lock may be older than what is looked for today.
        refused = refusals(config, tools)
        sources += [
            _source(config, definition)
            for tool, definition in sorted(tools.items())
            if tool not in refused and config.policy(tool).enabled
        ]
    return sources


def _source(config: UpstreamConfig, definition: Mapping[str, Any]) -> ToolSource:
    made = definition_of(config, definition)
    words = _words(config, definition)
    summary = _cut(" ".join(words.split()), _SUMMARY)
    # Quoted, so that no heading or example of the server's becomes one of ours.
    quoted = "\n".join(f"> {line}" for line in words.splitlines())
    guide = f'{summary}\n\nThe MCP server "{config.name}" offers it as `{definition["name"]}`, and says:\n\n{quoted}\n'
    return ToolSource(
        kind="mcp",
        folder=f"{config.name}/{definition['name']}",
        given=made,
        given_guide=guide,
        upstream=UpstreamTool(server=config.name, tool=definition["name"], pin=pin_of(definition)),
    )


def _words(config: UpstreamConfig, definition: Mapping[str, Any]) -> str:
    own = config.policy(definition["name"]).description
    said = own or definition.get("description") or definition.get("title")
    text = said.strip() if isinstance(said, str) else ""
    return text or f'The tool "{definition["name"]}" of the MCP server "{config.name}".'


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rsplit(" ", 1)[0][: limit - 1] + "…"
