"""PostgreSQL servers, for services that keep data in one: a connection, and each failure as one sentence without a password.

Needs the extra `postgres`; so import it where it is used.
"""

from __future__ import annotations

from typing import Any

import psycopg

from handrail.contract.errors import HandrailError, ServiceError, UsageError
from handrail.contract.store import StoreUnavailable
from handrail.stores.postgres.connection import ServerAddress, check_server
from handrail.stores.postgres.failures import loses_connection, unavailable

__all__ = ["as_sentence", "connect", "loses_connection", "title_of"]


def title_of(url: str, noun: str) -> str:
    """What sentences call it, such as `The knowledge base "handrail"`; `UsageError` for a URL that cannot be read."""
    return ServerAddress(url, noun).title


def connect(url: str, noun: str, *, seconds: float) -> psycopg.Connection[Any]:
    """A connection to a server that is new enough, in autocommit. Its statements may take `seconds`, and wait two for locks.

    `UsageError` where the URL or the server will not do, `ServiceError` where it cannot be reached. Their sentences call the
    database a `noun`.
    """
    address = ServerAddress(url, noun)
    try:
        db = address.connect(seconds)
        try:
            check_server(db, address.title)
        except BaseException:
            db.connection.close()
            raise
    except StoreUnavailable as error:
        raise ServiceError(str(error)) from None
    except psycopg.Error as error:
        raise as_sentence(address.title, error) from None
    return db.connection


def as_sentence(title: str, error: psycopg.Error) -> HandrailError:
    """What to raise when a statement failed: a `UsageError` for what will always fail, a `ServiceError` for what may pass."""
    sentence = unavailable(title, error)
    return sentence if isinstance(sentence, UsageError) else ServiceError(str(sentence))
