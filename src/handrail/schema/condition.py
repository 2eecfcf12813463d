"""CEL conditions: compiled once, evaluated per call. The engine is imported only when a tool really has a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.contract.errors import SchemaError


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
    """Import the engine ahead of the first condition."""
    import cel  # noqa: F401, PLC0415


def compile_condition(text: str, names: Sequence[str]) -> Condition:
    """The compiled condition; `SchemaError` if it is no CEL or uses a name that it is not given."""
    import cel  # noqa: PLC0415  # 0.7 s to import, so only where a condition is used

    try:
        program = cel.compile(text)
    except ValueError as error:
        raise SchemaError(f'The condition "{text}" is not CEL: {_first_line(error)}') from error
    strange = sorted(set(program.variables()) - set(names))
    if strange:
        raise SchemaError(f'The condition "{text}" uses "{strange[0]}"; it is given {", ".join(names)}.')
    return Condition(text, program)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    line = lines[0] if lines else type(error).__name__
    return line.rsplit("ERROR: <input>:", 1)[-1][:200].strip() + ("" if line.endswith(".") else ".")
