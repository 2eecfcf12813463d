"""A project with MCP servers behind its gateway: pinned, built, and with a session to call through."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handrail import Registry, Runtime
from handrail.authoring.mcp.lock import read_lock, write_lock
from handrail.authoring.mcp.server_config import upstream_configs
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.mcp.gateway.gateway import Gateway
from handrail.mcp.gateway.pinning import offer_of, review
from handrail.mcp.server.options import Principal
from handrail.standard_runtime import SystemClock

SCRIPTED = Path(__file__).with_name("scripted_server.py")
NOTE = {
    "name": "note",
    "description": "Write a note.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
LOOK = {
    "name": "look",
    "description": "Look something up.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


class Scripted:
    """A scripted server, and what it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.says(tools=[NOTE, LOOK])

    def says(self, **script: Any) -> None:
        aside = self.folder / "aside.json"
        aside.write_text(json.dumps({"tools": [NOTE, LOOK], **script}), encoding="utf-8")
        aside.replace(self.folder / "script.json")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-S", "-E", str(SCRIPTED), str(self.folder)]

    @property
    def effects(self) -> list[str]:
        log = self.folder / "effects.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def calls(self, name: str = "note") -> list[dict[str, Any]]:
        made = [json.loads(line) for line in self.effects if line.startswith("{")]
        return [one for one in made if one["name"] == name]


class OneUser:
    """The transport of an endpoint of ours that has one client."""

    def principal(self, ctx: Any) -> Principal:
        return Principal("ana", "stdio")

    def when_written(self, ctx: Any, key: Any, calls: Any) -> None:
        """Nobody asks here whether an answer arrived."""


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "scripted")


@pytest.fixture
def scripts(tmp_path: Path) -> Callable[[str], Scripted]:
    return lambda name: Scripted(tmp_path / name)


async def pin(project: Path, servers: dict[str, Any], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Pin what the servers offer now; their configurations."""
    configs = upstream_configs(servers)
    pinned = {}
    for name, config in configs.items():
        offer = await offer_of(config, project=project, environment=environment or {}, clock=SystemClock())
        pinned[name] = review(config, None, offer).pinned
    write_lock(project, read_lock(project).taking(pinned))
    return configs


def build_project(project: Path, configs: dict[str, Any]) -> Registry:
    plan = BuildPlan(
        tools=project / "tools",
        artifact=project / "tool_registry.json",
        project=project,
        tools_optional=True,
        upstream=configs,
    )
    result = build(plan)
    assert not result.errors, [str(one) for one in result.errors]
    write(result, stamp_for(result, {}))
    registry = Registry.load(plan.artifact)
    registry.lock()
    return registry


class Governed:
    """A runtime over servers, and a session in it."""

    def __init__(self, runtime: Runtime, gateway: Gateway, session: Any, registry: Registry) -> None:
        self.runtime, self.gateway, self.session, self.registry = runtime, gateway, session, registry

    async def call(self, name: str, args: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The wire form of the envelope."""
        made: dict[str, Any] = (await self.session.call(name, args or {}, **more)).to_dict()
        return made


@asynccontextmanager
async def governed(
    project: Path,
    servers: dict[str, Any],
    *,
    pinned: bool = False,
    store: str = "memory:",
    environment: dict[str, str] | None = None,
    mode: str = "text",
    policy: dict[str, Any] | None = None,
    tracing: Any = None,
) -> AsyncIterator[Governed]:
    configs = upstream_configs(servers) if pinned else await pin(project, servers, environment)
    registry = build_project(project, configs)
    gateway = Gateway(configs, environment=environment or {}, project=project, clock=SystemClock())
    runtime = Runtime(registry, store=store, capabilities={"mcp_servers": gateway}, policy=policy, tracing=tracing)
    try:
        session = await runtime.open_session(user="ana", mode=mode)  # type: ignore[arg-type]
        yield Governed(runtime, gateway, session, registry)
        await session.close()
    finally:
        await runtime.close()
        await gateway.aclose()


def free(scripted: Scripted, **more: Any) -> dict[str, Any]:
    """A server of which the project says that notes are taken without asking, and that looking reads."""
    tools = {"note": {"confirm": False}, "look": {"side_effects": "read_only"}}
    return {"command": scripted.command, "startup_seconds": 10, "tools": tools, **more}
