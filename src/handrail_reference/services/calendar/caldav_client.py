"""Requests to a CalDAV server, by the `caldav` library: sent, counted as read or as doubtful, and failures named."""

from __future__ import annotations

import queue
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakSet

from handrail import trace_headers
from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.remote import Line, Maybe, RemoteThreads, bounded, is_certain, transient

if TYPE_CHECKING:
    from caldav.davclient import DAVClient

_GATEWAY = (502, 504)
"""Whoever stands before the server answered: the server itself may still be at it."""
_NO_ANSWER = "The calendar server does not answer."
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_READS = ("GET", "OPTIONS", "PROPFIND", "REPORT")
_MAX_BYTES = 32 * 1024 * 1024
_OPENED = "handrail_connections"


@dataclass(frozen=True, slots=True)
class DavAnswer:
    """What the server said. `rows` are address, version and text of the events in a multistatus, which `tree` is."""

    status: int
    headers: Mapping[str, str]
    text: str
    rows: tuple[tuple[str, str, str], ...] | None
    tree: Any = None


class DavRefusal(ToolError):
    """The server refused a request, with this status."""

    status = 0


class _Gone(Exception):
    """The connection ended before there was an answer."""

    def __init__(self, why: ToolError) -> None:
        super().__init__(str(why))
        self.why = why


class CalDavClient:
    """One account of one server. Connections are kept, each for one thread at a time."""

    def __init__(self, url: str, *, user: str, password: str, timeout: float = 8.0, ca_file: str = "") -> None:
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in ("https", "http") or not host or parts.username or parts.query:
            # What may hold a password or a token is not repeated.
            given = "this is none" if "@" in url or "?" in url else f"{url!r} is not"
            raise ConfigError(
                '"caldav_url" in [services.calendar] must be the address of a CalDAV server, such as "https://dav.example.com/"; '
                f"{given}."
            )
        if parts.scheme == "http" and host not in _LOOPBACK:
            raise ConfigError(
                '"caldav_url" in [services.calendar] must begin with "https://": the password would go over the network as it is.'
            )
        try:
            from caldav.davclient import DAVClient  # noqa: PLC0415  # an extra, and slow to import
        except ModuleNotFoundError:
            raise ConfigError(
                'A calendar on a CalDAV server needs the library "caldav"; run `pip install "handrail-reference[caldav]"` '
                "(from a copy as docs/install.md says)."
            ) from None
        self._open: Callable[[], DAVClient] = partial(
            DAVClient,
            url,
            username=user,
            password=password,
            auth_type="basic",
            timeout=timeout,  # type: ignore[arg-type]  # the HTTP library takes fractions
            ssl_verify_cert=ca_file or True,
            require_tls=False,  # it is about addresses that are looked up, and none is
            enable_rfc6764=False,
            rate_limit_handle=False,
        )
        self._idle: queue.LifoQueue[DAVClient] = queue.LifoQueue()
        self._workers = RemoteThreads("caldav", timeout * 2)
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self._workers.close()
        while not self._idle.empty():
            self._idle.get_nowait().close()

    async def send(self, method: str, url: str, body: str = "", headers: Mapping[str, str] | None = None) -> DavAnswer:
        """The answer, whatever its status, unless it says that nothing was done: that is a `ToolError`, or `Maybe` in doubt."""
        answer = await self._workers.run(lambda line: self._request(line, method, url, body, dict(headers or {})))
        failure = _failure(answer)
        if failure is None:
            return answer
        raise _refusal(answer.status, failure)

    def _request(self, line: Line, method: str, url: str, body: str, headers: dict[str, str]) -> DavAnswer:
        client, was_kept = self._client()
        try:
            return self._exchange(line, client, method, url, body, headers)
        except _Gone as gone:
            if not was_kept or method not in _READS:
                raise Maybe(gone.why) from None
        # The server had ended the connection that was kept: a look needs another, and changes nothing.
        try:
            return self._exchange(line, self._connected(), method, url, body, headers)
        except _Gone as gone:
            raise Maybe(gone.why) from None

    def _exchange(
        self, line: Line, client: DAVClient, method: str, url: str, body: str, headers: dict[str, str]
    ) -> DavAnswer:
        from caldav.lib import error  # noqa: PLC0415  # an extra
        from caldav.lib.http_sync import requests  # noqa: PLC0415  # whichever HTTP library it uses

        line.uses(lambda: _sockets(client))
        is_usable = True
        try:
            found = client.request(url, method, body, {**trace_headers(), **headers})
            rows = None
            if found.status == 207:
                if found.tree is None or found.tree.tag != "{DAV:}multistatus":
                    raise Maybe(_nonsense())  # what cannot be read must not pass for an empty calendar
                rows = tuple(
                    (row.href, row.etag or "", row.calendar_data or "") for row in found.parse_calendar_query()
                )
            return DavAnswer(found.status, found.headers, found.raw if found.tree is None else "", rows, found.tree)
        except error.RateLimitError as refused:
            raise _refusal(refused.status or 429, _limited(refused.status, refused.retry_after_seconds)) from None
        except error.AuthorizationError as refused:
            text = "The calendar server refused the host's sign-in, or denies it this calendar."
            raise _refusal(refused.status or 403, ToolError(ErrorType.AUTH, text)) from None
        except (requests.exceptions.RequestException, ssl.SSLError, OSError) as gone:
            is_usable = False
            if isinstance(gone, (requests.exceptions.SSLError, ssl.SSLError)):
                text = "The calendar server's certificate is not valid, so nothing was sent."
                raise ToolError(ErrorType.PERMANENT, text) from None
            if _was_not_sent(gone):
                raise transient(_NO_ANSWER) from None
            ended = transient("The calendar server ended the connection before it had answered.")
            is_late = isinstance(gone, (requests.exceptions.Timeout, TimeoutError))
            raise (Maybe(ended) if is_late else _Gone(ended)) from None
        except (error.DAVError, SyntaxError, ValueError, AssertionError, AttributeError, KeyError, TypeError):
            # The library met an answer that it cannot make sense of.
            raise Maybe(_nonsense()) from None
        finally:
            if is_usable and not self._closed:
                self._idle.put(client)
            else:
                client.close()

    def _client(self) -> tuple[DAVClient, bool]:
        """A client, and whether its connection was kept from an earlier request."""
        try:
            return self._idle.get_nowait(), True
        except queue.Empty:
            return self._connected(), False

    def _connected(self) -> DAVClient:
        return _noting_connections(self._open())


