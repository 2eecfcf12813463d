"""Keys: who may talk to the server. A key is a long random text that its holder sends as a bearer token; only its hash is kept.

The file of keys is JSON with the rights 0600. A key is a `user`'s or an `operator`'s; one that names a user speaks for that user
and nobody else.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

from handrail.contract.errors import ConfigError, UsageError

Role = Literal["user", "operator"]
ROLES: tuple[Role, ...] = ("user", "operator")
PREFIX = "hr_"
SHORTEST = 20
"""A key that a person made up must be at least so long."""
LONGEST = 512
_MOST_KEYS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is kept of a key."""

    name: str
    hash: str
    role: Role = "user"
    user: str | None = None
    """The only user that this key speaks for; None: any."""

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"


class KeyRing:
    """The keys that a running server accepts."""

    __slots__ = ("_by_hash",)

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._by_hash = {key.hash: key for key in keys}

    def __len__(self) -> int:
        return len(self._by_hash)

    def put(self, key: Key) -> None:
        """Accept a new key, in the place of one that had its name."""
        for old in [one for one in self._by_hash.values() if one.name == key.name]:
            del self._by_hash[old.hash]
        self._by_hash[key.hash] = key

    def find(self, secret: str) -> Key | None:
        """The key with this secret. Looked up by its hash, so the time that it takes says nothing about other keys."""
        if not 0 < len(secret) <= LONGEST:
            return None
        hashed = hash_of(secret)
        key = self._by_hash.get(hashed)
        return key if key is not None and hmac.compare_digest(key.hash, hashed) else None


def hash_of(secret: str) -> str:
    # A fast hash is enough: a key has 256 random bits, or is at least long, and is never a password of a person.
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def given_key(secret: str, *, name: str = "given") -> Key:
    """A key that the operator brings along; `UsageError` if it is easy to guess."""
    if not SHORTEST <= len(secret) <= LONGEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UsageError(
            f"A key is {SHORTEST} to {LONGEST} printable characters without spaces; `handrail serve --new-key NAME` makes one."
        )
    return Key(name=name, hash=hash_of(secret), role="operator")


def load_keys(path: Path) -> list[Key]:
    """The keys of a file, none if there is no file; `ConfigError` if it cannot be used or others may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(16 * 1024 * 1024)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f'The file of keys "{path.name}" cannot be read ({error.strerror}).') from None
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f'The file of keys "{path.name}" can be read by others; run `chmod 600` on it.')
    try:
        entries = json.loads(raw)["keys"]
        return [_key(entry) for entry in entries[:_MOST_KEYS]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f'The file of keys "{path.name}" cannot be understood; it has {{"keys": [{{"name", "hash", "role", "user"}}]}}.'
        ) from None


def add_key(path: Path, *, name: str, role: Role, user: str | None = None) -> tuple[Key, str]:
    """Make a key and keep its hash in the file; the key and its secret, which nobody can be shown again.

    A key of the same name is replaced.
    """
    check_name(name)
    secret = new_secret()
    key = Key(name=name, hash=hash_of(secret), role=role, user=user)
    kept = [one for one in load_keys(path) if one.name != name]
    _write(path, [*kept, key])
    return key, secret


def check_name(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= 64:
        raise UsageError(f"A key's name is 1 to 64 printable characters; {name!r} is not.")


def _key(entry: Any) -> Key:
    name, hashed, role, user = entry["name"], entry["hash"], entry.get("role", "user"), entry.get("user")
    good = isinstance(name, str) and isinstance(hashed, str) and len(hashed) == 64 and role in ROLES
    if not good or not (user is None or isinstance(user, str)):
        raise ValueError(name)
    return Key(name=name, hash=hashed, role=cast(Role, role), user=user)


def _write(path: Path, keys: list[Key]) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".keys-")
    except OSError as error:
        raise ConfigError(f'The file of keys "{path.name}" cannot be written ({error.strerror}).') from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"keys": [asdict(key) for key in keys]}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
