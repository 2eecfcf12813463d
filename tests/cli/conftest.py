"""Runs commands: in this process where only their words matter, in one of their own where the process does."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from handrail.cli import main


class Said(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def handrail(capsys, monkeypatch):
    """`handrail("build", "--json")` in this process. It shows no progress, however slow the machine is."""
    monkeypatch.setattr("handrail.cli.output._LINE_EVERY_SECONDS", float("inf"))

    def run(*words: str) -> Said:
        capsys.readouterr()
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def process():
    """`process("build", cwd=…)` as a process of its own, in which a warning is an error.

    Without the progress of a build, which is only shown where that is slow.
    """

    def run(*words: str, cwd: Path, stdin: bytes = b"", **environment: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "handrail", *words],
            cwd=cwd,
            env={**os.environ, "PYTHONUTF8": "1", **environment},
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        errors = [one for one in done.stderr.decode().splitlines(keepends=True) if not one.startswith("building: ")]
        return Said(done.returncode, done.stdout.decode(), "".join(errors))

    return run


@pytest.fixture
def project(tmp_path, monkeypatch, handrail):
    """A new project, which is also the current folder."""
    folder = tmp_path / "demo"
    assert handrail("init", str(folder)).code == 0
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def built(project, handrail):
    """A project with a tool of each category, built."""
    for name, category in (("lookup_order", "retrieval"), ("cancel_order", "action"), ("count_words", "utility")):
        assert handrail("new", name, "--category", category).code == 0
    assert handrail("build").code == 0
    return project
