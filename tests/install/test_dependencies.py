"""What the packages import is what they declare."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from scripts.install_table import installed_with

ROOT = Path(__file__).parents[2]
FOLDERS = {"handrail": ROOT, "handrail_reference": ROOT / "packages" / "handrail-reference"}
"""Each package and where its pyproject.toml is."""
WITHOUT_AN_EXTRA = {
    "trustme": "only the public fakes of live providers use it, and say so",
    "numpy": "who gives vectors to `pick_tools` has it",
}
SHARED = {
    "anyio": "openai",
    "h11": "uvicorn",
}
"""Packages that come with another one whose interface shows them."""
# Of the standard library of a Python that is newer than the oldest that we support; imported behind a check of the version.
NEWER_MODULES = {"annotationlib"}


def names(requirements):
    return {re.match(r"[A-Za-z0-9._-]+", one)[0].lower().replace("_", "-") for one in requirements}


def third_party_imports(folder):
    """(module, place, whether it is imported as soon as its file is) of every import from another package."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        late = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            else:
                continue
            for module in modules:
                top = module.partition(".")[0]
                if top not in sys.stdlib_module_names | NEWER_MODULES and not top.startswith("handrail"):
                    yield top, f"{path.relative_to(ROOT)}:{node.lineno}", id(node) not in late


@cache
def distributions():
    return {
        module: {name.lower().replace("_", "-") for name in found} for module, found in packages_distributions().items()
    }


def project(package):
    return tomllib.loads((FOLDERS[package] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("package", FOLDERS)
def test_every_import_is_declared(package):
    extras = project(package)["optional-dependencies"]
    needed = names(project(package)["dependencies"])
    declared = needed.union(*(names(extras[one]) for one in extras if one not in ("all", "dev")))
    known = distributions()
    undeclared = [
        place
        for module, place, _ in third_party_imports(ROOT / "src" / package)
        if not (known.get(module, set()) | {SHARED.get(module, "")}) & declared and module not in WITHOUT_AN_EXTRA
    ]
    assert not undeclared


@pytest.mark.parametrize("package", FOLDERS)
def test_every_dependency_is_imported(package):
    known = distributions()
    imported = set().union(
        *(known.get(module, {module}) for module, _, _ in third_party_imports(ROOT / "src" / package))
    )
    found_otherwise = {"tzdata": "by zoneinfo", "handrail": "not third-party"}
    assert names(project(package)["dependencies"]) - set(found_otherwise) <= imported


def test_all_has_every_extra():
    extras = project("handrail")["optional-dependencies"]
    [everything] = extras["all"]
    assert set(re.search(r"\[(.*)\]", everything)[1].split(",")) == set(extras) - {"all", "dev"}


def test_the_page_names_every_extra_and_no_other():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `handrail(?:\[([a-z]+)\])?` \| .+ \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == [
        "",
        *(one for one in project("handrail")["optional-dependencies"] if one != "dev"),
    ]
    for name, packages, _ in rows:
        here = len(installed_with("handrail", name)) - 1
        # The page counts for Python 3.11; a newer one needs fewer backports.
        wanted = {int(packages)} if sys.version_info < (3, 12) else set(range(int(packages) + 1))
        assert here in wanted, "run `make docs`"
