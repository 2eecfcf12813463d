"""What the gateway adds to a call of an MCP server's tool: the same server, asked directly and through the pipeline, in turns."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import mcp_types as types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.report import Result
from handrail import Registry, Runtime
from handrail.authoring.mcp.lock import LockFile, write_lock
from handrail.authoring.mcp.server_config import upstream_configs
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.mcp.gateway.gateway import Gateway
from handrail.mcp.gateway.pinning import offer_of, review
from handrail.standard_runtime import SystemClock

_SERVER = ["-m", "mcp_server_time", "--local-timezone", "UTC"]
_ROUNDS, _CALLS = 7, 40
_POLICY = {"text": {"retrieval_calls": 1_000}}


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        direct, governed = asyncio.run(_measured(Path(folder)))
    added = median(governed) - median(direct)
    return [
        Result("tools/call directly, SDK client over stdio", median(direct) * 1e3, "ms"),
        Result("the same through the gateway and the pipeline", median(governed) * 1e3, "ms"),
        Result("added by the gateway, median", added * 1e3, "ms", limit=2.0),
    ]


async def _measured(folder: Path) -> tuple[list[float], list[float]]:
    table: dict[str, Any] = {"command": [sys.executable, *_SERVER], "annotations": "trust"}
    configs = upstream_configs({"time": table})
    clock = SystemClock()
    offer = await offer_of(configs["time"], project=folder, environment={}, clock=clock)
    write_lock(folder, LockFile(servers={"time": review(configs["time"], None, offer).pinned}))
    plan = BuildPlan(
        tools=folder / "tools", artifact=folder / "r.json", project=folder, tools_optional=True, upstream=configs
    )
    result = build(plan)
    write(result, stamp_for(result, {}))
    registry = Registry.load(plan.artifact)
    registry.lock()
    gateway = Gateway(configs, environment={}, project=folder, clock=clock)
    runtime = Runtime(registry, store="memory:", capabilities={"mcp_servers": gateway}, policy=_POLICY)
    session = await runtime.open_session(user="bench")
    params = StdioServerParameters(command=sys.executable, args=_SERVER)
    direct: list[float] = []
    governed: list[float] = []
    try:
        async with Client(stdio_client(params), cache=None) as client:
            await client.list_tools()
            for turn in range(_ROUNDS):
                await session.begin_turn(input_id=str(turn))
                for at in range(_CALLS):
                    args = {"source_timezone": "UTC", "time": f"{turn:02}:{at:02}", "target_timezone": "Asia/Tokyo"}
                    began = time.perf_counter()
                    answer = await client.call_tool("convert_time", args)
                    direct.append(time.perf_counter() - began)
                    assert isinstance(answer, types.CallToolResult)
                    began = time.perf_counter()
                    made = await session.call("time_convert_time", args, call_id=f"{turn}-{at}")
                    governed.append(time.perf_counter() - began)
                    assert made.ok, made.to_dict()
    finally:
        await runtime.close()
        await gateway.aclose()
    return direct[_CALLS:], governed[_CALLS:]
