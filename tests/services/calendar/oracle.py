"""An answer to "which minutes are busy?" that shares no code with the calendar: it tries every day and every hour.

Rules are plain predicates over days, read off the table in RFC 5545, 3.3.10; zones are asked only the easy question, what
a clock shows at an instant.
"""

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

DAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
DAY = timedelta(days=1)
LAST = datetime(2027, 2, 1)
"""Nobody asks for anything later."""


@dataclass(frozen=True)
class RecurrenceRule:
    freq: str
    interval: int = 1
    bymonth: tuple[int, ...] = ()
    bymonthday: tuple[int, ...] = ()
    byday: tuple[tuple[int, int], ...] = ()  # (which, weekday); which is 0 for every
    byhour: tuple[int, ...] = ()
    byweekno: tuple[int, ...] = ()
    byyearday: tuple[int, ...] = ()
    bysetpos: tuple[int, ...] = ()
    wkst: int = 0
    count: int | None = None
    until: datetime | None = None  # a wall time

    def text(self, until: str) -> str:
        parts = [f"FREQ={self.freq}", f"INTERVAL={self.interval}"]
        for name in ("bymonth", "bymonthday", "byhour", "byweekno", "byyearday", "bysetpos"):
            if getattr(self, name):
                parts.append(f"{name.upper()}={','.join(map(str, getattr(self, name)))}")
        if self.byday:
            parts.append("BYDAY=" + ",".join(f"{which or ''}{DAYS[day]}" for which, day in self.byday))
        if self.wkst:
            parts.append(f"WKST={DAYS[self.wkst]}")
        if self.count:
            parts.append(f"COUNT={self.count}")
        if self.until:
            parts.append(f"UNTIL={until}")
        return ";".join(parts)


@dataclass(frozen=True)
class Change:
    """The occurrence with this number is moved, or with None for `start` left as it was; `future` moves all later ones."""

    of: int
    moved: timedelta
    minutes: int
    transparent: bool
    future: bool = False


@dataclass(frozen=True)
class Event:
    kind: str  # "zoned", "utc", "floating", "day"
    zone: str
    start: datetime  # a wall time
    minutes: int | None  # None: no DTEND and no DURATION
    how: str  # "DTEND" or "DURATION"
    rule: RecurrenceRule | None = None
    excluded: tuple[int, ...] = ()
    added: tuple[datetime, ...] = ()
    exceptions: tuple[Change, ...] = ()
    status: str = "CONFIRMED"
    transparent: bool = False


def walls(event: Event, last: datetime) -> list[datetime]:
    """Every start by the rule, DTSTART first, up to `last`, exceptions not yet applied."""
    return [wall for wall in _walls(event.start, event.rule) if wall <= last or wall == event.start]


@lru_cache(maxsize=64)
def _walls(start: datetime, rule: RecurrenceRule | None) -> list[datetime]:
    found = {start}
    if rule is not None:
        matched = sorted(wall for wall in _matches(rule, start, LAST) if wall >= start)
        if rule.until:
            matched = [wall for wall in matched if wall <= rule.until]
        found |= set(matched[: rule.count] if rule.count else matched)
    return sorted(found)


def _matches(rule: RecurrenceRule, start: datetime, last: datetime):
    if rule.freq == "HOURLY":
        hour = start
        while hour <= last:
            if (not rule.byhour or hour.hour in rule.byhour) and _day_is_right(rule, hour.date(), start):
                yield hour
            hour += rule.interval * timedelta(hours=1)
        return
    groups: dict[object, list[date]] = {}
    day = date(start.year, 1, 1) if rule.freq == "YEARLY" else start.date() - 40 * DAY
    while day <= last.date() + 400 * DAY * bool(rule.bysetpos):
        if _period_is_right(rule, day, start.date()) and _day_is_right(rule, day, start):
            groups.setdefault(_period(rule, day), []).append(day)
        day += DAY
    hours = rule.byhour or (start.hour,)
    for days in groups.values():
        times = [datetime(d.year, d.month, d.day, hour, start.minute) for d in days for hour in sorted(hours)]
        if rule.bysetpos:
            times = [times[at - 1 if at > 0 else at] for at in rule.bysetpos if abs(at) <= len(times)]
        yield from (time for time in set(times) if time <= last)


def _week(day: date, wkst: int) -> int:
    return (day.toordinal() - 1 - wkst) // 7  # the first of January of the year 1 was a Monday


def _period(rule: RecurrenceRule, day: date) -> object:
    if rule.freq == "DAILY":
        return day
    if rule.freq == "WEEKLY":
        return _week(day, rule.wkst)
    return (day.year, day.month) if rule.freq == "MONTHLY" else day.year


