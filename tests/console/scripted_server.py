"""A server that plays the console's API from a script: for what a real server cannot be brought to say or do on demand, such as
markup in every field, a stream that breaks off, an outcome that is not known, or a key without the operator's role.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

CONSOLE = Path(__file__).resolve().parents[2] / "src" / "handrail" / "console"
KEY = "scripted-key"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000003000000020800000000b81f39c6000000104944415478da636c6060606260"
    "60000003980084ee691c5f0000000049454e44ae426082"
)
"""Three points wide, two high."""
Event = tuple[str, dict[str, Any]]


class Script:
    """What the server plays, and what it was asked."""

    def __init__(self) -> None:
        self.is_operator = True
        self.tools: list[dict[str, Any]] = []
        self.details: dict[str, dict[str, Any]] = {}
        self.tries: dict[str, Callable[[Any], dict[str, Any]]] = {}
        self.audit: list[dict[str, Any]] = []
        self.why = 'It was refused by the gate "budget".'
        self.unknown: list[dict[str, Any]] = []
        self.metrics: dict[str, Any] = {"tools": {}, "sessions": {}}
        self.stats_since: list[str] = []
        self.stats: dict[str, list[dict[str, Any]]] = {"tool": [], "day": []}
        self.answers: dict[str, list[Event]] = {}
        self.pause = 0.0
        self.sessions: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.planned: dict[str, dict[str, Any]] = {}
        self.model: dict[str, Any] | None = None
        """Which model answers; None as from a server that does not say."""
        self.models_chosen: list[str] = []
        self.model_problem = ""
        self.facts: dict[str, Any] = {}
        """More that is told about the session."""
        self.confirmations: dict[str, dict[str, Any]] = {}
        self.tokens: list[str] = []
        """Those that the approvals were given with."""
        self.looks: list[str] = []
        """Requests that were asked for again."""
        self.approvals_may_go_on = threading.Event()
        self.approvals_may_go_on.set()
        self.requests: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.approvals: list[str] = []
        self.carried_out = 0
        self.switched: list[tuple[str, str | None]] = []
        self.settled: list[tuple[str, Any]] = []
        self.last_event_ids: list[str | None] = []
        self.streams_refused = 0
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.changed = threading.Condition()
        self.generation = 0
        self.turn = 0

    def emit(self, type: str, data: Mapping[str, Any]) -> None:
        """One event to whoever listens."""
        with self.changed:
            self.events.append((len(self.events) + 1, type, {"turn": self.turn, **data}))
            self.changed.notify_all()

    def break_streams(self, refuse: int = 0) -> None:
        """End every open stream; the next `refuse` attempts to listen are answered with 503."""
        with self.changed:
            self.generation += 1
            self.streams_refused = refuse
            self.changed.notify_all()

    def hold(self, id: str, tool: str, args: dict[str, Any], preview: str, seconds: float = 300) -> dict[str, Any]:
        """A request that the event `confirmation` of its id will bring."""
        expires = round((time.time() + seconds) * 1000)
        held = {"id": id, "tool": tool, "args": args, "preview": preview, "expires_at": expires, "token": "t-1"}
        self.planned[id] = held
        return held

    def play(self, message: Mapping[str, Any]) -> None:
        self.said.append(str(message["text"]))
        self.emit("turn", {"messageId": message["id"], "turn": self.turn})
        for kind, data in self.answers.get(
            str(message["text"]), [("text", {"text": "Yes."}), ("done", {"text": "Yes."})]
        ):
            time.sleep(self.pause)
            if kind == "confirmation":
                data = self.confirmations[data["id"]] = self.planned[data["id"]]
            self.emit(kind, data)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.route("GET")

    def do_POST(self) -> None:
        self.route("POST")

    def do_DELETE(self) -> None:
        self.route("DELETE")

    def route(self, method: str) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        size = int(self.headers.get("Content-Length") or 0)
        self.body = json.loads(self.rfile.read(size) or b"{}") if size else {}
        self.query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.script.requests.append((method, self.path))
        if path == "/" or path.startswith("/console/"):
            self.file("index.html" if path == "/" else path.removeprefix("/console/"))
        elif self.headers.get("Authorization") != f"Bearer {KEY}":
            self.answer({"error": {"type": "UNAUTHENTICATED", "message": "A key is needed."}}, 401)
        else:
            self.api(method, [unquote(step) for step in parts.path.strip("/").split("/")])

    def file(self, name: str) -> None:
        path = CONSOLE / name
        if path.parent != CONSOLE or not path.is_file():
            self.answer({"error": {"message": "No such file."}}, 404)
            return
        content = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES[path.suffix])
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def api(self, method: str, steps: list[str]) -> None:
        script = self.script
        match [method, *steps]:
            case ["GET", "api", "sessions"]:
                self.answer({"sessions": script.sessions})
            case ["POST", "api", "sessions"]:
                self.answer({"sessionId": "s-1", "token": "secret", "mode": "text"}, 201)
            case ["GET", "api", "sessions", _]:
                facts = {
                    "turn": script.turn,
                    "budget": {"retrieval": {"used": 0, "limit": 5}, "total": {"used": 0, "limit": None}},
                }
                held = list(script.confirmations.values())
                last = len(script.events)
                self.answer(
                    {
                        "sessionId": "s-1",
                        "messages": script.messages,
                        "confirmations": held,
                        "lastEventId": last,
                        **facts,
                        **script.facts,
                    }
                )
            case ["DELETE", "api", "sessions", _]:
                self.answer({"active": False})
            case ["POST", "api", "sessions", _, "messages"]:
                script.turn += 1
                threading.Thread(target=script.play, args=(self.body,), daemon=True).start()
                self.answer({"turn": script.turn, "messageId": self.body["id"]}, 202)
            case ["POST", "api", "sessions", _, "cancel"]:
                self.answer({"cancelled": True})
            case ["GET", "api", "sessions", _, "events"]:
                self.stream()
            case ["GET", "images", _]:
                self.give(PICTURE, "image/png")
            case ["POST", "api", "confirmations", id, verdict]:
                self.decide(id, verdict)
            case ["GET", "api", "confirmations", id]:
                script.looks.append(id)
                gone = {"error": {"message": "It was answered."}}
                self.answer(*((script.confirmations[id], 200) if id in script.confirmations else (gone, 410)))
            case ["GET", "api", "model"] if script.model is not None:
                hidden = () if script.is_operator else ("offers",)
                self.answer({name: value for name, value in script.model.items() if name not in hidden})
            case ["GET", "api", "tools"]:
                self.answer({"tools": script.tools})
            case ["GET", "api", "tools", id]:
                self.answer(script.details[id])
            case ["POST", "api", "tools", id, "try"]:
                self.answer(script.tries[id](self.body["args"]))
            case _ if not script.is_operator:
                self.answer({"error": {"type": "FORBIDDEN", "message": "Only operators may do that."}}, 403)
            case _:
                self.operate(method, steps)

    def operate(self, method: str, steps: list[str]) -> None:
        script = self.script
        match [method, *steps]:
            case ["POST", "api", "tools", id, "switch"]:
                script.switched.append((id, self.body["off"]))
                script.tools = [
                    {**tool, "switchedOff": self.body["off"]} if tool["id"] == id else tool for tool in script.tools
                ]
                self.answer({"id": id, "switchedOff": self.body["off"]})
            case ["POST", "api", "model"]:
                script.models_chosen.append(self.body["model"])
                if script.model_problem:
                    self.answer({"error": {"type": "CONFLICT", "message": script.model_problem}}, 409)
                    return
                name, reason = self.body["model"], "an operator chose it in the console"
                way_back = {"model": "demo", "reason": "the server was started with it", "vendor": ""}
                facts = {"model": name, "demo": False, "reason": reason, "sentence": f"Answered by {name}: {reason}."}
                script.model = {**facts, "offers": [way_back]}
                self.answer(script.model)
            case ["GET", "api", "audit"]:
                wanted = self.query.get("session")
                self.answer({"events": [one for one in script.audit if wanted in (None, one.get("sessionId"))]})
            case ["GET", "api", "audit", "why", _]:
                self.answer({"found": True, "sentence": script.why})
            case ["GET", "api", "ledger"]:
                self.answer({"rows": script.unknown})
            case ["POST", "api", "ledger", key, "settle"]:
                script.settled.append((key, self.body))
                script.unknown = [row for row in script.unknown if row["key"] != key]
                self.answer({"key": key})
            case ["GET", "metrics"]:
                self.answer(script.metrics)
            case ["GET", "api", "stats"]:
                by = self.query["by"]
                script.stats_since.append(self.query["since"])
                self.answer({"since": "2026-11-11", "by": by, "rows": script.stats[by]})
            case ["GET", "api", "policy"]:
                self.answer({"observe": []})
            case _:
                self.answer({"error": {"message": "There is no such thing here."}}, 404)

    def decide(self, id: str, verdict: str) -> None:
        script = self.script
        script.approvals.append(f"{verdict} {id}")
        script.tokens.append(self.body["token"])
        script.approvals_may_go_on.wait(20)
        with script.changed:
            if script.confirmations.pop(id, None) is not None and verdict == "approve":
                script.carried_out += 1
        if verdict == "approve":
            self.answer({"ok": True, "data": {"event_id": "evt-1"}, "intents": [], "meta": {"duration": 12}})
        else:
            error = {
                "type": "DECLINED",
                "message": "A person declined it.",
                "retryable": False,
                "partialSideEffects": False,
            }
            self.answer({"ok": False, "error": error, "intents": [], "meta": {}})

    def stream(self) -> None:
        script = self.script
        last = self.headers.get("Last-Event-ID")
        script.last_event_ids.append(last)
        if script.streams_refused:
            script.streams_refused -= 1
            self.answer({"error": {"message": "Not now."}}, 503)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for number, kind, data in self.following(int(last or 0)):
                self.wfile.write(f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode())
        except OSError:
            return  # the page is gone

    def following(self, seen: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
        script, generation = self.script, self.script.generation
        self.wfile.write(b": hello\n\n")
        while True:
            with script.changed:
                if script.generation == generation and len(script.events) == seen:
                    script.changed.wait(timeout=1)
                news = script.events[seen:] if script.generation == generation else None
            if news is None:
                return
            self.wfile.write(b": alive\n\n")
            yield from news
            seen += len(news)

    def answer(self, value: Any, status: int = 200) -> None:
        self.give(json.dumps(value).encode(), "application/json", status)

    def give(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content)
        except OSError:
            return  # the page was reloaded meanwhile


class ScriptedServer:
    """The server on a port of its own; `address` is where the console is."""

    def __init__(self, kind: type[Handler] = Handler, **parts: object) -> None:
        self.script = Script()
        handler = type("BoundHandler", (kind,), {"script": self.script, **parts})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.address = f"{self.origin}/#key={KEY}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.script.break_streams()
        self._server.shutdown()
        self._server.server_close()
