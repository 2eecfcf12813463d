"""Keys in the store: made, revoked, and followed by every server that shares it.

A running server looks twice a second whether they have changed: a new key is accepted, and what was opened with a revoked one is
ended. While the store is away the keys stay as they were.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from handrail.contract.errors import ConfigError
from handrail.contract.keys import Key, KeyStore, Role
from handrail.contract.store import StoreUnavailable
from handrail.server.folder_lock import folder_lock
from handrail.server.key_ring import LONGEST, KeyRing, check_name, hash_of, new_secret

_log = logging.getLogger("handrail.server")
LOOK_SECONDS = 0.5


async def add_key(
    keys: KeyStore, *, name: str, role: Role, user: str | None = None, roles: Iterable[str] = (), replace: bool = True
) -> tuple[Key, str]:
    """Make a key and keep its hash; the key and its secret, which nobody can be shown again.

    A key of the same name is replaced, or `UsageError` without `replace`.
    """
    check_name(name)
    key, secret = _new_key(name, role, user, roles)
    await keys.add(key, replace=replace)
    return key, secret


async def key_for_start(
    keys: KeyStore, *, name: str, role: Role, user: str | None, secret_file: Path | None = None
) -> tuple[Key, str]:
    """The key that a starting server shows: the one in the `secret_file` if it is accepted, else a new one that is kept there.

    Read and made under one lock, because several servers may start at once."""
    new, secret = _new_key(name, role, user)
    if secret_file is None:
        return await keys.add_numbered(new), secret
    try:
        async with folder_lock(secret_file.parent):
            known = read_secret(secret_file)
            if known is not None:
                found = next((one for one in await keys.all() if one.hash == hash_of(known)), None)
                if found is not None:
                    return found, known
            key = await keys.add_numbered(new)
            _write_secret(secret_file, secret)
            return key, secret
    except OSError as error:
        raise ConfigError(f'The key file "{secret_file}" cannot be written ({error.strerror}).') from None


class KeyFollower:
    """Brings the keys of the store into a ring, each time whole: a later look never loses what an earlier one has found."""

    def __init__(self, keys: KeyStore, ring: KeyRing) -> None:
        self._keys = keys
        self._ring = ring
        self._looking = asyncio.Lock()
        self._seen = -1

    async def refresh(self) -> None:
        async with self._looking:
            # First the count: keys that change between the two are read once more at the next look.
            now = await self._keys.changes()
            if now != self._seen:
                for key in self._ring.replace(await self._keys.all()):
                    _log.info('The key "%s" was revoked', key.name)
                self._seen = now

    async def follow(self) -> None:
        """For as long as the server runs."""
        told = ""
        while True:
            try:
                await self.refresh()
                told = ""
            except StoreUnavailable as error:
                if str(error) != told:
                    _log.error("%s The keys stay as they were.", error)
                told = str(error)
            self._ring.looked(self.refresh)
            await asyncio.sleep(LOOK_SECONDS)


def read_secret(path: Path) -> str | None:
    """A key's secret that is kept in a file of its own; None if there is none. `ConfigError` if others may read it."""
    try:
        with path.open("rb") as file:
            mode, raw = os.fstat(file.fileno()).st_mode, file.read(LONGEST + 2)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f'The key file "{path}" cannot be read ({error.strerror}).') from None
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f'The key file "{path}" can be read by others; run `chmod 600` on it.')
    return raw.decode("ascii", "replace").strip() or None


def _new_key(name: str, role: Role, user: str | None, roles: Iterable[str] = ()) -> tuple[Key, str]:
    secret = new_secret()
    today = datetime.now(UTC).date().isoformat()  # for people who look at the list
    made = Key(name=name, hash=hash_of(secret), role=role, user=user, roles=tuple(sorted(set(roles))), created=today)
    return made, secret


def _write_secret(path: Path, secret: str) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
