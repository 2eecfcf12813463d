"""The demo model stays small: whoever wants more connects a language model."""

import ast
import io
import tokenize
from pathlib import Path

import handrail_reference.demo

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """The lines of a module without blank lines, comments and docstrings."""
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type not in _NO_CODE]
    lines = {line for one in tokens for line in range(one.start[0], one.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    assert (
        code_lines(
            '"""About."""\n\n# Why.\nx = 1  # one\n\n\ndef f():\n    """What."""\n    return (\n        x\n    )\n'
        )
        == 5
    )


def test_the_demo_model_has_at_most_six_hundred_lines_of_code() -> None:
    modules = Path(handrail_reference.demo.__file__).parent.glob("*.py")
    assert sum(code_lines(module.read_text("utf-8")) for module in modules) <= 600
