"""A person's connections to other services, over HTTP: which there are, connect, come back, disconnect.

They belong to the user of a session, so its secret is needed as well as the key. An authorization server sends the browser back
to `/console/connected`, a page of the console; the page brings the answer here, with the secret that the tab has kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from starlette.responses import Response

from handrail.contract.credentials import AuthorizationRefused, AuthorizationUnavailable, CredentialError
from handrail.contract.errors import UsageError
from handrail.server.api.http import ApiRequest, HttpProblem, answer, hosted_session_of, read_object, text_of
from handrail.server.api.routes.files import home

if TYPE_CHECKING:  # an HTTP client comes with it, of an extra that a server without connections need not have
    from handrail.identity.connections import Connections, ConnectionState

CALLBACK = "/console/connected"
_MAX_SECRET, _MAX_ANSWER = 200, 4_096
_ANSWER = ("state", "code", "error", "iss")


async def show(request: ApiRequest) -> Response:
    connections, tenant, user = await _whose(request)
    if connections is None or user is None:
        return answer({"connections": [], "user": user})
    return answer({"connections": [_shown(one) for one in await connections.states(tenant, user)], "user": user})


async def begin(request: ApiRequest) -> Response:
    """Where the browser has to go. `browser` is a secret of the tab, which it has to bring back."""
    body = await read_object(request, request.context.options, ("browser",))
    browser = text_of(body, "browser", maximum=_MAX_SECRET, required=True)
    if len(browser) < 20:
        raise HttpProblem(400, '"browser" must be a random text of at least 20 characters.')
    connections, tenant, user = await _configured(request)
    name = str(request.path_params["connection"])
    try:
        begun = await connections.begin(tenant, user, name, redirect_uri=redirect_uri(request), browser=browser)
    except CredentialError as error:
        raise _problem(error) from None
    return answer({"url": begun.url}, 201)


async def complete(request: ApiRequest) -> Response:
    body = await read_object(request, request.context.options, (*_ANSWER, "browser"))
    given = {name: text_of(body, name, maximum=_MAX_ANSWER) for name in _ANSWER if name in body}
    browser = text_of(body, "browser", maximum=_MAX_SECRET, required=True)
    connections, tenant, user = await _configured(request)
    try:
        state = await connections.complete(
            given, redirect_uri=redirect_uri(request), browser=browser, whose=(tenant, user)
        )
    except CredentialError as error:
        _audit(request, "connected", None, ok=False)
        raise _problem(error) from None
    _audit(request, "connected", state.name, ok=True)
    return answer(_shown(state))


async def disconnect(request: ApiRequest) -> Response:
    connections, tenant, user = await _configured(request)
    name = str(request.path_params["connection"])
    ended = await connections.disconnect(tenant, user, name)
    if ended.existed:
        _audit(request, "disconnected", name, ok=not ended.unrevoked)
    return answer({"disconnected": ended.existed, "unrevoked": ended.unrevoked})


async def come_back(request: ApiRequest) -> Response:
    """The console itself, which takes the answer out of the address."""
    return await home(request)


def redirect_uri(request: ApiRequest) -> str:
    """Where authorization servers send browsers. The guard has checked the name of the host."""
    public = request.context.options.public_url.rstrip("/") or f"{request.url.scheme}://{request.headers['host']}"
    return public + CALLBACK


async def _whose(request: ApiRequest) -> tuple[Connections | None, str, str | None]:
    session = (await hosted_session_of(request, looks=True)).session
    connections = request.context.runtime.connections
    if connections is not None and not hasattr(connections, "begin"):
        raise HttpProblem(404, "This host makes its connections in a way of its own.")
    return cast("Connections | None", connections), session.tenant, session.user


async def _configured(request: ApiRequest) -> tuple[Connections, str, str]:
    connections, tenant, user = await _whose(request)
    if connections is None:
        raise HttpProblem(404, "This host has no connections; [connections.NAME] in handrail.toml makes one.")
    if user is None:
        raise HttpProblem(409, "A connection belongs to a person, and this session has no user.")
    name = request.path_params.get("connection")
    if name is not None:
        try:
            connections.check(str(name))
        except UsageError as error:
            raise HttpProblem(404, str(error)) from None
    return connections, tenant, user


def _audit(request: ApiRequest, event: str, connection: str | None, *, ok: bool) -> None:
    """Whose it is, the session's first line says, under a pseudonym. An answer that is refused may name any connection."""
    facts = {"sessionId": str(request.path_params["session"]), "connection": connection, "ok": ok}
    request.context.runtime.audit.emit(event, facts)


def _problem(error: CredentialError) -> HttpProblem:
    if isinstance(error, AuthorizationUnavailable):
        return HttpProblem(503, str(error), retry_after=5)
    return HttpProblem(403 if isinstance(error, AuthorizationRefused) else 409, str(error))


def _shown(state: ConnectionState) -> dict[str, Any]:
    return {
        "name": state.name,
        "label": state.label,
        "connected": state.connected,
        "scopes": list(state.scopes),
        "since": state.since,
        "problem": state.problem,
    }
