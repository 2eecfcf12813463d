"""MCP in the application: its path, who may use it, and where a client learns who gives out tokens for it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from handrail.mcp.server.http import PATH, McpHttp
from handrail.mcp.server.options import TokenRefused
from handrail.server.api.http import HttpProblem, answer


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

    def challenge(self) -> str:
        return self.mcp.challenge()

    def takes(self, token: str) -> bool:
        return self.mcp.tokens is not None and self.mcp.tokens.is_ours(token)

    async def principal(self, token: str) -> tuple[object, str]:
        if self.mcp.tokens is None:
            raise HttpProblem(401, "This server takes keys, and no tokens.", challenge=self.challenge())
        try:
            who = await self.mcp.tokens.principal(token)
        except TokenRefused as refused:
            status = 401 if refused.scope is None else 403
            raise HttpProblem(status, str(refused), challenge=self.mcp.challenge(refused.scope)) from None
        return who, f"{who.client} {who.user}"
