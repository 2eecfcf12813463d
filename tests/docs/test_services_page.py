"""The page on services: its files make a project, whose tool reaches the service and whose tests pass."""

import json
import sys

import pytest
from tests.docs.test_documentation import ROOT, blocks, run, shell

PAGE = ROOT / "docs" / "services.md"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """The project that the page makes."""
    folder = tmp_path_factory.mktemp("services")
    shown = blocks(PAGE)
    done = shell(next(block.text for block in shown if block.language == "sh"), folder)
    assert done.returncode == 0, done.stderr
    folder = folder / "desk"
    settings = (folder / "handrail.toml").read_text(encoding="utf-8")
    assert next(block.text for block in shown if block.language == "toml") in settings
    (folder / "handrail.toml").write_text(
        settings.replace("modules = []", 'modules = ["shop_tools"]'), encoding="utf-8"
    )
    for block in shown:
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
    return folder


def test_the_tool_of_the_page_reaches_the_service(desk):
    command = [block.text for block in blocks(PAGE) if block.language == "sh"][1]
    done = shell(command, desk)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{") :])["data"] == {"status": "shipped"}


def test_doctor_says_what_the_page_shows(desk):
    words = next(block.text for block in blocks(PAGE) if block.language == "text").split(maxsplit=3)
    checks = {check["name"]: check for check in json.loads(shell("handrail doctor --json", desk).stdout)}
    assert checks[f"{words[1]} {words[2]}"] == {"name": "service shop", "ok": True, "message": words[3].strip()}


def test_the_tests_of_the_page_pass(desk):
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], desk)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
