"""The keys of a server as they are kept: never a secret, only its hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Role = Literal["user", "operator"]
ROLES: tuple[Role, ...] = ("user", "operator")
MAX_KEYS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What is kept of a key."""

    name: str
    hash: str
    role: Role = "user"
    user: str | None = None
    """The only user that this key speaks for; None: any."""
    roles: tuple[str, ...] = ()
    """What its user may use beyond what everybody may; see `permissions.roles` of a tool."""
    tenant: str = ""
    """Of a signed token whose issuer has several; a key that is kept here has none."""
    organisation: str = ""
    """Of a signed token."""
    expires: float = field(default=0.0, compare=False)
    """When a signed token ends, in seconds since 1970; 0 for a key, which is kept until it is revoked."""
    created: str = field(default="", compare=False)
    """The day on which it was made, where that is known."""

    is_operator: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_operator", self.role == "operator")

    @property
    def traceless_name(self) -> str:
        """How the audit names it for good. A key that speaks for a user may bear that user's name, and whoever guesses the user
        of a signed token could compute its hash."""
        if self.user is None:
            return self.name
        if self.expires:
            return "token" if self.user in self.name else self.name  # which is that of a client
        return f"{self.hash[:12]}…"

    def may_use(self, user: str | None) -> bool:
        """Whether it opens what is this user's."""
        return self.user is None or self.is_operator or self.user == user


class KeyStore(Protocol):
    """The keys of a store. `UsageError` if there would be more than `MAX_KEYS`."""

    async def all(self) -> list[Key]:
        """In the order in which they were made."""
        ...

    async def changes(self) -> int:
        """How often keys were added or revoked: while it is the same, so are they."""
        ...

    async def add(self, key: Key, *, replace: bool) -> None:
        """Keep a key, in the place of one of its name; `UsageError` if there is one and it is not to be replaced."""
        ...

    async def add_numbered(self, key: Key) -> Key:
        """Keep a key that never takes the place of another: where its name is taken, it is `NAME-2` and so on."""
        ...

    async def revoke(self, name: str) -> Key | None:
        """The key that is gone; None if there is none of that name."""
        ...

    async def revoke_of(self, user: str) -> list[Key]:
        """Revoke the keys that speak for a user; those keys."""
        ...

    async def import_all(self, source: str, keys: Sequence[Key]) -> int:
        """Take the keys of a file over, once for each `source`; how many were new. Those that are there stay as they are."""
        ...
