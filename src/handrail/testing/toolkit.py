"""A built folder of tools, ready to be called from a test without any set-up."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from handrail.app import find_services, service_factory
from handrail.authoring.services import service_types
from handrail.build.compiler import BuildPlan, build
from handrail.build.guide import examples_in
from handrail.build.writer import stamp_for, write
from handrail.contract.definition import Mode
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import BuildError, ErrorType
from handrail.registry import Registry, Snapshot
from handrail.runtime.services import needed_by
from handrail.runtime.services import open_service as opened_service
from handrail.settings import Settings, find_project, load_settings
from handrail.standard_runtime import Runtime


class ToolKit:
    """Tools under test."""

    def __init__(self, registry: Registry, capabilities: Mapping[str, Any], settings: Settings) -> None:
        self.registry = registry
        self._capabilities = capabilities
        self._settings = settings

    @property
    def snapshot(self) -> Snapshot:
        return self.registry.snapshot()

    def call(
        self, name: str, args: Any = None, *, mode: Mode = "text", user: str | None = None, approved: bool = False
    ) -> ToolResponse:
        """One call through the governed pipeline, in a session of its own; `approved` stands for a person who said yes."""
        return asyncio.run(self._call(name, args, mode, user, approved))

    async def _call(self, name: str, args: Any, mode: Mode, user: str | None, approved: bool) -> ToolResponse:
        async with self.runtime() as runtime:
            session = await runtime.open_session(mode=mode, user=user)
            await session.begin_turn()
            response = await session.call(name, args)
            held = response.error is not None and response.error.type is ErrorType.CONFIRMATION_REQUIRED
            if approved and held:
                async for event in session.events():
                    if event.type == "confirmation":
                        return await runtime.approve(event.data["id"], token=event.data["token"])
            return response

    def runtime(self, **options: Any) -> Runtime:
        """A throw-away runtime over these tools: memory store, audit kept in memory. Services of the project that the tools
        need are opened with it, unless a stand-in was given."""
        given = options.get("capabilities", self._capabilities)
        services = find_services(self._settings, needed_by(self.registry.entries()) - set(given))
        return Runtime(self.registry, **{"store": "memory:", "capabilities": given, "services": services, **options})

    def examples(self, name: str) -> list[Any]:
        """The arguments that the tool's guide shows as examples."""
        guide = self.registry.documentation(name)
        return [orjson.loads(example.text) for example in examples_in(guide) if example.kind == "arguments"]


def open_service(name: str, /, *, project: str | Path = ".", **settings: Any) -> AbstractAsyncContextManager[Any]:
    """A service as the project configures it, open while the block runs; `settings` override those of `handrail.toml`."""
    known = load_settings(find_project(Path(project).absolute()), os.environ)
    return opened_service(service_factory(known, name, **settings))


@contextmanager
def open_tools(
    directory: str | Path,
    *,
    modules: tuple[str, ...] = (),
    reference: tuple[str, ...] = (),
    capabilities: Mapping[str, Any] | None = None,
    project: str | Path | None = None,
) -> Iterator[ToolKit]:
    """Build the tools in `directory` into a temporary artifact; `BuildError` with every problem if they do not build.

    `modules` and `reference` are as in `[tools]`. `capabilities` are stand-ins for services; the other services are those that
    `handrail.toml` configures: in `project`, or in the nearest folder above the tools that has one.
    """
    tools = Path(directory).absolute()
    settings = load_settings(find_project(tools.parent) if project is None else Path(project).absolute(), os.environ)
    with tempfile.TemporaryDirectory() as side:
        plan = BuildPlan(
            tools=tools,
            artifact=Path(side) / "tool_registry.json",
            modules=modules,
            reference=reference,
            project=tools.parent,
            service_types=partial(service_types, settings.services, settings.project),
        )
        result = build(plan)
        if result.errors:
            raise BuildError("The tools do not build:\n" + "\n".join(str(finding) for finding in result.errors))
        registry = Registry.load(write(result, stamp_for(result, {})), tools_root=tools)
        registry.lock()
        yield ToolKit(registry, capabilities or {}, settings)
