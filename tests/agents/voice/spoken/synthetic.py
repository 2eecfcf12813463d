"""Speech made by espeak-ng. Without it the tests that need speech are skipped, loudly; on CI that is a failure."""

import os
import shutil
import subprocess
from functools import cache

import pytest

from handrail.agents.voice.spoken.sphinx_recogniser import SphinxRecogniser

RATE = 22_050


def wanted() -> None:
    """Called by a module whose tests need speech."""
    if shutil.which("espeak-ng") is not None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail("espeak-ng is missing, so what is heard cannot be tested", pytrace=False)
    pytest.skip("espeak-ng is missing: what is heard was NOT tested", allow_module_level=True)


@cache
def said(text: str, voice: str) -> bytes:
    """PCM at `RATE`."""
    command = ["espeak-ng", "-v", voice, "-s", "160", "--stdout", "--", text]
    wave = subprocess.run(command, capture_output=True, check=True).stdout
    pcm = wave[wave.index(b"data") + 8 :]
    return pcm[: len(pcm) // 2 * 2]


@cache
def recogniser() -> SphinxRecogniser:
    return SphinxRecogniser()
