"""iCalendar files out: the lines of every event as they came in, with the definitions of the zones that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from icalendar import Timezone
from icalendar.parser import Contentline

from handrail_reference.services.calendar.zones import is_known, zone_names

_LAST_CHANGE = date(2100, 1, 1)
"""Changes of clocks are listed up to here; later dates are read by whoever knows the zone by its name."""
PRODUCT = "-//Handrail//Calendar//EN"


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
    head = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:{PRODUCT}", f"X-WR-CALNAME:{name}"]
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
