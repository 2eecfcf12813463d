"""Rule `handler-import`: files beside the handler are found relative to it, so that two tools' files never meet."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handrail.authoring.source import HANDLER_FILE, ToolSource, parse_python
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory":
        return
    beside = {name.removesuffix(".py") for name in source.handler_files()}
    for name, data in source.handler_files().items():
        tree = source.handler_tree if name == HANDLER_FILE else parse_python(data)
        if isinstance(tree, ast.Module):  # else the rule `handler-syntax` has named it
            yield from _imports(name, tree, beside)


def _imports(name: str, tree: ast.Module, beside: set[str]) -> Iterator[Spot]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in beside:
                    yield _spot(name, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0 and node.module in beside:
                yield _spot(name, node.lineno, str(node.module))
            elif node.level == 1:
                yield from _absent(name, node, beside)
            elif node.level > 1:
                yield Spot(
                    name,
                    f"line {node.lineno}",
                    "An import cannot leave the tool's folder.",
                    "Import from an installed package.",
                )


def _absent(name: str, node: ast.ImportFrom, beside: set[str]) -> Iterator[Spot]:
    wanted = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
    for module in wanted:
        if module not in beside:
            place, message = f"line {node.lineno}", f'There is no "{module}.py" beside {name}.'
            yield Spot(name, place, message, "Add the file, or correct the import.")


def _spot(name: str, line: int, module: str) -> Spot:
    return Spot(
        name,
        f"line {line}",
        f'"{module}" lies beside {name} and is imported by its bare name.',
        f"Write `from . import {module}`.",
    )


RULE = Rule(
    name="handler-import",
    promise="Files beside the handler are imported relatively, and no import leaves the tool's folder.",
    check=check,
)