def _sockets(client: DAVClient) -> list[Any]:
    opened = getattr(client, _OPENED, ())
    return [one.sock for one in tuple(opened) if getattr(one, "sock", None) is not None]


def _noting_connections(client: DAVClient) -> DAVClient:
    """The library tells of no connection that is in use, so each is noted when it is made."""
    opened: WeakSet[Any] = WeakSet()
    setattr(client, _OPENED, opened)
    for adapter in client.session.adapters.values():
        pools = adapter.poolmanager  # type: ignore[attr-defined]
        pools.pool_classes_by_scheme = {
            scheme: _noting(pool, opened) for scheme, pool in pools.pool_classes_by_scheme.items()
        }
    return client


def _noting(pool: Any, opened: WeakSet[Any]) -> Any:
    class OpenedConnection(pool.ConnectionCls):  # type: ignore[misc]
        def connect(self) -> None:
            opened.add(self)
            super().connect()

    return type(pool.__name__, (pool,), {"ConnectionCls": OpenedConnection})


def _refusal(status: int, failure: ToolError) -> DavRefusal | Maybe:
    """The failure that a status means, or the doubt whether the server has acted all the same."""
    refusal = DavRefusal(failure.type, failure.message, retryable=failure.retryable, retry_after=failure.retry_after)
    refusal.status = status
    return refusal if is_certain(status) else Maybe(refusal, is_over=status not in _GATEWAY)


def _was_not_sent(error: BaseException) -> bool:
    """Whether there was no connection at all, so that the server cannot have acted."""
    from caldav.lib.http_sync import requests  # noqa: PLC0415  # an extra

    if isinstance(error, (requests.exceptions.ConnectTimeout, requests.exceptions.InvalidURL, ConnectionRefusedError)):
        return True
    text = repr(error)
    return isinstance(error, requests.exceptions.ConnectionError) and any(
        name in text for name in ("NewConnectionError", "NameResolutionError", "ConnectionRefused")
    )


def _failure(answer: DavAnswer) -> ToolError | None:
    """What a status means that is no answer to the question; None for those that are."""
    status = answer.status
    if status in (401, 403, 407):
        return ToolError(ErrorType.AUTH, "The calendar server denies the host this calendar.")
    if status in (429, 503):
        return _limited(status, None)
    if status == 507:
        return ToolError(ErrorType.PERMANENT, "The calendar server has no room left for this calendar.")
    if status == 413:
        return ToolError(ErrorType.PERMANENT, "The calendar server refuses an event of this size.")
    if status >= 500:
        return transient(f"The calendar server failed ({status}).")
    if status in (404, 409, 410, 412):
        return None
    if status >= 300:
        return ToolError(ErrorType.PERMANENT, f"The calendar server refused the request ({status}).")
    if len(answer.text) > _MAX_BYTES or "text/html" in str(answer.headers.get("Content-Type", "")):
        return _nonsense()
    return None


def _nonsense() -> ToolError:
    return ToolError(
        ErrorType.PERMANENT,
        "The calendar server answered with something that is no calendar; the host has to check its address.",
    )


def _limited(status: int | None, seconds: float | None) -> ToolError:
    wait = bounded(seconds)
    if status == 503:
        return transient("The calendar server is not available now.", wait)
    return ToolError(
        ErrorType.RATE_LIMIT, "The calendar server was asked too often.", retryable=True, retry_after=wait or 5.0
    )
