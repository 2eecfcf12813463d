"""A project in a temporary folder, with tools as `handrail new` writes them, for tests that spoil and build them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail.build.compiler import BuildPlan, BuildResult, build
from handrail.build.findings import Finding
from handrail.build.scaffold import new_tool


class Workshop:
    """Writes tools, changes their files, and builds them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "tools"
        self.artifact = root / "tool_registry.json"
        self.tools.mkdir(parents=True, exist_ok=True)

    def new(self, name: str = "lookup_order", category: str = "retrieval") -> Path:
        """The folder of a new tool that has nothing wrong with it."""
        return new_tool(self.root, self.tools, name, category)[0].parent

    def plan(self, **facts: Any) -> BuildPlan:
        facts = {"roles": ("manager", "clerk"), **facts}
        return BuildPlan(tools=self.tools, artifact=self.artifact, project=self.root, **facts)

    def build(self, **facts: Any) -> BuildResult:
        return build(self.plan(**facts))

    def findings(self, **facts: Any) -> list[Finding]:
        return list(self.build(**facts).findings)

    @staticmethod
    def edit(folder: Path, **fields: Any) -> None:
        """Set fields of schema.json; a field that is set to `...` is taken out."""
        Workshop.change(folder, lambda schema: schema.update(fields))

    @staticmethod
    def change(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
        path = folder / "schema.json"
        schema = json.loads(path.read_text("utf-8"))
        change(schema)
        kept = {name: value for name, value in schema.items() if value is not ...}
        path.write_text(json.dumps(kept, indent=2), "utf-8")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)
