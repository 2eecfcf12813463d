"""iCalendar files out: the lines of every event as they came in, with the definitions of the zones that they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from icalendar import Event, Timezone
from icalendar.parser import Contentline
from icalendar.prop import vUri

from handrail_reference.services.calendar.port import Draft
from handrail_reference.services.calendar.zones import is_known, zone_names

_LAST_CHANGE = date(2100, 1, 1)
"""Changes of clocks are listed up to here; later dates are read by whoever knows the zone by its name."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PRODUCT = "-//Handrail//Calendar//EN"


def to_lines(draft: Draft, meeting_link: str | None, now: datetime) -> list[str]:
    """The VEVENT of an event that a tool creates, as unfolded lines."""
    event = Event()
    event.add("uid", draft.uid)
    event.add("dtstamp", now)
    event.add("created", now)
    event.add("dtstart", draft.start.astimezone(UTC))
    event.add("dtend", draft.end.astimezone(UTC))
    event.add("summary", draft.title)
    if draft.description:
        event.add("description", draft.description)
    if draft.location or meeting_link:
        event.add("location", draft.location or meeting_link)
    if meeting_link:
        event.add("conference", vUri(meeting_link, params={"VALUE": "URI", "FEATURE": "AUDIO,VIDEO"}))
    for address in draft.attendees:
        event.add("attendee", f"mailto:{address}")
    return [_CONTROL.sub(" ", str(line)) for line in event.content_lines() if line]


def to_file(name: str, items: Iterable[tuple[Sequence[Sequence[str]], Mapping[str, str]]]) -> bytes:
    """A whole calendar. `items` are the components of each UID as lines, and the zones that were defined for them."""
    events: list[str] = []
    defined: dict[str, str] = {}
    used: set[str] = set()
    for components, zones in items:
        defined.update(zones)
        for lines in components:
            events += lines
            used |= zone_names(lines)
    head = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:{_PRODUCT}", f"X-WR-CALNAME:{name}"]
    for zone in sorted(used):
        text = defined.get(zone) or _definition(zone)
        head += [line for line in text.replace("\r\n ", "").split("\r\n") if line]
    folded = [_folded(line) for line in [*head, *events, "END:VCALENDAR"]]
    return b"\r\n".join(folded) + b"\r\n"


def _definition(zone: str) -> str:
    """A zone of the database as a VTIMEZONE; nothing for one that is not there, for its event must go out all the same."""
    if not is_known(zone):
        return ""
    return str(Timezone.from_tzid(zone, last_date=_LAST_CHANGE).to_ical().decode())


def _folded(line: str) -> bytes:
    """Lines of at most 75 bytes, the later ones indented; no letter is cut in two."""
    folded: bytes = Contentline(line).to_ical()  # type: ignore[no-untyped-call]
    return folded
