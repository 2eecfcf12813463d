"""Keep rooms small: fail, in sentences, for modules, functions and names that hide more than one purpose.

Part of `make lint`. The limits are where a reader starts to scroll; most modules stay far below them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 800
FUNCTION_LINES = 100
TEST_LINES = 1000
VAGUE_WORDS = frozenset({"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"})


def complaints(root: Path) -> Iterator[str]:
    """Yield one sentence for each offender below `root`, in a stable order."""
    for path in sorted((root / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        shown = path.relative_to(root)
        yield from _too_long(shown, source, MODULE_LINES)
        yield from _long_functions(shown, source)
        yield from _vague_names(shown)
    for path in sorted((root / "tests").rglob("*.py")):
        yield from _too_long(path.relative_to(root), path.read_text(encoding="utf-8"), TEST_LINES)


def _too_long(path: Path, source: str, limit: int) -> Iterator[str]:
    lines = len(source.splitlines())
    if lines > limit:
        yield f'"{path}" has {lines} lines, more than {limit}: give one of its purposes a module of its own.'


def _long_functions(path: Path, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield (
                    f'"{path}", line {node.lineno}: the function "{node.name}" has {lines} lines, more than '
                    f"{FUNCTION_LINES}: name its steps."
                )


def _vague_names(path: Path) -> Iterator[str]:
    # A package is reported once, by its __init__; a folder without one, by the file that stands in it.
    name = path.parent.name if path.stem == "__init__" else path.stem
    if name.replace("-", "_").split("_")[-1] in VAGUE_WORDS:
        yield f'"{path}": the name "{name}" says nothing about what is inside; name it after what it does.'


def main() -> int:
    """Print every complaint about the project that this script belongs to; 1 if there was one."""
    found = list(complaints(Path(__file__).resolve().parent.parent))
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
