"""Says whether a text is a well-formed e-mail address. Syntax only: nothing is looked up, nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from email_validator import EmailNotValidError, validate_email

_MAX_BYTES = 254
_MAX_REASON = 300


async def execute(args: Mapping[str, Any], ctx: object) -> dict[str, Any]:
    """A verdict for every text: an address that is wrong is an answer, not an error."""
    address = args["email"].strip()
    reason = _too_long(address)
    if reason is None:
        try:
            checked = validate_email(address, check_deliverability=False)
        except EmailNotValidError as error:
            reason = _shortened(str(error))
        else:
            return _verdict(normalized=checked.normalized, reason=None)
    return _verdict(normalized=None, reason=reason)


def _verdict(*, normalized: str | None, reason: str | None) -> dict[str, Any]:
    return {"ok": True, "data": {"valid": reason is None, "normalized": normalized, "reason": reason}}


def _too_long(address: str) -> str | None:
    """Asked before anything else: the library's time grows with the cube of the length for piled-up accents."""
    size = len(address.encode("utf-8", "surrogatepass"))
    if size <= _MAX_BYTES:
        return None
    return f"The email address is too long: it takes {size} bytes, and at most {_MAX_BYTES} are allowed."


def _shortened(reason: str) -> str:
    """Some of the library's sentences list every character that they object to."""
    return reason if len(reason) <= _MAX_REASON else reason[: _MAX_REASON - 1] + "…"
