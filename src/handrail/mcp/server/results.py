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
_MAX_CHARACTER_BYTES = 10
"""Four as data, and six where it is escaped within text."""


class Results:
    """Makes results, and keeps those that are too large to be sent at once."""

    def __init__(self, store: Store, options: McpOptions) -> None:
        self._store = store
        self._options = options

    async def of(
        self, who: Principal, response: ToolResponse, blocks: Sequence[Mapping[str, Any]] = (), *, session: str
    ) -> dict[str, Any]:
        """`session` is the id of that in which the call was made."""
        envelope = response.to_dict()
        text = as_text(envelope)
        limit = self._options.max_result_bytes
        if not blocks and len(text) * _MAX_CHARACTER_BYTES <= limit:
            size = 0  # it fits however it is written
        else:
            size = len(orjson.dumps(text)) + len(text.encode())  # it is sent as text and as data
        if size > limit:
            made = await self._linked(who, response, envelope, text, session)
            size = len(orjson.dumps(made))
        else:
            # Parsed, so that what is frozen or no plain JSON yet is by then.
            content = [{"type": "text", "text": text}]
            made = {"content": content, "structuredContent": orjson.loads(text), "isError": not response.ok}
        if blocks:
            made["content"] = [*await self._shown(who, blocks, limit - size, session), *made["content"]]
        return made

    async def _shown(
        self, who: Principal, blocks: Sequence[Mapping[str, Any]], left: int, session: str
    ) -> list[dict[str, Any]]:
        """What the handler has shown; a link in the place of each block that there is no space left for."""
        shown: list[dict[str, Any]] = []
        for frozen in blocks:
            block = thaw(frozen)
            size = len(orjson.dumps(block))
            if size > left:
                block = await self._link_to(who, block, session)
                size = len(orjson.dumps(block))
            left -= size
            shown.append(block)
        return shown

    async def _link_to(self, who: Principal, block: Mapping[str, Any], session: str) -> dict[str, Any]:
        inner = block["resource"] if block["type"] == "resource" else block
        part = next((key for key in ("text", "blob", "data") if key in inner), None)
        if part is None:  # a link already
            return dict(block)
        kind = inner.get("mimeType", "text/plain")
        member = "text" if part == "text" else "blob"
        uri = await self._keep(who, {member: inner[part], "mimeType": kind}, session)
        size = len(inner[part].encode()) if part == "text" else len(inner[part]) * 3 // 4
        return {"type": "resource_link", "uri": uri, "name": f"large {block['type']}", "mimeType": kind, "size": size}

    async def _linked(
        self, who: Principal, response: ToolResponse, envelope: Mapping[str, Any], text: str, session: str
    ) -> dict[str, Any]:
        uri = await self._keep(who, {"text": text, "mimeType": "application/json"}, session)
        size = len(text.encode())
        short = {**envelope, "meta": {**envelope["meta"], "truncated": True}}
        short.pop("data", None)
        said = f"The result has {size} bytes; it is the resource {uri}."
        link = {
            "type": "resource_link",
            "uri": uri,
            "name": f"result of {response.meta.get('toolId', 'a call')}",
            "mimeType": "application/json",
            "size": size,
        }
        content = [{"type": "text", "text": said}, link]
        return {"content": content, "structuredContent": orjson.loads(as_text(short)), "isError": not response.ok}

    async def _keep(self, who: Principal, body: Mapping[str, Any], session: str) -> str:
        """Where the client reads it."""
        name = secrets.token_urlsafe(24)
        await self._store.documents.put(
            Document(
                kind=_RESULTS,
                id=name,
                tenant=who.tenant,
                user=who.user,
                body={"client": who.client, **body},
                expires_at=await self._store.now() + self._options.keep_seconds * 1000,
                session=session,
            )
        )
        return f"{RESULT_URI}{name}"

    async def read(self, who: Principal, uri: str) -> dict[str, Any] | None:
        """The contents of a large result or block, for whoever made the call."""
        kept = await self._store.documents.get(_RESULTS, uri.removeprefix(RESULT_URI))
        if kept is None or (kept.tenant, kept.user, kept.body["client"]) != (who.tenant, who.user, who.client):
            return None
        return {"uri": uri, **{key: value for key, value in kept.body.items() if key != "client"}}
