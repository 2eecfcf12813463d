"""The page on MCP: its commands run, its configuration builds, its client file wraps a server."""

import json
import sys
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks, shell, write_files

PAGE = ROOT / "docs" / "mcp.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp page")


def test_the_commands_of_the_gate_run_and_its_configuration_builds(project: Path) -> None:
    (console,) = [block for block in blocks(PAGE) if block.language == "console" and "mcp add" in block.text]
    python = f'"{sys.executable}"'
    lines = [line.removeprefix("$ ").replace("-- python", f"-- {python}") for line in console.text.splitlines()]
    done = shell("\n".join(lines), project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{\n") :])["data"]["timezone"] == "Europe/Berlin"
    write_files("mcp.md", project)
    built = shell("handrail build --strict", project)
    assert built.returncode == 0, built.stderr + built.stdout
    assert "1 tool" in built.stdout


def test_the_client_file_is_one_that_can_be_taken_over(project: Path) -> None:
    (file,) = [block.text for block in blocks(PAGE) if block.language == "json"]
    (project / "client.json").write_text(file, encoding="utf-8")
    done = shell("handrail mcp import client.json --dry-run", project)
    assert done.returncode == 0, done.stderr
    assert "server-filesystem" in done.stdout
