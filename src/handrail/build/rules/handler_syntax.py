"""Rule `handler-syntax`."""

from __future__ import annotations

from collections.abc import Iterator

from handrail.authoring.source import HANDLER_FILE, ToolSource, parse_python
from handrail.build.findings import Catalogue, Rule, Spot


def check(source: ToolSource, catalogue: Catalogue) -> Iterator[Spot]:
    if source.kind != "directory":
        return
    for name, data in source.handler_files().items():
        trouble = source.handler_tree if name == HANDLER_FILE else parse_python(data)
        if isinstance(trouble, SyntaxError) and _is_text(data):
            place = f"line {trouble.lineno}" if trouble.lineno else ""
            yield Spot(name, place, f"{name} is not Python: {trouble.msg}.", "Correct the syntax there.")


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False  # the rule `utf8` has named it
    return True


RULE = Rule(
    name="handler-syntax",
    promise="`handler.py` and the files beside it are Python. They are parsed, never run.",
    check=check,
)
