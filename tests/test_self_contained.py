"""The tests need nothing beside the repository: no file of theirs looks above its root."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UP = re.compile(r"__file__\)(?:\.resolve\(\))?(?:\.parents\[(\d+)\]|((?:\.parent)+))")


def test_no_test_looks_above_the_repository():
    offenders = []
    for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("examples/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]):
        depth = len(path.relative_to(ROOT).parts) - 1
        for match in UP.finditer(path.read_text(encoding="utf-8")):
            climbed = int(match[1]) if match[1] else match[2].count(".parent") - 1
            if climbed > depth:
                offenders.append(f"{path.relative_to(ROOT)}: {match[0]}")
    assert not offenders
