"""A project in a temporary folder that is built and loaded, for tests that change it in between."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail.build.compiler import BuildPlan, BuildStamp, build
from handrail.build.scaffold import new_tool
from handrail.build.writer import write
from handrail.registry import Registry
from handrail.registry.artifact import render

STAMP = BuildStamp(git_commit="abcd1234", timestamp="2026-01-01T00:00:00Z")


class Shelf:
    """Writes tools, builds them, and loads the registry."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "tools"
        self.artifact = root / "tool_registry.json"
        self.tools.mkdir(parents=True, exist_ok=True)

    def new(self, name: str = "lookup_order", category: str = "retrieval", handler: str | None = None) -> Path:
        folder = new_tool(self.root, self.tools, name, category)[0].parent
        if handler is not None:
            (folder / "handler.py").write_text(handler)
        return folder

    def build(self, *modules: str) -> Path:
        result = build(BuildPlan(tools=self.tools, artifact=self.artifact, modules=modules, project=self.root))
        assert not result.errors, result.errors
        return write(result, STAMP)

    def load(self, **options: Any) -> Registry:
        """The registry, locked."""
        registry = Registry.load(self.artifact, **options)
        registry.lock()
        return registry

    def reseal(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Make the artifact one that no build would write, with a seal that fits."""
        document = json.loads(self.artifact.read_text())
        change(document)
        head = {key: value for key, value in document.items() if key not in ("format", "seal", "tools")}
        self.artifact.write_bytes(render(head, document["tools"]))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)
