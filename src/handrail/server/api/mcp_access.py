"""MCP in the application: its path, who may use it, and where a client learns who gives out tokens for it."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from handrail.mcp.server.http import OAUTH, PATH, McpHttp
from handrail.server.api.http import answer
from handrail.server.keys import Key, key_of_token


class McpRoutes:
    """The routes of one `McpHttp`, and what the guard asks about its clients."""

    def __init__(self, mcp: McpHttp) -> None:
        self.mcp = mcp

    def routes(self) -> list[BaseRoute]:
        paths = {"/.well-known/oauth-protected-resource", self.mcp.metadata_path} if self.mcp.tokens else ()
        told = [Route(path, self._metadata, methods=["GET"], include_in_schema=False) for path in sorted(paths)]
        return [Route(PATH, self.mcp, include_in_schema=False), *told]

    async def _metadata(self, request: Request) -> Response:
        return answer(self.mcp.metadata())

    def challenge(self, scope: str = "") -> str:
        return self.mcp.challenge(scope)

    def takes(self, token: str) -> bool:
        return self.mcp.tokens is not None and self.mcp.tokens.names_issuer(token)

    async def key_of(self, token: str) -> Key:
        assert self.mcp.tokens is not None  # `takes` was asked
        who = await self.mcp.tokens.check(token)
        return replace(key_of_token(self.mcp.options.issuer, who), name=f"{OAUTH}{who.client or 'unknown'}")
