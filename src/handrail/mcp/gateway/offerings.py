"""Resources and prompts of servers, for clients of ours that ask for them. Read afresh each time; none of it is a tool.

A server passes them on only where the project says so, and only while it is the server that was pinned. What it lists is judged
as its tools are, and what it gives has a largest size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from handrail.authoring.mcp.inspection import trouble_in_words
from handrail.contract.errors import ErrorType, ToolError
from handrail.contract.hidden_characters import escaped
from handrail.mcp.gateway.limits import UpstreamFault
from handrail.mcp.gateway.upstream import Upstream, UpstreamConnection, UpstreamUnavailable

OfferKind = Literal["resources", "resourceTemplates", "prompts"]
MAX_LISTED = 1_000
"""Entries of one kind that a server may have; what is beyond is left out."""
_MAX_PAGES = 100
_FIELDS = ("uri", "uriTemplate", "name", "title", "description", "mimeType", "size", "arguments")
_LOG = logging.getLogger("handrail.mcp.gateway")
_Result = TypeVar("_Result", bound=BaseModel)
_ENTRY: Mapping[OfferKind, type[BaseModel]] = {
    "resources": types.Resource,
    "resourceTemplates": types.ResourceTemplate,
    "prompts": types.Prompt,
}


async def list_offered(server: Upstream, pinned: Mapping[str, str] | None, kind: OfferKind) -> list[dict[str, Any]]:
    """What a server lists, without what was refused; nothing from a server that cannot be used now, which the log says."""
    try:
        async with asyncio.timeout(server.config.startup_seconds):
            live = await _connected(server, pinned)
            return await _listed(server, live, kind)
    except TimeoutError:
        why = f'The MCP server "{server.config.name}" did not list its {kind} in time.'
    except ToolError as error:
        why = error.message
    except (MCPError, UpstreamFault, ValidationError, httpx2.HTTPError, OSError) as error:
        why = f'The MCP server "{server.config.name}" could not list its {kind} ({type(error).__name__}).'
    _LOG.warning("%s", why)
    return []


async def _listed(server: Upstream, live: UpstreamConnection, kind: OfferKind) -> list[dict[str, Any]]:
    able = live.client.server_capabilities
    if (able.prompts if kind == "prompts" else able.resources) is None:
        return []
    kept: dict[str, dict[str, Any]] = {}
    cursor: str | None = None
    left = MAX_LISTED
    for _ in range(_MAX_PAGES):
        page = await server.request(live, _list_request(kind, cursor), seconds=server.config.call_seconds)
        entries = page.get(kind)
        for entry in entries[:left] if isinstance(entries, list) else ():
            left -= 1
            made = _entry(server, kind, entry)
            if made is not None:
                # The first of a name stays: a later entry must not take the place of one that was judged.
                kept.setdefault(made["name"] if kind == "prompts" else made.get("uri") or made["uriTemplate"], made)
            await asyncio.sleep(0)  # to judge a long entry takes some milliseconds
        if not left:
            break
        following = page.get("nextCursor")
        # A server that names the same page again would be asked for it a hundred times.
        if not isinstance(following, str) or following == cursor:
            break
        cursor = following
    return list(kept.values())


def _list_request(kind: OfferKind, cursor: str | None) -> types.ClientRequest:
    params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
    if kind == "resources":
        return types.ListResourcesRequest(params=params)
    if kind == "resourceTemplates":
        return types.ListResourceTemplatesRequest(params=params)
    return types.ListPromptsRequest(params=params)


def _entry(server: Upstream, kind: OfferKind, entry: Any) -> dict[str, Any] | None:
    try:
        whole = _ENTRY[kind].model_validate(entry).model_dump(by_alias=True, mode="json", exclude_none=True)
    except ValidationError:
        return None
    made = {key: whole[key] for key in _FIELDS if key in whole}
    trouble = trouble_in_words(made)
    if trouble is None:
        return made
    name = escaped(str(made.get("name")))[:80]
    _LOG.warning('The MCP server "%s" lists "%s", which is left out: %s.', server.config.name, name, trouble)
    return None


async def read_offered(server: Upstream, pinned: Mapping[str, str] | None, uri: str) -> list[dict[str, Any]]:
    """The contents of a resource, by its address at the server; `ToolError` with one sentence if there are none."""
    request = types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=uri))
    result = await _result(server, pinned, request, types.ReadResourceResult, "resource")
    contents = [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in result.contents]
    _check_size(server, sum(len(one.get("text", "").encode()) + len(one.get("blob", "")) for one in contents))
    return [{key: one[key] for key in ("uri", "mimeType", "text", "blob") if key in one} for one in contents]


async def prompt_offered(
    server: Upstream, pinned: Mapping[str, str] | None, name: str, arguments: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The messages of a prompt; `ToolError` with one sentence if there are none."""
    params = types.GetPromptRequestParams(name=name, arguments=dict(arguments))
    result = await _result(server, pinned, types.GetPromptRequest(params=params), types.GetPromptResult, "prompt")
    _check_size(server, len(result.model_dump_json(by_alias=True, exclude_none=True).encode()))
    return [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in result.messages]


async def _result(
    server: Upstream,
    pinned: Mapping[str, str] | None,
    request: types.ClientRequest,
    model: type[_Result],
    what: str,
) -> _Result:
    name = server.config.name
    live = await _connected(server, pinned)
    try:
        raw = await server.request(live, request, seconds=server.config.call_seconds)
        return model.model_validate(raw)
    except MCPError as error:
        said = escaped(error.message)[:500]
        raise ToolError(ErrorType.PERMANENT, f'The MCP server "{name}" did not give the {what}: {said}') from None
    except UpstreamFault as fault:
        raise ToolError(ErrorType.PERMANENT, f'The MCP server "{name}" cannot be used: {fault}.') from None
    except (ValidationError, httpx2.HTTPError, OSError, ValueError):
        broken = f'What the MCP server "{name}" gave does not follow the protocol.'
        raise ToolError(ErrorType.PERMANENT, broken) from None


async def _connected(server: Upstream, pinned: Mapping[str, str] | None) -> UpstreamConnection:
    """The connection to a server that is the one whose tools were taken in."""
    name = server.config.name
    try:
        live = await server.connection()
    except UpstreamUnavailable as error:
        raise ToolError(ErrorType.TRANSIENT, str(error)) from None
    if pinned is None or live.offer.identity.get("name") != pinned.get("name"):
        mend = f"an operator sees and takes the change with `handrail mcp update {name}`"
        raise ToolError(ErrorType.CONFLICT, f'The MCP server "{name}" is not the one that was taken in; {mend}.')
    return live


def _check_size(server: Upstream, size: int) -> None:
    limit = server.config.max_result_bytes
    if size > limit:
        sentence = (
            f'The MCP server "{server.config.name}" gave {size:,} bytes; {limit:,} are allowed ("max_result_bytes").'
        )
        raise ToolError(ErrorType.PERMANENT, sentence)
