"""One tool: its definition, its guide, or the schema that a provider is offered."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any, cast

from handrail.cli.output import print_json, show
from handrail.cli.project import current_settings, say_without_project, tools_at_hand, unbuilt
from handrail.contract.errors import UsageError

EXAMPLES = """examples:
  handrail show lookup_order
  handrail show lookup_order --guide
  handrail show lookup_order --provider openai-chat"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="the tool")
    parser.add_argument("--guide", action="store_true", help="print its guide")
    parser.add_argument("--provider", help="print what a model of this provider is offered")
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    if options.registry is None:
        say_without_project(settings, "show")
    snapshot = tools_at_hand(settings, options.registry)[1].snapshot()
    try:
        tool = snapshot.tool(options.name)
    except UsageError as error:
        missing = unbuilt(settings, options.name) if options.registry is None else ""
        raise UsageError(missing or str(error)) from None
    if options.provider:
        if tool.tool_id in snapshot.versions:
            snapshot = snapshot.pinned({tool.tool_id: tool.version})
        names = [other.tool_id for other in snapshot]
        print_json(snapshot.provider_schemas(options.provider)[names.index(tool.tool_id)])
    elif options.guide:
        show(tool.documentation)
    elif options.json:
        print_json({**tool.metadata(), "summary": tool.summary, "documentation": tool.documentation})
    else:
        _print(tool.metadata(), tool.summary)
    return 0


def _print(fields: dict[str, object], summary: str) -> None:
    show(f"{fields['toolId']} {fields['version']}: {summary}\n")
    plain = {
        name: value for name, value in fields.items() if name not in ("toolId", "version", "parameters", "outputSchema")
    }
    for name, value in plain.items():
        show(f"  {name:<22} {', '.join(map(str, value)) if isinstance(value, list) else value}")
    parameters = cast(dict[str, Any], fields["parameters"])
    required = parameters.get("required", [])
    show("\n  arguments:")
    for name, schema in parameters.get("properties", {}).items():
        known = schema if isinstance(schema, dict) else {}  # `true` is a schema, too
        need = "required" if name in required else f"default {known['default']!r}" if "default" in known else "optional"
        show(f"    {name} ({_kind(known)}, {need}): {known.get('description', '')}".rstrip(": "))


def _kind(schema: dict[str, Any]) -> str:
    if "type" in schema:
        return " or ".join(schema["type"]) if isinstance(schema["type"], list) else schema["type"]
    return "one of " + ", ".join(map(str, schema["enum"])) if "enum" in schema else "any"
