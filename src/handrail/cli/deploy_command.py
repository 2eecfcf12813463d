"""Let running servers of this project use the artifact that is there now: for new sessions, and for those that are resumed.

The artifact is loaded and checked first; if it cannot be used, nothing changes. Then each server on this machine that follows it
says whether it took it. One that refuses, or says nothing, makes this command fail. Open sessions keep the tools that they have.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from handrail.app import open_registry
from handrail.cli.deployments import RunningServer, mark_deployment, running_servers
from handrail.cli.output import count, print_json, show, warn
from handrail.cli.project import project_settings
from handrail.contract.errors import UsageError

EXAMPLES = """examples:
  handrail build && handrail deploy
  handrail deploy --registry released/tool_registry.json"""
_LOOK_SECONDS = 0.1


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--registry", metavar="FILE", help="another artifact than the project's, which servers were given"
    )
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="how long servers may take to answer (default: 60)"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    if not 0 < options.wait <= 3600:
        raise UsageError(f"--wait must be more than 0 and at most 3600 seconds; {options.wait:g} is not.")
    settings = project_settings()
    registry = open_registry(settings, options.registry)
    artifact = Path(options.registry) if options.registry else settings.artifact_path
    asked = running_servers(artifact)
    deployment = mark_deployment(artifact, registry.version)
    answers = _answers(artifact, asked, deployment, options.wait)
    refused = {one: _reason(one, deployment, options.wait) for one in answers}
    took = sum(not reason for reason in refused.values())
    if options.json:
        servers = [
            {"host": one.host, "pid": one.pid, "ok": not reason, "message": reason} for one, reason in refused.items()
        ]
        print_json({"version": registry.version, "tools": len(registry), "servers": servers})
    else:
        taken = f"{count(took, 'running server')} {'uses' if took == 1 else 'use'} them for new sessions"
        said = taken if answers else "no server of this project runs on this machine"
        show(f"{count(len(registry), 'tool')}, version {registry.version}: {said}.")
        for one, reason in refused.items():
            if reason:
                warn(f"handrail deploy: process {one.pid} on {one.host or 'this machine'}: {reason}")
    return 1 if took < len(answers) else 0


def _answers(artifact: Path, asked: list[RunningServer], deployment: str, seconds: float) -> list[RunningServer]:
    """What the servers that ran when they were asked say. One that ends meanwhile will begin with the new tools."""
    pids = {one.pid for one in asked}
    until = time.monotonic() + seconds
    while True:
        found = [one for one in running_servers(artifact) if one.pid in pids]
        if all(one.deployment == deployment for one in found) or time.monotonic() > until:
            return found
        time.sleep(_LOOK_SECONDS)


def _reason(one: RunningServer, deployment: str, seconds: float) -> str:
    if one.deployment == deployment:
        return one.refused
    return f"It did not answer within {seconds:g} seconds; its log says whether it uses the new tools."
