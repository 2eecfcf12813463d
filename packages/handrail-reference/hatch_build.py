"""A hook of the build: what the wheel carries, from the places in the repository where it is written.

That is the package itself and Handrail's own pages, from which a new knowledge base begins. An editable install carries
neither: it reads both where they are (handrail_reference/services/kb/starter.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Neighbour(BuildHookInterface):  # type: ignore[type-arg]
    """Adds src/handrail_reference, and README.md and docs/*.md as handrail_reference/starter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        root = Path(self.root).parents[1]
        included = build_data["force_include"]
        included[str(root / "src" / "handrail_reference")] = "handrail_reference"
        for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
            included[str(page)] = f"handrail_reference/starter/{page.relative_to(root).as_posix()}"
