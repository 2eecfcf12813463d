"""How `handrail deploy` and the servers of an artifact speak: by files beside it.

`deploy` leaves a mark with a name. Each server keeps a file in `tool_registry.json.servers`, locked for as long as it lives, and
writes into it which deployment it has looked at, and why it refused it. So `deploy` knows whom to wait for, and what each said.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

try:
    import fcntl
except (
    ImportError
):  # pragma: no cover  # a system without it: servers cannot be distinguished from files that they left behind
    fcntl = None  # type: ignore[assignment]

_LOG = logging.getLogger("handrail.reload")
_MARK = ".deployed"
_SERVERS = ".servers"
_MAX_BYTES = 16_384


class RunningServer(NamedTuple):
    """A server that follows an artifact, and its answer to the last deployment that it has looked at."""

    host: str
    pid: int
    deployment: str
    version: str
    refused: str
    """Why it keeps its old tools, in a sentence; empty if it took the new ones."""


def mark_deployment(artifact: Path, version: str) -> str:
    """Tell the servers of an artifact that there is a new one; the name of this deployment."""
    name = secrets.token_hex(8)
    mark = artifact.with_name(artifact.name + _MARK)
    fresh = mark.with_name(f"{mark.name}.{os.getpid()}")
    fresh.write_text(f"{version}\n{name}\n", "utf-8")
    fresh.replace(mark)
    return name


def marked_deployment(artifact: Path) -> str:
    """The name of the last deployment; empty if there was none."""
    try:
        lines = artifact.with_name(artifact.name + _MARK).read_text("utf-8").split()
    except (OSError, ValueError):
        return ""
    return lines[-1] if lines else ""


def running_servers(artifact: Path) -> list[RunningServer]:
    """Those that follow this artifact now; none where files cannot be locked. What a killed one left behind is removed."""
    return [one for path in sorted(_folder(artifact).glob("*.json")) if (one := _running(path)) is not None]


class Following:
    """A server's own file. One that cannot be written is reported in the log: the server follows all the same."""

    def __init__(self, artifact: Path) -> None:
        self._handle: int | None = None
        self._path = _folder(artifact) / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        try:
            self._handle = self._made()
            if fcntl is not None:
                fcntl.flock(self._handle, fcntl.LOCK_EX)
        except OSError as error:
            _LOG.warning("`handrail deploy` will not learn what this server answers (%s)", error.strerror)

    def _made(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._path.parent.mkdir(exist_ok=True)
        try:
            return os.open(self._path, flags, 0o600)
        except FileNotFoundError:  # the last server took the folder with it just now
            self._path.parent.mkdir(exist_ok=True)
            return os.open(self._path, flags, 0o600)

    def answer(self, deployment: str, version: str, refused: str = "") -> None:
        if self._handle is None:
            return
        facts = RunningServer(socket.gethostname(), os.getpid(), deployment, version, refused[: _MAX_BYTES // 8])
        # In place: a file that replaces this one would not be locked. Whoever reads in between sees no JSON, and looks again.
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, json.dumps(facts._asdict()).encode(), 0)

    def close(self) -> None:
        if self._handle is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None
            with suppress(OSError):  # others have files in it
                self._path.parent.rmdir()


@contextmanager
def following(artifact: Path) -> Iterator[Following]:
    place = Following(artifact)
    try:
        yield place
    finally:
        place.close()


def _folder(artifact: Path) -> Path:
    return artifact.with_name(artifact.name + _SERVERS)


def _is_locked(file: BinaryIO) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _running(path: Path) -> RunningServer | None:
    try:
        with path.open("rb") as file:
            if not _is_locked(file):
                path.unlink(missing_ok=True)
                return None
            raw = file.read(_MAX_BYTES)
    except OSError:
        return None  # it has just gone
    try:
        return RunningServer(**json.loads(raw))
    except (ValueError, TypeError):
        return RunningServer("", int(path.name.partition("-")[0]), "", "", "")  # it writes at this moment
