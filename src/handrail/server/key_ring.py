"""Keys: who may use the server, and how often.

A key is a long random text that its holder sends as a bearer token; only its hash is kept. It is a `user`'s or an `operator`'s;
one that names a user speaks for that user and nobody else. `stored_keys` keeps them in the store.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256

from handrail.contract.errors import UsageError
from handrail.contract.keys import Key, Role
from handrail.contract.store import StoreUnavailable
from handrail.identity.tokens import TokenChecker, TokenUser

__all__ = [
    "Key",
    "KeyRing",
    "Role",
    "TokenBuckets",
    "check_name",
    "from_ticket",
    "given_key",
    "hash_of",
    "key_of_token",
    "new_secret",
    "to_ticket",
    "token_keys",
]

PREFIX = "hr_"
TOKEN = "token"
"""Begins the name of what a signed token stands for; the client that the token was made for follows, where it says so."""
UNKNOWN_CLIENT = "unknown"
"""Stands in such a name at MCP where the token does not say so."""
SHORTEST = 20
"""A key that a person made up must be at least so long."""
LONGEST = 512
_LATE_SECONDS = 5.0
"""The keys are looked at twice a second."""
_CATCH_UP_SECONDS = 1.0
_MAX_BUCKETS = 10_000
_MAX_GIVEN = 1_000


class KeyRing:
    """The keys that a running server accepts. `given` is one that stays, whatever becomes of the others."""

    __slots__ = ("_by_hash", "_catching_up", "_given", "_look", "_looked_at", "_open")

    def __init__(self, keys: Iterable[Key] = (), given: Key | None = None) -> None:
        self._given: tuple[Key, ...] = () if given is None else (given,)
        self._by_hash = {key.hash: key for key in (*keys, *self._given)}
        self._open: dict[str, set[Callable[[], None]]] = {}
        self._look: Callable[[], Awaitable[None]] | None = None
        self._looked_at = 0.0
        self._catching_up = asyncio.Lock()

    def looked(self, look: Callable[[], Awaitable[None]]) -> None:
        """Somebody who follows the keys has just looked, by this."""
        self._look, self._looked_at = look, time.monotonic()

    async def catch_up(self) -> None:
        """Look before anybody is let in where nobody has for a while: the process was frozen, and keys may have been revoked
        meanwhile. Where the store does not answer, the keys stay as they were."""
        if self._look is None or time.monotonic() - self._looked_at < _LATE_SECONDS:
            return
        async with self._catching_up:
            if time.monotonic() - self._looked_at < _LATE_SECONDS:
                return
            with suppress(TimeoutError, StoreUnavailable):
                async with asyncio.timeout(_CATCH_UP_SECONDS):
                    await self._look()
            self._looked_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._by_hash)

    def replace(self, keys: Iterable[Key]) -> list[Key]:
        """Accept these from now on. What was opened with a key that is gone or has other rights is ended; those keys."""
        before, self._by_hash = self._by_hash, {key.hash: key for key in (*keys, *self._given)}
        gone = [key for key in before.values() if self._by_hash.get(key.hash) != key]
        for key in gone:
            for end in tuple(self._open.get(key.hash, ())):
                end()
        return gone

    def using(self, key: Key, end: Callable[[], None]) -> Callable[[], None]:
        """Something stays open that was opened with this key: `end` is called if the key is revoked, or its time is over. Call
        what is given back when it has closed."""
        if key.expires:
            return asyncio.get_running_loop().call_later(max(0.0, key.expires - time.time()), end).cancel
        self._open.setdefault(key.hash, set()).add(end)

        def closed() -> None:
            still = self._open.get(key.hash, set())
            still.discard(end)
            if not still:
                self._open.pop(key.hash, None)

        return closed

    def give(self, key: Key) -> None:
        """Accept this key for as long as the process runs. Of very many the first is not known any more."""
        self._given = (*self._given, key)[-_MAX_GIVEN:]
        self._by_hash[key.hash] = key

    def of_hash(self, hashed: str) -> Key | None:
        """The key that is kept under this hash, as it is accepted now."""
        return self._by_hash.get(hashed)

    def knows(self, key: Key) -> bool:
        """Whether this key, as it was when somebody came with it, is still accepted."""
        if key.expires:
            return time.time() < key.expires
        return self._by_hash.get(key.hash) == key

    def find(self, secret: str) -> Key | None:
        """The key with this secret. Looked up by its hash, so the time that it takes says nothing about other keys."""
        if not 0 < len(secret) <= LONGEST:
            return None
        hashed = hash_of(secret)
        key = self._by_hash.get(hashed)
        return key if key is not None and hmac.compare_digest(key.hash, hashed) else None


class TokenBuckets:
    """One bucket for each name: it holds `size` units and is filled again in a minute."""

    __slots__ = ("_clock", "_kept", "_size")

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(size)
        self._clock = clock
        self._kept: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Take one unit; 0 if there was one, else the seconds after which there will be."""
        now = self._clock()
        # Taken out and put in again: the first of the dictionary is who was silent for the longest time.
        left, then = self._kept.pop(name, (self._size, now))
        left = min(self._size, left + (now - then) * self._size / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / self._size
        self._kept[name] = (left if wait else left - 1, now)
        if len(self._kept) > _MAX_BUCKETS:
            del self._kept[next(iter(self._kept))]  # whoever was silent for the longest time
        return wait


def key_of_token(issuer: str, who: TokenUser) -> Key:
    """A token as the key that it stands for: the same user has the same hash, whichever token they bring."""
    named = f"token\0{issuer}\0{who.tenant}\0{who.user}"
    return Key(
        name=f"{TOKEN}:{who.client}" if who.client else TOKEN,
        hash=hash_of(named),
        user=who.user,
        roles=who.roles,
        tenant=who.tenant,
        organisation=who.organisation,
        expires=who.expires,
    )


def token_keys(issuer: str, checker: TokenChecker) -> Callable[[str], Awaitable[Key]]:
    """What gives the key that a signed token stands for."""

    async def check(token: str) -> Key:
        return key_of_token(issuer, await checker.check(token))

    return check


def to_ticket(key: Key) -> str:
    """What a ticket keeps of whom it lets in: the hash of a key, which may be revoked meanwhile; a token whole."""
    return key.hash if not key.expires else json.dumps(asdict(key))


def from_ticket(ring: KeyRing, kept: str) -> Key | None:
    """Whom a ticket lets in, if they are still accepted."""
    if not kept.startswith("{"):
        return ring.of_hash(kept)
    facts = json.loads(kept)
    # It follows from the role, and cannot be given.
    facts.pop("is_operator")
    key = Key(**{**facts, "roles": tuple(facts["roles"])})
    return key if ring.knows(key) else None


def hash_of(secret: str) -> str:
    # A fast hash is enough: a key has 256 random bits, or is at least long, and is never a password of a person.
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def given_key(secret: str, *, name: str = "given") -> Key:
    """A key that the operator brings along; `UsageError` if it is easy to guess."""
    if not SHORTEST <= len(secret) <= LONGEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UsageError(
            f"A key is {SHORTEST} to {LONGEST} printable characters without spaces; `handrail keys add` makes one."
        )
    return Key(name=name, hash=hash_of(secret), role="operator")


def check_name(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= 64:
        raise UsageError(f"A key's name is 1 to 64 printable characters; {name!r} is not.")
