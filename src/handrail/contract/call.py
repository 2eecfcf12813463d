"""A call: what a model asked for, before anything about it was checked."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

IdScope = Literal["session", "connection", "message", "none"]
"""For how long an id names one call. `message`: only among the calls of one model message; many servers begin to count anew in
each, so that the id of a later message is another call."""


class Call(NamedTuple):
    """One tool call of a model.

    `args` is what the provider sent: an object, or JSON text. `call_id` is the provider's id, verbatim; `id_scope` says
    for how long the provider keeps that id the same for the same call, and the transport sets it; the ids of a host's own
    calls count for the session. `response_id` is the provider's id of the model message, where ids count for that: the same
    one again is the same message delivered twice, another is a new message. `connection` is the one that the call came on;
    None: the session's current one at the moment of the call. A named tuple, because one is made for every call.
    """

    name: str
    args: Any = None
    call_id: str | None = None
    provider: str | None = None
    id_scope: IdScope = "session"
    response_id: str | None = None
    connection: int | None = None
