"""What the actions on MCP servers share: the project's servers, what each offers, and how a tool of one is shown."""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.authoring.mcp.imported import effects_of
from handrail.authoring.mcp.inspection import tool_id_of
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.cli import Parser
from handrail.cli.output import count, show
from handrail.contract.errors import UsageError
from handrail.settings import Settings

if TYPE_CHECKING:
    from handrail.mcp.gateway.pinning import PinReview
    from handrail.mcp.gateway.upstream import UpstreamDescription


_MAX_LISTED = 5


def split_command(options: Namespace, add_options: Callable[[ArgumentParser], None]) -> Namespace:
    """The options with `command` as what stands behind `--`. Argparse takes what is before it for a part of the command."""
    given = list(options.command)
    place = given.index("--") if "--" in given else None
    before, command = (given, []) if place is None else (given[:place], given[place + 1 :])
    parser = Parser(prog=f"handrail mcp {options.action}", add_help=False, allow_abbrev=False)
    add_options(parser)
    if place is None and before and not before[0].startswith("-"):
        before, command = [], before
    known = vars(parser.parse_args(before))
    changed = {key: value for key, value in known.items() if value != parser.get_default(key)}
    return Namespace(**{**vars(options), **changed, "command": command})


def chosen(settings: Settings, name: str) -> UpstreamConfig:
    """The server of this name; `UsageError` with the nearest one if there is none."""
    found = settings.mcp_servers.get(name)
    if found is None:
        near = get_close_matches(name, settings.mcp_servers, n=1)
        known = f"known are {', '.join(sorted(settings.mcp_servers))}" if settings.mcp_servers else "there are none yet"
        hint = f'did you mean "{near[0]}"?' if near else f"{known}; `handrail mcp add` adds one."
        raise UsageError(f'This project has no MCP server "{name}"; {hint}')
    return found


def asked_for(settings: Settings, names: Sequence[str]) -> list[UpstreamConfig]:
    """The servers of these names; without names, all that are not switched off. `UsageError` if there are none."""
    if not names and not settings.mcp_servers:
        raise UsageError("This project has no MCP servers; `handrail mcp add` takes one in.")
    found = [chosen(settings, name) for name in names] or [
        one for _, one in sorted(settings.mcp_servers.items()) if one.enabled
    ]
    if not found:
        raise UsageError("Every MCP server of this project is switched off (`enabled = false`).")
    return found


def ask_for_offer(project: Path, config: UpstreamConfig, token_env: str | None = None) -> UpstreamDescription:
    """Start the server, list its tools, stop it. A server that wants a person's token is given the one in this variable."""
    from handrail.mcp.gateway.http_transport import BearerToken
    from handrail.mcp.gateway.pinning import offer_of
    from handrail.standard_runtime import SystemClock

    token = os.environ.get(token_env, "") if token_env is not None else ""
    if token_env is not None and not token:
        raise UsageError(f'The variable "{token_env}" is not set.')
    auth = BearerToken(token) if token else None

    return asyncio.run(offer_of(config, project=project, environment=os.environ, clock=SystemClock(), auth=auth))


def policy_line(config: UpstreamConfig, definition: Mapping[str, Any]) -> str:
    """One tool with what the pipeline does with its calls."""
    effects = effects_of(config, definition)
    words = [
        "reads" if effects.side_effects != "writes" else "writes",
        "asks a person" if effects.confirm else "runs at once",
    ]
    if not config.policy(definition["name"]).enabled:
        words = ["left out by the project"]
    tightened = f" (tightened by {', '.join(effects.tightened)})" if effects.tightened else ""
    return f"{tool_id_of(config, definition['name'])}: {', '.join(words)}{tightened}"


def show_unbelieved(config: UpstreamConfig, definitions: Iterable[Mapping[str, Any]]) -> None:
    """The tools that the server says only read, where the project does not go by it."""
    names = [
        one["name"]
        for one in definitions
        if (one.get("annotations") or {}).get("readOnlyHint") is True
        and config.policy(one["name"]).enabled
        and effects_of(config, one).side_effects == "writes"
    ]
    if names:
        show(
            f"The server says that {listed(names)} only read{'s' if len(names) == 1 else ''} (readOnlyHint). "
            f'To believe it, write annotations = "trust" in [mcp.servers.{config.name}].'
        )


def listed(names: Sequence[str]) -> str:
    """The names in a sentence; of many the first ones."""
    rest = len(names) - _MAX_LISTED
    shown = [*names[:_MAX_LISTED], *([f"{rest} more"] if rest > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def show_changes(config: UpstreamConfig, found: PinReview) -> None:
    marks = {"added": "+", "removed": "-", "changed": "~", "refused": "!"}
    for change in found.changes:
        show(f"{marks[change.kind]} {change.tool} ({change.kind}{f': {change.reason}' if change.reason else ''})")
        if change.kind == "added":
            show(f"    {policy_line(config, found.pinned.tools[change.tool])}")
        for place, was, now in change.differences:
            show(f"    {place}")
            if was:
                show(f"      was {was}")
            if now:
                show(f"      is  {now}")
    if found.unchanged:
        show(f"  {count(found.unchanged, 'tool')} of {config.name} unchanged")
    new = [found.pinned.tools[one.tool] for one in found.changes if one.tool in found.pinned.tools]
    show_unbelieved(config, new)
