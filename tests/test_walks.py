"""Nobody walks farther through the files than this to follow a request: `scripts/walk.py` counts what is entered."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.walk import LIMITS, WALKS

ROOT = Path(__file__).resolve().parents[1]
FARTHEST = {"read": (25, 10), "write": (70, 20), "held": (200, 35), "utterance": (220, 35), "frame": (15, 11)}
"""Functions and files of each walk."""


def walked(*program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what another test has left to do would be counted too."""
    return subprocess.run(
        [sys.executable, *program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )


def assert_within(name: str) -> None:
    done = walked("scripts/walk.py", name, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)[name]
    max_functions, max_files = FARTHEST[name]
    assert 0 < found["functions"] <= max_functions, found
    assert 0 < found["files"] <= max_files, found


@pytest.mark.parametrize("name", ["read", "write"])
def test_a_call_is_followed_in_few_functions_and_files(name):
    assert_within(name)


@pytest.mark.long
@pytest.mark.parametrize("name", ["held", "utterance", "frame"])
def test_a_message_an_utterance_and_a_frame_are_followed_in_few_functions_and_files(name):
    assert_within(name)


def test_the_script_has_these_limits_and_names_a_walk_that_is_too_long():
    assert {name: limit for name, limit in LIMITS.items() if limit[0] is not None} == FARTHEST
    assert set(WALKS) == set(LIMITS)
    program = "from scripts import walk; walk.LIMITS['read'] = (5, 5); raise SystemExit(walk.main(['read']))"
    done = walked("-c", program)
    assert done.returncode == 1, done.stderr
    assert "limit 5 / 5   too long" in done.stdout
