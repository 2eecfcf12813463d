"""Finds what keeps people out: names and labels that are missing, text that is hard to read, pages that are too wide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_FINDER = (Path(__file__).parent / "obstacles.js").read_text(encoding="utf-8").rstrip(";\n")


def obstacles(page: Any) -> list[str]:
    """What is wrong with the page as it is shown now."""
    found: list[str] = page.evaluate(_FINDER)
    return found
