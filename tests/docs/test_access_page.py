"""The page on access: its commands run, and its program prints what it shows."""

import json
import sys

import pytest
from tests.docs.test_documentation import ROOT, blocks, run, shell

from handrail.app import open_token_checker
from handrail.contract.errors import ConfigError
from handrail.settings import load_settings

PAGE = ROOT / "docs" / "access.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("access")
    for block in blocks(PAGE):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
    settings = next(block.text for block in blocks(PAGE) if block.language == "toml")
    (folder / "handrail.toml").write_text(settings, encoding="utf-8")
    console = next(block.text for block in blocks(PAGE) if block.language == "console")
    for line in console.splitlines():
        done = shell(line, folder)
        assert done.returncode == 0, line + done.stdout + done.stderr
    return folder


@pytest.mark.parametrize(("program", "place"), [("roles.py", 0), ("tokens.py", 1)])
def test_the_programs_of_the_page_print_what_the_page_shows(project, program, place):
    done = run([sys.executable, program], project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == [block.text for block in blocks(PAGE) if block.language == "text"][place].strip()


def test_the_settings_for_tokens_of_the_page_are_understood(project, tmp_path):
    (tmp_path / "handrail.toml").write_text((project / "tokens.toml").read_text(encoding="utf-8"), encoding="utf-8")
    checker = open_token_checker(load_settings(tmp_path, {}))
    assert checker is not None
    with pytest.raises(ConfigError, match="https address"):
        open_token_checker(load_settings(tmp_path, {"HANDRAIL_IDENTITY_JWKS": "http://id.example/keys"}))


def test_the_host_s_policy_of_the_page_governs_a_command(project):
    call = "handrail call refund --user ana --role manager --json --args "
    for words, kind in (
        ("""'{"order_id": "A", "euro": 250.5}'""", "CONFIRMATION_REQUIRED"),
        ("""'{"order_id": "A", "euro": 5.5}' --mode voice""", "MODE_RESTRICTED"),
    ):
        done = shell(f"{call}{words} < /dev/null || true", project)
        assert json.loads(done.stdout[done.stdout.index("{") :])["error"]["type"] == kind
    done = shell("handrail call refund --user ana --role chief || echo $?", project)
    assert (done.stdout.strip(), done.stderr.count("\n")) == ("2", 1)
    assert 'There is no role "chief"' in done.stderr
