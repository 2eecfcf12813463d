"""Requests to Google Calendar by Google's own client: signed for the caller, counted as read or as doubtful, failures named."""

from __future__ import annotations

import json
import queue
from collections.abc import Awaitable, Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail import trace_headers
from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.port import Caller
from handrail_reference.services.calendar.remote import Line, Maybe, RemoteThreads, bounded, is_certain, transient

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

CredentialSource = Callable[[Caller], Awaitable["Credentials"]]
"""Whose calendar a call reaches: credentials for its caller, or a `ToolError` of the type `AUTH`."""

SCOPES = (
    "https://www.googleapis.com/auth/calendar.events",
    "https://www.googleapis.com/auth/calendar.freebusy",
)
_RATE = (
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "quotaExceeded",
    "dailyLimitExceeded",
    "calendarUsageLimitsExceeded",
)
_FULL = ("quotaExceeded", "calendarUsageLimitsExceeded")
_ANSWERS = (404, 409, 410, 412)
_NOT_SENT = ("ServerNotFoundError", "ConnectionRefusedError", "gaierror")
_SECONDS_UNTIL_RETRY = 5.0


class _SignInRefused(ToolError):
    """Google did not take the token."""


class _ScopeRefused(ToolError):
    """The token is good, and not for this."""


class PersonalTokens:
    """Each person's own account, by the connection of this name: the token of the user of the call, and of nobody else."""

    def __init__(self, connection: str) -> None:
        self._connection = connection

    async def __call__(self, caller: Caller) -> Credentials:
        if caller.secrets is None:
            raise ToolError(ErrorType.AUTH, "The calendar is each person's own, and this call is made for nobody.")
        return access_token(await caller.secrets.token(self._connection))

    async def refused(self, caller: Caller, token: str) -> None:
        await caller.secrets.refused(self._connection, token)

    def ask_to_connect(self, caller: Caller) -> None:
        """The person is shown where to connect again, as if they had not."""
        caller.secrets.ask_to_connect(self._connection)


class GoogleClient:
    """`send` one request of the service; a new connection for each thread that has none."""

    def __init__(self, source: CredentialSource, *, endpoint: str = "", timeout: float = 8.0) -> None:
        try:
            from googleapiclient.discovery import build  # noqa: PLC0415  # an extra, and slow to import
            from googleapiclient.http import build_http  # noqa: PLC0415
        except ModuleNotFoundError:
            raise ConfigError(
                'Google Calendar needs Google\'s client; run `pip install "handrail-reference[google]"` '
                "(from a copy as docs/install.md says)."
            ) from None
        self._build_http = build_http
        options = {"api_endpoint": f"{endpoint.rstrip('/')}/calendar/v3/"} if endpoint else None
        # The description of the service comes with the client; nothing is asked for it.
        self._service: Any = build(
            "calendar", "v3", http=build_http(), client_options=options, static_discovery=True, cache_discovery=False
        )
        self._source = source
        self._timeout = timeout
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue()
        self._threads = RemoteThreads("google", timeout * 2)

    @property
    def events(self) -> Any:
        return self._service.events()

    @property
    def freebusy(self) -> Any:
        return self._service.freebusy()

    async def close(self) -> None:
        await self._threads.close()
        while not self._idle.empty():
            self._idle.get_nowait().close()
        self._service.close()

    async def send(self, request: Any, caller: Caller, etag: str = "") -> tuple[int, Mapping[str, Any]]:
        """Status and answer of a request; those that mean that nothing was done are a `ToolError`, or `Maybe` in doubt."""
        try:
            credentials = await self._source(caller)
            try:
                return await self._threads.run(lambda line: self._execute(line, request, credentials, etag))
            except _SignInRefused:
                if not isinstance(self._source, PersonalTokens):
                    raise
                # Taken back before its time: nothing was done, and the person may have another.
                await self._source.refused(caller, str(credentials.token))
                fresh = await self._source(caller)
                return await self._threads.run(lambda line: self._execute(line, request, fresh, etag))
        except (_SignInRefused, _ScopeRefused):
            if isinstance(self._source, PersonalTokens):
                self._source.ask_to_connect(caller)
            raise

    def _execute(self, line: Line, request: Any, credentials: Credentials, etag: str) -> tuple[int, Mapping[str, Any]]:
        from googleapiclient.errors import Error as LibraryError  # noqa: PLC0415
        from googleapiclient.errors import HttpError  # noqa: PLC0415
        from googleapiclient.http import httplib2  # noqa: PLC0415

        http = self._http()
        line.uses(lambda: [one.sock for one in tuple(http.connections.values()) if one.sock is not None])
        is_usable = False
        try:
            self._sign(request, credentials, http)
            request.headers.update(trace_headers())
            if etag:
                request.headers["If-Match"] = f'"{etag}"'
            answer = request.execute(http=http)
            is_usable = True
        except HttpError as error:
            is_usable = True
            return _status(error)
        except (OSError, ValueError, HTTPException, LibraryError, httplib2.HttpLib2Error) as error:
            raise _doubt(error) from None
        finally:
            if is_usable:
                self._idle.put(http)
            else:
                http.close()
        if answer == "":
            return 204, {}
        if not isinstance(answer, dict):
            raise Maybe(nonsense())
        return 200, answer

    def _http(self) -> Any:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            http = self._build_http()
            http.timeout = self._timeout
            http.follow_redirects = False
            return http

    def _sign(self, request: Any, credentials: Credentials, http: Any) -> None:
        """A token is refreshed on the request's own connection, which has a time-out and can be cut."""
        from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError  # noqa: PLC0415
        from google_auth_httplib2 import Request  # noqa: PLC0415

        try:
            if not credentials.valid:
                credentials.refresh(Request(http))  # type: ignore[no-untyped-call]
            credentials.apply(request.headers)  # type: ignore[no-untyped-call]
        except RefreshError as error:
            if getattr(error, "retryable", False):
                raise transient("Google does not answer.") from None
            raise ToolError(
                ErrorType.AUTH, "Google no longer accepts the sign-in to this calendar; it has to be connected again."
            ) from None
        except (TransportError, OSError):
            raise transient("Google does not answer.") from None
        except GoogleAuthError:
            raise ToolError(
                ErrorType.AUTH, "The sign-in to Google is not set up rightly; the host has to mend it."
            ) from None


