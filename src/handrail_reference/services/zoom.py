"""Zoom meetings, by a server-to-server OAuth app of the host's account.

Zoom knows no idempotency key. A meeting carries a reference to its event in its agenda, and is looked for by it before another is
made and whenever nobody knows whether it was made.
"""

from __future__ import annotations

import base64
import json
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from handrail import trace_headers
from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.remote import Line, Maybe, RemoteThreads, bounded, is_certain, transient
from handrail_reference.services.meetings import Meeting

if TYPE_CHECKING:
    from handrail_reference.services.calendar.port import Draft, MeetingProvider

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MAX_BYTES = 4 * 1024 * 1024
_MAX_PAGES = 10
_SECONDS_UNTIL_RETRY = 5.0
_EARLY = 60.0
"""Seconds before its end at which a token is renewed."""


class ZoomMeetings:
    """`MeetingPort` at Zoom. Nothing of a token or of the host's own link leaves it."""

    provider: MeetingProvider = "zoom"

    def __init__(
        self,
        *,
        account_id: str,
        client_id: str,
        client_secret: str,
        oauth_url: str = "https://zoom.us",
        api_url: str = "https://api.zoom.us",
        timeout: float = 8.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (account_id and client_id and client_secret):
            raise ConfigError(
                '"meetings" in [services.calendar] is "zoom", which needs "zoom_account_id", "zoom_client_id" and '
                '"zoom_client_secret".'
            )
        for url in (oauth_url, api_url):
            parts = urlsplit(url)
            if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
                raise ConfigError("The address of Zoom in [services.calendar] must begin with https://.")
        self._account = account_id
        self._login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
        self._oauth, self._api = oauth_url.rstrip("/"), api_url.rstrip("/")
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0
        self._threads = RemoteThreads("zoom", timeout * 2)
        self._opener = urllib.request.build_opener(_StayAtZoom, _Noting)

    async def close(self) -> None:
        await self._threads.close()

    async def check(self) -> str:
        """The sign-in, and the scope that is needed before any other: to look for a meeting."""
        await self.find("handrail doctor")
        return "meetings by Zoom"

    async def make(self, draft: Draft) -> Meeting:
        there = await self.find(draft.uid)
        if there is not None:
            return there._replace(is_new=False)
        body = {
            "topic": draft.title,
            "type": 2,
            "agenda": f"Reference: {_reference(draft.uid)}",
            **_when(draft.start, draft.end),
        }
        try:
            status, answer = await self._send("POST", "/v2/users/me/meetings", body)
        except Maybe as doubt:
            return await self._looked(draft.uid, doubt)
        if is_certain(status):
            raise _refused(status, answer)
        try:
            if status != 201:  # it may fail when the meeting is made
                raise Maybe(_refused(status, answer))
            if not _is_for(draft.uid, answer):
                raise Maybe(_nonsense())
            return _meeting(answer)
        except Maybe as doubt:
            return await self._looked(draft.uid, doubt)

    async def find(self, uid: str) -> Meeting | None:
        try:
            return await self._find(uid)
        except Maybe as doubt:
            raise doubt.why from None

    async def move(self, ref: str, *, uid: str, title: str, start: datetime, end: datetime) -> None:
        if not await self._is_there(ref, uid):
            raise ToolError(ErrorType.NOT_FOUND, "Zoom has no such meeting any more.")
        status, answer = await self._sure(
            "PATCH", f"/v2/meetings/{_number(ref)}", {"topic": title, **_when(start, end)}
        )
        if status not in (200, 204):
            raise _refused(status, answer)

    async def remove(self, ref: str, *, uid: str) -> None:
        if not await self._is_there(ref, uid):
            return
        status, answer = await self._sure("DELETE", f"/v2/meetings/{_number(ref)}")
        if status not in (200, 204, 404):
            raise _refused(status, answer)

    async def _is_there(self, ref: str, uid: str) -> bool:
        """Whether there is such a meeting; an event may name somebody else's, which is left alone."""
        status, answer = await self._sure("GET", f"/v2/meetings/{_number(ref)}")
        if status == 404:
            return False
        if status != 200:
            raise _refused(status, answer)
        if not _is_for(uid, answer):
            raise ToolError(ErrorType.PERMANENT, "Zoom has another's meeting under this number, which was left alone.")
        return True

    async def _sure(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """A request that may be sent twice without harm. In doubt it is, and where Zoom failed: it may have acted before."""
        with suppress(Maybe):
            status, answer = await self._send(method, path, body)
            if status < 500:
                return status, answer
        try:
            return await self._send(method, path, body)
        except Maybe as doubt:
            raise doubt.why from None

    async def _looked(self, uid: str, doubt: Maybe) -> Meeting:
        from handrail_reference.services.calendar.port import OutcomeUnknown  # noqa: PLC0415  # they know each other's types

        try:
            found = await self._find(uid)
        except (Maybe, ToolError):
            found = None
        if found is None:
            raise OutcomeUnknown(f"It is not known whether Zoom made the meeting: {doubt.why.message}")
        return found

    async def _find(self, uid: str) -> Meeting | None:
        page = ""
        for _ in range(_MAX_PAGES):
            query = urlencode({"type": "scheduled", "page_size": 300, **({"next_page_token": page} if page else {})})
            status, answer = await self._send("GET", f"/v2/users/me/meetings?{query}")
            if status != 200 or not isinstance(answer.get("meetings"), list):
                raise _refused(status, answer)
            for one in answer["meetings"]:
                if isinstance(one, dict) and _is_for(uid, one):
                    return _meeting(one)
            page = str(answer.get("next_page_token") or "")
            if not page:
                return None
        raise ToolError(
            ErrorType.PERMANENT,
            "Zoom lists more scheduled meetings than can be looked through, so that one more could be a second one for this "
            "event; the host has to delete old ones at Zoom.",
        )

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        return await self._threads.run(lambda line: self._request(line, method, path, body))

    def _request(self, line: Line, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._access_token(line)}", "Content-Type": "application/json"}
        status, answer = self._exchange(
            line, method, f"{self._api}{path}", None if body is None else json.dumps(body), headers
        )
        if status == 401:
            with self._lock:
                self._until = 0.0  # taken back early; the next request asks for another
        return status, answer

    def _access_token(self, line: Line) -> str:
        with self._lock:
            if self._clock() < self._until:
                return self._token
            query = urlencode({"grant_type": "account_credentials", "account_id": self._account})
            try:
                status, answer = self._exchange(
                    line, "POST", f"{self._oauth}/oauth/token?{query}", "", {"Authorization": f"Basic {self._login}"}
                )
            except Maybe as doubt:
                raise doubt.why from None  # a token that nobody got harms nobody
            token, seconds = answer.get("access_token"), answer.get("expires_in")
            if status != 200 or not isinstance(token, str) or not isinstance(seconds, (int, float)):
                if status in (429, 500, 502, 503, 504):
                    raise _refused(status, answer)
                raise ToolError(ErrorType.AUTH, "Zoom refused the host's sign-in; the host has to mend its Zoom app.")
            self._token, self._until = token, self._clock() + max(seconds - _EARLY, 1.0)
            return token

    def _exchange(
        self, line: Line, method: str, url: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        data = None if body is None else body.encode()
        request = urllib.request.Request(url, data, {**trace_headers(), **headers}, method=method)  # noqa: S310  # checked at the start
        request.line = line  # type: ignore[attr-defined]
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return answer.status, _parsed(answer.read(_MAX_BYTES + 1), answer.status)
        except urllib.error.HTTPError as error:
            return error.code, {**_explanation(error), "retry_after": error.headers.get("Retry-After")}
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError) or "gaierror" in type(error.reason).__name__:
                raise transient("Zoom does not answer.") from None
            raise Maybe(transient("Zoom does not answer.")) from None
        except (OSError, HTTPException):
            raise Maybe(transient("Zoom ended the connection before it had answered.")) from None


class _StayAtZoom(urllib.request.HTTPRedirectHandler):
    """A token goes to Zoom and to nobody else."""

    def redirect_request(self, *words: Any, **more: Any) -> None:
        return None


def _explanation(error: urllib.error.HTTPError) -> Any:
    """What the body of a failure says, if it can be read: the status says enough."""
    with error:
        try:
            return _parsed(error.read(_MAX_BYTES), error.code)
        except (OSError, HTTPException, Maybe):
            return {}


def _is_for(uid: str, meeting: Mapping[str, Any]) -> bool:
    return _reference(uid) in str(meeting.get("agenda", ""))


class _Noting(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Notes the socket of a request on its line."""

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_noted(HTTPConnection, req), req)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_noted(HTTPSConnection, req), req)


def _noted(kind: type[HTTPConnection], request: Any) -> Callable[..., HTTPConnection]:
    class NotedConnection(kind):  # type: ignore[misc,valid-type]
        def connect(self) -> None:
            super().connect()
            # The one that is connected: once an answer has begun, the connection knows it no more.
            opened = self.sock
            request.line.uses(lambda: [opened])

    return NotedConnection


def _reference(uid: str) -> str:
    return f"handrail-{sha256(b'zoom:' + uid.encode()).hexdigest()[:32]}"


def _when(start: datetime, end: datetime) -> dict[str, Any]:
    minutes = max(math.ceil((end - start).total_seconds() / 60), 1)
    return {"start_time": f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", "duration": minutes, "timezone": "UTC"}


def _meeting(answer: Any) -> Meeting:
    number, link = answer.get("id"), answer.get("join_url")
    if (
        not isinstance(number, int)
        or isinstance(number, bool)
        or not isinstance(link, str)
        or not link.startswith("https://")
    ):
        raise Maybe(_nonsense())
    return Meeting("zoom", link, str(number))


def _number(ref: str) -> str:
    if not (ref.isascii() and ref.isdigit()):
        raise ToolError(ErrorType.PERMANENT, "The event names no Zoom meeting that could be changed.")
    return ref


def _parsed(data: bytes, status: int) -> Any:
    if not data and status in (201, 204, 200):
        return {}
    try:
        found = json.loads(data) if len(data) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if status >= 400:
        return {}
    raise Maybe(_nonsense())


def _nonsense() -> ToolError:
    return ToolError(ErrorType.PERMANENT, "Zoom answered with something that is no meeting.")


def _refused(status: int, answer: Any) -> ToolError:
    wait = str(answer.get("retry_after") or "")
    seconds = bounded(float(wait)) if wait.isdigit() else None
    if status == 429:
        return ToolError(
            ErrorType.RATE_LIMIT,
            "Zoom was asked too often.",
            retryable=True,
            retry_after=seconds or _SECONDS_UNTIL_RETRY,
        )
    if status in (401, 403) or answer.get("code") in (4700, 4711):
        return ToolError(
            ErrorType.AUTH, "Zoom denies this to the host's app; the host has to give it the right scopes."
        )
    if status >= 500:
        return transient(f"Zoom failed ({status}).", seconds)
    return ToolError(ErrorType.PERMANENT, f"Zoom refused the meeting ({status}).")
