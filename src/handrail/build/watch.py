"""Noticing that a tool's file changed, for `build --watch` and `serve`. By polling: quick enough for thousands of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from handrail.build.compiler import BuildPlan

INTERVAL_SECONDS = 0.5


def changes(plan: BuildPlan, sleep: Callable[[float], None]) -> Iterator[None]:
    """Yields once at the start, and again after every change, for as long as it is iterated."""
    seen = None
    while True:
        now = state_of(plan)
        if now != seen:
            seen = now
            yield
        sleep(INTERVAL_SECONDS)


def state_of(plan: BuildPlan) -> dict[str, tuple[int, int]]:
    """Every file of the tools, with when it was written and how long it is."""
    state: dict[str, tuple[int, int]] = {}
    for path in (*_module_files(plan), *_files(plan.tools)):
        try:
            found = path.stat()
        except OSError:
            continue
        state[str(path)] = (found.st_mtime_ns, found.st_size)
    return state


def _module_files(plan: BuildPlan) -> Iterator[Path]:
    for name in plan.modules:
        path = plan.project.joinpath(*name.split("."))
        yield from (path.with_name(path.name + ".py"), path / "__init__.py")


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (Path(folder, name) for name in names)
