"""A server that speaks Google Calendar's protocol and its errors, and checks every request against the discovery document.

The document is the one that comes with Google's client: paths, parameters, scopes and bodies that it does not know are refused
and remembered in `violations`.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

DOCUMENT = json.loads(
    files("googleapiclient").joinpath("discovery_cache/documents/calendar.v3.json").read_text(encoding="utf-8")
)
TOKEN = "ya29.a-token-of-the-tests"
_REALM = 'Bearer realm="https://accounts.google.com/", error="invalid_token"'
SCOPE = "https://www.googleapis.com/auth/calendar"
# Of bodies the document says in words what Google alone writes, and which values there are.
_READ_ONLY = re.compile(r"\bread-only\b", re.IGNORECASE)
_VALUES = re.compile(r'- "([^"]+)"')


class GoogleRefusal(Exception):
    """An error in Google's shape."""

    def __init__(self, status: int, reason: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        one = {"domain": "global", "reason": reason, "message": message}
        self.body = {"error": {"errors": [one], "code": status, "message": message}}


class GoogleServer:
    """Calendars in memory. `mails` are the updates that Google would have sent."""

    def __init__(self) -> None:
        self.calendars: dict[str, dict[str, dict[str, Any]]] = {"ana@example.com": {}, "team@group.example.com": {}}
        self.tokens = {TOKEN: {SCOPE}}
        self.violations: list[str] = []
        self.mails: list[tuple[str, str, tuple[str, ...]]] = []
        self.meet_is_pending = 0
        self.lock = threading.Lock()
        self.version = 0
        self.port = 0

    @property
    def primary(self) -> str:
        """The calendar that is called `primary`."""
        return "ana@example.com"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], Any]:
        parts = urlsplit(target)
        if (method, parts.path) == ("POST", "/token"):
            return self._token(body)
        name, described, values = self._method(method, parts.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._check_query(described, query)
        self._check_token(described, headers)
        given = json.loads(body) if body else {}
        if "request" in described:
            self._check_body(described, given)
        with self.lock:
            status, answer = getattr(self, f"_{name.replace('.', '_')}")(values, query, headers, given)
        return status, {}, answer

    def _method(self, method: str, path: str) -> tuple[str, Any, dict[str, str]]:
        prefix = "/" + DOCUMENT["servicePath"]
        if not path.startswith(prefix):
            raise self._violation(404, "notFound", f"{path} is outside of {prefix}")
        for resource, content in DOCUMENT["resources"].items():
            for name, described in content.get("methods", {}).items():
                pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(described["path"]))
                found = re.fullmatch(pattern, path.removeprefix(prefix))
                if found and described["httpMethod"] == method:
                    return (
                        f"{resource}.{name}",
                        described,
                        {key: unquote(one) for key, one in found.groupdict().items()},
                    )
        raise self._violation(404, "notFound", f"no method has {method} {path}")

    def _violation(self, status: int, reason: str, message: str) -> GoogleRefusal:
        self.violations.append(message)
        return GoogleRefusal(status, reason, message)

    def _check_query(self, described: Any, query: dict[str, str]) -> None:
        known = {**DOCUMENT["parameters"], **described.get("parameters", {})}
        for name, value in query.items():
            schema = known.get(name)
            kinds = {"boolean": r"true|false", "integer": r"-?\d+"}
            if (
                schema is None
                or schema.get("location") != "query"
                or ("enum" in schema and value not in schema["enum"])
                or not re.fullmatch(kinds.get(schema["type"], ".*"), value)
                or (schema.get("format") == "date-time" and not _is_moment(value))
            ):
                raise self._violation(400, "badRequest", f"the parameter {name}={value} is not in the document")
        for name, schema in described.get("parameters", {}).items():
            if schema.get("required") and schema["location"] == "query" and name not in query:
                raise self._violation(400, "required", f"the parameter {name} is missing")

    def _check_body(self, described: Any, value: Any) -> None:
        schema = DOCUMENT["schemas"][described["request"]["$ref"]]
        for name, inner in schema["properties"].items():
            if described["id"] in inner.get("annotations", {}).get("required", ()) and name not in value:
                raise self._violation(400, "required", f"/{name} is missing")
        self._check_value(schema, value, "")

    def _check_value(self, schema: Any, value: Any, place: str) -> None:
        if _READ_ONLY.search(schema.get("description", "")):
            raise self._violation(400, "invalid", f"{place} is read-only")
        if "$ref" in schema:
            schema = DOCUMENT["schemas"][schema["$ref"]]
        known = _values_of(schema)
        if known and value not in known:
            raise self._violation(400, "invalid", f"{place} is {value}, which is none of {', '.join(known)}")
        kinds = {"string": str, "boolean": bool, "integer": int, "array": list, "object": dict, "number": (int, float)}
        if not isinstance(value, kinds.get(schema.get("type"), object)):
            raise self._violation(400, "invalid", f"{place} is no {schema['type']}")
        if isinstance(value, dict):
            for key, one in value.items():
                inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
                if inner is None:
                    raise self._violation(400, "invalid", f"{place}/{key} is not in the document")
                self._check_value(inner, one, f"{place}/{key}")
        elif isinstance(value, list):
            for number, one in enumerate(value):
                self._check_value(schema["items"], one, f"{place}/{number}")
        elif schema.get("format") == "date-time" and not _is_moment(value):
            raise self._violation(400, "invalid", f"{place} is no date-time")
        elif schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
            raise self._violation(400, "invalid", f"{place} is no int32")

    def _check_token(self, described: Any, headers: Any) -> None:
        kind, _, token = (headers.get("Authorization") or "").partition(" ")
        if kind != "Bearer" or token not in self.tokens:
            raise GoogleRefusal(401, "authError", "Invalid Credentials", **{"WWW-Authenticate": _REALM})
        if not self.tokens[token] & set(described["scopes"]):
            raise GoogleRefusal(403, "insufficientPermissions", "Request had insufficient authentication scopes.")

    def _token(self, body: bytes) -> tuple[int, dict[str, str], Any]:
        given = dict(parse_qsl(body.decode()))
        if given.get("refresh_token") != "1//a-refresh-token":
            return 400, {}, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
        return 200, {}, {"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer", "scope": SCOPE}

    def _calendar(self, values: dict[str, str]) -> dict[str, dict[str, Any]]:
        name = self.primary if values["calendarId"] == "primary" else values["calendarId"]
        if name not in self.calendars:
            raise GoogleRefusal(404, "notFound", "Not Found")
        return self.calendars[name]

    def _event(self, values: dict[str, str], headers: Any) -> dict[str, Any]:
        event = self._calendar(values).get(values["eventId"])
        if event is None:
            raise GoogleRefusal(404, "notFound", "Not Found")
        if headers.get("If-Match") not in (None, event["etag"]):
            raise GoogleRefusal(412, "conditionNotMet", "Precondition Failed")
        return event

    def _stamped(self, event: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        return {**event, "etag": f'"{3_400_000_000 + self.version}"', "updated": "2026-01-12T09:00:00.000Z"}

    def _notify(self, query: dict[str, str], kind: str, event: dict[str, Any]) -> None:
        if query.get("sendUpdates") == "all":
            self.mails.append((kind, event["id"], tuple(one["email"] for one in event.get("attendees", ()))))

    def _events_insert(self, values: Any, query: Any, headers: Any, given: Any) -> tuple[int, Any]:
        calendar = self._calendar(values)
        if not re.fullmatch(r"[a-v0-9]{5,1024}", given["id"]):
            raise self._violation(400, "invalid", "Invalid resource id value.")
        if given["id"] in calendar:
            raise GoogleRefusal(409, "duplicate", "The requested identifier already exists.")
        event = {
            "kind": "calendar#event",
            "status": "confirmed",
            "sequence": 0,
            "iCalUID": f"{given['id']}@google.com",
            "htmlLink": f"https://www.google.com/calendar/event?eid={given['id']}",
            **given,
            "attendees": self._attendees(given),
        }
        request = given.get("conferenceData", {}).get("createRequest")
        if request is not None:
            if query.get("conferenceDataVersion") != "1":
                del event["conferenceData"]  # Google takes no notice of it
            else:
                event["conferenceData"] = {"createRequest": {**request, "status": {"statusCode": "pending"}}}
                self._make_meeting(event)
        calendar[given["id"]] = self._stamped(event)
        self._notify(query, "invitation", event)
        return 200, calendar[given["id"]]

    def _attendees(self, given: Any) -> list[dict[str, Any]]:
        """With what Google adds: an answer, and who of them the calendar's own person is."""
        own = {"self": True, "organizer": True}
        return [
            {"responseStatus": "needsAction", **one, **(own if one["email"] == self.primary else {})}
            for one in given.get("attendees", ())
        ]

    def _make_meeting(self, event: dict[str, Any]) -> None:
        if self.meet_is_pending:
            self.meet_is_pending -= 1
            return
        link = f"https://meet.google.com/{event['id'][:10]}"
        event["hangoutLink"] = link
        event["conferenceData"] = {
            "createRequest": {**event["conferenceData"]["createRequest"], "status": {"statusCode": "success"}},
            "entryPoints": [{"entryPointType": "video", "uri": link}],
            "conferenceSolution": {"key": {"type": "hangoutsMeet"}, "name": "Google Meet"},
        }

    def _events_get(self, values: Any, query: Any, headers: Any, given: Any) -> tuple[int, Any]:
        event = self._event(values, headers)
        if event.get("conferenceData") and not event.get("hangoutLink"):
            self._make_meeting(event)
        return 200, event

    def _events_patch(self, values: Any, query: Any, headers: Any, given: Any) -> tuple[int, Any]:
        event = self._event(values, headers)
        if given.get("sequence", event["sequence"]) < event["sequence"]:
            raise GoogleRefusal(400, "invalid", "Invalid sequence value.")
        # No word of the document says that Google counts the changes itself.
        merged = {**event, **given}
        if "attendees" in given:
            merged["attendees"] = self._attendees(given)
        if "extendedProperties" in given:
            private = event.get("extendedProperties", {}).get("private", {})
            merged["extendedProperties"] = {"private": {**private, **given["extendedProperties"]["private"]}}
        self._calendar(values)[event["id"]] = self._stamped(merged)
        self._notify(query, "update", merged)
        return 200, self._calendar(values)[event["id"]]

    def _events_delete(self, values: Any, query: Any, headers: Any, given: Any) -> tuple[int, Any]:
        event = self._event(values, {})
        if event["status"] == "cancelled":
            raise GoogleRefusal(410, "deleted", "Resource has been deleted")
        event = self._event(values, headers)
        self._notify(query, "cancellation", event)
        self._calendar(values)[event["id"]] = self._stamped({**event, "status": "cancelled"})
        return 204, None

    def _events_list(self, values: Any, query: Any, headers: Any, given: Any) -> tuple[int, Any]:
        first, last = _moment(query["timeMin"]), _moment(query["timeMax"])
        found = [
            one
            for one in self._calendar(values).values()
            if one["status"] != "cancelled" and _start(one) < last and _end(one) > first
        ]
        size = 2  # small pages, so that they are turned
        page = int(query.get("pageToken", "0"))
        more = {"nextPageToken": str(page + size)} if len(found) > page + size else {}
        return 200, {"kind": "calendar#events", "items": found[page : page + size], **more}

    def _freebusy_query(self, values: Any, query: Any, headers: Any, given: Any) -> tuple[int, Any]:
        first, last = _moment(given["timeMin"]), _moment(given["timeMax"])
        told: dict[str, Any] = {}
        for item in given["items"]:
            name = self.primary if item["id"] == "primary" else item["id"]
            if name not in self.calendars:
                told[item["id"]] = {"errors": [{"domain": "global", "reason": "notFound"}], "busy": []}
                continue
            spans = sorted(
                (max(_start(one), first), min(_end(one), last))
                for one in self.calendars[name].values()
                if one["status"] != "cancelled" and _start(one) < last and _end(one) > first
            )
            joined: list[list[datetime]] = []
            for begun, ended in spans:
                if joined and begun <= joined[-1][1]:
                    joined[-1][1] = max(joined[-1][1], ended)
                else:
                    joined.append([begun, ended])
            told[item["id"]] = {"busy": [{"start": _text(begun), "end": _text(ended)} for begun, ended in joined]}
        return 200, {"kind": "calendar#freeBusy", "calendars": told}


def _values_of(schema: Any) -> list[str]:
    """The values that a text may have."""
    if "enum" in schema or schema.get("type") != "string":
        return list(schema.get("enum", ()))
    _, named, listed = schema.get("description", "").lower().partition("possible values are")
    return _VALUES.findall(schema["description"][-len(listed) :]) if named else []


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.upper())


def _is_moment(text: str) -> bool:
    try:
        return _moment(text).tzinfo is not None
    except ValueError:
        return False


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _start(event: Any) -> datetime:
    return _moment(event["start"]["dateTime"])


def _end(event: Any) -> datetime:
    return _moment(event["end"]["dateTime"])


@contextmanager
def google_server(google: Any = None) -> Iterator[Any]:
    """A `GoogleServer`, or the given one, started on a free port, stopped at the end."""
    google = google or GoogleServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, headers, answer = google.answer(self.command, self.path, self.headers, body)
            except GoogleRefusal as error:
                status, headers, answer = error.status, error.headers, error.body
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Type", "application/json; charset=UTF-8")
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
    google.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield google
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
