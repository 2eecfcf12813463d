"""The client that the conformance suite starts for each of its client scenarios: the gateway's own, and nothing around it.

`python conformance_client.py URL` connects as the gateway does, lists what is offered, and makes the calls of the scenario. A
tool that the gateway would refuse to take in is not called.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError

from handrail.app import SystemClock
from handrail.authoring.mcp.inspection import refusals
from handrail.authoring.mcp.server_config import upstream_config
from handrail.mcp.gateway.limits import UpstreamFault
from handrail.mcp.gateway.upstream import Upstream, UpstreamUnavailable

GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
SAMPLES = {"string": "text", "number": 2, "integer": 3, "boolean": True, "object": {}, "array": [], "null": None}


async def yes(params: types.ElicitRequestParams) -> types.ElicitResult:
    """The person, who says yes to everything."""
    schema = params.requested_schema if isinstance(params, types.ElicitRequestFormParams) else {}
    answers = {name: _sample(part) for name, part in schema.get("properties", {}).items()}
    return types.ElicitResult(action="accept", content=answers)


def _sample(schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return schema.get("default", SAMPLES.get(kind, "text")) if isinstance(schema, dict) else "text"


def _calls(definitions: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The calls that the scenario names; without any, each tool once with arguments that fit."""
    named = GIVEN.get("toolCalls")
    if named:
        return [(one["name"], one["arguments"]) for one in named if one["name"] in definitions]
    return [
        (name, {key: _sample(part) for key, part in (one["inputSchema"].get("properties") or {}).items()})
        for name, one in definitions.items()
    ]


async def main(url: str) -> int:
    config = upstream_config("suite", {"url": url, "startup_seconds": 20, "call_seconds": 10})
    upstream = Upstream(config, environment={}, project=Path.cwd(), clock=SystemClock(), ask=True)
    try:
        live = await upstream.connection()
        bad = refusals(config, live.offer.definitions)
        for name, args in _calls({key: one for key, one in live.offer.definitions.items() if key not in bad}):
            request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=args))
            await upstream.request(live, request, seconds=10, ask=yes)
        for entry in (
            types.ListResourcesRequest(),
            types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri="file:///path/to/file%20name.txt")),
            types.ListPromptsRequest(),
            types.GetPromptRequest(params=types.GetPromptRequestParams(name="test_prompt")),
        ):
            if os.environ.get("MCP_CONFORMANCE_SCENARIO") == "http-standard-headers":
                await upstream.request(live, entry, seconds=10)
    except (UpstreamUnavailable, UpstreamFault, MCPError, httpx2.HTTPError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    finally:
        await upstream.stop()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
