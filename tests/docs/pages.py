"""The pages of the documentation, their code blocks, and how a block's commands are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")]
)
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)$", re.M | re.S)


@dataclass
class Block:
    language: str
    file: str
    text: str


def blocks(path: Path) -> list[Block]:
    found = []
    for match in _FENCE.finditer(path.read_text(encoding="utf-8")):
        language, _, file = match["info"].strip().partition(" ")
        found.append(Block(language, file.strip(), match["text"]))
    return found


def run(command: list[str], folder: Path, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    # pytest's plugins are those of this environment, not of an author's project; loading them takes seconds.
    only = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **only, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error", **(more or {})}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of a console block; `handrail` is this checkout's."""
    handrail = f'"{sys.executable}" -m handrail '
    script = "set -e\n" + re.sub(r"(?<![\w./-])handrail (?=[a-z])", lambda _: handrail, line)
    return run(["bash", "-c", script], folder)


def write_files(page: str, folder: Path) -> None:
    """The files that a page shows: blocks whose first line names one after the language."""
    for block in blocks(ROOT / "docs" / page):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
