"""CEL conditions: compiled once, evaluated per call. The engine is imported only when a tool really has a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from handrail.contract.errors import SchemaError, missing_extra

_MAX_NESTED_STEPS = 250_000
"""A macro inside of another goes through its list for each element of the other's: more than this is not begun."""
USER_FIELDS = ("id", "signedIn", "isAuthenticated", "roles")
"""What a condition may ask of `user`; see `user_facts`."""


def user_facts(user: str | None, roles: Collection[str] = (), *, signed_in: bool | None = None) -> dict[str, Any]:
    """`user` as conditions see it. `isAuthenticated` is another word for `signedIn`."""
    known = user is not None if signed_in is None else signed_in
    return {"id": user or "", "signedIn": known, "isAuthenticated": known, "roles": sorted(roles)}


class Condition:
    """A compiled condition over a few named values."""

    __slots__ = ("_depth", "_program", "text")

    def __init__(self, text: str, program: Any) -> None:
        self.text = text
        self._program = program
        self._depth = _macro_depth(text)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether the condition is true; `SchemaError` if it cannot be evaluated or gives something else than a truth value."""
        if self._depth > 1 and _longest(names) ** self._depth > _MAX_NESTED_STEPS:
            raise SchemaError(
                f'The condition "{self.text}" cannot be evaluated: a list is too long for macros inside of one another.'
            )
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
        near = get_close_matches(strange[0], names, n=1)
        raise SchemaError(
            f'The condition "{text}" uses "{strange[0]}"; it is given {", ".join(names)}'
            + (f'. Did you mean "{near[0]}"?' if near else ".")
        )
    return Condition(text, program)


_MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*)
    |(?P<text>[bB]?[rR][bB]?(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
      |[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<mark>.)""",
    re.VERBOSE | re.DOTALL,
)


def fields_used(text: str, root: str) -> list[str]:
    """The fields that a CEL text asks of the value called `root`, by a dot or by a literal index, in their order."""
    kinds, words = _tokens(text)
    places: list[int] = []
    _walk(kinds, words, lambda i: places.append(i) if words[i] == root else None)
    found: list[str] = []
    for i in places:
        if words[i + 1 : i + 2] == ["."] and kinds[i + 2 : i + 3] == ["name"] and words[i + 3 : i + 4] != ["("]:
            found.append(words[i + 2])
        elif words[i + 1 : i + 2] == ["["] and kinds[i + 2 : i + 3] == ["text"] and words[i + 3 : i + 4] == ["]"]:
            found.append(words[i + 2].strip("\"'"))
    return list(dict.fromkeys(found))


def unknown_fields(text: str, arguments: Iterable[str] | None) -> Iterator[tuple[str, str]]:
    """The fields of `user` and `args` that a condition asks for and that there are not, each with a hint. What a host says of
    a session is the host's to name, and `arguments` are None where a tool takes others as well."""
    known = {"user": list(USER_FIELDS)} | ({} if arguments is None else {"args": list(arguments)})
    for root, fields in known.items():
        for name in fields_used(text, root):
            if name not in fields:
                near = get_close_matches(name, fields, n=1) or get_close_matches(name.lower(), fields, n=1)
                listed = f"Known of {root} are {', '.join(fields) or 'none'}."
                yield f"{root}.{name}", f'Did you mean "{root}.{near[0]}"?' if near else listed


def free_names(text: str) -> set[str]:
    """The names that a CEL text uses and no macro around them binds. Functions and fields may be among them."""
    kinds, words = _tokens(text)
    free: set[str] = set()
    _walk(kinds, words, lambda i: free.add(words[i]))
    return free


def _tokens(text: str) -> tuple[list[str | None], list[str]]:
    tokens = [(match.lastgroup, match[0]) for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    return [kind for kind, _ in tokens], [word for _, word in tokens]


def _walk(kinds: list[str | None], words: list[str], found: Callable[[int], object]) -> None:
    """Call `found` with the place of each name that is free."""
    bound: list[str | None] = []  # for each open bracket, the name that a macro binds inside it
    for i, word in enumerate(words):
        if word in ("(", "[", "{"):
            declares = _opens_macro(words, i) and kinds[i + 1 : i + 2] == ["name"] and words[i + 2 : i + 3] == [","]
            bound.append(words[i + 1] if declares else None)
        elif word in (")", "]", "}") and bound:
            bound.pop()
        elif kinds[i] == "name" and not _is_field(kinds, words, i) and word not in bound:
            found(i)


def _opens_macro(words: list[str], i: int) -> bool:
    return words[i] == "(" and i >= 2 and words[i - 1] in _MACROS and words[i - 2] == "."


def _macro_depth(text: str) -> int:
    """How many macros stand inside of one another."""
    _, words = _tokens(text)
    deepest = 0
    opened: list[bool] = []
    for i, word in enumerate(words):
        if word in ("(", "[", "{"):
            opened.append(_opens_macro(words, i))
            deepest = max(deepest, sum(opened))
        elif word in (")", "]", "}") and opened:
            opened.pop()
    return deepest


def _longest(names: Mapping[str, Any]) -> int:
    """The size of the longest list or mapping in these values."""
    longest, left = 0, [*names.values()]
    while left:
        one = left.pop()
        if isinstance(one, (Mapping, list, tuple)):
            longest = max(longest, len(one))
            left += one.values() if isinstance(one, Mapping) else one
    return longest


def _is_field(kinds: list[str | None], words: list[str], i: int) -> bool:
    """Whether the name at `i` is one of a value's fields or methods; a dot that follows no value begins a name of its own."""
    follows_dot = i >= 2 and words[i - 1] == "."
    return follows_dot and (kinds[i - 2] in ("name", "text", "number") or words[i - 2] in (")", "]", "}"))


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    line = lines[0] if lines else type(error).__name__
    return line.rsplit("ERROR: <input>:", 1)[-1][:200].strip() + ("" if line.endswith(".") else ".")
