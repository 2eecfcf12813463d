"""How both SDKs' WebSockets end, as one exception: `ConnectionEnded`, with a sentence and whether another attempt may help."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from handrail.providers.live_link import ConnectionEnded

_LOG = logging.getLogger("handrail.live")
_REFUSALS = frozenset({1007, 1008, 4000})
"""Close codes that mean that the provider does not accept what it was sent or who sent it."""
_LOST = 1006
"""The code of a connection that ended without a closing frame."""
_PASSING = frozenset({408, 409, 425, 429})
ENDINGS = (ConnectionClosed, InvalidHandshake, InvalidURI, OSError, EOFError)
"""What a WebSocket raises when it is no more, or cannot be had."""


@contextmanager
def endings(provider: str, *, setting_up: bool = False, address: str | None = None) -> Iterator[None]:
    """Turn what the WebSocket raises into `ConnectionEnded`. `address` is the one that the settings name.

    Only while setting up, a refusal is final. It is logged then, because only the operator can mend it.
    """
    try:
        yield
    except ENDINGS as error:
        gone = ending(provider, error, setting_up=setting_up, address=address)
        if setting_up:
            _LOG.warning("The live model cannot be had: %s", gone.detail)
        raise gone from None


def ending(provider: str, error: Exception, *, setting_up: bool = False, address: str | None = None) -> ConnectionEnded:
    """The same without a context manager, which costs as much as the frame of sound that it is around."""
    if isinstance(error, ConnectionClosed):
        code, reason = (error.rcvd.code, error.rcvd.reason) if error.rcvd else (_LOST, "")
        return closed(provider, code, reason, setting_up=setting_up)
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        for_good = 400 <= status < 500 and status not in _PASSING
        return ConnectionEnded(f"{provider} answered the connection with HTTP status {status}.", for_good=for_good)
    if isinstance(error, InvalidURI):
        detail = f"The address of {provider} is not one for a WebSocket; mend the base URL."
        return ConnectionEnded(f"{provider} cannot be reached.", for_good=True, detail=detail)
    at, advice = (f" at {address}", '; "base_url" in [voice] says where it is') if address else ("", "")
    detail = f"{provider} cannot be reached{at} ({type(error).__name__}){advice}."
    return ConnectionEnded(f"{provider} cannot be reached.", detail=detail)


def closed(provider: str, code: int, reason: str, *, setting_up: bool) -> ConnectionEnded:
    said = f": {reason[:200]}" if reason else ""
    sentence = f"{provider} closed the connection ({code})"
    refused = setting_up and code in _REFUSALS
    return ConnectionEnded(f"{sentence}.", for_good=refused, by_provider=code != _LOST, detail=f"{sentence}{said}.")
