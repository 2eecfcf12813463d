"""What a docstring says: its first sentence, its parameters, its whole text. Google, NumPy and Sphinx styles are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def docstring_parts(target: Callable[..., Any] | type) -> tuple[str, dict[str, str], str]:
    """The first sentence, what is said of each parameter or attribute, and the whole text of a docstring."""
    # Not `inspect.getdoc`: what a base class says of itself is no guide to a tool.
    text = inspect.cleandoc(target.__doc__ or "")
    if not text:
        return "", {}, ""
    from docstring_parser import parse  # noqa: PLC0415 - only a docstring needs the parser

    parsed = parse(text)
    described: dict[str, str] = {}
    for part in parsed.params:
        words = " ".join((part.description or "").split())
        # NumPy's style lets several parameters share one description: "x, y : float".
        described |= dict.fromkeys((name.strip().lstrip("*") for name in part.arg_name.split(",")), words)
    return parsed.short_description or "", described, text
