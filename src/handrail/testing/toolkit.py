"""A built folder of tools, ready to be called from a test without any set-up."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from handrail.app import Runtime
from handrail.build.compiler import BuildPlan, build
from handrail.build.guide import examples_in
from handrail.build.writer import stamp_for, write
from handrail.contract.definition import Mode
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import BuildError, ErrorType
from handrail.registry import Registry, Snapshot


class ToolKit:
    """Tools under test."""

    def __init__(self, registry: Registry, capabilities: Mapping[str, Any]) -> None:
        self.registry = registry
        self._capabilities = capabilities

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
        """A throw-away runtime over these tools: memory store, audit kept in memory."""
        return Runtime(self.registry, **{"store": "memory:", "capabilities": self._capabilities, **options})

    def examples(self, name: str) -> list[Any]:
        """The arguments that the tool's guide shows as examples."""
        guide = self.registry.documentation(name)
        return [orjson.loads(example.text) for example in examples_in(guide) if example.kind == "arguments"]


@contextmanager
def open_tools(
    directory: str | Path, *, modules: tuple[str, ...] = (), capabilities: Mapping[str, Any] | None = None
) -> Iterator[ToolKit]:
    """Build the tools in `directory` into a temporary artifact; `BuildError` with every problem if they do not build."""
    tools = Path(directory).absolute()
    with tempfile.TemporaryDirectory() as side:
        result = build(
            BuildPlan(tools=tools, artifact=Path(side) / "tool_registry.json", modules=modules, project=tools.parent)
        )
        if result.errors:
            raise BuildError("The tools do not build:\n" + "\n".join(str(finding) for finding in result.errors))
        registry = Registry.load(write(result, stamp_for(result, {})), tools_root=tools)
        registry.lock()
        yield ToolKit(registry, capabilities or {})