def account_file(path: Path, subject: str = "") -> CredentialSource:
    """One account of the host for everybody: a service account's key file, or an authorized user's."""
    try:
        information = json.loads(path.read_text(encoding="utf-8"))
        kind = information["type"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            '"google_credentials" in [services.calendar] must name a key file from the Google Cloud console; '
            f'"{path.name}" is none.'
        ) from None
    try:
        credentials = _credentials(kind, information, subject)
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f'The key file "{path.name}" of [services.calendar] cannot be used; download it anew.'
        ) from None

    async def source(caller: Caller) -> Credentials:
        return credentials

    return source


def access_token(token: str) -> Credentials:
    """Credentials of a person whose token somebody else keeps and refreshes."""
    from google.oauth2.credentials import Credentials as UserCredentials  # noqa: PLC0415

    made: Credentials = UserCredentials(token)  # type: ignore[no-untyped-call]
    return made


def nonsense() -> ToolError:
    return ToolError(ErrorType.PERMANENT, "Google answered with something that is no calendar.")


def _credentials(kind: str, information: Mapping[str, Any], subject: str) -> Credentials:
    from google.oauth2 import credentials, service_account  # noqa: PLC0415

    made: Credentials
    if kind == "service_account":
        made = service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
            information, scopes=SCOPES, subject=subject or None
        )
        return made
    if kind != "authorized_user":
        raise ValueError(kind)
    made = credentials.Credentials(  # type: ignore[no-untyped-call]
        None,
        refresh_token=information["refresh_token"],
        token_uri=information.get("token_uri", "https://oauth2.googleapis.com/token"),
        client_id=information["client_id"],
        client_secret=information["client_secret"],
    )
    return made


def _doubt(error: BaseException) -> ToolError | Maybe:
    if type(error).__name__ in _NOT_SENT:
        return transient("Google does not answer.")
    if isinstance(error, (OSError, HTTPException)):
        return Maybe(transient("Google ended the connection before it had answered."))
    return Maybe(nonsense())


def _status(error: Any) -> tuple[int, Mapping[str, Any]]:
    """An answer that is one, though no success; anything else raised in the words of the envelope."""
    status, reason = int(error.resp.status), _reason(error)
    wait = _seconds(error.resp.get("retry-after"))
    if status in _ANSWERS:
        return status, {}
    if status == 401:
        raise _SignInRefused(
            ErrorType.AUTH, "Google no longer accepts the sign-in to this calendar; it has to be connected again."
        )
    if status == 429 or (status == 403 and reason in _RATE):
        if reason in _FULL:
            full = ToolError(ErrorType.RATE_LIMIT, "Google allows this calendar no more for now.", retry_after=wait)
            raise full if is_certain(status) else Maybe(full, is_over=True)
        raise ToolError(
            ErrorType.RATE_LIMIT,
            "Google was asked too often.",
            retryable=True,
            retry_after=wait or _SECONDS_UNTIL_RETRY,
        )
    if status == 403 and reason in ("insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"):
        raise _ScopeRefused(
            ErrorType.AUTH,
            "Google wants another permission for this than was given; the calendar has to be connected again.",
        )
    if status == 403:
        denied = ToolError(ErrorType.AUTH, "Google denies access to this calendar; its owner has to share it.")
        raise Maybe(denied, is_over=True)
    if status in (502, 504):
        raise Maybe(transient(f"Google failed ({status})."))
    if status >= 500:
        text = "Google is not available now." if status == 503 else f"Google failed ({status})."
        raise Maybe(transient(text, wait), is_over=True)
    refusal = ToolError(ErrorType.PERMANENT, f"Google refused the request ({status}{f', {reason}' if reason else ''}).")
    raise refusal if is_certain(status) else Maybe(refusal, is_over=True)


def _reason(error: Any) -> str:
    """Google's own word for the failure, if it is one."""
    try:
        found = json.loads(error.content)["error"]["errors"][0]["reason"]
    except (ValueError, KeyError, IndexError, TypeError):
        return ""
    return found if isinstance(found, str) and found.isidentifier() and len(found) < 64 else ""


def _seconds(text: str | None) -> float | None:
    return bounded(float(text)) if text is not None and text.strip().isdigit() else None
