"""What a docstring says: its first sentence, its parameters, its whole text. Google, NumPy, Sphinx and Epydoc styles are read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

_HEADING = re.compile(r"(Args|Arguments|Parameters|Params):")
_UNDERLINED = re.compile(r"(Other )?(Args|Arguments|Parameters|Params)")
_UNDERLINE = re.compile(r"-{2,}\s*")
_FIELD = re.compile(r"[:@](param|parameter|arg|argument|key|keyword|type)\b")


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


def guide_of_function(function: Callable[..., Any]) -> str:
    """The docstring without the section on parameters, which the schema has.

    A docstring that describes something which is no parameter stays whole: the schema has no place for it.
    """
    _, described, text = docstring_parts(function)
    if not described or not described.keys() <= inspect.signature(function).parameters.keys():
        return text
    from docstring_parser import DocstringStyle, parse  # noqa: PLC0415 - only a docstring needs the parser

    style = parse(text).style
    cut = _without_fields
    if style is DocstringStyle.GOOGLE:
        cut = _without_indented_section
    elif style is DocstringStyle.NUMPYDOC:
        cut = _without_underlined_section
    kept = "\n".join(cut(text.splitlines()))
    return re.sub(r"\n{3,}", "\n\n", kept).strip()


def _without_indented_section(lines: list[str]) -> Iterator[str]:
    """Google's style: a heading with a colon, and what is indented below it."""
    inside = False
    for line in lines:
        if _HEADING.fullmatch(line.rstrip()):
            inside = True
        elif line and not line[0].isspace():
            inside = False
        if not inside:
            yield line


def _without_underlined_section(lines: list[str]) -> Iterator[str]:
    """NumPy's style: a heading with a line of hyphens under it, up to the next such heading."""
    inside = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.strip() and _UNDERLINE.fullmatch(following):
            inside = _UNDERLINED.fullmatch(line.strip()) is not None
        if not inside:
            yield line


def _without_fields(lines: list[str]) -> Iterator[str]:
    """Sphinx's and Epydoc's styles: a field, and what is indented below it."""
    inside = False
    for line in lines:
        if _FIELD.match(line):
            inside = True
        elif line and not line[0].isspace():
            inside = False
        if not inside:
            yield line
