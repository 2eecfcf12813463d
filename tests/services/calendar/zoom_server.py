"""A server that speaks as much of Zoom's protocol as meetings need: server-to-server OAuth, and scheduled meetings."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

ACCOUNT = {"account_id": "acc", "client_id": "client", "client_secret": "zoom-secret"}
_BASIC = "Basic " + base64.b64encode(b"client:zoom-secret").decode()
_FIELDS = {"topic": str, "type": int, "agenda": str, "start_time": str, "duration": int, "timezone": str}


class ZoomServer:
    """Meetings in memory, by number."""

    def __init__(self) -> None:
        self.meetings: dict[int, dict[str, Any]] = {}
        self.tokens = {"zoom-token-1"}
        self.violations: list[str] = []
        self.port = 0
        self.page = 2  # small pages, so that they are turned
        self._numbers = count(85_000_000_001)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, Any]:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if (method, parts.path) == ("POST", "/oauth/token"):
            if headers.get("Authorization") != _BASIC or query != {
                "grant_type": "account_credentials",
                "account_id": "acc",
            }:
                return 400, {"reason": "Invalid client_id or client_secret", "error": "invalid_client"}
            return 200, {
                "access_token": "zoom-token-1", "token_type": "bearer", "expires_in": 3599,
                "scope": "meeting:write:meeting meeting:read:list_meetings", "api_url": "https://api.zoom.us",
            }  # fmt: skip
        if headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return 401, {"code": 124, "message": "Invalid access token."}
        given = json.loads(body) if body else {}
        strange = [name for name, value in given.items() if type(value) is not _FIELDS.get(name)]
        if strange:
            self.violations.append(f"{method} {parts.path}: {strange}")
            return 300, {"code": 300, "message": "Validation Failed."}
        with self._lock:
            return self._meetings(method, parts.path, query, given)

    def _meetings(self, method: str, path: str, query: dict[str, str], given: Any) -> tuple[int, Any]:
        if (method, path) == ("POST", "/v2/users/me/meetings"):
            number = next(self._numbers)
            self.meetings[number] = {"id": number, "uuid": f"u{number}", **given}
            links = {
                "join_url": f"https://zoom.us/j/{number}?pwd=x",
                "start_url": f"https://zoom.us/s/{number}?zak=HOST-SECRET",
            }
            return 201, {**self.meetings[number], **links}
        if (method, path) == ("GET", "/v2/users/me/meetings"):
            listed = [{**one, "join_url": f"https://zoom.us/j/{one['id']}?pwd=x"} for one in self.meetings.values()]
            first = int(query.get("next_page_token", "0"))
            more = str(first + self.page) if len(listed) > first + self.page else ""
            return 200, {"page_size": self.page, "next_page_token": more, "meetings": listed[first : first + self.page]}
        found = re.fullmatch(r"/v2/meetings/(\d+)", path)
        if found is None:
            self.violations.append(f"{method} {path}")
            return 404, {"code": 404, "message": "No such path."}
        number = int(found[1])
        if number not in self.meetings:
            return 404, {"code": 3001, "message": f"Meeting does not exist: {number}."}
        if method == "GET":
            return 200, {**self.meetings[number], "join_url": f"https://zoom.us/j/{number}?pwd=x"}
        if method == "PATCH":
            self.meetings[number] |= given
        elif method == "DELETE":
            del self.meetings[number]
        return 204, None


@contextmanager
def zoom_server() -> Iterator[ZoomServer]:
    """Started on a free port, stopped at the end."""
    zoom = ZoomServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = zoom.answer(self.command, self.path, self.headers, body)
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Type", "application/json;charset=UTF-8")
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._serve
            raise AttributeError(name)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    zoom.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield zoom
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
