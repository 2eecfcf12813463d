"""The programs in the pages about the server run, against a server, and the pages name what there is."""

import asyncio
import os
import re
import sys
from dataclasses import fields
from pathlib import Path

from tests.server.kit import OPERATOR, over_socket

from handrail.server.api.application import ROUTES
from handrail.server.options import Options

DOCS = Path(__file__).parents[2] / "docs"


async def test_the_programs_of_the_text_protocol_run(tmp_path):
    page = (DOCS / "text-protocol.md").read_text("utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(programs) == 2
    async with over_socket(tmp_path) as server:
        for program in programs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program,
                env={**os.environ, "HANDRAIL_URL": server.url, "HANDRAIL_KEY": OPERATOR},
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, errors = await asyncio.wait_for(process.communicate(), 60)
            assert process.returncode == 0, errors.decode()
            assert "You said: What is Handrail?" in out.decode()


def test_every_route_of_the_api_is_on_the_page():
    page = (DOCS / "text-protocol.md").read_text("utf-8")
    parts = {path.split("{")[0].rstrip("/") for _, path, _ in ROUTES if path.startswith(("/api", "/v1", "/metrics"))}
    assert [part for part in sorted(parts) if part not in page] == []


def test_every_setting_of_the_server_is_on_the_page_with_its_default():
    page = (DOCS / "deployment.md").read_text("utf-8")
    for item in fields(Options):
        assert f"`{item.name}`" in page, item.name
        if isinstance(item.default, int):
            row = next(line for line in page.splitlines() if line.startswith("|") and f"`{item.name}`" in line)
            assert str(item.default) in row, row