def _period_is_right(rule: RecurrenceRule, day: date, start: date) -> bool:
    if rule.freq == "DAILY":
        passed = (day - start).days
    elif rule.freq == "WEEKLY":
        passed = _week(day, rule.wkst) - _week(start, rule.wkst)
    elif rule.freq == "MONTHLY":
        passed = (day.year - start.year) * 12 + day.month - start.month
    else:
        passed = day.year - start.year
    return passed >= 0 and passed % rule.interval == 0


def _day_is_right(rule: RecurrenceRule, day: date, start: datetime) -> bool:
    if rule.bymonth and day.month not in rule.bymonth:
        return False
    if rule.bymonthday:
        length = monthrange(day.year, day.month)[1]
        if day.day not in rule.bymonthday and day.day - length - 1 not in rule.bymonthday:
            return False
    if rule.byyearday and not {day.timetuple().tm_yday, (day - date(day.year + 1, 1, 1)).days} & set(rule.byyearday):
        return False
    if rule.byweekno and day.isocalendar().week not in rule.byweekno:
        return False
    if rule.byday:
        return any(weekday == day.weekday() and _which_is_right(rule, which, day) for which, weekday in rule.byday)
    if rule.freq == "WEEKLY" or rule.byweekno:
        return day.weekday() == start.weekday()
    if rule.freq in ("MONTHLY", "YEARLY") and not (rule.bymonthday or rule.byyearday):
        same_month = rule.freq == "MONTHLY" or rule.bymonth or day.month == start.month
        return bool(same_month) and day.day == start.day
    return True


def _which_is_right(rule: RecurrenceRule, which: int, day: date) -> bool:
    if not which:
        return True
    if rule.freq == "YEARLY" and not rule.bymonth:
        first, end = date(day.year, 1, 1), date(day.year + 1, 1, 1)
    else:
        first = day.replace(day=1)
        end = first + monthrange(day.year, day.month)[1] * DAY
    before = (day - first).days // 7 + 1
    after = -(((end - day).days - 1) // 7 + 1)
    return which in (before, after)


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which a clock shows this; of a time that is skipped, the one by the offset before."""
    near = (wall.replace(tzinfo=UTC) + step for step in (-2 * DAY, -DAY, 0 * DAY, DAY, 2 * DAY))
    offsets = [moment.astimezone(zone).utcoffset() for moment in near]
    shown = [
        moment
        for moment in ((wall - offset).replace(tzinfo=UTC) for offset in offsets)
        if moment.astimezone(zone).replace(tzinfo=None) == wall
    ]
    if shown:
        return min(shown)
    before = (wall - DAY).replace(tzinfo=UTC).astimezone(zone)
    return (wall - before.utcoffset()).replace(tzinfo=UTC)


def taken(event: Event, home: ZoneInfo, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """When the event takes time, in UTC, as far as it starts between these two."""
    zone = {"utc": ZoneInfo("UTC"), "zoned": ZoneInfo(event.zone)}.get(event.kind, home)
    called_off = event.status == "CANCELLED" or event.transparent
    spans = []
    regular = walls(event, last)
    changes = {change.of: change for change in event.exceptions if change.of < len(regular)}
    futures = [(regular[of], change) for of, change in sorted(changes.items()) if change.future]
    for number, wall in enumerate(regular):
        if number in event.excluded or wall < first:
            continue
        change = changes.get(number)
        for since, future in futures:
            if change is None and since <= wall:
                spans += [] if future.transparent else [_span(event, wall + future.moved, future.minutes, zone)]
                break
        else:
            if change is None:
                spans += [] if called_off else [_span(event, wall, event.minutes, zone)]
            elif not change.transparent:
                spans.append(_span(event, wall + change.moved, change.minutes, zone))
    if not called_off:
        spans += [_span(event, wall, event.minutes, zone) for wall in set(event.added) - set(regular)]
    return spans


def _span(event: Event, wall: datetime, minutes: int | None, zone: ZoneInfo) -> tuple[datetime, datetime]:
    start = instant(wall, zone)
    if minutes is None:
        end = instant(wall + DAY, zone) if event.kind == "day" else start
    elif event.how == "DTEND" or event.kind == "day":
        end = instant(wall + timedelta(minutes=minutes), zone)
    else:
        days, rest = divmod(minutes, 1440)
        end = instant(wall + days * DAY, zone) + timedelta(minutes=rest)
    return start, max(start, end)
