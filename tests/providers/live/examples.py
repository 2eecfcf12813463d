"""The wire examples beside the project, which were checked with the real SDKs."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3].parent / "shared" / "reference" / "wire-examples"


def example(name: str) -> list[dict[str, Any]]:
    """The messages of a file; the test is skipped where the examples are not there."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"The wire examples are not beside the project: {name}")
    messages: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return messages
