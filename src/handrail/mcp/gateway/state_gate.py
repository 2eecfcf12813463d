"""Keeps the tools of a wrapped server out of the folder in which their own governing is kept.

No secret lies there, but the ledger, the pins and the hashes of keys do: a tool that reads or writes files has no business
with them, approved or not. A call that names the folder, in a path or inside a longer text, is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from handrail.contract.errors import ErrorType
from handrail.contract.gates import AskPerson, GatedCall, Refuse

_MAX_PATH = 4_096


class StateGate:
    """`folders` are those of the state; relative paths count from `cwd`."""

    name = "own_state"

    def __init__(self, folders: Sequence[Path], cwd: Path) -> None:
        self._folders = tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        self._written = tuple(dict.fromkeys([*self._folders, *map(str, folders)]))
        self._cwd = str(cwd)

    def check(self, call: GatedCall) -> Refuse | AskPerson | None:
        if not any(self._is_inside(text) for text in _texts(call.args)):
            return None
        said = "That path belongs to Handrail's own state, which the tools of a wrapped server may not touch."
        return Refuse(said, ErrorType.AUTH, suggestion="Leave that folder out.", rule="own_state")

    def _is_inside(self, text: str) -> bool:
        if any(folder in text for folder in self._written):
            return True
        if not text or len(text) > _MAX_PATH or "\0" in text or "\n" in text:
            return False
        plain = unquote(text.removeprefix("file://")) if text.startswith("file://") else text
        path = os.path.expanduser(plain)  # noqa: PTH111  # which raises nothing where there is no such user
        found = os.path.realpath(Path(self._cwd, path))  # through links, too
        return any(found == folder or found.startswith(folder + os.sep) for folder in self._folders)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield str(name)
            yield from _texts(member)
    elif isinstance(value, Sequence):
        for member in value:
            yield from _texts(member)
