"""`handrail mcp` as its clients meet it: a process that speaks the protocol over its standard streams."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from handrail.contract.errors import UsageError
from handrail.mcp.server.stdio import check_wire


def server(project: Path, *words: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "handrail", "mcp", *words], cwd=project)


async def test_a_client_of_a_folder_without_a_project_gets_the_reference_tools_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "somewhere"
    folder.mkdir()
    with (tmp_path / "errors").open("w") as errors:
        await look_and_call(folder, errors)
    assert list(folder.iterdir()) == []
    said = (tmp_path / "errors").read_text(encoding="utf-8")
    assert "there is no project in this folder, so the tools that come with Handrail are served" in said
    assert said.count("handrail init") == 1


async def look_and_call(folder: Path, errors: TextIO) -> None:
    async with stdio_client(server(folder), errors) as streams, ClientSession(*streams) as client:
        await client.initialize()
        listed = await client.list_tools()
        assert "format_datetime" in {tool.name for tool in listed.tools}
        answer = await client.call_tool("format_datetime", {"value": "2026-11-18T12:00:00Z"})
        assert answer.structured_content is not None
        assert set(answer.structured_content) >= {"ok", "intents", "meta"}
        assert answer.structured_content["ok"] is True


async def test_a_client_that_cannot_change_its_folder_names_the_project(tmp_path: Path) -> None:
    project = tmp_path / "my shop"
    project.mkdir()
    (project / "shop.py").write_text(
        'from handrail import tool\n\n\n@tool(category="utility", side_effects="none")\ndef weigh(grams: int) -> int:\n'
        '    """Weigh it."""\n    return grams\n',
        encoding="utf-8",
    )
    (project / "handrail.toml").write_text('[tools]\nmodules = ["shop"]\n', encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    started = server(elsewhere, "--project", str(project))
    async with stdio_client(started) as streams, ClientSession(*streams) as client:
        await client.initialize()
        assert "weigh" in {tool.name for tool in (await client.list_tools()).tools}
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "sentence"), [("nowhere", "is not one"), ("empty", 'There is no project in the folder "empty"')]
)
def test_a_named_folder_without_a_project_is_refused(tmp_path: Path, place: str, sentence: str) -> None:
    (tmp_path / "empty").mkdir()
    words = [sys.executable, "-m", "handrail", "mcp", "--project", place]
    said = subprocess.run(words, cwd=tmp_path, input="", capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 2
    assert sentence in said.stderr
    assert [one.name for one in tmp_path.rglob("*")] == ["empty"]


def test_a_file_or_nothing_in_a_clients_place_is_refused_in_one_sentence(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    ours, theirs = socket.socketpair()
    with (
        os.fdopen(reading, "rb"),
        os.fdopen(writing, "wb"),
        ours,
        theirs,
        (tmp_path / "out").open("wb") as file,
        Path(os.devnull).open("rb") as nothing,
    ):
        check_wire(reading, writing)
        check_wire(ours.fileno(), ours.fileno())
        with pytest.raises(UsageError, match="Standard output leads to no MCP client"):
            check_wire(reading, file.fileno())
        with pytest.raises(UsageError, match="Standard input leads to no MCP client"):
            check_wire(nothing.fileno(), writing)
        with pytest.raises(UsageError, match="Standard output leads to no MCP client"):
            check_wire(reading, -1)
