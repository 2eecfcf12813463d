"""`scripts/bring_model.sh`, which `make run` starts before the server."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_settings_that_stop_the_download_are_the_reason_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "bring_model.sh", tmp_path / "scripts")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    folder = tmp_path / "build" / "run"
    folder.mkdir(parents=True)
    (folder / "kb.db").touch()
    (folder / "handrail.toml").write_text('[agent]\nmodle = "demo"\n', encoding="utf-8")

    said = subprocess.run(["sh", script], capture_output=True, text=True, timeout=60, check=False)

    assert said.returncode == 0
    assert '"modle"' in said.stdout
    assert "could not be brought" not in said.stdout
