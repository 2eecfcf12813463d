"""The page on live providers: its local conversation and its recording run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "live-providers.md"


PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_conversation_of_the_page_is_held() -> None:
    assert run(next(one for one in PROGRAMS if "Dim the lamp" in one)) == "The model says: Dimmed.\n"


def test_the_recording_of_the_page_is_made_and_played() -> None:
    assert run(next(one for one in PROGRAMS if "Recorder" in one)) == ""
