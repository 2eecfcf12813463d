"""Requests that come again: which session was made for a request with an `Idempotency-Key` that named none.

A client that did not hear the answer asks once more, perhaps at another process of the server. It has no session to name, so the
key finds the one that was made for it: there the message has been answered, or is being answered, and nothing is done twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from weakref import WeakValueDictionary

from handrail.contract.server_requests import RequestClaim
from handrail.contract.store import StoreUnavailable
from handrail.server.host.hosted_session import HostedSession
from handrail.server.host.refusals import RefusalReason, SessionRefused, busy
from handrail.server.host.sealed_tokens import seal, unseal
from handrail.server.host.session_registry import PASSING_SECONDS, SessionRegistry
from handrail.server.key_ring import Key

_LOOK_SECONDS = 0.1
_MAX_LOOKS = 100


class IdempotentRequests:
    """Sessions by API key, user and `Idempotency-Key`, kept in the store for ten minutes."""

    def __init__(self) -> None:
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def find(
        self,
        sessions: SessionRegistry,
        key: Key,
        secret: str,
        user: str | None,
        name: str,
        make: Callable[[], Awaitable[HostedSession]],
    ) -> HostedSession:
        """The session that this request had before, or a new one. `secret` is that of the key."""
        # As JSON: put together with a plain separator, another user and name could make the same text.
        digest = sha256(json.dumps([key.hash, user, name]).encode()).hexdigest()
        # The same request twice at once makes one session: here by this lock, elsewhere by the claim in the store.
        making = self._making.setdefault(digest, asyncio.Lock())
        requests, owner = sessions.runtime.store.requests, sessions.runtime.owner
        async with making:
            found = await _claimed(sessions, digest)
            if found.session_id is not None:
                try:
                    return await sessions.find(found.session_id, unseal(secret, found.session_id, found.sealed), key)
                except SessionRefused as refused:
                    if refused.reason not in (RefusalReason.NO_SESSION, RefusalReason.ENDED):
                        raise
            try:
                hosted = await make()
            except BaseException:
                # Also where the client went away meanwhile: as long as it is claimed, the same request waits for nobody.
                with suppress(StoreUnavailable):
                    await asyncio.shield(requests.release(digest, owner=owner))
                raise
            sealed = seal(secret, hosted.id, hosted.session.token)
            await requests.answer(digest, owner=owner, session_id=hosted.id, sealed=sealed)
            return hosted


async def _claimed(sessions: SessionRegistry, digest: str) -> RequestClaim:
    """The session of the request, or that it is ours to make; another process that is at it is waited for."""
    kept_for = round(PASSING_SECONDS * 1_000)
    for _ in range(_MAX_LOOKS):
        found = await sessions.runtime.store.requests.claim(digest, owner=sessions.runtime.owner, kept_for=kept_for)
        if found.ours or found.session_id is not None:
            return found
        await asyncio.sleep(_LOOK_SECONDS)
    raise busy("Another process of this server has begun this request; try again.")
