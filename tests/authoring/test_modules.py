"""Modules of decorated tools that cannot be built: each is named with its file, its line and one sentence."""

import pytest

BROKEN = {
    "it does not parse": ("x = (\n", "module-import", "line 1", "cannot be imported: '(' was never closed"),
    "it raises": ("\nraise ValueError('no luck')\n", "module-import", "line 2", "cannot be imported: no luck."),
    "it needs another": (
        "\nimport not_there_at_all\n",
        "module-import",
        "line 2",
        "No module named 'not_there_at_all'.",
    ),
    "it has no tool": ("def look(): pass\n", "empty-module", "line 1", "has no tool."),
    "a class without run": (
        "from handrail import tool\n\n@tool(parameters={'type': 'object', 'additionalProperties': False}, description='x')\n"
        "class Look:\n    pass\n",
        "class-run",
        "line 3",
        "the class has no `async def run`, so there is nothing to call.",
    ),
    "a class with a plain run": (
        "from handrail import tool\n\n@tool(parameters={'type': 'object', 'additionalProperties': False}, description='x')\n"
        "class Look:\n    def run(self, params=None): ...\n",
        "class-run",
        "line 3",
        "the class has no `async def run`, so there is nothing to call.",
    ),
    "a hint that json cannot carry": (
        "from handrail import tool\n\n@tool\ndef look(x: bytes):\n    'Look.'\n",
        "function-hints",
        "line 3",
        '"x" is hinted as bytes, which JSON cannot carry.',
    ),
    "a name only for type checkers": (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nfrom handrail import tool\n"
        "if TYPE_CHECKING:\n    from datetime import date\n@tool\ndef look(x: date):\n    'Look.'\n",
        "function-hints",
        "line 6",
        "Its type hints cannot be read: name 'date' is not defined.",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_module_is_named_with_its_line(project, case):
    source, rule, place, message = BROKEN[case]

    (finding,) = project.findings(source)

    assert (finding.rule, finding.file, finding.place) == (rule, f"{project.module}.py", place)
    assert message in finding.message
    assert finding.fix.endswith((".", "`."))


def test_a_module_that_is_not_there_is_named(project):
    from handrail.build.compiler import BuildPlan, build

    place = {"tools": project.folder / "tools", "artifact": project.folder / "r.json", "project": project.folder}
    (finding,) = build(BuildPlan(**place, modules=("no_such_module",))).errors

    assert (finding.rule, finding.file) == ("module-import", "no_such_module.py")
    assert 'There is no module "no_such_module": modules are looked for in the project\'s folder' in finding.message
    assert "PYTHONPATH" in finding.message

    (project.folder / "src").mkdir()
    (project.folder / "src" / "no_such_module.py").write_text("")
    (finding,) = build(BuildPlan(**place, modules=("no_such_module",))).errors
    assert "There is a src/no_such_module.py" in finding.fix
