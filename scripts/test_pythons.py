"""Run the tests that need no browser on every supported Python of this machine, one after the other.

`make test-pythons` starts it. Interpreters come from PATH (`python3.11`, `python3.12`, …) and from pyenv; each has an
environment of its own in build/pythons/, made from requirements.lock. A locked package without a wheel for one Python is
left out there, and the table at the end says so. Exit code 1 if a test failed or an environment could not be made.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT, ROOT / "packages" / "handrail-reference")
ENVIRONMENTS = ROOT / "build" / "pythons"
OLDEST = 11
"""The minor version of the oldest supported Python 3."""
NEWEST = 20
"""How far PATH is searched: newer versions than today's are found without a change here."""
BROWSER_TESTS = "tests/console"
MISSING_WHEEL = re.compile(r"No matching distribution found for ([A-Za-z0-9._-]+)==")
PROGRESS = re.compile(r"\[ *(\d+)%\]")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


class CannotInstallError(Exception):
    """An environment could not be made; the message is the last line of what was said."""


@dataclass(frozen=True, kw_only=True)
class Result:
    version: str
    outcome: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    left_out: Sequence[str] = ()
    seconds: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--only", default="", help='versions to try, such as "3.12 3.13.0"; all that are found by default'
    )
    parser.add_argument("pytest", nargs="*", help="passed on to pytest, such as folders of tests")
    options = parser.parse_args()

    found = interpreters()
    wanted = options.only.split()
    chosen = {
        version: path for version, path in found.items() if not wanted or any(_fits(version, one) for one in wanted)
    }
    if not chosen:
        print(f"No interpreter fits; found: {', '.join(found) or 'none'}.", file=sys.stderr)
        return 1
    print(f"Pythons: {', '.join(chosen)}", flush=True)
    results = [try_python(version, path, options.pytest) for version, path in chosen.items()]
    print()
    print(table(results))
    return 0 if all(result.outcome == "ok" for result in results) else 1


def interpreters() -> dict[str, Path]:
    """Version → interpreter, oldest first. Of two with the same version the first found counts."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python3.{minor}") for minor in range(OLDEST, NEWEST)]
    paths = [*pyenv.glob("3.*/bin/python"), *(Path(one) for one in candidates if one is not None)]
    found: dict[str, Path] = {}
    for path in paths:
        asked = subprocess.run(
            [path, "-c", "import platform; print(platform.python_version())"],
            capture_output=True,
            text=True,
            check=False,
        )
        version = asked.stdout.strip()
        # A shim of pyenv's may stand for a version that is not chosen, and then fails.
        if asked.returncode == 0 and _numbers(version)[1] >= OLDEST:
            found.setdefault(version, path)
    return dict(sorted(found.items(), key=lambda item: _numbers(item[0])))


def try_python(version: str, interpreter: Path, pytest_arguments: Sequence[str]) -> Result:
    began = time.monotonic()
    try:
        python, left_out = environment(version, interpreter)
    except CannotInstallError as error:
        _tell(version, f"no environment: {error}")
        return Result(version=version, outcome="no environment", seconds=round(time.monotonic() - began))
    for package in left_out:
        _tell(version, f"NO WHEEL for {package}: its tests are left out")

    report = ENVIRONMENTS / f"{version}.xml"
    report.unlink(missing_ok=True)
    log = ENVIRONMENTS / f"{version}.log"
    _tell(version, f"testing; everything pytest says is in {log.relative_to(ROOT)}")
    code = run_tests(version, python, report, log, pytest_arguments)
    seconds = round(time.monotonic() - began)
    if not report.exists():
        _tell(version, f"pytest ended with exit code {code} and without a report")
        return Result(version=version, outcome="no report", left_out=left_out, seconds=seconds)
    suite = next(ElementTree.parse(report).iter("testsuite")).attrib  # noqa: S314 - our own pytest wrote it
    failed, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
    passed = int(suite["tests"]) - failed - skipped
    _tell(version, f"{passed} passed, {failed} failed, {skipped} skipped in {seconds} s")
    return Result(
        version=version,
        outcome="ok" if code == 0 else "failed",
        passed=passed,
        failed=failed,
        skipped=skipped,
        left_out=left_out,
        seconds=seconds,
    )


def environment(version: str, interpreter: Path) -> tuple[Path, list[str]]:
    """The environment's interpreter, and the packages of the lock that have no wheel for it."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    projects = [(folder / "pyproject.toml").read_text(encoding="utf-8") for folder in PACKAGES]
    made_from = hashlib.sha256("\n".join([str(ROOT), str(interpreter), lock, *projects]).encode()).hexdigest()
    stamp = folder / "stamp"
    if stamp.exists():
        known, *left_out = stamp.read_text(encoding="utf-8").split("\n")
        if known == made_from:
            return python, left_out

    _tell(version, "making the environment")
    # The pip that runs this script installs into it, so an interpreter without ensurepip will do. Some tests need one there.
    _run([str(interpreter), "-m", "venv", "--clear", "--without-pip", str(folder)])
    _run([*PIP, "--python", str(python), "install", "--quiet", "pip"])
    left_out = []
    requirements = folder / "requirements.txt"
    while True:
        requirements.write_text(lock, encoding="utf-8")
        try:
            # The lock is complete; without dependencies, a package that had to be left out is not asked for again.
            flags = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--no-compile", "--quiet"]
            _run([*PIP, "--python", str(python), "install", *flags, "-r", str(requirements)])
            break
        except CannotInstallError as error:
            missing = MISSING_WHEEL.search(str(error))
            if missing is None or missing[1] in left_out:
                raise
            left_out.append(missing[1])
            lock = _without(lock, missing[1])
    editable = [argument for package in PACKAGES for argument in ("--editable", str(package))]
    _run([*PIP, "--python", str(python), "install", "--no-deps", "--no-build-isolation", "--quiet", *editable])
    stamp.write_text("\n".join([made_from, *left_out]), encoding="utf-8")
    return python, left_out


def run_tests(version: str, python: Path, report: Path, log: Path, arguments: Sequence[str]) -> int:
    # Its cache is its own: two Pythons would overwrite each other's.
    cache = ["-o", f"cache_dir={ENVIRONMENTS / f'{version}.cache'}"]
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", f"--ignore={BROWSER_TESTS}", *cache]
    told = 0
    with log.open("w", encoding="utf-8") as file:
        running = subprocess.Popen(
            [*command, f"--junit-xml={report}", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert running.stdout is not None
        for line in running.stdout:
            file.write(line)
            at = PROGRESS.search(line)
            if at is not None and int(at[1]) >= told + 10:
                told = int(at[1]) // 10 * 10
                _tell(version, f"{told} %")
            elif line.startswith(("FAILED", "ERROR")):
                _tell(version, line.rstrip()[:160])
        return running.wait()


def table(results: Sequence[Result]) -> str:
    rows = [("Python", "outcome", "passed", "failed", "skipped", "seconds", "left out (no wheel)")]
    rows += [
        (
            one.version,
            one.outcome,
            f"{one.passed:,}",
            str(one.failed),
            str(one.skipped),
            str(one.seconds),
            ", ".join(one.left_out),
        )
        for one in results
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _without(lock: str, package: str) -> str:
    """The lock without one package: its line and the indented ones below it."""
    return re.sub(rf"^{re.escape(package)}==.*\n(?:[ \t].*\n)*", "", lock, flags=re.MULTILINE)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotInstallError("\n".join(said[-3:]) or f"exit code {done.returncode}")


def _fits(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)) or (0, 0)


def _tell(version: str, text: str) -> None:
    print(f"  {version}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
