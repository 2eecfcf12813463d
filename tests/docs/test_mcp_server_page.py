"""The example of the page about MCP clients runs as it says."""

import sys
from pathlib import Path

from tests.docs.pages import run, write_files


def test_the_example_of_the_page_runs_as_it_says(tmp_path: Path) -> None:
    write_files("mcp-server.md", tmp_path)
    done = run([sys.executable, "client.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["packed", "CONFIRMATION_REQUIRED"]
