"""Rule `missing-module`: what a handler imports when it is loaded is installed where it is built.

A warning: the machine that builds may lack what the one that runs has.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from handrail.authoring.source import HANDLER_FILE, ToolSource, parse_python
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory":
        return
    beside = {name.removesuffix(".py") for name in source.handler_files()}
    for file, data in source.handler_files().items():
        tree = source.handler_tree if file == HANDLER_FILE else parse_python(data)
        if not isinstance(tree, ast.Module):  # the rule `handler-syntax` has named it
            continue
        for line, package in _imported(tree):
            # The rule `handler-import` names what lies beside the handler.
            if package not in beside and not _is_there(package):
                yield Spot(
                    file,
                    f"line {line}",
                    f'"{package}" is imported and not installed here.',
                    "Install it where the tool runs, or correct its name.",
                )


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The packages that loading the file imports. Those in a `try` or an `if` may be missing on purpose."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.split(".")[0]


def _is_there(package: str) -> bool:
    """Whether a package can be found; it is not imported."""
    if package in sys.modules or package in sys.stdlib_module_names:
        return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


RULE = Rule(
    name="missing-module",
    promise="What a handler imports is installed.",
    check=check,
    severity="warning",
)
