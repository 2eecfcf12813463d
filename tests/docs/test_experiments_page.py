"""The page on experiments: its commands run, and its rules choose as it says."""

import json

import pytest
from tests.docs.test_documentation import ROOT, blocks, shell

PAGE = ROOT / "docs" / "experiments.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiments")
    for block in blocks(PAGE):
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")
    settings = next(block.text for block in blocks(PAGE) if block.language == "toml")
    (folder / "handrail.toml").write_text(settings, encoding="utf-8")
    console = next(block.text for block in blocks(PAGE) if block.language == "console")
    for line in console.splitlines():
        done = shell(line, folder)
        assert done.returncode == 0, line + done.stdout + done.stderr
    return folder


def test_the_rules_of_the_page_choose_as_it_says(project):
    assert "refund@1.0.0" in shell("handrail list", project).stdout
    for who, version in (("--tenant acme", "2.0.0"), ("--tenant acme --user ana", "1.0.0")):
        done = shell(f"""handrail call refund {who} --args '{{"order_id": "A"}}'""", project)
        answer = json.loads(done.stdout[done.stdout.index("{") :])
        assert answer["data"]["version"] == answer["meta"]["toolVersion"] == version


def test_the_statistics_of_the_page_name_both_versions(project):
    shown = json.loads(shell("handrail stats --by version --json", project).stdout)
    assert {(row["tool"], row["version"]) for row in shown["rows"]} == {("refund", "1.0.0"), ("refund", "2.0.0")}
    (compared,) = shown["comparisons"]
    assert (compared["comparedWith"], compared["level"], compared["differences"]) == ("1.0.0", 0.95, [])
    assert "Fewer than 100 ended sessions" in shell("handrail stats --by version", project).stdout
