"""What servers behind the gateway have beside tools, for the clients of ours: under names of ours, marked as external.

A session is offered those of a server as long as it is offered one of its tools: roles, conditions and an operator's switches
decide over both alike. An address or a name says which server it is of, so none can stand for another's, or for ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from handrail.authoring.source import UPSTREAM_CAPABILITY
from handrail.contract.errors import ToolError
from handrail.mcp.server.catalogue import McpCatalogue
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

SERVER_URI = "handrail://server/"
MARK = "handrail/external"
"""The member of `_meta` that says whose words these are: the name of the server."""
_MAX_ADDRESS = 4_000


class UpstreamResources:
    """Resources and prompts of servers, for a session."""

    def __init__(self, runtime: RuntimeCore, catalogue: McpCatalogue) -> None:
        self._runtime = runtime
        self._catalogue = catalogue

    def _gateway(self, session: Session, kind: Literal["resources", "prompts"]) -> tuple[Any, list[str]]:
        """The gateway, and the servers that pass something on to this session."""
        gateway = self._runtime.capabilities.get(UPSTREAM_CAPABILITY)
        passing = gateway.passing(kind) if gateway is not None else ()
        if not passing:
            return gateway, []
        offered = {tool.upstream_server for tool in self._catalogue.tools_of(session)}
        return gateway, [name for name in passing if name in offered]

    async def _listed(self, session: Session, kind: str) -> list[tuple[str, dict[str, Any]]]:
        gateway, servers = self._gateway(session, "prompts" if kind == "prompts" else "resources")
        lists = await asyncio.gather(*(gateway.list_offered(server, kind) for server in servers))
        return [(server, entry) for server, entries in zip(servers, lists, strict=True) for entry in entries]

    async def resources(self, session: Session) -> list[dict[str, Any]]:
        found = await self._listed(session, "resources")
        return [_marked(server, {**entry, "uri": _address(server, entry["uri"])}) for server, entry in found]

    async def templates(self, session: Session) -> list[dict[str, Any]]:
        found = await self._listed(session, "resourceTemplates")
        return [
            _marked(server, {**entry, "uriTemplate": _address(server, entry["uriTemplate"])}) for server, entry in found
        ]

    async def prompts(self, session: Session) -> list[dict[str, Any]]:
        found = await self._listed(session, "prompts")
        return [_marked(server, {**entry, "name": f"{server}.{entry['name']}"}) for server, entry in found]

    async def read(self, session: Session, uri: str) -> dict[str, Any] | None:
        """The contents at an address; None if no server of this session has it."""
        server, _, inner = uri.removeprefix(SERVER_URI).partition("/")
        gateway, servers = self._gateway(session, "resources")
        if server not in servers or not inner or len(uri) > _MAX_ADDRESS:
            return None
        try:
            contents = await gateway.read_offered(server, inner)
            self._note(session, server, "resource", ok=True)
        except ToolError as error:
            self._note(session, server, "resource", ok=False)
            raise MCPError(code=INVALID_PARAMS, message=error.message, data={"uri": uri}) from None
        return {"contents": [_marked(server, {**one, "uri": _address(server, one["uri"])}) for one in contents]}

    async def prompt(self, session: Session, name: str, arguments: Mapping[str, str]) -> dict[str, Any] | None:
        """The messages of a prompt; None if no server of this session has it."""
        server, dot, inner = name.partition(".")
        if not dot:
            return None
        gateway, servers = self._gateway(session, "prompts")
        if server not in servers or not inner:
            return None
        try:
            messages = await gateway.prompt_offered(server, inner, arguments)
            self._note(session, server, "prompt", ok=True)
        except ToolError as error:
            self._note(session, server, "prompt", ok=False)
            raise MCPError(code=INVALID_PARAMS, message=error.message) from None
        made = [{"role": one["role"], "content": _block(server, one["content"])} for one in messages]
        return _marked(server, {"messages": made})

    def _note(self, session: Session, server: str, kind: str, *, ok: bool) -> None:
        """The address and the arguments may say something of the user, so they are not written."""
        self._runtime.audit.emit("passed_on", {"sessionId": session.id, "server": server, "kind": kind, "ok": ok})


def _address(server: str, uri: str) -> str:
    return f"{SERVER_URI}{server}/{uri}"


def _marked(server: str, made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "_meta": {MARK: server}}


def _block(server: str, block: Mapping[str, Any]) -> dict[str, Any]:
    """A block of a message, whose links lead through us as well."""
    made = dict(block)
    if made.get("type") == "resource_link":
        made["uri"] = _address(server, made["uri"])
    elif made.get("type") == "resource":
        inner = made["resource"]
        made["resource"] = {**inner, "uri": _address(server, inner["uri"])}
    return _marked(server, made)
