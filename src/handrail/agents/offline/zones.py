"""Time zones as people say them: by their name, or by a city that gave one its name."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import available_timezones

from handrail.agents.offline.pieces import Pieces

_WRITTEN_OUT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")


def zone_in(pieces: Pieces) -> str | None:
    """The zone that is named."""
    for candidate in re.findall(r"[A-Z]\w+/[A-Z]\w+(?:/\w+)?|\bUTC\b|\bGMT\b", pieces.text):
        if candidate in available_timezones():
            return str(candidate)
    return None


def zone_of_city(pieces: Pieces) -> str | None:
    """The zone of a city that is named."""
    return next((zone for _, name in pieces.names if (zone := _cities().get(name.lower())) is not None), None)


def own_zone(pieces: Pieces, now: datetime) -> str | None:
    """The zone of the conversation, where none is named: "what time is it?" asks for the clock on the wall. A moment that is
    given with its offset says where it is read itself."""
    return None if _WRITTEN_OUT.search(pieces.text) else getattr(now.tzinfo, "key", None)


@lru_cache(maxsize=1)
def _cities() -> dict[str, str]:
    named = (
        zone for zone in sorted(available_timezones(), reverse=True) if "/" in zone and not zone.startswith("Etc/")
    )
    return {zone.rsplit("/", 1)[1].replace("_", " ").lower(): zone for zone in named}
