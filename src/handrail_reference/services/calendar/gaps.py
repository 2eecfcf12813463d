"""Busy times merged, and the gaps between them. Pure: every backend uses it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from handrail_reference.services.calendar.port import Availability, Busy, Gap


def merged(busy: Iterable[Busy], start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The busy times within the range, overlapping and touching ones as one, in order."""
    spans = sorted((max(one.start, start), min(one.end, end)) for one in busy)
    joined: list[tuple[datetime, datetime]] = []
    for begun, ended in spans:
        if begun >= ended:
            continue
        if joined and begun <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], ended))
        else:
            joined.append((begun, ended))
    return joined


def availability(busy: Iterable[Busy], start: datetime, end: datetime, min_minutes: int) -> Availability:
    """What is taken and what is left: gaps of at least that many minutes."""
    # In one order, whichever calendar they come from.
    listed = tuple(
        sorted(
            busy, key=lambda one: (one.start, one.end, one.calendar, one.title or "", one.attendees or 0, one.status)
        )
    )
    taken = merged(listed, start, end)
    edges = [start, *(moment for span in taken for moment in span), end]
    gaps = [Gap(begun, ended) for begun, ended in zip(edges[::2], edges[1::2], strict=True) if begun < ended]
    least = timedelta(minutes=min_minutes)
    total = sum(((ended - begun) for begun, ended in taken), timedelta(0))
    return Availability(
        busy=listed,
        free=tuple(gap for gap in gaps if gap.end - gap.start >= least),
        busy_minutes=int(total.total_seconds() // 60),
    )
