"""What a client carries for us between two requests: sealed, bound to the principal and the request, and ending soon.

The key is in the store, so that every process of a server can open what another has sealed, also after a restart.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

import orjson
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from handrail.contract.documents import Document
from handrail.contract.store import Store
from handrail.mcp.server.governed_calls import digest_of
from handrail.mcp.server.options import Principal

_YEARS_MS = 100 * 365 * 24 * 3_600_000


class Sealer:
    """Seals and opens the states of requests."""

    def __init__(self, store: Store, seconds: int) -> None:
        self._store = store
        self._seconds = seconds
        self._codec: AESGCMRequestStateCodec | None = None

    async def _opened(self) -> AESGCMRequestStateCodec:
        if self._codec is None:
            now = await self._store.now()
            made = Document(
                kind="mcp-secret",
                id="request-state",
                body={"key": base64.b64encode(secrets.token_bytes(32)).decode()},
                expires_at=now + _YEARS_MS,
            )
            _, kept = await self._store.documents.put(made)  # whoever comes first has made it for all
            self._codec = AESGCMRequestStateCodec([base64.b64decode(kept.body["key"])])
        return self._codec

    async def seal(self, who: Principal, request: str, facts: Mapping[str, Any]) -> str:
        """`request` says which request may bring it back."""
        until = await self._store.now() + self._seconds * 1000
        body = {**facts, "for": digest_of("state", who, request), "until": until}
        return (await self._opened()).seal(orjson.dumps(body))

    async def open(self, who: Principal, request: str, state: str) -> dict[str, Any]:
        """What was sealed; the error of the protocol if it is not ours, another's, or too old."""
        try:
            body = orjson.loads((await self._opened()).unseal(state))
        except (InvalidRequestState, orjson.JSONDecodeError):
            raise _refused("was not made here, or was changed") from None
        if body.get("for") != digest_of("state", who, request):
            raise _refused("belongs to another request")
        if body.get("until", 0) <= await self._store.now():
            raise _refused("is too old")
        return dict(body)


def _refused(why: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"The requestState {why}; make the call again without it.")
