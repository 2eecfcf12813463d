"""A process as others can recognise it later, although its number may be given to another, and the clock may be set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Process(NamedTuple):
    """Empty where the system does not tell."""

    boot: str
    namespace: str
    """Process numbers mean something only within it: containers have one each."""
    pid: int
    started: str
    """In ticks since the machine started."""

    @classmethod
    def this(cls) -> Process:
        pid = os.getpid()
        return cls(_boot(), _namespace(), pid, _started(pid) or "")

    def is_gone(self) -> bool | None:
        """None: it cannot be known here."""
        if not self.boot or (self.boot, self.namespace) != (_boot(), _namespace()):
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # another user's, which lives
        started = _started(self.pid)
        return None if started is None else started != self.started

    def is_of_this_boot(self) -> bool:
        return self.boot == _boot()


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When the process started; empty for one that has ended and was not collected; None where it cannot be seen."""
    try:
        # The name of the program stands in parentheses and may hold any character.
        fields = (_PROC / f"{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in "ZX" else fields[19]
