"""The reference package uses what any user of Handrail may use: the modules that docs/extending.md lists, and no others.

Import-linter says so of modules; tools are folders that are loaded by path, and imports for type checkers alone escape it too.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "src" / "handrail_reference"


def public_modules() -> set[str]:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    return {"handrail", *re.findall(r"^\| `(handrail\.[a-z_]+)` \|", page, re.M)}


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
