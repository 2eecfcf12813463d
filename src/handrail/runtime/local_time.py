"""`ctx.local_time`: the clock of the person in a session, so that a tool can show times as they are read on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from handrail.runtime.call_attempt import Attempt

_ATTRIBUTE = "timeZone"


def attributes_for(time_zone: str) -> Mapping[str, str]:
    """What a host says of a session whose person has this zone; nothing where it is not known."""
    return {_ATTRIBUTE: time_zone} if time_zone else {}


class LocalTime:
    """Made for each call. `zone` is None where nobody said which it is, or this machine does not know it."""

    __slots__ = ("_session",)

    def __init__(self, attempt: Attempt) -> None:
        self._session = attempt.session

    @property
    def zone(self) -> tzinfo | None:
        name = self._session.attributes.get(_ATTRIBUTE)
        try:
            return ZoneInfo(name) if isinstance(name, str) and name else None
        except (LookupError, ValueError, OSError):
            return None
