"""Rule `undefined-name`: a handler uses no name that nothing defines, such as that of an import that was forgotten."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator

from handrail.authoring.source import HANDLER_FILE, ToolSource, parse_python
from handrail.build.findings import Catalogue, Rule, Spot

_ALWAYS_THERE = frozenset(dir(builtins)) | {
    "__annotations__", "__builtins__", "__cached__", "__file__", "__loader__", "__package__", "__path__", "__spec__",
}  # fmt: skip


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory":
        return
    for name, data in source.handler_files().items():
        tree = source.handler_tree if name == HANDLER_FILE else parse_python(data)
        if isinstance(tree, ast.Module):  # else the rule `handler-syntax` has named it
            yield from _undefined(name, data, tree)


def _undefined(file: str, data: bytes, tree: ast.Module) -> Iterator[Spot]:
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return  # nobody can tell what such an import defines
    table = symtable.symtable(data, file, "exec")  # type: ignore[arg-type]  # it takes bytes, too, as `compile` does
    scopes = list(_scopes(table))
    defined = {
        symbol.get_name()
        for scope in scopes
        for symbol in scope.get_symbols()
        if (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())
        and (scope.get_type() == "module" or symbol.is_declared_global())
    }
    used = {
        symbol.get_name()
        for scope in scopes
        for symbol in scope.get_symbols()
        if symbol.is_referenced() and (symbol.is_global() or scope.get_type() == "module")
    }
    for name in sorted(used - defined - _ALWAYS_THERE):
        line = min(
            (node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name), default=1
        )
        yield Spot(
            file, f"line {line}", f'"{name}" is used and defined nowhere.', f'Import "{name}", or correct its name.'
        )


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _scopes(inner)


RULE = Rule(
    name="undefined-name",
    promise="Every name that a handler uses is defined or imported.",
    check=check,
)
