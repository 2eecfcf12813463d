"""New environments that hold a built wheel and exactly what it declares.

The dependencies are copied out of this environment, which has every extra in its locked version: nothing is downloaded, and a
dependency that was forgotten in pyproject.toml is missing as it would be for a user.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from scripts.install_table import OURS, installed_with

ROOT = Path(__file__).parents[2]
_WORK = "empty folder"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


@dataclass(frozen=True)
class Environment:
    folder: Path
    work: Path
    """An empty folder: nothing of the checkout can be found from it."""

    def python(self, *arguments, check=True, timeout=60):
        return self._run(self.folder / "bin" / "python", "-I", *arguments, check=check, timeout=timeout)

    def handrail(self, *arguments, check=True, folder=None, timeout=60):
        return self._run(self.folder / "bin" / "handrail", *arguments, check=check, folder=folder, timeout=timeout)

    def _run(self, *command, check, timeout, folder=None):
        done = subprocess.run(
            command, cwd=folder or self.work, env=bare(), capture_output=True, text=True, timeout=timeout, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def packages(self):
        """The names of what is installed."""
        listed = "import json, importlib.metadata as m; print(json.dumps([one.name for one in m.distributions()]))"
        return {canonicalize_name(name) for name in json.loads(self.python("-c", listed).stdout)}

    def megabytes(self):
        [packages] = self.folder.glob("lib/python*/site-packages")
        return (
            sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc") / 1e6
        )


def bare():
    """The environment variables of a user who has set nothing."""
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}


def build_wheels(folder):
    """What `make wheels` does, into `folder`."""
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    subprocess.run([*command, ROOT, ROOT / "packages" / "handrail-reference"], check=True, capture_output=True)
    return folder


def make_environment(folder, wheels, *extras):
    """A new environment with `handrail[extras]` from the wheels."""
    home = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, capture_output=True)
    [packages] = home.glob("lib/python*/site-packages")
    needed = installed_with("handrail", *extras)
    for name, distribution in needed.items():
        if name not in OURS:
            _copy(distribution, packages)
    ours = [next(wheels.glob(f"{name.replace('-', '_')}-*.whl")) for name in OURS if name in needed]
    subprocess.run(
        [*PIP, "--python", home / "bin" / "python", "install", "--no-index", "--no-deps", "--no-compile", *ours],
        check=True,
        capture_output=True,
    )
    (folder / _WORK).mkdir()
    return environment_in(folder)


def environment_in(folder):
    """The environment that was made in this folder."""
    return Environment(folder / "env", folder / _WORK)


def made_once(factory, name, make):
    """A folder that `make` fills, once for all workers of a run: whoever needs it first makes it, and the others wait."""
    root = factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder, done = root / name, root / f"{name}.made"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def _copy(distribution, packages):
    for file in distribution.files or ():
        source = Path(distribution.locate_file(file))
        target = packages / file
        # Scripts lie beside the packages, and nobody calls them here.
        if ".." in file.parts or source.suffix == ".pyc" or not source.is_file():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copyfile(source, target)
