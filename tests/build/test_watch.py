"""Which files are looked at for changes: those of the tools' folder, and of decorated tools all that they are made of."""

import pytest

from handrail.build.compiler import BuildPlan
from handrail.build.watch import WatchedFiles

PRICES = """
import json
from pathlib import Path
from handrail import tool
from . import words
from .deep import rates
import {helper}
"""


@pytest.fixture
def project(tmp_path):
    """A project whose decorated tool has helpers, under names that no other test imports."""

    def make(name):
        for file, text in {
            "tools/look/handler.py": "",
            f"{name}/__init__.py": "",
            f"{name}/prices.py": PRICES.format(helper=f"{name}_helper"),
            f"{name}/words.py": "",
            f"{name}/deep/__init__.py": "",
            f"{name}/deep/rates.py": "from .. import far",
            f"{name}/far.py": "",
            f"{name}/unused.py": "",
        }.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text, "utf-8")
        plan = BuildPlan(
            tools=tmp_path / "tools",
            artifact=tmp_path / "tool_registry.json",
            modules=(f"{name}.prices",),
            project=tmp_path,
        )
        return tmp_path, WatchedFiles(plan, tmp_path / "handrail.toml")

    return make


def change(path):
    path.write_text(path.read_text("utf-8") + "\n# changed\n" if path.exists() else "first = 1\n", "utf-8")


@pytest.mark.parametrize(
    "file",
    [
        "tools/look/handler.py",
        "tools/look/helper.py",
        "{name}/prices.py",
        "{name}/__init__.py",
        "{name}/words.py",
        "{name}/deep/rates.py",
        "{name}/far.py",
        "{name}_helper.py",
        "handrail.toml",
    ],
)
def test_a_change_of_whatever_a_tool_is_made_of_is_noticed_once(project, file, request):
    name = f"watched_{abs(hash(request.node.name))}"
    folder, watched = project(name)
    assert not watched.have_changed()
    change(folder / file.format(name=name))
    assert watched.have_changed()
    assert not watched.have_changed()


def test_a_file_that_no_tool_is_made_of_changes_nothing(project):
    folder, watched = project("watched_unused")
    change(folder / "watched_unused" / "unused.py")
    change(folder / "README.md")
    assert not watched.have_changed()


def test_a_helper_that_is_imported_only_now_is_watched_from_now_on(project):
    folder, watched = project("watched_later")
    (folder / "watched_later" / "words.py").write_text("from . import unused\n", "utf-8")
    assert watched.have_changed()
    change(folder / "watched_later" / "unused.py")
    assert watched.have_changed()
    (folder / "watched_later" / "unused.py").unlink()
    assert watched.have_changed()
    change(folder / "watched_later" / "unused.py")
    assert watched.have_changed(), "it is there again"
