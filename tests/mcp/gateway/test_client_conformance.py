"""The client scenarios of the protocol's official conformance suite, each run against the gateway's own client."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.node_packages import is_there, node
from tests.mcp.test_conformance import SUITE, required

CLIENT = Path(__file__).with_name("conformance_client.py")
pytestmark = pytest.mark.skipif(
    not is_there() and os.environ.get("CI") != "true", reason="the suite is not here; `make node` brings it"
)


def passes(scenario: str, folder: Path) -> bool:
    link = folder / "client.py"  # the suite takes the command apart at its spaces
    if not link.exists():
        link.symlink_to(CLIENT)
        (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        (folder / "python").chmod(0o700)
    words = ["--command", "./python client.py", "--scenario", scenario, "--spec-version", "2026-07-28"]
    made = subprocess.run(
        [node(), str(SUITE), "client", *words],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = re.search(r"OVERALL: (PASSED|FAILED)", made.stdout + made.stderr)
    assert said is not None, made.stdout[-2000:] + made.stderr[-2000:]
    return said[1] == "PASSED"


@pytest.mark.parametrize("scenario", ["sep-2322-client-request-state", "auth/scope-step-up"])
def test_the_client_of_the_gateway_passes_a_scenario(tmp_path: Path, scenario: str) -> None:
    assert passes(scenario, tmp_path)


@pytest.mark.long
def test_every_required_scenario_passes(tmp_path: Path) -> None:
    scenarios = required("2026-07-28", "client")
    assert len(scenarios) == 32
    failed = [one for one in scenarios if not passes(one, tmp_path) and not passes(one, tmp_path)]
    assert failed == []
