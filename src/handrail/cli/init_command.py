"""Make a project: a handrail.toml, a folder for tools, and the schema that editors complete schema.json from."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from handrail.build.scaffold import init_project
from handrail.cli.output import print_json, warn
from handrail.contract.errors import UsageError
from handrail.settings import FILE, find_project

EXAMPLES = "examples:\n  handrail init demo\n  handrail init ."


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", default=".", help="where to make it (default: here)")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(options: Namespace) -> int:
    if not options.folder.strip():
        raise UsageError("The folder's name is empty; give one, or leave it out to make the project here.")
    folder = Path(options.folder)
    written = init_project(folder)
    around = find_project(folder.absolute().parent)
    if (around / FILE).is_file():
        warn(
            f'handrail init: "{options.folder}" is inside of another project, "{around.name}"; commands in it see only the '
            "new one."
        )
    if options.json:
        print_json({"project": options.folder, "written": written})
        return 0
    print(f'Made the project "{options.folder}": {", ".join(written)}')
    print("Next: " + (f"cd {shlex.quote(options.folder)} && " if options.folder != "." else "") + "handrail new NAME")
    return 0
