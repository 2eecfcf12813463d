"""What a server offers, as it was pinned: every tool with the policy for it, its words and its arguments; nothing is started."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from handrail.authoring.mcp.imported import effects_of
from handrail.authoring.mcp.inspection import refusals, tool_id_of
from handrail.authoring.mcp.lock import PinnedServer, pin_of, read_lock
from handrail.cli.mcp_servers import chosen, policy_line
from handrail.cli.output import print_json, show
from handrail.cli.project import current_settings

HELP = "the tools of a server, as they are pinned"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the server")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    config = chosen(settings, options.name)
    pinned = read_lock(settings.project).pins_of(options.name) or PinnedServer(tools={})
    refused = {**pinned.refused, **refusals(config, pinned.tools)}
    if options.json:
        tools = []
        for definition in pinned.tools.values():
            effects = effects_of(config, definition)
            tools.append(
                {
                    "toolId": tool_id_of(config, definition["name"]),
                    "pin": pin_of(definition),
                    "sideEffects": effects.side_effects,
                    "idempotent": effects.idempotent,
                    "requiresConfirmation": effects.confirm,
                    "tightenedBy": list(effects.tightened),
                    "definition": definition,
                }
            )
        print_json({"server": options.name, "identity": dict(pinned.identity), "tools": tools, "refused": refused})
        return 0
    named = " ".join(pinned.identity.get(key, "") for key in ("name", "version")).strip()
    show(f"{options.name}: {config.place}{f', which calls itself {named}' if named else ''}")
    for name, definition in sorted(pinned.tools.items()):
        if name in refused:
            continue
        show(f"\n{policy_line(config, definition)}\n  {pin_of(definition)}")
        show("  " + str(definition.get("description", "")).strip().replace("\n", "\n  ")[:600])
        arguments = definition["inputSchema"].get("properties") or {}
        show(f"  arguments: {', '.join(arguments) or 'none'}")
    for name, reason in sorted(refused.items()):
        show(f"\n! {name} is refused: {reason}")
    if not pinned.tools and not refused:
        show(f"Nothing is pinned yet; `handrail mcp update {options.name}` shows and pins its tools.")
    return 0
