"""Free times of a day: the opening hours without what is booked."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

BOOKINGS = Path("bookings.db")
"""In the folder in which Handrail is started, as its own store is."""


def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The first few that are free."""
    day = date.fromisoformat(args["day"])
    taken = _taken()
    free = [slot for slot in _slots(day) if slot not in taken]
    return {"ok": True, "data": {"slots": free[: args["most"]]}}


def _slots(day: date) -> list[str]:
    if day.weekday() >= 5:
        return []
    opening = datetime.combine(day, time(9))
    return [(opening + timedelta(minutes=30 * number)).isoformat(timespec="minutes") for number in range(16)]


def _taken() -> set[str]:
    if not BOOKINGS.exists():
        return set()
    with closing(sqlite3.connect(BOOKINGS)) as database:
        return {start for (start,) in database.execute("SELECT start FROM booking")}
