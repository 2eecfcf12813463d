"""JSON values that cannot be changed after they were made, and that JSON libraries still take as they are.

`FrozenDict` is a `dict` whose mutators raise; lists become tuples. Both serialise and compile at native speed, which a
`MappingProxyType` does not. `copy.deepcopy` and `thaw` give plain, mutable data back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn


class FrozenDict(dict[str, Any]):
    """A dict that refuses every change."""

    __slots__ = ()

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            "This value is part of a frozen definition and cannot be changed; change a copy (`thaw(value)`) instead."
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # it cannot change, so it may be a key and a field's default
        return hash(frozenset(self.items()))

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = thaw(self)
        return plain

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (freeze, (thaw(self),))


_SCALARS = frozenset({str, int, float, bool, type(None)})


def freeze(value: Any) -> Any:
    """A deep, unchangeable copy of a JSON value."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, FrozenDict):
        return value
    if isinstance(value, (dict, Mapping)):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def for_json(value: Any) -> Any:
    """What a JSON library is given for a value that it does not take as it is; `TypeError` for what is no JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def thaw(value: Any) -> Any:
    """A deep, plain copy of a frozen JSON value."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (dict, Mapping)):  # dict first: asking the abstract class alone is ten times slower
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value
