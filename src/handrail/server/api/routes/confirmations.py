"""A held call for the person: shown with the facts of this moment, and their yes or no. For an answer three secrets must agree:
the key, the session's token and the request's own token, which stands for what was shown with it.

A session of an MCP client has no token that anybody holds. Its user answers with a key of their own, or an operator does. The key
of that client itself answers nothing, because a model may have read it."""

from __future__ import annotations

from starlette.responses import Response

from handrail.contract.errors import ErrorType
from handrail.contract.events import Progress
from handrail.contract.store import Hold, HoldState, LedgerState
from handrail.mcp.server.options import MCP_CLIENT
from handrail.runtime.known_calls import call_id_of
from handrail.runtime.session import Session
from handrail.server.api.http import ApiRequest, HttpProblem, answer, hosted_session_of, read_object, text_of
from handrail.server.host.refusals import RefusalReason, SessionRefused
from handrail.server.key_ring import TOKEN, UNKNOWN_CLIENT

_MAX_NOTES = 20
"""How many notes on the progress of a call are shown: the newest."""


async def show(request: ApiRequest) -> Response:
    """An open request, its facts looked up now, with a fresh token."""
    hold, session = await _found(request)
    confirmations = request.context.runtime.confirmations
    shown = await confirmations.show(session, hold) if hold.state is HoldState.PENDING else None
    if shown is None:
        raise HttpProblem(410, "This confirmation request was answered, or its time is over.")
    return answer({**shown, "turn": hold.turn})


async def progress(request: ApiRequest) -> Response:
    """Whether the approved call runs, and what it has told of itself: nobody listens to the session of an MCP client."""
    hold, session = await _found(request)
    row = await request.context.runtime.store.ledger_row(hold.ledger_key)
    runs = hold.state is HoldState.CONSUMED and row is not None and row.state is LedgerState.RUNNING
    events = (event for event in session.events_queue.waiting() if isinstance(event, Progress))
    told = [event.text for event in events if event.call_id == call_id_of(hold)]
    return answer({"running": runs, "told": told[-_MAX_NOTES:] if runs else []})


async def approve(request: ApiRequest) -> Response:
    return await _decide(request, yes=True)


async def decline(request: ApiRequest) -> Response:
    return await _decide(request, yes=False)


async def _decide(request: ApiRequest, *, yes: bool) -> Response:
    context = request.context
    body = await read_object(request, context.options, ("token",))
    token = text_of(body, "token", maximum=256, required=True)
    hold, session = await _found(request)
    if yes:
        key = request.key
        via = f"key {key.traceless_name}"
        envelope = await context.runtime.approve(hold, token=token, approver=key.user or session.user, via=via)
    else:
        envelope = await context.runtime.decline(hold, token=token)
    if envelope.error is not None and envelope.error.type is ErrorType.NOT_FOUND and not envelope.meta.get("toolId"):
        raise _none()
    return answer(envelope.to_dict())


async def _found(request: ApiRequest) -> tuple[Hold, Session]:
    confirmation = str(request.path_params["confirmation"])
    hold = await request.context.runtime.store.hold_by_id(confirmation) if confirmation.isascii() else None
    if hold is None:
        raise _none()
    record = await request.context.runtime.store.load_session(hold.session_id)
    client = record.attributes.get(MCP_CLIENT) if record is not None else None
    if client is not None:
        return hold, await _mcp_session(request, hold, client)
    try:
        # A session that no living process has comes here, so that the approved call is carried out at once. A living owner
        # carries it out itself.
        return hold, (await hosted_session_of(request, hold.session_id, looks=True)).session
    except SessionRefused as refused:
        raise (_none() if refused.reason is RefusalReason.NO_SESSION else refused) from None


async def _mcp_session(request: ApiRequest, hold: Hold, client: str) -> Session:
    """The session of an MCP client, for whoever may answer in its user's place."""
    key = request.key
    if not (key.is_operator or (key.user is not None and key.user == hold.user and key.tenant == hold.tenant)):
        raise _none()
    # Taken off once: a key may itself be called so.
    if _client_in(client.removeprefix("key:")) == _client_in(key.name):
        raise HttpProblem(
            403,
            "The key of the client that made this call cannot answer for a person; use another, such as the console's.",
        )
    session = await request.context.runtime.session_for(hold)
    if session is None:
        raise _none()
    return session


def _client_in(name: str) -> str:
    """The client of a credential's name: that of a token names the program that it was made for, whoever has checked it."""
    kind, _, client = name.partition(":")
    if kind not in (TOKEN, "oauth"):
        return name
    return f"{TOKEN}:{client}" if client and client != UNKNOWN_CLIENT else TOKEN


def _none() -> HttpProblem:
    return HttpProblem(404, "There is no such confirmation request.")
