"""Noticing that a tool's file changed, for `build --watch` and `serve`. By polling: quick enough for thousands of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from handrail.authoring.modules import look_in, module_files
from handrail.build.compiler import BuildPlan

INTERVAL_SECONDS = 0.5
State = dict[str, tuple[int, int]]
"""When a file was written and how long it is, by its path; files that are not there are left out."""


def changes(plan: BuildPlan, sleep: Callable[[float], None]) -> Iterator[None]:
    """Yields once at the start, and again after every change, for as long as it is iterated."""
    watched = WatchedFiles(plan)
    yield
    while True:
        sleep(INTERVAL_SECONDS)
        if watched.have_changed():
            yield


class WatchedFiles:
    """The files that the tools of a plan are made of, and `more`: those of the tools' folder, the modules of decorated tools, and
    what these import of the project."""

    def __init__(self, plan: BuildPlan, *more: Path) -> None:
        self._plan = plan
        self._more = more
        if plan.modules:
            look_in(plan.project)
        self._modules = self._module_files()
        self._seen = self._state()

    def have_changed(self) -> bool:
        """Whether any of them is another than at the last look; at the first, than when this was made."""
        now = self._state()
        if now == self._seen:
            return False
        # Which modules are imported is only looked for after a change: every file has to be parsed for it.
        self._modules = self._module_files()
        self._seen = self._state()
        return True

    def _module_files(self) -> list[Path]:
        return module_files(self._plan.modules, self._plan.project)

    def _state(self) -> State:
        state: State = {}
        for path in (*self._more, *self._modules):
            with suppress(OSError):
                found = path.stat()
                state[str(path)] = (found.st_mtime_ns, found.st_size)
        _note_files(str(self._plan.tools), state)
        return state


def _note_files(folder: str, state: State) -> None:
    # Twice a second, perhaps over thousands of files: what the folder's entries know already is not asked for again.
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if not entry.is_dir():
                    found = entry.stat()
                    state[entry.path] = (found.st_mtime_ns, found.st_size)
                elif not entry.is_symlink() and not entry.name.startswith((".", "_")):
                    _note_files(entry.path, state)
