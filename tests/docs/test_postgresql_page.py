"""The page on PostgreSQL: its settings and its program work on a real server."""

import sys

import pytest
from tests.docs.pages import ROOT, blocks, run, shell

PAGE = ROOT / "docs" / "postgresql.md"
SHOWN = "postgresql://handrail@db.example.com/handrail"


@pytest.fixture
def project(tmp_path, postgres):
    """The README's tool, with the settings of the page and the database of this test."""
    assert shell("handrail init . && handrail new lookup_order && handrail build", tmp_path).returncode == 0
    url = postgres.new_database(empty=True)
    texts = {block.language: block.text for block in blocks(PAGE)}
    assert SHOWN in texts["toml"]
    assert SHOWN in texts["python"]
    (tmp_path / "handrail.toml").write_text(texts["toml"].replace(SHOWN, url))
    (tmp_path / "program.py").write_text(texts["python"].replace(SHOWN, url))
    return tmp_path


def test_the_program_of_the_page_runs(project):
    done = run([sys.executable, "program.py"], project)
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr


def test_the_settings_of_the_page_are_used_by_commands(project):
    done = shell("""handrail call lookup_order --args '{"id": "A-1001"}' && handrail doctor""", project)
    assert "PostgreSQL answers" in done.stdout
    problems = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(problems) == 1, done.stdout + done.stderr
    assert "fsync = off" in problems[0]  # as the server of the tests is set
    assert not (project / "handrail.db").exists()


def test_the_commands_of_the_page_move_a_store(project):
    """They name the page's database, and start from the file that a project has by default."""
    url = (project / "handrail.toml").read_text().split('"')[1]
    (project / "handrail.toml").write_text("")
    assert shell("""handrail call lookup_order --args '{"id": "A-1001"}'""", project).returncode == 0
    [move] = [block.text for block in blocks(PAGE) if "handrail store copy" in block.text]
    assert SHOWN in move
    done = shell(move.replace(SHOWN, f"'{url}'"), project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "copied and verified" in done.stdout
    (project / "handrail.toml").write_text(f'[store]\nurl = "{url}"\n')
    done = shell("handrail store check && handrail audit verify", project)
    assert done.returncode == 0, done.stdout + done.stderr
