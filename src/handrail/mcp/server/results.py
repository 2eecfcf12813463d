"""Envelopes as results of `tools/call`: text and data, with what the handler has shown; large ones as a link to a resource."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from handrail.contract.documents import Document
from handrail.contract.envelope import ToolResponse
from handrail.contract.frozen import thaw
from handrail.contract.store import Store
from handrail.mcp.server.options import McpOptions, Principal
from handrail.providers.event_stream import as_text

RESULT_URI = "handrail://result/"
_RESULTS = "mcp-result"


class Results:
    """Makes results, and keeps those that are too large to be sent at once."""

    def __init__(self, store: Store, options: McpOptions) -> None:
        self._store = store
        self._options = options

    async def of(
        self, who: Principal, response: ToolResponse, blocks: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        envelope = response.to_dict()
        text = as_text(envelope)
        if len(text) > self._options.max_result_bytes:
            return await self._linked(who, response, envelope, text)
        content = [*map(thaw, blocks), {"type": "text", "text": text}]
        # Parsed, so that what is frozen or no plain JSON yet is by then.
        return {"content": content, "structuredContent": orjson.loads(text), "isError": not response.ok}

    async def _linked(
        self, who: Principal, response: ToolResponse, envelope: Mapping[str, Any], text: str
    ) -> dict[str, Any]:
        name = secrets.token_urlsafe(24)
        await self._store.documents.put(
            Document(
                kind=_RESULTS,
                id=name,
                tenant=who.tenant,
                user=who.user,
                body={"client": who.client, "text": text},
                expires_at=await self._store.now() + self._options.keep_seconds * 1000,
            )
        )
        short = {**envelope, "meta": {**envelope["meta"], "truncated": True}}
        short.pop("data", None)
        said = f"The result has {len(text)} bytes; it is the resource {RESULT_URI}{name}."
        link = {
            "type": "resource_link",
            "uri": f"{RESULT_URI}{name}",
            "name": f"result of {response.meta.get('toolId', 'a call')}",
            "mimeType": "application/json",
            "size": len(text.encode()),
        }
        content = [{"type": "text", "text": said}, link]
        return {"content": content, "structuredContent": orjson.loads(as_text(short)), "isError": not response.ok}

    async def read(self, who: Principal, uri: str) -> str | None:
        """The text of a large result, for whoever made the call."""
        kept = await self._store.documents.get(_RESULTS, uri.removeprefix(RESULT_URI))
        if kept is None or (kept.tenant, kept.user, kept.body["client"]) != (who.tenant, who.user, who.client):
            return None
        return str(kept.body["text"])
