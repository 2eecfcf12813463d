"""CEL conditions: compiled once, evaluated per call. The engine is imported only when a tool really has a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.contract.errors import SchemaError, missing_extra


class Condition:
    """A compiled condition over a few named values."""

    __slots__ = ("_program", "text")

    def __init__(self, text: str, program: Any) -> None:
        self.text = text
        self._program = program

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether the condition is true; `SchemaError` if it cannot be evaluated or gives something else than a truth value."""
        try:
            result = self._program.execute(dict(names))
        except Exception as error:  # the engine raises several types, all for the same reason
            raise SchemaError(f'The condition "{self.text}" cannot be evaluated: {_first_line(error)}') from error
        if not isinstance(result, bool):
            raise SchemaError(f'The condition "{self.text}" gives {type(result).__name__}, not true or false.')
        return result


def load_engine() -> None:
    """Import the engine ahead of the first condition; `ConfigError` if its extra is not installed."""
    _engine("A tool with a condition")


def _engine(feature: str) -> Any:
    try:
        import cel  # noqa: PLC0415  # 0.7 s to import, so only where a condition is used
    except ImportError as error:
        raise missing_extra(feature, "conditions") from error
    return cel


def compile_condition(text: str, names: Sequence[str]) -> Condition:
    """The compiled condition; `SchemaError` if it is no CEL or uses a name that it is not given, `ConfigError` if the engine
    is not installed."""
    cel = _engine(f'The condition "{text}"')
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise SchemaError(f'The condition "{text}" is not CEL: {_first_line(error)}') from error
    # The engine also lists what a macro such as `exists` binds for its own expression.
    strange = sorted((set(program.variables()) - set(names)) & free_names(text))
    if strange:
        raise SchemaError(f'The condition "{text}" uses "{strange[0]}"; it is given {", ".join(names)}.')
    return Condition(text, program)


_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
    |(?P<text>[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
      |[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)


def free_names(text: str) -> set[str]:
    """The names that a CEL text uses and no macro around them binds. Functions and fields may be among them."""
    tokens = [(match.lastgroup, match[0]) for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    kinds, words = [kind for kind, _ in tokens], [word for _, word in tokens]
    free: set[str] = set()
    bound: list[str | None] = []  # for each open bracket, the name that a macro binds inside it
    for i, word in enumerate(words):
        if word in ("(", "[", "{"):
            is_macro = word == "(" and i >= 2 and words[i - 1] in _MACROS and words[i - 2] == "."
            declares = is_macro and kinds[i + 1 : i + 2] == ["name"] and words[i + 2 : i + 3] == [","]
            bound.append(words[i + 1] if declares else None)
        elif word in (")", "]", "}") and bound:
            bound.pop()
        elif kinds[i] == "name" and not _is_field(kinds, words, i) and word not in bound:
            free.add(word)
    return free


def _is_field(kinds: list[str | None], words: list[str], i: int) -> bool:
    """Whether the name at `i` is one of a value's fields or methods; a dot that follows no value begins a name of its own."""
    follows_dot = i >= 2 and words[i - 1] == "."
    return follows_dot and (kinds[i - 2] in ("name", "text", "number") or words[i - 2] in (")", "]", "}"))


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    line = lines[0] if lines else type(error).__name__
    return line.rsplit("ERROR: <input>:", 1)[-1][:200].strip() + ("" if line.endswith(".") else ".")
