"""Directory tools: one folder with `schema.json`, `guide.md` and `handler.py` becomes a `ToolSource`.

Folders whose name starts with `_` or `.` are not tools. Links are noted and never followed: what the build hashes has
to be what lies in the folder. What cannot be read is noted, too.
"""

from __future__ import annotations

import os
from pathlib import Path

from handrail.authoring.source import MAX_FILE_BYTES, PROJECT, REQUIRED_FILES, ToolSource
from handrail.contract.errors import UsageError

_IGNORED = ("__pycache__", ".DS_Store", "Thumbs.db")


def tool_folders(root: Path) -> list[str]:
    """The names of the tool folders below `root`, sorted, links included."""
    if not root.is_dir():
        raise UsageError(
            f'There is no tools directory "{root}"; name another one, or make a tool with `handrail new NAME`.'
        )
    try:
        entries = list(os.scandir(root))
    except OSError as error:
        raise UsageError(f'The tools directory "{root}" cannot be read ({error.strerror}).') from None
    return sorted(
        entry.name
        for entry in entries
        if not entry.name.startswith(("_", ".")) and (entry.is_dir() or entry.is_symlink())
    )


def read_folder(root: Path, name: str, *, origin: str = PROJECT) -> ToolSource:
    """One folder as a `ToolSource`. Nothing in it is run, and no link is followed."""
    folder = root / name
    if folder.is_symlink():
        return ToolSource(kind="directory", folder=name, origin=origin, links=(".",))
    files: dict[str, bytes] = {}
    links, oversized, extras, unreadable = [], [], [], []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return ToolSource(kind="directory", folder=name, origin=origin, unreadable=(".",))
    for entry in entries:
        if entry.name in _IGNORED or entry.name.startswith(".") or entry.name.endswith((".pyc", "~")):
            continue
        try:
            if entry.is_symlink():
                links.append(entry.name)
            elif not entry.is_file() or not _belongs(entry.name):
                extras.append(entry.name)
            elif entry.stat().st_size > MAX_FILE_BYTES:
                oversized.append(entry.name)
            else:
                files[entry.name] = Path(entry.path).read_bytes()
        except OSError:
            unreadable.append(entry.name)
    return ToolSource(
        kind="directory",
        folder=name,
        origin=origin,
        files=files,
        links=tuple(links),
        oversized=tuple(oversized),
        extras=tuple(extras),
        unreadable=tuple(unreadable),
    )


def _belongs(name: str) -> bool:
    # A name that no import can say would be hashed and never run.
    return name in REQUIRED_FILES or (name.endswith(".py") and name.removesuffix(".py").isidentifier())
