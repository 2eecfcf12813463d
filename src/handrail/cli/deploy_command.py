"""Let running servers of this project use the artifact that is there now: for new sessions, and for those that are resumed.

The artifact is loaded and checked first; if it cannot be used, nothing changes. Open sessions keep the tools that they have.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from handrail.app import open_registry
from handrail.cli.output import count, print_json, show
from handrail.cli.project import project_settings
from handrail.cli.reloading import DEPLOYED

EXAMPLES = """examples:
  handrail build && handrail deploy
  handrail deploy --registry released/tool_registry.json"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--registry", metavar="FILE", help="another artifact than the project's, which servers were given"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    settings = project_settings()
    registry = open_registry(settings, options.registry)
    artifact = Path(options.registry) if options.registry else settings.artifact_path
    mark = artifact.with_name(artifact.name + DEPLOYED)
    fresh = mark.with_name(f"{mark.name}.{os.getpid()}")
    fresh.write_text(registry.version + "\n", "utf-8")
    fresh.replace(mark)  # another file in its place, so that two deployments within one tick of the clock are two
    if options.json:
        print_json({"version": registry.version, "tools": len(registry)})
    else:
        show(f"{count(len(registry), 'tool')}, version {registry.version}: running servers take them for new sessions.")
    return 0
