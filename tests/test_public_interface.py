"""The public interface is the names that tests/data/public_interface.txt lists: one that goes, or comes, is seen in review.

The reference package uses what any user of Handrail may use: the modules that docs/extending.md lists, and no others.

Import-linter says so of modules; tools are folders that are loaded by path, and imports for type checkers alone escape it too.
"""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "src" / "handrail_reference"
FROZEN = ROOT / "tests" / "data" / "public_interface.txt"


def public_modules() -> set[str]:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    section = page.partition("## What a package may import")[2]
    return set(re.findall(r"^\| `(handrail(?:\.[a-z_]+)?)` \|", section, re.M))


def imported(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.add(node.module or "")
    return {name for name in modules if name.partition(".")[0] == "handrail"}


def test_the_reference_package_imports_public_modules_only():
    public = public_modules()
    assert {"handrail.model", "handrail.errors", "handrail.commands"} <= public
    private = {
        f"{path.relative_to(REFERENCE)}: {name}"
        for path in sorted(REFERENCE.rglob("*.py"))
        for name in imported(path) - public
    }
    assert private == set()


def test_the_public_names_are_those_that_are_listed():
    now = sorted(f"{module}.{name}" for module in public_modules() for name in importlib.import_module(module).__all__)
    listed = FROZEN.read_text(encoding="utf-8").splitlines()
    assert now == listed, (
        "A public name came or went: say so in CHANGELOG.md, then change tests/data/public_interface.txt."
    )


def test_a_program_that_makes_its_own_runtime_loads_nothing_of_projects_builds_and_agents():
    program = "import sys; from handrail import Registry, Runtime; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert "handrail.runtime.core" in loaded
    mine = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("handrail.")}
    assert mine.isdisjoint(f"handrail.{name}" for name in ("app", "build", "clients", "mcp", "picking", "settings"))
    assert {name for name in loaded if name.startswith("handrail.agents")} == {
        "handrail.agents",
        "handrail.agents.guides",
    }


def test_every_public_name_is_there_and_none_is_private():
    for module in public_modules():
        loaded = importlib.import_module(module)
        assert len(set(loaded.__all__)) == len(loaded.__all__), module
        for name in loaded.__all__:
            assert not name.startswith("_"), f"{module}.{name}"
            assert getattr(loaded, name) is not None, f"{module}.{name}"
