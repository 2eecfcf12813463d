"""A hook of the build: the wheel carries Handrail's own pages, from which a new knowledge base begins.

An editable install does not: there the pages are read where they are written (services/kb/starter.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PackPages(BuildHookInterface):  # type: ignore[type-arg]
    """Adds README.md and docs/*.md to a wheel, as handrail/starter."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        root = Path(self.root)
        for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
            build_data["force_include"][str(page)] = f"handrail/starter/{page.relative_to(root).as_posix()}"
