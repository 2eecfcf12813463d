"""What PostgreSQL or the way to it says, as one sentence of ours: no exception of psycopg ever leaves a store, and no sentence
holds a password."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import errors

from handrail.contract.errors import HandrailError, UsageError
from handrail.contract.store import StoreUnavailable

DEADLOCKS = (errors.DeadlockDetected, errors.SerializationFailure)
"""After these the same transaction may well succeed."""
_PASSING = (*DEADLOCKS, errors.LockNotAvailable, errors.QueryCanceled, errors.OutOfMemory)
_SENTENCES: Mapping[type[psycopg.Error], str] = {
    errors.ReadOnlySqlTransaction: "may only be read; it is a standby, or set to read-only",
    errors.DiskFull: "cannot be written because its disk is full; make room and try again",
    errors.InsufficientPrivilege: "does not let this role do that; grant it the rights that the documentation lists",
    errors.LockNotAvailable: "is locked by another process for longer than we wait; try again",
    errors.QueryCanceled: "did not answer in time; try again",
    errors.OutOfMemory: "has no memory left, or no room for locks; raise max_locks_per_transaction or try again",
    errors.CannotConnectNow: "is starting up or shutting down; try again",
    errors.AdminShutdown: "was shut down; try again when it is up",
    errors.TooManyConnections: "takes no more connections; raise max_connections or run fewer processes",
    errors.InvalidPassword: "does not take this password",
    errors.InvalidAuthorizationSpecification: "does not let this role in",
    errors.InvalidCatalogName: "is not there; create the database, or name another",
}
POOLER = (
    "is reached through a connection pooler such as PgBouncer, which in transaction mode loses locks and wake-ups; "
    "name the PostgreSQL server itself in its URL"
)


def loses_connection(error: Exception) -> bool:
    """Whether the connection is good for nothing more after this error. One to a server that only reads is not either: after a
    failover the next may well lead to another, or the same server may be set to take writes again."""
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return True
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, _PASSING)


def unavailable(title: str, error: psycopg.Error) -> HandrailError:
    """What to raise when an operation failed with `error`."""
    if isinstance(error, psycopg.IntegrityError):
        return UsageError(f"{title} refused this: what it refers to is not there, or is there already.")
    if isinstance(error, psycopg.DataError):
        return UsageError(f"{title} cannot keep this value ({first_line(error)}).")
    said = next((words for kind, words in _SENTENCES.items() if isinstance(error, kind)), None)
    return StoreUnavailable(f"{title} {said or f'did not answer ({first_line(error)})'}.")


def unreachable(title: str, error: psycopg.Error, password: str) -> HandrailError:
    """What to raise when there is no connection."""
    text = first_line(error)
    if "unsupported startup parameter" in str(error):
        return UsageError(f"{title} {POOLER}.")  # PostgreSQL itself knows all of ours
    for sign, words in (
        ("certificate verify failed", "shows a certificate that the authority in sslrootcert did not sign"),
        ("does not match host name", "shows a certificate of another machine than the URL names"),
        ("root certificate file", "cannot be checked: name the authority's certificate by sslrootcert in the URL"),
        ("does not support SSL", "is on a server without TLS, which the URL asks for; switch it on there"),
        ("password authentication failed", _SENTENCES[errors.InvalidPassword]),
        ("no password supplied", "asks for a password; put it into PGPASSWORD or a password file"),
        ("does not exist", "is not there, or its role is not; create them, or name others"),
        ("too many clients", _SENTENCES[errors.TooManyConnections]),
        ("starting up", _SENTENCES[errors.CannotConnectNow]),
        ("recovery", "is in recovery; try again"),
    ):
        if sign in str(error):
            return StoreUnavailable(f"{title} {words}.")
    return StoreUnavailable(f"{title} cannot be reached ({text.replace(password, '***') if password else text}).")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
