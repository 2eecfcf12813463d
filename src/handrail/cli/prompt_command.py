"""Print what a model reads before a conversation: the system text of a mode, with its tools, and how much it costs.

Tokens are characters / 4. The declarations go to the model beside the text; `--declarations` prints them, too.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from handrail.agents.prompts import Prompt
from handrail.app import open_prompts, open_registry, time_zone_of
from handrail.cli.output import print_json, show
from handrail.cli.project import current_settings
from handrail.contract.definition import Mode
from handrail.contract.errors import UsageError
from handrail.registry.snapshot import LoadedTool, Snapshot
from handrail.settings import Settings
from handrail.standard_runtime import SystemClock
from handrail.text_model import model_provider

EXAMPLES = """examples:
  handrail prompt
  handrail prompt --mode voice
  handrail prompt --tools kb_search,kb_get --json"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--mode", choices=("text", "voice"), default="text", help="the mode of the session (default: text)"
    )
    parser.add_argument(
        "--tools", metavar="NAMES", help="only these tools, with commas between (default: all of the mode)"
    )
    parser.add_argument("--provider", metavar="NAME", help="whose declarations (default: those of the project's model)")
    parser.add_argument("--declarations", action="store_true", help="print the declarations as well")
    parser.add_argument(
        "--now", metavar="TIME", help="the moment that the prompt tells, such as 2026-03-29T09:30+01:00"
    )
    parser.add_argument("--registry", metavar="FILE", help="another artifact than the project's")
    parser.add_argument("--json", action="store_true", help="print text, parts, declarations and counts as JSON")


def run(options: Namespace) -> int:
    settings = current_settings()
    snapshot = open_registry(settings, options.registry).snapshot()
    prompt, tools = _composed(settings, snapshot, options)
    if options.json:
        print_json(_as_json(prompt, tools, snapshot, options.mode))
        return 0
    # A program gets the model's exact text; on a terminal nothing in it can hide.
    tell = show if sys.stdout.isatty() else print
    tell(prompt.text)
    if options.declarations:
        print("\n# Declarations\n")
        for declaration in prompt.declarations:
            tell(orjson.dumps(declaration).decode())
    print(f"\n{_counts(prompt)}")
    return 0


def _composed(settings: Settings, snapshot: Snapshot, options: Namespace) -> tuple[Prompt, list[LoadedTool]]:
    mode: Mode = options.mode
    tools = list(snapshot.by_mode[mode])
    names = [tool.tool_id for tool in tools]
    provider = options.provider or model_provider(settings)
    schemas = dict(zip(names, snapshot.provider_schemas(provider, mode), strict=True))
    if options.tools is not None:
        wanted = [name.strip() for name in options.tools.split(",") if name.strip()]
        for name in wanted:
            if name not in names:
                snapshot.tool(name)  # says so if there is no such tool at all
                raise UsageError(f'"{name}" is not a tool of {mode} sessions.')
        tools = [tool for tool in tools if tool.tool_id in wanted]
    zone = time_zone_of(settings, {})
    prompt = open_prompts(settings).compose(
        mode,
        tools,
        version=snapshot.version,
        declarations=[schemas[tool.tool_id] for tool in tools],
        now=_moment(options.now, ZoneInfo(zone)),
        time_zone=zone,
    )
    return prompt, tools


def _moment(text: str | None, zone: ZoneInfo) -> datetime:
    if text is None:
        return datetime.fromtimestamp(SystemClock().time(), UTC).astimezone(zone)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--now must be a time such as 2026-03-29T09:30+01:00; {text!r} is not.") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(zone)


def _as_json(prompt: Prompt, tools: list[LoadedTool], snapshot: Snapshot, mode: str) -> dict[str, Any]:
    return {
        "mode": mode,
        "registryVersion": snapshot.version,
        "tools": [tool.tool_id for tool in tools],
        "prompt": prompt.text,
        "parts": [{"name": part.name, "tokens": part.tokens, "text": part.text} for part in prompt.parts],
        "declarations": list(prompt.declarations),
        "tokens": _totals(prompt),
    }


def _totals(prompt: Prompt) -> dict[str, int]:
    words, declared = prompt.prompt_tokens, prompt.declaration_tokens
    return {"prompt": words, "declarations": declared, "total": words + declared}


def _counts(prompt: Prompt) -> str:
    totals = _totals(prompt)
    rows = [(part.name, part.tokens, "") for part in prompt.parts]
    rows += [("prompt", totals["prompt"], "together")]
    count = len(prompt.declarations)
    rows += [("declarations", totals["declarations"], f"{count} tool{'s' if count != 1 else ''}")]
    rows += [("total", totals["total"], "")]
    lines = [f"  {name:<13}{tokens:>8,}  {note}".rstrip() for name, tokens, note in rows]
    return "\n".join(["--- tokens (characters / 4) ---", *lines])
