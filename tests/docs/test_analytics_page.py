"""The page on analytics: its commands run as it shows them."""

from tests.docs.pages import ROOT, blocks, shell, write_files


def test_the_commands_of_the_page_count_the_call_that_they_make(tmp_path):
    write_files("analytics.md", tmp_path)
    console = next(block.text for block in blocks(ROOT / "docs" / "analytics.md") if block.language == "console")
    said = {}
    for line in console.splitlines():
        if line.startswith("$ "):
            done = shell(line[2:], tmp_path)
            assert done.returncode == 0, line + done.stdout + done.stderr
            said[line[2:]] = done.stdout.splitlines()
    shown = [line.split() for line in console.splitlines() if not line.startswith("$ ")]
    head, row, *turns = (line.split() for line in said["handrail stats"])
    assert head == shown[0]
    assert row[:8] + row[-2:] == shown[1][:8] + shown[1][-2:]
    assert turns == shown[2:]
