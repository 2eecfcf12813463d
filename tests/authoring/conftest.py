"""A project whose one module is written by the test, built and opened."""

import itertools
from contextlib import contextmanager

import pytest

from handrail.build.compiler import BuildPlan, build
from handrail.testing import open_tools

_NUMBER = itertools.count()


class Project:
    """A folder with modules; each test's tools are in a module of another name, so that none finds another's."""

    def __init__(self, folder):
        self.folder = folder
        self.module = f"authored_{next(_NUMBER)}"
        (folder / "tools").mkdir()

    def write(self, source, name=None):
        (self.folder / f"{name or self.module}.py").write_text(source, encoding="utf-8")

    @contextmanager
    def tools(self, source, **options):
        self.write(source)
        with open_tools(self.folder / "tools", modules=(self.module,), **options) as kit:
            yield kit

    def findings(self, source, **plan):
        """What the build has against the module."""
        self.write(source)
        place = {"tools": self.folder / "tools", "artifact": self.folder / "r.json", "project": self.folder}
        return build(BuildPlan(**place, modules=(self.module,), **plan)).errors


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)
