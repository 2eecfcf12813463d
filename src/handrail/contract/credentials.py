"""Credentials of people at other services: how a store keeps them, and how a handler reaches those of its own call.

A *connection* is a service that the host has configured (`[connections.NAME]`); a *credential* is what one person has given for
it. A store sees only what is sealed: it never has a token in the clear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from handrail.contract.errors import ErrorType, HandrailError, ToolError


class CredentialError(HandrailError):
    """A connection could not be made, used or ended. The message is for the person, and holds nothing that a service wrote."""


class AuthorizationRefused(CredentialError):
    """The authorization server, or a check of ours, refused: asking again in the same way will not help."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """The server's own word, such as `invalid_grant`."""


class AuthorizationUnavailable(CredentialError):
    """The authorization server could not be reached, or answered with something that is no answer; later it may."""


class ConnectionNeeded(ToolError):
    """A call needs a connection that its user does not have. The model learns that; the link goes to the person alone."""

    def __init__(self, connection: str, label: str, reason: str = "") -> None:
        super().__init__(
            ErrorType.AUTH,
            reason
            or f'The person has not connected "{label}" yet. They have been shown how to; ask them to do it, then try again.',
        )
        self.connection = connection
        self.label = label


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """What a request to the service carries. Left out of `repr`, so that no log has it."""

    value: str = field(repr=False)
    scopes: tuple[str, ...] = ()
    expires_at: float | None = None
    """Seconds since 1970; None: the service did not say."""

    def __str__(self) -> str:
        return "AccessToken(…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCredential:
    """What a store keeps of one person's credential for one connection."""

    tenant: str
    user: str
    connection: str
    sealed: str = field(repr=False)
    """The tokens, encrypted."""
    key_id: str
    """Which key has sealed them."""
    version: int = 1
    """Grows with each change."""
    updated_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAuthorization:
    """A person was sent to an authorization server and has not come back."""

    digest: str
    """The hash of the `state` that they come back with."""
    tenant: str
    user: str
    connection: str
    sealed: str = field(repr=False)


class CredentialStore(Protocol):
    """Credentials in a store. Times are milliseconds."""

    async def get(self, tenant: str, user: str, connection: str) -> StoredCredential | None: ...
    async def all_of(self, tenant: str, user: str) -> list[StoredCredential]:
        """Those of one user, by connection."""
        ...

    async def put(self, credential: StoredCredential, *, expected: int | None = None) -> bool:
        """Keep a credential in the place of the earlier one; with `expected`, only if that still has this version: otherwise
        nothing changes, and False. A refresh that is under way stays its owner's."""
        ...

    async def delete(
        self, tenant: str, user: str, connection: str, *, expected: int | None = None
    ) -> StoredCredential | None:
        """The credential that is gone, and with it each authorization that is under way. With `expected`, only the credential
        goes, and only if it still has this version."""
        ...

    async def forget(self, tenant: str, user: str) -> list[StoredCredential]:
        """Delete every credential of a user, and each authorization that is under way; the credentials that are gone."""
        ...

    async def begin_refresh(self, credential: StoredCredential, *, owner: str, lease_ms: int) -> bool:
        """Whether `owner` alone refreshes this version now: until `end_refresh`, or the lease is over."""
        ...

    async def end_refresh(self, credential: StoredCredential, *, owner: str) -> None:
        """The refresh is over; another may begin."""
        ...

    async def sealed_otherwise(self, key_id: str, maximum: int) -> list[StoredCredential]:
        """Credentials that another key has sealed."""
        ...

    async def begin_authorization(self, pending: PendingAuthorization, *, lives_for: int) -> None:
        """Keep it in the place of an earlier one of this user and connection."""
        ...

    async def take_authorization(self, digest: str) -> PendingAuthorization | None:
        """The authorization, once; None if there is none, or its time is over. It is kept until it is completed."""
        ...

    async def complete_authorization(self, digest: str, credential: StoredCredential, *, expected: int | None) -> bool:
        """Keep the credential that an authorization has led to, in the place of this version (None: of none).

        False, and nothing changes, if that is not the version, or the authorization was not taken or is gone: its user was
        forgotten, or has ended the connection, or has begun another authorization."""
        ...


class ConnectionsPort(Protocol):
    """What the runtime asks for a call's user, and for nobody else."""

    page: str
    """What `link` begins with; a server that has a page for connecting sets it."""

    @property
    def names(self) -> Sequence[str]: ...
    def label(self, connection: str) -> str:
        """The connection as people know it."""
        ...

    def is_for(self, connection: str, tool_id: str) -> bool:
        """Whether this tool may use it."""
        ...

    def link(self, connection: str) -> str:
        """Where the person connects it, as their client reaches it; empty where there is no page for it."""
        ...

    async def token(self, tenant: str, user: str, connection: str) -> AccessToken:
        """A token that is valid now. `ConnectionNeeded`, or `ToolError` with TRANSIENT if the service cannot be asked."""
        ...

    async def refused(self, tenant: str, user: str, connection: str, token: str, scopes: Sequence[str] = ()) -> None:
        """The service did not take this token: the next one is a new one. With `scopes` it wants more than the token allows:
        this call ends in `ConnectionNeeded`, and the next authorization asks for them as well."""
        ...

    async def forget(self, tenant: str, user: str) -> tuple[int, list[str]]:
        """Revoke and delete every credential of a user: how many, and a sentence about each that could not be revoked."""
        ...
