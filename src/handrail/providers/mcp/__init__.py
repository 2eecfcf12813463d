"""MCP, with Handrail as the server: a client holds the model and calls our tools."""

from __future__ import annotations

from handrail.providers.provider import Provider

MCP = Provider(
    name="mcp",
    vendor="The MCP client",
    adapter="handrail.providers.mcp.adapter",
    transport="handrail.providers.mcp.transport",
    id_scope="connection",
)
