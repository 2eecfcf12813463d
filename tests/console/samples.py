"""Things that a scripted server says: a turn with citations, a held call, tools of every kind."""

from __future__ import annotations

from typing import Any

from tests.console.scripted_server import Event, Script

CITATIONS = [
    {"number": 1, "id": "doc:handrail", "title": "What Handrail is", "url": "https://example.com/handrail"},
    {"number": 2, "id": "doc:gates", "title": "The gates"},
]
ANSWER = "**Handrail** is a tool runtime [1]. Every call passes the gates [2].\n\n- it asks\n- it `records`\n"
MEETING = {
    "title": "Meeting with Ana",
    "start_time": "2026-11-17T15:00:00+01:00",
    "end_time": "2026-11-17T15:30:00+01:00",
    "attendees": ["ana@example.com"],
}
PREVIEW = 'Create "Meeting with Ana": Tuesday 17 November 2026, 15:00 to 15:30. Attendees (1): ana@example.com.'
EVERY_KIND: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "size", "when"],
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}, "floor": {"type": "integer"}}}},
    "properties": {
        "title": {"type": "string", "maxLength": 80, "description": "What it is called."},
        "size": {"enum": ["small", "large"], "default": "small"},
        "when": {"type": "string", "format": "date-time"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "share": {"type": "number"},
        "loud": {"type": "boolean"},
        "mails": {"type": "array", "items": {"type": "string", "format": "email"}},
        "fields": {"type": "array", "uniqueItems": True, "items": {"enum": ["snippet", "url"]}},
        "place": {"$ref": "#/$defs/place"},
        "steps": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "anything": {"oneOf": [{"type": "string"}, {"type": "array"}]},
        "secret": {"type": "string", "writeOnly": True},
    },
}
GUIDE = (
    '# demo\n\nShows every kind of field.\n\n## Examples\n\nOne:\n\n```json\n{"title": "Hello", "size": "large"}\n```\n'
)


def answered_with_citations() -> list[Event]:
    """Two look-ups, then an answer in pieces."""
    pieces: list[Event] = [("text", {"text": ANSWER[place : place + 9]}) for place in range(0, len(ANSWER), 9)]
    return [
        *ran("c1", "kb_search", {"query": "What is Handrail?", "top_k": 5}, left=4),
        *ran("c2", "kb_get", {"ids": ["doc:handrail"]}, left=3),
        *pieces,
        ("usage", {"inputTokens": 1200, "outputTokens": 80}),
        (
            "done",
            {"text": ANSWER, "citations": CITATIONS, "rounds": 3, "usage": {"inputTokens": 1200, "outputTokens": 80}},
        ),
    ]


def ran(call: str, tool: str, args: dict[str, Any], *, left: int) -> list[Event]:
    meta = {"duration": 42.0, "budget": {"retrieval": left}, "defaulted": ["namespace"]}
    finished = {"callId": call, "toolId": tool, "ok": True, "error": None, "meta": meta, "citations": CITATIONS}
    return [("tool_started", {"callId": call, "toolId": tool, "args": args}), ("tool_finished", finished)]


def held(script: Script, id: str = "conf_1", seconds: float = 300) -> list[Event]:
    """A call that waits for a person."""
    asked = script.hold(id, "calendar_create_event", MEETING, PREVIEW, seconds)
    request = {name: asked[name] for name in ("id", "tool", "args", "preview", "expires_at")}
    error = {"type": "CONFIRMATION_REQUIRED", "message": "It waits for a person.", "confirmation_request": request}
    named = {"callId": f"call-{id}", "toolId": "calendar_create_event"}
    return [
        ("tool_started", {**named, "args": MEETING}),
        ("confirmation", {"id": id}),
        ("tool_finished", {**named, "ok": False, "held": True, "error": error, "meta": {"duration": 4.0}}),
        ("text", {"text": "It is created when you approve it."}),
        ("done", {"text": "It is created when you approve it.", "citations": []}),
    ]


def offer(script: Script, id: str, guide: str = GUIDE, parameters: dict[str, Any] | None = None, **facts: Any) -> None:
    """Put a tool into the catalogue."""
    tool = {
        "id": id,
        "version": "1.0.0",
        "description": "A tool to look at.",
        "summary": "A tool to look at.",
        "category": "utility",
        "sideEffects": "none",
        "modes": ["text"],
        "requiresConfirmation": False,
        "switchedOff": None,
        **facts,
    }
    script.tools.append(tool)
    script.details[id] = {**tool, "definition": {"toolId": id}, "guide": guide, "parameters": parameters or EVERY_KIND}


def counted(**facts: Any) -> dict[str, Any]:
    """A row of `/api/stats`."""
    return {
        "calls": 40,
        "ok": 30,
        "errors": {"TIMEOUT": 4},
        "refused": {"VALIDATION": 6},
        "declined": 2,
        "latency": {"p50": 3, "p95": 40, "p99": 90},
        "size": {"p50": 200, "p95": 1800, "p99": 2000},
        "tokens": {"total": 2400, "avg": 60, "p95": 450},
        "turns": {"completed": 20, "failed": 5},
        **facts,
    }


def measured(name: str = "kb_search") -> dict[str, Any]:
    """What `/metrics` tells of one tool."""
    return {
        "tools": {
            name: {
                "calls": 12,
                "errors": {"VALIDATION": 2},
                "avgDuration": 5,
                "latency": {"p50": 3, "p95": 40, "p99": 90},
            }
        },
        "responseSizes": {name: {"p50": 200, "p95": 1800, "p99": 2000}},
        "responseTokens": {name: {"avg": 60, "p95": 450}},
        "context": {"sessionInitTokens": 4000, "peakTokens": 121000, "alarms": 1},
        "sessions": {
            "open": 2,
            "total": 3,
            "calls": 12,
            "turns": 3,
            "active": {
                "s-1": {"calls": 12, "turns": 3, "duration": 9000, "peakContextTokens": 6000},
                "s-2": {
                    "calls": 0,
                    "turns": 1,
                    "duration": 61000,
                    "peakContextTokens": 121000,
                    "contextWindow": 128000,
                },
            },
        },
        "warnings": [
            f'Responses of "{name}" are long.',
            "A session used 95% of its model's context window, more than 90%.",
        ],
    }
