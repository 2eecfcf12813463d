"""The OpenAPI document of the server: what `docs/text-protocol.md` says in words, for programs.

Written by hand beside the routes; a test holds it against `application.ROUTES`, and schemathesis against a running server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.server.api.http import TYPES
from handrail.server.host.hosted_session import OWN_IDS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_YES: Schema = {"type": "boolean"}
_ANY: Schema = {}


def _object(properties: Mapping[str, Schema], required: tuple[str, ...] = (), *, closed: bool = False) -> Schema:
    made: Schema = {"type": "object", "properties": dict(properties)}
    if required:
        made["required"] = list(required)
    if closed:
        made["additionalProperties"] = False
    return made


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_PROBLEM = _object(
    {"error": _object({"type": {"enum": sorted(set(TYPES.values()))}, "message": _TEXT, "retryAfter": {"type": "number"}},
                      ("type", "message"))},
    ("error",),
)  # fmt: skip
_TOOL = {
    "id": _TEXT,
    "version": _TEXT,
    "description": _TEXT,
    "summary": _TEXT,
    "category": {"enum": ["retrieval", "action", "utility"]},
    "sideEffects": {"enum": ["none", "read_only", "writes"]},
    "modes": _list({"enum": ["text", "voice"]}),
    "requiresConfirmation": _YES,
    "switchedOff": _maybe(_TEXT),
}
_CONFIRMATION = _object(
    {"id": _TEXT, "tool": _TEXT, "args": {"type": "object"}, "preview": _TEXT, "expires_at": _WHOLE, "token": _TEXT,
     "channel": {"enum": ["any", "screen"]}, "replacedBy": _maybe(_TEXT)},
    ("id", "tool", "args", "preview", "expires_at"),
)  # fmt: skip
_APPROVED = _object(
    {"id": _TEXT, "tool": _TEXT, "args": {"type": "object"}, "preview": _TEXT, "expires_at": _WHOLE, "turn": _WHOLE},
    ("id", "tool", "args", "preview"),
)
_USE = _object({"used": _WHOLE, "limit": _maybe(_WHOLE)}, ("used", "limit"))
_ROW = _object(
    {"key": _TEXT, "state": _TEXT, "tool": _TEXT, "sessionId": _TEXT, "turn": _WHOLE, "user": _maybe(_TEXT),
     "args": {"type": "object"}, "createdAt": _WHOLE, "finishedAt": _maybe(_WHOLE),
     "envelope": _maybe({"type": "object"})},
    ("key", "state", "tool"),
)  # fmt: skip
_SCHEMAS: dict[str, Schema] = {
    "Problem": _PROBLEM,
    "Model": _object(
        {"model": _TEXT, "reason": _TEXT, "demo": _YES, "broken": _TEXT, "sentence": _TEXT, "ways": _list(_TEXT),
         "offers": _list(_object({"model": _TEXT, "reason": _TEXT, "vendor": _TEXT}, ("model", "reason", "vendor")))},
        ("model", "reason", "demo", "broken", "sentence"),
    ),
    "Envelope": _object(
        {"ok": _YES, "data": _ANY, "error": {"type": "object"}, "intents": _list({"type": "object"}),
         "meta": {"type": "object"}},
        ("ok", "intents", "meta"),
    ),
    "Tool": _object(_TOOL, tuple(_TOOL)),
    "Confirmation": _CONFIRMATION,
    "Message": _object(
        {"role": {"enum": ["user", "assistant"]}, "text": _TEXT, "turn": _WHOLE, "messageId": _TEXT,
         "state": {"enum": ["running", "done", "failed", "cancelled"]}, "toolCards": _list({"type": "object"}),
         "citations": _list({"type": "object"})},
        ("role", "text", "turn", "messageId", "state"),
    ),
    "Session": _object(
        {"sessionId": _TEXT, "mode": {"enum": ["text", "voice"]}, "user": _maybe(_TEXT), "active": _YES, "voice": _YES,
         "turn": _WHOLE, "answering": _maybe(_TEXT), "registryVersion": _TEXT, "tools": _list(_TEXT),
         "budget": _object({"retrieval": _USE, "total": _USE, "latencyMs": _USE}, ("retrieval", "total", "latencyMs")),
         "messages": _list(_ref("Message")), "confirmations": _list(_ref("Confirmation")), "approved": _list(_APPROVED),
         "lastEventId": _WHOLE},
        ("sessionId", "mode", "active", "voice", "turn", "budget", "messages", "confirmations", "approved", "lastEventId"),
    ),
    "LedgerRow": _ROW,
    "Connection": _object(
        {"name": _TEXT, "label": _TEXT, "connected": _YES, "scopes": _list(_TEXT), "since": _maybe(_WHOLE), "problem": _TEXT},
        ("name", "label", "connected", "scopes", "since", "problem"),
    ),
}  # fmt: skip

_SESSION = {"name": "session", "in": "path", "required": True, "schema": _TEXT}
_SECRET = {
    "name": "X-Session-Token", "in": "header", "required": True, "schema": _TEXT,
    "description": "The session's secret, told when it was opened.",
}  # fmt: skip
_ID = {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$", "not": {"pattern": f"^{OWN_IDS}"}}


def _path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _query(name: str, schema: Schema, about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": about}


_VIEW = (
    _query("mode", {"enum": ["text", "voice"]}, "Only what can be called in this mode."),
    _query("session", _TEXT, "What may be used in this session now; its secret comes in X-Session-Token."),
)
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 1_000}
_AFTER = [
    {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "integer", "minimum": 0, "maximum": 10**15}},
    _query("after", {"type": "integer", "minimum": 0, "maximum": 10**15}, "As Last-Event-ID, for clients that cannot set it."),
]  # fmt: skip


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _operation(
    summary: str,
    good: Mapping[int, tuple[str, Mapping[str, Any]]],
    *,
    problems: tuple[int, ...] = (),
    parameters: tuple[Mapping[str, Any], ...] = (),
    body: Schema | None = None,
    open_to_all: bool = False,
) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": about, **({"content": content} if content else {})}
        for status, (about, content) in good.items()
    }
    usual = () if open_to_all else (401, 429)
    for status in sorted({*problems, *usual, 403, 421}):
        words = TYPES[status].replace("_", " ").capitalize()
        responses.setdefault(str(status), {"description": words, "content": _json(_ref("Problem"))})
    made: dict[str, Any] = {"summary": summary, "responses": responses}
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        made["requestBody"] = {"required": True, "content": _json(body)}
    if open_to_all:
        made["security"] = []
    return made


_TICKET = _object(
    {"ticket": _TEXT, "url": _TEXT, "protocol": _TEXT, "expiresIn": _WHOLE, "offline": _YES, "model": _TEXT,
     "audio": _object({"input": _object({"rates": _list(_WHOLE)}, ("rates",)), "output": _object({"rate": _WHOLE}, ("rate",))},
                      ("input", "output"))},
    ("ticket", "url", "protocol", "expiresIn", "offline", "model", "audio"),
)  # fmt: skip
_BODY = (400, 408, 413, 415)
_STREAM = {"text/event-stream": {"schema": _object({"id": _TEXT, "event": _TEXT, "data": _TEXT}, ("data",))}}
_OF_SESSION = (404, 410, 503)


def _connection_paths() -> dict[str, Any]:
    return {
        "/api/sessions/{session}/connections": {
            "get": _operation(
                "What the session's user has connected",
                {
                    200: (
                        "Every connection",
                        _json(
                            _object(
                                {"connections": _list(_ref("Connection")), "user": _maybe(_TEXT)},
                                ("connections", "user"),
                            )
                        ),
                    )
                },
                parameters=(_SESSION, _SECRET),
                problems=_OF_SESSION,
            ),
            "post": _operation(
                "Bring the answer of an authorization server back",
                {200: ("The connection that was made", _json(_ref("Connection")))},
                parameters=(_SESSION, _SECRET),
                problems=(*_BODY, *_OF_SESSION, 409, 503),
                body=_object(
                    {
                        **{name: {"type": "string", "maxLength": 4096} for name in ("state", "code", "error", "iss")},
                        "browser": {"type": "string", "minLength": 20, "maxLength": 200, "pattern": r"\S"},
                    },
                    ("browser",),
                    closed=True,
                ),
            ),
        },
        "/api/sessions/{session}/connections/{connection}": {
            "post": _operation(
                "Begin to connect a service: where the browser has to go",
                {201: ("The address", _json(_object({"url": _TEXT}, ("url",))))},
                parameters=(_SESSION, _path("connection"), _SECRET),
                problems=(*_BODY, *_OF_SESSION, 409, 503),
                body=_object(
                    {"browser": {"type": "string", "minLength": 20, "maxLength": 200, "pattern": r"\S"}},
                    ("browser",),
                    closed=True,
                ),
            ),
            "delete": _operation(
                "Disconnect a service, and have it revoke what it gave",
                {
                    200: (
                        "Whether there was a connection; `unrevoked` says why the service was not told",
                        _json(_object({"disconnected": _YES, "unrevoked": _TEXT}, ("disconnected", "unrevoked"))),
                    )
                },
                parameters=(_SESSION, _path("connection"), _SECRET),
                problems=(*_OF_SESSION, 409),
            ),
        },
    }  # fmt: skip


def _session_paths() -> dict[str, Any]:
    opened = _object(
        {"sessionId": _TEXT, "token": _TEXT, "mode": _TEXT, "user": _maybe(_TEXT), "registryVersion": _TEXT,
         "tools": _list(_TEXT)},
        ("sessionId", "token", "mode", "registryVersion", "tools"),
    )  # fmt: skip
    body = _object(
        {"mode": {"enum": ["text", "voice"]}, "user": {"type": "string", "maxLength": 256},
         "timeZone": {"type": "string", "maxLength": 64}},
        closed=True,
    )  # fmt: skip
    said = _object(
        {"id": _ID, "text": {"type": "string", "minLength": 1, "maxLength": 32_000}}, ("id", "text"), closed=True
    )
    taken = _object({"turn": _WHOLE, "messageId": _TEXT, "lastEventId": _WHOLE}, ("turn", "messageId"))
    listed = _object(
        {"sessionId": _TEXT, "token": _TEXT, "title": _TEXT, "createdAt": _WHOLE, "updatedAt": _WHOLE, "answering": _YES,
         "waiting": _WHOLE},
        ("sessionId", "token", "title", "createdAt", "updatedAt", "answering", "waiting"),
    )  # fmt: skip
    return {
        "/api/sessions": {
            "get": _operation(
                "The conversations that were opened with this key, the newest first",
                {
                    200: (
                        "The conversations, each with its secret",
                        _json(_object({"sessions": _list(listed)}, ("sessions",))),
                    )
                },
                problems=(503,),
            ),
            "post": _operation(
                "Open a session",
                {201: ("The session and its secret", _json(opened))},
                problems=(*_BODY, 503),
                body=body,
            ),
        },
        "/api/sessions/{session}": {
            "get": _operation(
                "The session as a page shows it, with the requests that wait for its user",
                {200: ("The session", _json(_ref("Session")))},
                parameters=(
                    _SESSION,
                    _SECRET,
                    _query("tokens", {"enum": ["true"]}, "Give each request a fresh token."),
                ),
                problems=_OF_SESSION,
            ),
            "delete": _operation(
                "End the session and delete what was said in it",
                {200: ("It has ended", _json(_object({"sessionId": _TEXT, "active": _YES})))},
                parameters=(_SESSION, _SECRET),
                problems=(*_OF_SESSION, 409),
            ),
        },
        "/api/sessions/{session}/messages": {
            "post": _operation(
                "Say something; the same id again keeps its turn",
                {200: ("The turn as a stream", _STREAM), 202: ("The turn has begun", _json(taken))},
                parameters=(_SESSION, _SECRET),
                problems=(*_BODY, *_OF_SESSION, 409),
                body=said,
            )
        },
        "/api/sessions/{session}/events": {
            "get": _operation(
                "Everything that happens in the session, from an event on",
                {200: ("The events", _STREAM)},
                parameters=(_SESSION, _SECRET, *_AFTER),
                problems=(400, *_OF_SESSION),
            )
        },
        "/api/sessions/{session}/voice": {
            "post": _operation(
                "A ticket for a WebSocket at this path, which /asyncapi.json describes",
                {201: ("The ticket: for one use, within half a minute", _json(_TICKET))},
                parameters=(_SESSION, _SECRET),
                problems=(*_BODY, *_OF_SESSION, 409),
                body=_object({}, closed=True),
            )
        },
        "/api/sessions/{session}/cancel": {
            "post": _operation(
                "Stop the turn that runs",
                {200: ("Whether one ran", _json(_object({"cancelled": _YES}, ("cancelled",))))},
                parameters=(_SESSION, _SECRET),
                problems=(*_OF_SESSION, 409),
            )
        },
        "/api/sessions/{session}/tools": {
            "post": _operation(
                "Continue with the tools as they are now",
                {200: ("Their version", _json(_object({"version": _TEXT}, ("version",))))},
                parameters=(_SESSION, _SECRET),
                problems=(*_OF_SESSION, 409),
            )
        },
    }


def _confirmation_paths() -> dict[str, Any]:
    body = _object({"token": {"type": "string", "minLength": 1, "maxLength": 256}}, ("token",), closed=True)
    shown = {
        "get": _operation(
            "An open request with the facts of this moment",
            {200: ("The request, with a fresh token", _json(_ref("Confirmation")))},
            parameters=(_path("confirmation"), _SECRET),
            problems=_OF_SESSION,
        )
    }
    runs = {
        "get": _operation(
            "Whether an approved call runs, and what it has told of itself",
            {200: ("How it goes", _json(_object({"running": _YES, "told": _list(_TEXT)}, ("running", "told"))))},
            parameters=(_path("confirmation"), _SECRET),
            problems=_OF_SESSION,
        )
    }
    paths = {"/api/confirmations/{confirmation}": shown, "/api/confirmations/{confirmation}/progress": runs}
    return paths | {
        f"/api/confirmations/{{confirmation}}/{word}": {
            "post": _operation(
                f"{word.capitalize()} a held call",
                {200: ("What it ended in", _json(_ref("Envelope")))},
                parameters=(_path("confirmation"), _SECRET),
                problems=(*_BODY, *_OF_SESSION),
                body=body,
            )
        }
        for word in ("approve", "decline")
    }


def _tool_paths() -> dict[str, Any]:
    listed = _object({"registryVersion": _TEXT, "tools": _list(_ref("Tool"))}, ("registryVersion", "tools"))
    one = {
        "allOf": [
            _ref("Tool"),
            _object({"definition": {"type": "object"}, "guide": _TEXT, "parameters": {"type": "object"}}),
        ]
    }
    tried = _object({"args": _ANY, "sessionId": _ID}, ("sessionId",), closed=True)
    switched = _object({"off": _maybe({"type": "string", "minLength": 1, "maxLength": 200})}, ("off",), closed=True)
    return {
        "/api/tools": {
            "get": _operation(
                "The tools that the key's user may use",
                {200: ("The tools", _json(listed))},
                parameters=_VIEW,
                problems=(400, *_OF_SESSION),
            )
        },
        "/api/tools/{tool}": {
            "get": _operation(
                "One tool with its guide",
                {200: ("The tool", _json(one))},
                parameters=(_path("tool"), *_VIEW),
                problems=(400, *_OF_SESSION),
            )
        },
        "/api/tools/{tool}/try": {
            "post": _operation(
                "Call a tool through the pipeline",
                {200: ("What it ended in", _json(_ref("Envelope")))},
                parameters=(_path("tool"), _SECRET),
                problems=(*_BODY, *_OF_SESSION, 409),
                body=tried,
            )
        },
        "/api/tools/{tool}/switch": {
            "post": _operation(
                "Switch a tool off with a reason, or on with null",
                {200: ("How it is now", _json(_object({"id": _TEXT, "switchedOff": _maybe(_TEXT)})))},
                parameters=(_path("tool"),),
                problems=(*_BODY, 404, 503),
                body=switched,
            )
        },
    }


def _operator_paths() -> dict[str, Any]:
    about_call = _json(_object({"found": _YES, "sentence": _TEXT}, ("found", "sentence")))
    settled = _object({"state": {"enum": ["succeeded", "failed"]}, "note": {"type": "string", "maxLength": 1000}}, ("state",),
                      closed=True)  # fmt: skip
    states = {"enum": ["running", "succeeded", "failed", "cancelled", "unknown"]}
    few = {"type": "integer", "minimum": 1, "maximum": 500}
    lines = (
        _query("session", _TEXT, "Only of this session."),
        _query("call", _TEXT, "Only of this call, by id or key."),
        _query("tool", _TEXT, "Only of this tool."),
        _query("limit", _NUMBER, "At most this many."),
    )
    listed = _object({"events": _list({"type": "object"})}, ("events",))
    rows = _object({"rows": _list(_ref("LedgerRow"))}, ("rows",))
    forgotten = _object(
        {"user": _TEXT, "tenant": _TEXT, "deleted": {"type": "object"}, "elsewhere": {"type": "object"}},
        ("user", "deleted"),
    )
    ways = {"enum": ["tool", "day", "tenant", "version"]}
    statistics = _object({"since": _TEXT, "by": ways, "rows": _list({"type": "object"})}, ("since", "by", "rows"))
    text_or_json = {"text/plain": {"schema": _TEXT}, "application/json": {"schema": {"type": "object"}}}
    return {
        "/api/audit": {
            "get": _operation("The newest lines of the audit log", {200: ("Lines", _json(listed))}, parameters=lines,
                              problems=(400,))
        },
        "/api/audit/stream": {"get": _operation("Lines as they are written", {200: ("Lines", _STREAM)}, problems=(503,))},
        "/api/audit/why/{call}": {
            "get": _operation(
                "What became of a call, in one sentence",
                {200: ("The sentence", about_call), 404: ("There is no such call", about_call)},
                parameters=(_path("call"),),
            )
        },
        "/api/ledger": {
            "get": _operation(
                "Writing calls, newest first",
                {200: ("Calls", _json(rows))},
                parameters=(_query("state", states, "Only those."), _query("limit", few, "At most this many.")),
                problems=(400, 503),
            )
        },
        "/api/ledger/{key}/settle": {
            "post": _operation(
                "Settle an unknown outcome",
                {200: ("The call as it is now", _json(_ref("LedgerRow")))},
                parameters=(_path("key"),),
                problems=(*_BODY, 404, 409, 503),
                body=settled,
            )
        },
        "/api/model": {
            "get": _operation("Which model answers, and why", {200: ("The model", _json(_ref("Model")))}),
            "post": _operation(
                "Let another model answer from the next turn on",
                {200: ("The model that answers now", _json(_ref("Model")))},
                problems=(*_BODY, 409),
                body=_object({"model": {"type": "string", "minLength": 1, "maxLength": 200}}, ("model",), closed=True),
            ),
        },
        "/api/policy": {"get": _operation("The policy in force", {200: ("Policy", _json({"type": "object"}))})},
        "/api/mcp/servers": {
            "get": _operation(
                "The MCP servers whose tools are used: state, pins, changes",
                {200: ("Servers", _json(_object({"servers": {"type": "array", "items": {"type": "object"}}}, ("servers",))))},
            )
        },
        "/api/users/{user}": {
            "delete": _operation(
                "Delete what is kept of a user",
                {200: ("How much it was", _json(forgotten))},
                parameters=(_path("user"), _query("tenant", _TEXT, "Of this tenant.")),
                problems=(400, 404, 503),  # 404: no user's name has a line break
            )
        },
        "/api/stats": {
            "get": _operation(
                "How tools were used, over all processes",
                {200: ("Statistics", _json(statistics))},
                parameters=(
                    _query("by", ways, "One row for each."),
                    _query("since", {"type": "string", "pattern": r"^([0-9]{1,5}d|[0-9]{4}-[0-9]{2}-[0-9]{2})$"},
                           "A day, or an age such as 30d."),
                    _query("tool", _TEXT, "Only this tool."),
                ),
                problems=(400, 503),
            )
        },
        "/metrics": {"get": _operation("Metrics, for Prometheus or as JSON", {200: ("Metrics", text_or_json)})},
    }  # fmt: skip


def _openai_paths() -> dict[str, Any]:
    message = _object({"role": _TEXT, "content": _ANY}, ("role",))
    body = _object(
        {"model": _TEXT, "messages": {"type": "array", "items": message, "minItems": 1}, "stream": _YES},
        ("messages",),
    )
    headers = tuple(
        {"name": name, "in": "header", "required": False, "schema": _TEXT}
        for name in ("X-Handrail-Session", "X-Session-Token")
    )
    return {
        "/v1/chat/completions": {
            "post": _operation(
                "One turn, in OpenAI's format",
                {200: ("The answer", {**_json({"type": "object"}), **_STREAM})},
                problems=(*_BODY, *_OF_SESSION, 409, 502),
                parameters=headers,
                body=body,
            )
        },
        "/v1/models": {"get": _operation("The models", {200: ("Models", _json({"type": "object"}))})},
    }


def _file_paths() -> dict[str, Any]:
    html = {"text/html": {"schema": _TEXT}}
    sign = _json(_object({"ok": _YES}, ("ok",)))
    event = _object(
        {"eventId": _TEXT, "start": _TEXT, "end": _TEXT, "calendar": _TEXT, "title": _maybe(_TEXT),
         "attendeeCount": _maybe(_WHOLE), "attendees": _maybe(_list(_TEXT)), "meetingLink": _maybe(_TEXT)},
        ("eventId", "start", "end", "calendar", "title", "attendeeCount", "attendees", "meetingLink"),
    )  # fmt: skip
    return {
        "/": {"get": _operation("The console", {200: ("A page", html), 304: ("As before", {})}, open_to_all=True)},
        "/console/connected": {
            "get": _operation(
                "The console, where an authorization server sends a browser back to",
                {200: ("A page", html), 304: ("As before", {})},
                open_to_all=True,
            )
        },
        "/console/{name}": {
            "get": _operation(
                "A file of the console",
                {200: ("The file", {"*/*": {}}), 304: ("As before", {})},
                parameters=(_path("name"),),
                problems=(404,),
                open_to_all=True,
            )
        },
        "/favicon.ico": {
            "get": _operation(
                "Its icon", {200: ("The icon", {"*/*": {}}), 204: ("There is none", {})}, open_to_all=True
            )
        },
        "/healthz": {"get": _operation("Does the process live", {200: ("Yes", sign)}, open_to_all=True)},
        "/readyz": {
            "get": _operation("May it be given work", {200: ("Yes", sign), 503: ("No", sign)}, open_to_all=True)
        },
        "/openapi.json": {
            "get": _operation("This document", {200: ("OpenAPI", _json({"type": "object"}))}, open_to_all=True)
        },
        "/asyncapi.json": {
            "get": _operation("The voice protocol", {200: ("AsyncAPI", _json({"type": "object"}))}, open_to_all=True)
        },
        "/calendar/events/{event}": {
            "get": _operation(
                "An event of the embedded calendar",
                {200: ("The event", _json(event))},
                parameters=(_path("event"),),
                problems=(404, 503),
            )
        },
        "/images/{image}.png": {
            "get": _operation(
                "A drawn image", {200: ("The image", {"image/png": {}})}, parameters=(_path("image"),), problems=(404,)
            )
        },
    }


def document() -> dict[str, Any]:
    """The whole document, OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Handrail",
            "version": "1",
            "description": "Sessions with a governed agent: messages, events, confirmations, the catalogue, and the "
            "operator's view. docs/text-protocol.md says the same in words.",
        },
        "security": [{"key": []}],
        "paths": {
            **_file_paths(),
            **_session_paths(),
            **_connection_paths(),
            **_confirmation_paths(),
            **_tool_paths(),
            **_operator_paths(),
            **_openai_paths(),
        },
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }
