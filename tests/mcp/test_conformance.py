"""The protocol's official conformance suite, over a project of ours: every scenario runs through the governed pipeline."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.node_packages import FOLDER, is_there, node
from tests.mcp.served_project import Served, served

PROJECT = Path(__file__).parent / "conformance_project"
SUITE = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REQUIREMENTS = SUITE.parent.parent / "requirements"

pytestmark = pytest.mark.skipif(
    not is_there() and os.environ.get("CI") != "true", reason="the suite is not here; `make node` brings it"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    project = tmp_path_factory.mktemp("conformance") / "a project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    with served(project, open_to_all=True, HANDRAIL_SERVER_REQUESTS_PER_MINUTE="100000") as running:
        yield running


def required(version: str, side: str) -> list[str]:
    """The scenarios that the suite itself scores for a revision: of the `server`, or of the `client`."""
    text = (REQUIREMENTS / f"{version}.yaml").read_text(encoding="utf-8")
    section = re.search(rf"^{side}:\n((?:  - .+\n)+)", text, re.M)
    assert section is not None
    return [line.removeprefix("  - ") for line in section[1].splitlines()]


def run(server: Served, folder: Path, *words: str) -> dict[str, tuple[int, int]]:
    """Each scenario that ran: how many of its checks passed, and how many failed."""
    made = subprocess.run(
        [node(), str(SUITE), "server", "--url", server.mcp, *words],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.findall(r"^[✓✗] ([\w/.-]+): (\d+) passed, (\d+) failed", made.stdout, re.M)
    assert found, made.stdout[-2000:] + made.stderr[-2000:]
    return {name: (int(passed), int(failed)) for name, passed, failed in found}


def alone(server: Served, folder: Path, name: str, version: str) -> tuple[int, int]:
    """How many checks of a scenario pass and fail by itself."""
    made = subprocess.run(
        [node(), str(SUITE), "server", "--url", server.mcp, "--scenario", name, "--spec-version", version, "--force"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.findall(r"^Passed: (\d+)/\d+, (\d+) failed", made.stdout, re.M)
    assert len(found) == 1, made.stdout[-2000:] + made.stderr[-2000:]
    return int(found[0][0]), int(found[0][1])


@pytest.mark.parametrize(("version", "scored", "of_tasks"), [("2025-11-25", 30, 0), ("2026-07-28", 37, 44)])
def test_every_scored_scenario_of_a_revision_passes(
    server: Served, tmp_path: Path, version: str, scored: int, of_tasks: int
) -> None:
    results = run(server, tmp_path, "--requirements", version)
    tasks = {name for name in results if name.startswith("tasks-")}
    counted = set(required(version, "server"))
    assert len(counted) == scored
    assert counted <= results.keys()
    failed = [name for name in {*counted, *tasks} if results[name][1]]
    assert len(failed) <= 1, failed
    for name in failed:  # one that fails beside others may be run once more alone
        results[name] = alone(server, tmp_path, name, version)
    assert not any(results[name][1] for name in {*counted, *tasks})
    assert all(results[name][0] for name in counted)
    assert sum(results[name][0] for name in tasks) == of_tasks
