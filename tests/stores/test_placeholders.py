"""Python 3.12.0 and 3.12.1 warn of numbered placeholders given a sequence; this test says so under every Python."""

import re
from pathlib import Path

import handrail

SOURCE = Path(handrail.__file__).parent


def test_no_statement_numbers_its_placeholders():
    numbered = re.compile(r"\?\d")
    offenders = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if numbered.search(line)
    ]
    assert not offenders, "name them (`:session_id`, with a dictionary) or repeat the value"
