"""One-time links to the console: a ticket that is worth one visit within a minute, so that no key has to lie in a file.

The store keeps the ticket's hash. Whoever opens the link trades it for a key that this process knows until it ends, and
that the page keeps in its tab. Nothing that can be read later, from a file or a log, opens the console again.
"""

from __future__ import annotations

import secrets
from hashlib import sha256

from starlette.responses import Response

from handrail.contract.keys import Key
from handrail.contract.server_requests import RequestStore, StoredTicket
from handrail.server.api.http import ApiRequest, HttpProblem, answer, read_object, text_of
from handrail.server.key_ring import hash_of, new_secret

PATH = "/console/ticket"
SECONDS = 60
LOCAL_USER = "local"
_PLACE = "console"
"""Instead of the session that a ticket for voice is for."""
_LONGEST = 512


async def one_time_link(store: RequestStore, link: str) -> str:
    """This page of the console, for one visit that needs no key."""
    secret = secrets.token_urlsafe(32)
    await store.give_ticket(
        StoredTicket(digest=_digest(secret), session_id=_PLACE, sealed="", key=""), lives_for=SECONDS * 1_000
    )
    page, _, rest = link.partition("#")
    return f"{page}#ticket={secret}" + (f"&{rest}" if rest else "")


async def trade(request: ApiRequest) -> Response:
    """The ticket's bearer gets a key of their own; the ticket is gone, right or wrong."""
    context = request.context
    body = await read_object(request, context.options, ("ticket",))
    given = text_of(body, "ticket", maximum=_LONGEST, required=True)
    found = await context.runtime.store.requests.use_ticket(_digest(given))
    if found is None or found.session_id != _PLACE:
        raise HttpProblem(401, "This link was used before, or its minute is over; open a new one.")
    secret = new_secret()
    context.keys.give(Key(name="browser", hash=hash_of(secret), role="operator", user=LOCAL_USER))
    return answer({"key": secret}, 201)


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
