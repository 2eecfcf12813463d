"""The page on gates: its program prints what it shows, and the same gate governs a project by its settings."""

import json
import sys

import pytest
from tests.docs.test_documentation import ROOT, blocks, run, shell

PAGE = ROOT / "docs" / "gates.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gates")
    for block in blocks(PAGE):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
    settings = next(block.text for block in blocks(PAGE) if block.language == "toml")
    (folder / "handrail.toml").write_text(settings, encoding="utf-8")
    done = shell("handrail build", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_program_of_the_page_prints_what_the_page_shows(project):
    done = run([sys.executable, "refunds.py"], project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == next(block.text for block in blocks(PAGE) if block.language == "text").strip()


def test_the_gate_of_the_settings_governs_a_command(project):
    """The same call with and without its line in `[gates]`."""
    call = """handrail call refund --json --user bob --args '{"order_id": "A-1", "euro": 5.5}'"""
    done = shell(call, project)
    answer = json.loads(done.stdout[done.stdout.index("{") :])
    assert (answer["ok"], answer["error"]["type"]) == (False, "AUTH")
    settings = (project / "handrail.toml").read_text(encoding="utf-8")
    try:
        (project / "handrail.toml").write_text(settings.partition("[gates]")[0], encoding="utf-8")
        done = shell(call, project)
    finally:
        (project / "handrail.toml").write_text(settings, encoding="utf-8")
    assert json.loads(done.stdout[done.stdout.index("{") :])["ok"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('refund_limit = "nowhere:Gate"', '"nowhere" cannot be imported'),
        ('refund_limit = "refund_gates:Refund"', 'has no "Refund"; did you mean'),
        ('other = "refund_gates:RefundLimit"', 'calls itself "refund_limit"'),
        ('refund_limit = "refund_gates:CLOSED"', "The gate"),
        ("refund_limit = 3", 'must be "module:name"'),
        ('refund_limit = "RefundLimit"', 'must be "module:name"'),
    ],
)
def test_a_line_that_names_no_gate_stops_the_start_with_a_sentence(project, line, words):
    settings = (project / "handrail.toml").read_text(encoding="utf-8")
    try:
        (project / "handrail.toml").write_text(
            settings.partition("[gates]")[0] + f"[gates]\n{line}\n", encoding="utf-8"
        )
        done = shell("handrail call refund --args '{}'", project)
    finally:
        (project / "handrail.toml").write_text(settings, encoding="utf-8")
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
