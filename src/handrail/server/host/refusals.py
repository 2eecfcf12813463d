"""What the host of conversations does not do, and why. The HTTP API gives each reason a status, voice a close code."""

from __future__ import annotations

from enum import Enum


class RefusalReason(Enum):
    """Why the host refused."""

    NO_SESSION = "no_session"
    """There is none with this id and secret."""
    ENDED = "ended"
    NOT_ALLOWED = "not_allowed"
    """The key may not speak for this user."""
    MESSAGE_REUSED = "message_reused"
    """The message's id was used for another text."""
    BUSY = "busy"
    """Somebody else is using the session: another message, or another process."""
    QUOTA = "quota"
    """The user or the key has as many conversations as one may have."""
    FULL = "full"
    """The server has as many as it may hold."""
    RESTARTING = "restarting"
    STORE_AWAY = "store_away"


class SessionRefused(Exception):
    """The host did not do what it was asked for; the message is for the client."""

    def __init__(self, reason: RefusalReason, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


def restarting() -> SessionRefused:
    message = "The server is about to restart; connect again in a moment."
    return SessionRefused(RefusalReason.RESTARTING, message, retry_after=2)


def no_session() -> SessionRefused:
    return SessionRefused(RefusalReason.NO_SESSION, "There is no such session.")


def ended() -> SessionRefused:
    return SessionRefused(RefusalReason.ENDED, "The session has ended; open a new one.")


def store_away() -> SessionRefused:
    message = "What is said cannot be stored at the moment; try again later."
    return SessionRefused(RefusalReason.STORE_AWAY, message, retry_after=5)


def moved() -> SessionRefused:
    message = "Another process of this server has just taken the session over; try again."
    return SessionRefused(RefusalReason.BUSY, message, retry_after=1)


def busy(message: str) -> SessionRefused:
    """Somebody else is using the session, for a moment."""
    return SessionRefused(RefusalReason.BUSY, message, retry_after=1)


def trying() -> SessionRefused:
    return busy("A tool is being tried in this session; wait for it.")


def message_reused() -> SessionRefused:
    message = "That message id was used for another text; choose a new one."
    return SessionRefused(RefusalReason.MESSAGE_REUSED, message)


def full(scope: str) -> SessionRefused:
    """No room for another conversation: of a user, of a key, or in all."""
    if scope == "user":
        message = "You have as many conversations as one user may have, all of them in use; end one."
        return SessionRefused(RefusalReason.QUOTA, message, retry_after=5)
    if scope == "key":
        message = (
            "This key has as many conversations as one key may have; end some, or ask the operator to raise "
            "`max_conversations_per_key`."
        )
        return SessionRefused(RefusalReason.QUOTA, message, retry_after=60)
    message = "The server keeps as many conversations as it may; its operator can raise `max_conversations`."
    return SessionRefused(RefusalReason.FULL, message, retry_after=60)
