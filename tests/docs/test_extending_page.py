"""The page on extending: its package is built and installed, and its project does what the page shows."""

import os
import subprocess
import sys

from tests.docs.test_documentation import ROOT, blocks
from tests.install.environments import PIP

PAGE = ROOT / "docs" / "extending.md"


def test_the_package_of_the_page_brings_a_tool_a_service_a_model_and_a_command(tmp_path):
    shown = blocks(PAGE)
    files = {block.file: block.text for block in shown if block.file}
    empty = ("acme/acme_handrail/__init__.py", "acme/acme_handrail/tools/__init__.py")
    for name, text in {**dict.fromkeys(empty, ""), **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # As the page does, but into a folder of the test's own, and without asking an index for what is here.
    site = tmp_path / "site"
    install = [*PIP, "install", "--no-index", "--no-deps", "--no-build-isolation", "--target", site, tmp_path / "acme"]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr

    console = next(block.text for block in shown if block.language == "console")
    for step in console.split("$ ")[1:]:
        command, *wanted = step.splitlines()
        done = subprocess.run(
            ["bash", "-c", command.replace("handrail", f"'{sys.executable}' -m handrail", 1)],
            cwd=tmp_path / "desk",
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stdout.split())
        for line in wanted:  # an ellipsis stands for what is left out
            assert " ".join(line.replace("…", " ").split()) in said, (command, done.stdout)
