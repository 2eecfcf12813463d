"""Rule `handler-execute`: found by parsing, so that a build never runs a handler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handrail.authoring.source import HANDLER_FILE, ToolSource
from handrail.build.findings import Catalogue, Rule, Spot

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    tree = source.handler_tree
    if not isinstance(tree, ast.Module):
        return
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    if "execute" not in functions:
        yield Spot(
            HANDLER_FILE,
            "",
            "handler.py defines no function `execute`.",
            "Add `async def execute(args, ctx):` at the top level.",
        )
    for name in ("execute", "preview", "reconcile"):
        node = functions.get(name)
        if node is not None and not _takes_two(node):
            yield Spot(
                HANDLER_FILE,
                f"line {node.lineno}",
                f"`{name}` must take two arguments, the arguments and the context.",
                f"Write `def {name}(args, ctx):`.",
            )


def _takes_two(node: _Function) -> bool:
    places = node.args.posonlyargs + node.args.args
    needed = len(places) - len(node.args.defaults)
    needs_keywords = any(default is None for default in node.args.kw_defaults)
    return needed <= 2 and (len(places) >= 2 or node.args.vararg is not None) and not needs_keywords


RULE = Rule(
    name="handler-execute",
    promise="`handler.py` has an `execute` that takes two arguments; so do `preview` and `reconcile` where they exist.",
    check=check,
)
