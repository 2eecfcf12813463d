"""Figures that tests record are printed at the end, whoever ran the tests: one process, or workers whose output goes nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest


@pytest.mark.parametrize("number", [1, 2])
def test_counts(number, record_figures):
    record_figures(f"{number} kills")
    record_figures(f"{number} turns\\n{number} looks")
    assert number == 1


def test_has_none():
    print("said in passing")
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_figures_are_printed_at_the_end_of_passed_and_failed_tests(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_counting.py").write_text(TESTS, "utf-8")
    options = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml", "-rN", *workers)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, "1 failed, 2 passed" in done.stdout) == (1, True), done.stdout + done.stderr
    printed = done.stdout.partition(" figures =")[2].splitlines()
    first = next(number for number, line in enumerate(printed) if line.endswith("::test_counts[1]"))
    assert printed[first + 1 : first + 4] == ["    1 kills", "    1 turns", "    1 looks"]
    assert printed[first + 4].endswith("::test_counts[2]")
    assert printed[first + 5 : first + 8] == ["    2 kills", "    2 turns", "    2 looks"]
    assert "said in passing" not in done.stdout


def test_without_figures_there_is_no_heading(tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n", "utf-8")
    options = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "pyproject.toml")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert "figures" not in done.stdout
