"""Keep names plain: fail, in sentences, for a class name that stands twice and for words that only their author can place.

Part of `make lint`. A class name occurs once in both packages, so that a search finds one thing. The list of words grows when a
review meets another; `docs/glossary.md` has the words that we use instead. `EXCEPTIONS` may only shrink: one that is no longer
needed is a complaint too.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

MODULES = frozenset(
    {
        "again", "asking", "caller", "doubts", "earlier", "exchange", "held", "known_ids", "line", "log_room", "looking",
        "minutes", "recorded", "resuming", "talk", "talks", "telling", "written",
    }
)  # fmt: skip
"""Module names that tell a gesture instead of a concept."""
IDENTIFIERS = {
    re.compile(r"(^|_)most(_|$)", re.I): '"max" is the word for a limit',
    re.compile(r"^frm$"): "name what it is expected to be",
}
FUNCTIONS = {re.compile(r"^_?(told|plain|again)$|_again_by_|_from_before$"): "name what it returns"}
SENTENCES = {
    re.compile(r"\bso many\b"): "say the number or what it limits",
    re.compile(r"how-manieth"): '"the nth"',
    re.compile(r"what stands against"): '"the precondition that failed"',
    re.compile(r"\blong over\b"): '"expired"',
}
"""In docstrings, comments and messages."""
EXCEPTIONS: frozenset[str] = frozenset()
"""Complaints that are known, as `path: name`."""


def complaints(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (`path: name`, sentence) for each offender below `root`, in a stable order."""
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "src").rglob("*.py")):
        shown, source = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        tree = ast.parse(source, filename=shown)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(shown)
        if path.stem in MODULES:
            yield f"{shown}: {path.stem}", f'"{shown}": name the module after the concept that it holds.'
        yield from _identifiers(shown, tree)
        for number, line in enumerate(source.splitlines(), 1):
            for pattern, instead in SENTENCES.items():
                if found := pattern.search(line):
                    word = found.group()
                    yield f"{shown}: {word}", f'"{shown}", line {number}: instead of "{word}": {instead}.'
    for name, places in sorted(classes.items()):
        if len(places) > 1:
            yield f"class: {name}", f'The class name "{name}" stands in {" and ".join(places)}: a name is one thing.'


_CALLABLE = (ast.FunctionDef, ast.AsyncFunctionDef)


def _identifiers(shown: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for node in ast.walk(tree):
        for name, line in _names(node):
            rules = {**IDENTIFIERS, **FUNCTIONS} if isinstance(node, _CALLABLE) else IDENTIFIERS
            for pattern, instead in rules.items():
                if name not in seen and pattern.search(name):
                    seen.add(name)
                    yield f"{shown}: {name}", f'"{shown}", line {line}: the name "{name}": {instead}.'


def _names(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that this node defines; those that it only uses are complained of where they are defined."""
    if isinstance(node, (*_CALLABLE, ast.ClassDef)):
        yield node.name, node.lineno
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr, node.lineno


def main() -> int:
    """Print every complaint about the project that this script belongs to; 1 if there was one."""
    found = dict(complaints(Path(__file__).resolve().parent.parent))
    sentences = [sentence for key, sentence in found.items() if key not in EXCEPTIONS]
    sentences += [f'The exception "{key}" is no longer needed: remove it.' for key in sorted(EXCEPTIONS - found.keys())]
    for sentence in sentences:
        print(sentence)
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
