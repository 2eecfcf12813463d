"""The program in the page about voice runs, against a server, and the page names what there is."""

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.server.kit import OPERATOR
from tests.server.voice.kit import voice_server

from handrail.server.voice.close_codes import CLOSINGS
from handrail.server.voice.voice_protocol import CLIENT, SERVER
from handrail.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "voice.md").read_text("utf-8")


async def test_the_program_of_the_voice_protocol_runs(tmp_path):
    programs = [text for text in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S) if "HANDRAIL_URL" in text]
    assert len(programs) == 1
    async with voice_server(tmp_path) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", programs[0],
            env={**os.environ, "HANDRAIL_URL": server.url, "HANDRAIL_KEY": OPERATOR},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()
        assert "You said What is Handrail?." in out.decode()
        assert "[ended] user_requested" in out.decode()


def test_every_message_and_close_code_is_on_the_page():
    assert [name for name in [*CLIENT, *SERVER] if f"`{name}`" not in PAGE] == []
    assert [closing.code for closing in CLOSINGS if str(closing.code) not in PAGE] == []


def test_every_setting_of_voice_is_on_the_page_about_operating():
    page = (DOCS / "operating.md").read_text("utf-8")
    names = [name.removeprefix("voice_") for name in Settings.__dataclass_fields__ if name.startswith("voice_")]
    assert names
    assert [name for name in names if f"`{name}`" not in page] == []
