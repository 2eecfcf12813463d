"""The file of keys: JSON with the rights 0600, written whole or not at all, and followed by a server that runs.

Commands change it (`handrail keys`), one at a time. A running server looks at it twice a second: a new key is accepted, and what
was opened with a revoked one is ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO, cast

from handrail.contract.errors import ConfigError, UsageError
from handrail.server.keys import LONGEST, ROLES, Key, KeyRing, Role, check_name, hash_of, new_secret

try:
    import fcntl
except ImportError:  # pragma: no cover  # a system without it has one command at a time, or the last one wins
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger("handrail.server")
LOOK_SECONDS = 0.5
_MAX_KEYS = 10_000
_MAX_BYTES = 16 * 1024 * 1024


def load_keys(path: Path) -> list[Key]:
    """The keys of a file, none if there is no file; `ConfigError` if it cannot be used or others may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f'The file of keys "{path.name}" cannot be read ({error.strerror}).') from None
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f'The file of keys "{path.name}" can be read by others; run `chmod 600` on it.')
    try:
        entries = json.loads(raw)["keys"]
        return [_key(entry) for entry in entries[:_MAX_KEYS]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f'The file of keys "{path.name}" cannot be understood; it has {{"keys": [{{"name", "hash", "role", "user"}}]}}.'
        ) from None


def add_key(path: Path, *, name: str, role: Role, user: str | None = None, replace: bool = True) -> tuple[Key, str]:
    """Make a key and keep its hash in the file; the key and its secret, which nobody can be shown again.

    A key of the same name is replaced, or `UsageError` without `replace`.
    """
    check_name(name)
    with _alone(path):
        known = load_keys(path)
        kept = [one for one in known if one.name != name]
        if not replace and len(kept) < len(known):
            raise UsageError(f'There is a key "{name}"; choose another name, or replace it with --replace.')
        return _add(path, kept, name=name, role=role, user=user)


def key_for_start(
    path: Path, *, name: str, role: Role, user: str | None, secret_file: Path | None = None
) -> tuple[Key, str]:
    """The key that a starting server shows: the one in the `secret_file` if it is accepted, else a new one that is kept there.

    Read and made under one lock, because several servers may start at once. A new key never takes the place of another: where
    its name is taken, it is `NAME-2` and so on."""
    with _alone(path):
        known = load_keys(path)
        secret = read_secret(secret_file) if secret_file is not None else None
        found = next((one for one in known if secret is not None and one.hash == hash_of(secret)), None)
        if found is not None and secret is not None:
            return found, secret
        taken = {one.name for one in known}
        free = next(one for one in chain([name], (f"{name}-{number}" for number in count(2))) if one not in taken)
        key, secret = _add(path, known, name=free, role=role, user=user)
        if secret_file is not None:
            write_secret(secret_file, secret)
        return key, secret


def _add(path: Path, known: list[Key], *, name: str, role: Role, user: str | None) -> tuple[Key, str]:
    if len(known) >= _MAX_KEYS:
        raise UsageError(f"There are {_MAX_KEYS} keys, which is as many as there may be; revoke some.")
    secret = new_secret()
    today = datetime.now(UTC).date().isoformat()  # for people who look at the list
    key = Key(name=name, hash=hash_of(secret), role=role, user=user, created=today)
    _write(path, [*known, key])
    return key, secret


def revoke_key(path: Path, name: str) -> Key | None:
    """Take a key out of the file; the key, None if there is none of that name."""
    with _alone(path):
        known = load_keys(path)
        gone = next((one for one in known if one.name == name), None)
        if gone is not None:
            _write(path, [one for one in known if one.name != name])
    return gone


def read_secret(path: Path) -> str | None:
    """A key's secret that is kept in a file of its own; None if there is none. `ConfigError` if others may read it."""
    try:
        with path.open("rb") as file:
            mode, raw = os.fstat(file.fileno()).st_mode, file.read(LONGEST + 2)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f'The key file "{path.name}" cannot be read ({error.strerror}).') from None
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f'The key file "{path.name}" can be read by others; run `chmod 600` on it.')
    return raw.decode("ascii", "replace").strip() or None


def write_secret(path: Path, secret: str) -> None:
    _replace(path, lambda file: file.write(f"{secret}\n"))


def revoke_keys_of(path: Path, user: str) -> list[Key]:
    """Take the keys that speak for a user out of the file; those keys."""
    if not path.exists():
        return []
    with _alone(path):
        known = load_keys(path)
        gone = [one for one in known if one.user == user]
        if gone:
            _write(path, [one for one in known if one.user != user])
    return gone


async def follow(path: Path, ring: KeyRing) -> None:
    """Take changes of the file into the ring, for as long as the server runs. A file that cannot be used changes nothing."""
    seen: object = None
    told = ""
    while True:
        # Read here and not in a thread: between reading and accepting, nothing else may change the ring.
        now = _state(path)
        if now != seen:
            try:
                gone = ring.replace(load_keys(path))
                told = ""
                for key in gone:
                    _log.info('The key "%s" was revoked', key.name)
            except ConfigError as error:
                if str(error) != told:
                    _log.error("%s The keys stay as they were.", error)
                told = str(error)
            seen = now
        await asyncio.sleep(LOOK_SECONDS)


def _state(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    # A file that was replaced has another number, one that was written into another time, one with other rights too.
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _key(entry: Any) -> Key:
    name, hashed, role, user = entry["name"], entry["hash"], entry.get("role", "user"), entry.get("user")
    created = entry.get("created", "")
    good = isinstance(name, str) and isinstance(hashed, str) and len(hashed) == 64 and role in ROLES
    if not good or not (user is None or isinstance(user, str)) or not isinstance(created, str):
        raise ValueError(name)
    return Key(name=name, hash=hashed, role=cast(Role, role), user=user, created=created)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other command changes the file meanwhile. The folder is what is locked: the file itself is replaced."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f'The file of keys "{path.name}" cannot be written ({error.strerror}).') from None
    try:
        if fcntl is not None:
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _write(path: Path, keys: list[Key]) -> None:
    _replace(path, lambda file: json.dump({"keys": [asdict(key) for key in keys]}, file, indent=2))


def _replace(path: Path, write: Callable[[TextIO], object]) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys-")
    except OSError as error:
        raise ConfigError(f'The file of keys "{path.name}" cannot be written ({error.strerror}).') from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise ConfigError(f'The file of keys "{path.name}" cannot be written ({error.strerror}).') from None
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
