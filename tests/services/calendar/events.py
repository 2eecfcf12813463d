"""Random events for the oracle, and the iCalendar text that says the same."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from tests.services.calendar.oracle import DAY, LAST, Change, Event, RecurrenceRule, instant, walls

ZONES = (
    "UTC",
    "Europe/Zagreb",
    "America/New_York",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Havana",
)
FIRST = datetime(2026, 1, 1)
MINUTES = st.one_of(st.sampled_from([0, 15, 30, 60, 90, 24 * 60]), st.integers(1, 3 * 1440))
MOVES = st.one_of(st.integers(-3000, 3000), st.sampled_from([-1440, -60, 60, 1440])).map(lambda m: timedelta(minutes=m))


def _some(values, most=3):
    return st.lists(values, unique=True, max_size=most).map(lambda found: tuple(sorted(found)))


WEEKDAYS = st.integers(0, 6)


@st.composite
def rules(draw, kind):
    freq = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"] + ["HOURLY"] * (kind == "utc")))
    interval = draw(st.sampled_from([1, 1, 1, 2, 3, 5, 7]))
    parts = {}
    if freq == "HOURLY":
        interval = draw(st.sampled_from([5, 7, 12, 24, 36]))
        parts["byday"] = draw(_some(WEEKDAYS.map(lambda day: (0, day))))
    elif freq == "DAILY":
        parts["byday"] = draw(_some(WEEKDAYS.map(lambda day: (0, day))))
        parts["bymonth"] = draw(_some(st.integers(1, 12), 4))
        parts["bymonthday"] = draw(_some(st.sampled_from([*range(-31, 0), *range(1, 32)]), 2))
    elif freq == "WEEKLY":
        parts["byday"] = draw(_some(WEEKDAYS.map(lambda day: (0, day)), 4))
        parts["wkst"] = draw(st.sampled_from([0, 0, 6, 2]))
    else:
        which = draw(
            st.sampled_from(["none", "monthday", "day", "nth", "both"] + ["week", "yearday"] * (freq == "YEARLY"))
        )
        parts["bymonth"] = draw(_some(st.integers(1, 12), 4)) if which not in ("week", "yearday") else ()
        if which in ("monthday", "both"):
            days = st.sampled_from([-31, -30, -2, -1, 1, 13, 15, 28, 29, 30, 31])
            parts["bymonthday"] = draw(_some(days).filter(bool))
        if which in ("day", "both"):
            parts["byday"] = draw(_some(WEEKDAYS.map(lambda day: (0, day))).filter(bool))
        if which == "nth":
            nth = st.sampled_from([-5, -2, -1, 1, 2, 3, 4, 5])
            parts["byday"] = draw(_some(st.tuples(nth, WEEKDAYS)).filter(bool))
        if which == "week":
            parts["byweekno"] = draw(_some(st.integers(2, 51)).filter(bool))
        if which == "yearday":
            parts["byyearday"] = draw(_some(st.sampled_from([-366, -365, -1, 1, 60, 100, 365, 366])).filter(bool))
    if freq != "HOURLY" and kind != "day":
        parts["byhour"] = draw(_some(st.integers(0, 23)))
    if freq in ("WEEKLY", "MONTHLY", "YEARLY") and parts.get("byday"):
        parts["bysetpos"] = draw(st.sampled_from([(), (), (1,), (-1,), (2, -1)]))
    ending = draw(st.sampled_from(["never", "never", "count", "until"]))
    if ending == "count":
        parts["count"] = draw(st.integers(1, 60))
    if ending == "until":
        parts["until"] = draw(st.datetimes(datetime(2025, 6, 1), LAST)).replace(microsecond=0)
    return RecurrenceRule(freq, interval, **parts)


@st.composite
def events(draw):
    kind = draw(st.sampled_from(["zoned", "zoned", "zoned", "utc", "floating", "day"]))
    zone = draw(st.sampled_from(ZONES))
    repeats = draw(st.booleans())
    earliest = (
        draw(st.sampled_from([FIRST - 30 * DAY, FIRST - 700 * DAY, FIRST - 4000 * DAY])) if repeats else FIRST - 5 * DAY
    )
    start = draw(st.datetimes(earliest, LAST - 60 * DAY)).replace(second=0, microsecond=0)
    minutes = draw(st.one_of(st.none(), MINUTES))
    if kind == "day":
        start = start.replace(hour=0, minute=0)
        minutes = None if minutes is None else 1440 * (1 + minutes % 3)
    event = {"kind": kind, "zone": zone, "start": start, "minutes": minutes}
    event["how"] = draw(st.sampled_from(["DTEND", "DURATION"]))
    event["status"] = draw(st.sampled_from(["CONFIRMED"] * 5 + ["TENTATIVE", "CANCELLED"]))
    event["transparent"] = draw(st.sampled_from([False] * 6 + [True]))
    if repeats:
        rule = draw(rules(kind))
        if kind == "day" and rule.until:
            rule = RecurrenceRule(**{**rule.__dict__, "until": rule.until.replace(hour=0, minute=0, second=0)})
        event["rule"] = rule
        event |= draw(_changes(Event(**event)))
    return Event(**event)


@st.composite
def _changes(draw, event):
    # Ids of occurrences must be unique in time, so those that clocks skip or repeat are left alone.
    regular = walls(event, LAST)
    near = [n for n, wall in enumerate(regular) if wall > FIRST - 40 * DAY] or [len(regular) - 1]
    found = draw(st.lists(st.sampled_from(near), unique=True, max_size=5))
    chosen = [n for n in found if _is_plain(regular[n], event)]
    excluded, moved = tuple(sorted(chosen[:2])), chosen[2:]
    exceptions = []
    for number in moved:
        minutes = draw(st.sampled_from([30, 60, 1440]))
        shift = draw(MOVES)
        if event.kind == "day":
            minutes, shift = 1440, DAY * (shift.days % 5)
        future = number == max(moved) and draw(st.booleans())
        exceptions.append(Change(number, shift, minutes, draw(st.booleans()), future))
    if any(change.future for change in exceptions):
        return {"excluded": excluded, "exceptions": tuple(exceptions)}
    times = st.datetimes(FIRST, LAST).map(lambda wall: wall.replace(hour=12, minute=0, second=0, microsecond=0))
    added = draw(st.lists(times, max_size=2)) if event.kind != "day" else []
    return {"excluded": excluded, "exceptions": tuple(exceptions), "added": tuple(added)}


def _is_plain(wall, event):
    if event.kind == "utc":
        return True
    zones = [ZoneInfo(event.zone)] if event.kind == "zoned" else [ZoneInfo(name) for name in ZONES]
    for zone in zones:
        around = {instant(wall + step, zone).astimezone(zone).utcoffset() for step in (-DAY, DAY)}
        if len(around) > 1:
            return False
    return True


def text(event: Event, uid: str) -> str:
    """The event as VEVENT blocks without their BEGIN and END, master first."""
    regular = walls(event, LAST)
    lines = [
        f"UID:{uid}",
        "DTSTAMP:20260101T000000Z",
        f"STATUS:{event.status}",
        *_when(event, event.start, event.minutes),
    ]
    if event.transparent:
        lines.append("TRANSP:TRANSPARENT")
    if event.rule:
        lines.append(f"RRULE:{event.rule.text(_until(event))}")
    lines += [_dated("EXDATE", event, regular[number]) for number in event.excluded if number < len(regular)]
    lines += [_dated("RDATE", event, wall) for wall in event.added]
    blocks = ["\n".join(lines)]
    for change in event.exceptions:
        identity = _dated("RECURRENCE-ID", event, regular[change.of])
        if change.future:
            identity = identity.replace("RECURRENCE-ID", "RECURRENCE-ID;RANGE=THISANDFUTURE")
        own = [f"UID:{uid}", "DTSTAMP:20260101T000000Z", identity]
        own += _when(event, regular[change.of] + change.moved, change.minutes)
        own.append("TRANSP:TRANSPARENT" if change.transparent else "TRANSP:OPAQUE")
        blocks.append("\n".join(own))
    return "\nEND:VEVENT\nBEGIN:VEVENT\n".join(blocks)


def _when(event, start, minutes):
    lines = [_dated("DTSTART", event, start)]
    if minutes is None:
        return lines
    if event.how == "DTEND":
        return [*lines, _dated("DTEND", event, start + timedelta(minutes=minutes))]
    days, rest = divmod(minutes, 1440)
    return [*lines, f"DURATION:P{days}D" if event.kind == "day" else f"DURATION:P{days}DT{rest}M"]


def _dated(name, event, wall):
    if event.kind == "day":
        return f"{name};VALUE=DATE:{wall:%Y%m%d}"
    if event.kind == "zoned":
        return f"{name};TZID={event.zone}:{wall:%Y%m%dT%H%M%S}"
    return f"{name}:{wall:%Y%m%dT%H%M%S}{'Z' if event.kind == 'utc' else ''}"


def _until(event):
    until = event.rule.until
    if until is None:
        return ""
    if event.kind == "day":
        return f"{until:%Y%m%d}"
    if event.kind == "floating":
        return f"{until:%Y%m%dT%H%M%S}"
    zone = ZoneInfo(event.zone if event.kind == "zoned" else "UTC")
    return f"{instant(until, zone).astimezone(UTC):%Y%m%dT%H%M%SZ}"
