"""Moments in the arguments and results of the calendar's tools: read and refused in one way, written in one form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from handrail import ErrorType, ToolError


def moment_of(args: Mapping[str, Any], name: str) -> datetime:
    """The moment that an argument names.

    The schema has checked the form, but RFC 3339 knows moments that Python does not: leap seconds, the year 0.
    """
    text = args[name].upper()
    try:
        moment = datetime.fromisoformat(f"{text[:17]}59{text[19:]}" if text[17:19] == "60" else text)
        moment.timestamp()
    except (ValueError, OverflowError):
        raise refused(name, f'"{args[name]}" is no date that a calendar has.') from None
    return moment


def refused(name: str, message: str) -> ToolError:
    """The refusal of an argument."""
    return ToolError(ErrorType.VALIDATION, message, details=[{"pointer": f"/{name}"}])


def text_of(moment: datetime, zone: tzinfo | None) -> str:
    """The moment on the clock of a zone, UTC as `Z`."""
    text = moment.astimezone(zone).isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
