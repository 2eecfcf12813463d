"""The client that the conformance suite starts for each of its client scenarios: the gateway's own, and nothing around it.

`python conformance_client.py URL` connects as the gateway does, lists what is offered, and makes the calls of the scenario. A
tool that the gateway would refuse to take in is not called.

In the scenarios of authorization a project is made whose server is signed in to by each person: its tools are pinned with the
token of one, and called through the whole pipeline. Whenever somebody is to connect, that person opens the address in a browser.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import mcp_types as types
from mcp.shared.exceptions import MCPError

from handrail import Registry, Runtime
from handrail.authoring.mcp.inspection import refusals
from handrail.authoring.mcp.lock import LockFile, write_lock
from handrail.authoring.mcp.server_config import UpstreamConfig, upstream_config
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.contract.credentials import ConnectionNeeded, CredentialError
from handrail.contract.errors import ToolError
from handrail.identity.config import connection_configs
from handrail.identity.connections import Connections
from handrail.identity.vault import Vault, new_key
from handrail.mcp.gateway.gateway import Gateway
from handrail.mcp.gateway.http_transport import BearerToken
from handrail.mcp.gateway.limits import UpstreamFault
from handrail.mcp.gateway.pinning import review
from handrail.mcp.gateway.upstream import Upstream, UpstreamDescription, UpstreamUnavailable
from handrail.standard_runtime import SystemClock
from handrail.stores import MemoryStore

GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
BACK = "http://127.0.0.1:8484/console/connected"
PUBLISHED = "https://conformance-test.local/client-metadata.json"
"""Where this host describes itself to authorization servers that look clients up."""
TRIES = 5
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


async def sign_in(ways: Connections) -> None:
    """What a person does: open the address, agree, and come back with the answer."""
    begun = await ways.begin("", "ana", "suite", redirect_uri=BACK, browser="b")
    async with httpx2.AsyncClient() as browser:
        sent_back = await browser.get(begun.url)
    answer = dict(parse_qsl(urlsplit(sent_back.headers["location"]).query))
    await ways.complete(answer, redirect_uri=BACK, browser="b")


async def offer_for_ana(config: UpstreamConfig, ways: Connections) -> UpstreamDescription:
    """What the server offers to a person who is signed in."""
    for _ in range(TRIES):
        try:
            token = await ways.token("", "ana", "suite")
        except ConnectionNeeded:
            await sign_in(ways)
            continue
        upstream = Upstream(
            config, environment={}, project=Path.cwd(), clock=SystemClock(), auth=BearerToken(token.value)
        )
        try:
            return (await upstream.connection()).offer
        except UpstreamUnavailable as error:
            if not (error.unauthorized or error.scopes):
                raise
            try:
                await ways.refused("", "ana", "suite", token.value, error.scopes)
            except ConnectionNeeded:
                await sign_in(ways)
        finally:
            await upstream.stop()
    raise UpstreamFault("it lets nobody list its tools")


async def call_signed_in(url: str, project: Path) -> None:
    table = {"server": url, "client_id": GIVEN.get("client_id", PUBLISHED)}
    secret = {"client_secret_env": "SECRET"} if "client_secret" in GIVEN else {}
    ways_table = {"suite": {**table, **secret}}
    store = MemoryStore()
    configs = connection_configs(ways_table, {"SECRET": GIVEN.get("client_secret", "")})
    ways = Connections(configs, store.credentials, Vault((new_key(),)), now=time.time)
    config = upstream_config("suite", {"url": url, "connection": "suite", "annotations": "ignore"})
    await store.open()
    try:
        offer = await offer_for_ana(config, ways)
        names = {name: {"confirm": False} for name in offer.definitions}
        config = upstream_config("suite", {"url": url, "connection": "suite", "tools": names})
        write_lock(project, LockFile(servers={"suite": review(config, None, offer).pinned}))
        plan = BuildPlan(
            tools=project / "tools",
            artifact=project / "tool_registry.json",
            project=project,
            tools_optional=True,
            upstream={"suite": config},
        )
        made = build(plan)
        write(made, stamp_for(made, {}))
        registry = Registry.load(plan.artifact)
        registry.lock()
        gateway = Gateway({"suite": config}, environment={}, project=project, clock=SystemClock())
        runtime = Runtime(registry, store=store, capabilities={"mcp_servers": gateway}, connections=ways)
        try:
            session = await runtime.open_session(user="ana")
            for name, args in _calls(dict(offer.definitions)):
                for turn in range(TRIES):
                    await session.begin_turn(f"{name} {turn}")  # the person has signed in, and says so
                    answer = await session.call(f"suite_{name.replace('-', '_')}", args)
                    if answer.ok or answer.error is None or answer.error.type.value != "AUTH":
                        break
                    await sign_in(ways)
                if not answer.ok:
                    raise UpstreamFault(f"a call failed: {answer.to_dict()}")
        finally:
            await runtime.close()
            await gateway.aclose()
    finally:
        await store.close()


async def main(url: str) -> int:
    if SCENARIO.startswith("auth/"):
        try:
            with tempfile.TemporaryDirectory() as folder:
                await call_signed_in(url, Path(folder))
        except (UpstreamUnavailable, UpstreamFault, CredentialError, ToolError) as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return 1
        return 0
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
            if SCENARIO == "http-standard-headers":
                await upstream.request(live, entry, seconds=10)
    except (UpstreamUnavailable, UpstreamFault, MCPError, httpx2.HTTPError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    finally:
        await upstream.stop()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
