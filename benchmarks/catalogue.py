"""Catalogues of made-up tools, of realistic size, on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HANDLER = '''\
"""Looks people up."""


async def execute(args, ctx):
    rows = [{"id": f"person:{i}", "title": args["query"], "score": 1.0 - i / 10} for i in range(5)]
    return {"ok": True, "data": {"results": rows}}
'''

WRITER = '''\
"""Writes something down."""


async def execute(args, ctx):
    return {"ok": True, "data": {"done": args["query"]}}
'''


def parameters(number: int) -> dict[str, Any]:
    """Six arguments with bounds, an enumeration, a nested object and a default: what real tools look like."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 500,
                "description": f"What to look for in source {number}.",
            },
            "namespace": {"enum": ["studio", "personal", "public"], "default": "studio"},
            "top_k": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5, "description": "How many results."},
            "since": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 5, "uniqueItems": True},
            "range": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "start": {"type": "string", "format": "date"},
                    "end": {"type": "string", "format": "date"},
                },
            },
        },
    }


def write_tools(folder: Path, count: int, *, writes: bool = False) -> Path:
    """`count` tools below `folder`; the folder."""
    for number in range(count):
        home = folder / f"tool-{number:05}"
        home.mkdir(parents=True)
        schema = {
            "toolId": f"tool_{number:05}",
            "version": "1.0.0",
            "description": f"Look something up in source {number}.",
            "category": "action" if writes else "retrieval",
            "sideEffects": "writes" if writes else "read_only",
            "idempotent": not writes,
            "requiresConfirmation": False,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 800,
            "parameters": parameters(number),
            **({"waivers": {"action-unconfirmed": "a benchmark"}} if writes else {}),
        }
        (home / "schema.json").write_text(json.dumps(schema))
        (home / "guide.md").write_text(
            f"# tool_{number:05}\n\nLooks something up in source {number}.\n\n## Examples\n\n"
            f'```json\n{{"query": "number {number}", "top_k": 3}}\n```\n'
        )
        (home / "handler.py").write_text(WRITER if writes else HANDLER)
    return folder
