"""`scripts/bring_model.sh`, which `make run` starts before the server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def copied(tmp_path: Path, program: str) -> Path:
    """The script in a project where this program stands in the place of Python."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    python.chmod(0o700)
    (tmp_path / "build" / "run").mkdir(parents=True)
    return Path(shutil.copy(ROOT / "scripts" / "bring_model.sh", tmp_path / "scripts"))


def test_settings_that_stop_the_download_are_the_reason_that_is_given(tmp_path: Path) -> None:
    script = copied(tmp_path, f'exec "{sys.executable}" "$@"')
    folder = tmp_path / "build" / "run"
    (folder / "kb.db").touch()
    (folder / "handrail.toml").write_text('[agent]\nmodle = "demo"\n', encoding="utf-8")

    said = subprocess.run(["sh", script], capture_output=True, text=True, timeout=60, check=False)

    assert said.returncode == 0
    assert '"modle"' in said.stdout
    assert "could not be brought" not in said.stdout


@pytest.mark.parametrize(
    ("slow", "last"),
    [("0", "Search by meaning is ready."), ("2", "MiniLM is there: search knows meanings from the next start on.")],
    ids=["in time", "too late for this start"],
)
def test_what_was_announced_is_followed_by_a_line_when_it_is_there(tmp_path: Path, slow: str, last: str) -> None:
    script = copied(tmp_path, f'[ "$3" != models ] || sleep {slow}')
    environment = {**os.environ, "MODEL_SECONDS": "1"}

    said = subprocess.run(["sh", script], capture_output=True, text=True, timeout=60, check=True, env=environment)

    first, *_ = lines = said.stdout.splitlines()
    assert first.startswith("Search by meaning is being prepared beside the server")
    assert lines[-1] == last
