"""The factory of the service `mcp_servers`: light to import, because a build looks at it too."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.contract.errors import missing_extra

if TYPE_CHECKING:
    from handrail.mcp.gateway.gateway import Gateway


class _RealTime:
    monotonic = staticmethod(time.monotonic)  # noqa: TID251  # bound to the world here, as any service is
    time = staticmethod(time.time)  # noqa: TID251

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def open_gateway(project: Path, servers: Mapping[str, UpstreamConfig]) -> AsyncIterator[Any]:
    """What tools of MCP servers are called through. Nothing is started before it is needed."""
    if not all(map(find_spec, ("mcp", "mcp_types", "httpx2"))):
        raise missing_extra("Calling tools of MCP servers", "mcp")
    gateway = new_gateway(project, servers)
    try:
        yield gateway
    finally:
        await gateway.aclose()


def new_gateway(project: Path, servers: Mapping[str, UpstreamConfig]) -> Gateway:
    from handrail.mcp.gateway.gateway import Gateway  # noqa: PLC0415  # brings the SDK with it

    return Gateway(servers, environment=os.environ, project=project, clock=_RealTime())  # noqa: TID251
