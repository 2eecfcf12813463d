"""Days and times as people write them: "tomorrow at three", "next Tuesday 14:30", "from 2 to 4 pm", "in two hours".

A careful reader rather than a clever one: what it is not sure of it leaves alone. An hour without "am" or "pm" is read as one
at which people meet, so three is 15:00; day comes before month in dates with slashes unless that cannot be; "next Tuesday"
is the one in the next calendar week.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta

from handrail.agents.offline.numbers import AMOUNT, LENGTH, UNIT, amount_of, minutes_of

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month != "may" else "may" for month in _MONTHS)
_HOUR = r"(?:2[0-3]|[01]?\d|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_CLOCK = (
    rf"(?:(?:half\s+past|(?:a\s+)?quarter\s+(?:past|to))\s+{_HOUR}|noon|midday|midnight"
    rf"|{_HOUR}(?:[:.h][0-5]\d|\s+(?:thirty|fifteen|forty-five)\b)?(?:\s*(?:[ap]\.?\s?m\b\.?|o['’]?clock))?)"
)
_SUFFIX = r"[ap]\.?\s?m\b\.?"
_SURE = (
    rf"(?:(?:half\s+past|quarter\s+(?:past|to))\s+{_HOUR}|noon|midday|midnight"
    rf"|{_HOUR}:[0-5]\d(?:\s*{_SUFFIX})?|{_HOUR}(?:\.[0-5]\d)?\s*(?:{_SUFFIX}|o['’]?clock))"
)
"""A clock time that cannot be anything else."""
MOST_READ = 2_000
_MOST_MEANT = 40
"""A number from here on is hardly meant as a day: "may 50 people come"."""
_LONGEST_HOURS = 10
PARTS = {
    "morning": (time(8), time(12)),
    "lunch": (time(12), time(14)),
    "afternoon": (time(12), time(18)),
    "evening": (time(18), time(22)),
    "night": (time(18), time(22)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What a text says about when. `day` and `last_day` are the ends of a range of days, the same for a single one."""

    day: date | None = None
    last_day: date | None = None
    start: time | None = None
    end: time | None = None
    part: str | None = None
    minutes: int | None = None
    exact: tuple[datetime, ...] = ()
    impossible: str = ""
    """A day that was named and is in no calendar, such as 31 February."""
    no_length: str = ""
    """A length that was named and is none, such as -5 minutes."""
    rest: str = ""
    """The text with everything that was read blanked out."""

    @property
    def has_clock(self) -> bool:
        return bool(self.exact) or self.start is not None

    @property
    def has_day(self) -> bool:
        return bool(self.exact) or self.day is not None

    @property
    def is_backwards(self) -> bool:
        """Whether it would end before it begins; what begins late may end in the night."""
        if len(self.exact) > 1:
            return self.exact[1] <= self.exact[0]
        if self.start is None or self.end is None or self.last_day != self.day:
            return False
        return self.end <= self.start and not (self.start.hour >= 17 and self.end.hour < 10)

    @property
    def is_single_day(self) -> bool:
        return self.day is not None and self.last_day in (None, self.day)

    def over(self, earlier: Times) -> Times:
        """What an earlier text said, corrected by this one."""
        if self.exact:
            return replace(self, minutes=self.minutes or earlier.minutes)
        if not (self.has_day or self.has_clock or self.part or self.minutes or self.impossible or self.no_length):
            return replace(earlier, rest=self.rest)
        if earlier.is_backwards and not self.has_day and self.end is None:
            mended = earlier._ended_by(self)
            if mended is not None:
                return mended
        day = self if self.has_day else earlier
        clock = self if self.start is not None or self.part else earlier
        return Times(
            day=day.day,
            last_day=day.last_day,
            start=clock.start,
            end=clock.end,
            part=clock.part,
            minutes=self.minutes or earlier.minutes,
            exact=() if self.has_day or self.start is not None else earlier.exact,
            impossible=self.impossible or ("" if self.has_day else earlier.impossible),
            no_length=self.no_length or ("" if self.minutes else earlier.no_length),
            rest=self.rest,
        )

    def _ended_by(self, answer: Times) -> Times | None:
        """With the end that was asked for: a time that comes after the beginning, or a length."""
        if self.start is None:
            return None
        if answer.start is not None and answer.start > self.start:
            return replace(self, end=answer.start, rest=answer.rest)
        if answer.start is None and answer.minutes:
            return replace(self, end=None, minutes=answer.minutes, rest=answer.rest)
        return None

    def begins(self, now: datetime) -> datetime | None:
        """The moment that is meant, if a clock time is known: today or tomorrow where no day is."""
        if self.exact:
            return self.exact[0]
        if self.start is None:
            return None
        day = self.day or now.date()
        moment = datetime.combine(day, self.start, tzinfo=now.tzinfo)
        if self.day is None and moment <= now:
            moment = datetime.combine(day + timedelta(days=1), self.start, tzinfo=now.tzinfo)
        return moment

    def ends(self, now: datetime, default_minutes: int = 60) -> datetime | None:
        """When it is over: as told, or after the length that was told, or after the usual one."""
        begin = self.begins(now)
        if begin is None:
            return None
        if len(self.exact) > 1:
            return self.exact[1]
        if self.end is not None and not self.exact:
            last = self.last_day or begin.date()
            finish = datetime.combine(last, self.end, tzinfo=begin.tzinfo)
            return finish if finish > begin else finish + timedelta(days=1)
        return begin + timedelta(minutes=self.minutes or default_minutes)

    def window(self, now: datetime, *, hours: tuple[time, time] | None = None) -> tuple[datetime, datetime] | None:
        """The stretch of time that is meant: around the clock times, the part of the day, or whole days."""
        if self.has_clock:
            begin, end = self.begins(now), self.ends(now)
            return (begin, end) if begin is not None and end is not None else None
        if self.day is None and self.part is None:
            return None
        day = self.day or now.date()
        first, last = PARTS[self.part] if self.part else hours or (time(0), time(0))
        begin = datetime.combine(day, first, tzinfo=now.tzinfo)
        end = datetime.combine(self.last_day or day, last, tzinfo=now.tzinfo)
        return begin, end + timedelta(days=1) if last == time(0) else end  # a day ends when the next begins


class _Reader:
    """Reads from a text and blanks out what it has read, so that nothing is read twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.impossible = ""

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.search(self.text)
        if match is not None:
            start, end = match.span()
            self.text = self.text[:start] + " " * (end - start) + self.text[end:]
        return match


def read_times(text: str, now: datetime, *, bare: bool = False) -> Times:
    """What `text` says about when, seen from `now`, in the zone of `now`. With `bare`, "three" alone is a time, too."""
    try:
        times = _read(text[:MOST_READ], now, bare)
        times.window(now)
        now + timedelta(minutes=times.minutes or 0)
    except OverflowError:  # "in a billion weeks", or for as many hours, is nothing that a calendar can hold
        return Times(rest=text)
    return times


def _read(text: str, now: datetime, bare: bool) -> Times:
    reader = _Reader(text)
    exact = _exact(reader, now)
    day, last = _calendar_days(reader, now) if not exact else (None, None)
    offset = _offset(reader, now) if not exact else None
    if offset is not None:
        exact = (offset,)
    if not exact and day is None:
        day, last = _spoken_days(reader, now)
    part = _part(reader)
    start, end = _range(reader, part)
    none = reader.take(_NO_LENGTH)
    minutes = _length(reader)
    if start is None and not exact:
        start = _single(reader, part, bare)
    if not exact and day is None and start is None and part is None and _NOW.search(text):
        exact = (now.replace(second=0, microsecond=0),)
    if part == "tonight":
        day, last, part = day or now.date(), last or now.date(), "evening"
    return Times(
        day=day,
        last_day=last,
        start=start,
        end=end,
        part=part,
        minutes=minutes,
        exact=exact,
        impossible=reader.impossible,
        no_length=none[1].strip() if none else "",
        rest=reader.text,
    )


# ------------------------------------------------------------------------------------------------------- dates
_ISO_MOMENT = re.compile(
    r"\b(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)\s?(Z|[+-]\d\d:?\d\d)?(?![\d:])", re.IGNORECASE
)
_ISO_DAY = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_DOTTED = re.compile(r"\b(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})?(?!\d)")
_SLASHED = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b\.?,?(?:\s+(\d{{4}}))?", re.IGNORECASE)
_MONTH_DAY = re.compile(rf"\b({_MONTH})\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!:),?(?:\s+(\d{{4}})\b)?", re.IGNORECASE)
_OF_MONTH = re.compile(r"\b(?:on\s+)?the\s+(\d{1,2})(?:st|nd|rd|th)\b", re.IGNORECASE)


def _exact(reader: _Reader, now: datetime) -> tuple[datetime, ...]:
    found: list[datetime] = []
    while len(found) < 2 and (match := reader.take(_ISO_MOMENT)):
        offset = (match[3] or "").upper()
        try:
            moment = datetime.fromisoformat(f"{match[1]}T{match[2]}{'+00:00' if offset == 'Z' else offset}")
        except ValueError:
            reader.impossible = match[0]
            continue
        found.append(moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo))
    return tuple(found)


def _calendar_days(reader: _Reader, now: datetime) -> tuple[date | None, date | None]:
    """One day or two, in order. A year that is only said of one is meant for both."""
    parts: list[tuple[int, int, str | None]] = []
    said: list[str] = []
    american = any(int(match[2]) > 12 for match in _SLASHED.finditer(reader.text))
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], tuple[int, int, str | None]]], ...] = (
        (_ISO_DAY, lambda m: (int(m[2]), int(m[3]), m[1])),
        (_DOTTED, lambda m: (int(m[2]), int(m[1]), m[3])),
        (_SLASHED, lambda m: (int(m[1]), int(m[2]), m[3]) if american else (int(m[2]), int(m[1]), m[3])),
        (_DAY_MONTH, lambda m: (_month(m[2]), int(m[1]), m[3])),
        (_MONTH_DAY, lambda m: (_month(m[1]), int(m[2]), m[3])),
    )
    for pattern, make in readers:
        while len(parts) < 2 and (match := reader.take(pattern)):
            parts.append(make(match))
            # Numbers with dots are often something else, such as a version.
            said.append("" if pattern is _DOTTED else match[0].strip(" ,."))
    year = next((year for _, _, year in parts if year), None)
    days = []
    for words, (month, number, own) in zip(said, parts, strict=True):
        day = _coming(now, month, number, own or year)
        if day is not None:
            days.append(day)
        elif words and number < _MOST_MEANT:
            reader.impossible = words
    if not days:
        match = reader.take(_OF_MONTH)
        of_month = _day_of_month(now.date(), int(match[1])) if match else None
        return of_month, of_month
    return min(days), max(days)


def _month(name: str) -> int:
    return next(place for place, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _coming(now: datetime, month: int, day: int, year: str | None) -> date | None:
    """A day without a year is the next one of its name."""
    if year:
        return _date(int(year), month, day)
    this = _date(now.year, month, day)
    return this if this is not None and this >= now.date() else _date(now.year + 1, month, day)


def _day_of_month(today: date, day: int) -> date | None:
    for ahead in range(13):
        year, month = divmod(today.year * 12 + today.month - 1 + ahead, 12)
        found = _date(year, month + 1, day)
        if found is not None and found >= today:
            return found
    return None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


# -------------------------------------------------------------------------------------------------------- days
_IN = re.compile(rf"\bin\s+({AMOUNT})\s+({UNIT}|months?)\b", re.IGNORECASE)
_AGO = re.compile(rf"\b({AMOUNT})\s+({UNIT})\s+ago\b", re.IGNORECASE)
_RELATIVE = re.compile(r"\b(the\s+)?day\s+after\s+tomorrow\b|\btomorrow\b|\btoday\b|\byesterday\b", re.IGNORECASE)
_STRETCH = re.compile(
    rf"\b(?:(this|next|last|the\s+coming|the\s+whole)\s+(week|weekend|month)|(?:the\s+)?(next|last|coming)\s+({AMOUNT})\s+(days?|weeks?))\b",
    re.IGNORECASE,
)
_WEEKDAY = re.compile(
    rf"\b(?:(this|next|last|coming|on|by|until)\s+)?({'|'.join(_DAYS)})\b"
    r"|\b(this|next|last|on|by)\s+(mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)\b\.?",
    re.IGNORECASE,
)


def _offset(reader: _Reader, now: datetime) -> datetime | None:
    """ "in two hours" is a moment; "in two days" is a day, and left to `_spoken_days`."""
    match = _IN.search(reader.text)
    if match is None or not match[2].lower().startswith(("m", "h")) or match[2].lower().startswith("month"):
        return None
    reader.take(_IN)
    moment = now + timedelta(minutes=minutes_of(match[1], match[2]))
    return moment.replace(second=0, microsecond=0)


def _spoken_days(reader: _Reader, now: datetime) -> tuple[date | None, date | None]:
    today = now.date()
    if match := reader.take(_RELATIVE):
        word = match[0].lower()
        ahead = 2 if "after" in word else {"tomorrow": 1, "today": 0, "yesterday": -1}[word]
        day = today + timedelta(days=ahead)
        return day, day
    if match := reader.take(_IN):
        ahead = 30 * round(amount_of(match[1])) if match[2].lower().startswith("month") else _whole_days(match)
        day = today + timedelta(days=ahead)
        return day, day
    if match := reader.take(_AGO):
        day = today - timedelta(days=_whole_days(match))
        return day, day
    if match := reader.take(_STRETCH):
        return _stretch(match, today)
    if match := reader.take(_WEEKDAY):
        day = _weekday(match, today)
        return day, day
    return None, None


def _whole_days(match: re.Match[str]) -> int:
    return minutes_of(match[1], match[2]) // 1440


def _stretch(match: re.Match[str], today: date) -> tuple[date, date]:
    if match[4]:
        length = round(amount_of(match[4])) * (7 if match[5].lower().startswith("week") else 1)
        if match[3].lower() == "last":
            return today - timedelta(days=length), today
        return today, today + timedelta(days=length)
    which, unit = match[1].lower(), match[2].lower()
    shift = {"next": 1, "the coming": 1, "last": -1}.get(which, 0)
    if unit == "month":
        year, month = divmod(today.year * 12 + today.month - 1 + shift, 12)
        first = date(year, month + 1, 1)
        return max(first, today) if not shift else first, date(year, month + 1, monthrange(year, month + 1)[1])
    monday = today - timedelta(days=today.weekday()) + timedelta(weeks=shift)
    if unit == "weekend":
        return monday + timedelta(days=5), monday + timedelta(days=6)
    return max(monday, today) if not shift else monday, monday + timedelta(days=6)


def _weekday(match: re.Match[str], today: date) -> date:
    which = (match[1] or match[3] or "").lower()
    name = (match[2] or match[4]).lower()
    wanted = next(place for place, day in enumerate(_DAYS) if day.startswith(name[:3]))
    if which == "next":
        monday = today - timedelta(days=today.weekday()) + timedelta(weeks=1)
        return monday + timedelta(days=wanted)
    if which == "last":
        return today - timedelta(days=(today.weekday() - wanted - 1) % 7 + 1)
    return today + timedelta(days=(wanted - today.weekday() - 1) % 7 + 1)


# ------------------------------------------------------------------------------------------------------- clock
_PART = re.compile(
    r"\b(?:(?:in\s+the|this|during\s+the|at)\s+)?(morning|afternoon|evening|night|lunchtime)\b|\b(?:at|over|during)\s+(lunch)\b"
    r"|\btonight\b",
    re.IGNORECASE,
)
_RANGE = re.compile(
    rf"\b(?:from|between)\s+({_CLOCK})\s*(?:to|until|till|and|-|–)\s*({_CLOCK})"
    rf"|(?<![\d.:-])\b({_SURE})\s*(?:to|until|till|-|–)\s*({_CLOCK})|\b({_HOUR})\s?(?:-|–|to)\s?({_SURE})",
    re.IGNORECASE,
)
_FOR = re.compile(rf"\bfor\s+(?P<amount>{AMOUNT})(?:\s+|-)?(?P<unit>{UNIT})\b", re.IGNORECASE)
_NOW = re.compile(
    r"\bwhat\s+time\s+is\s+it\b|\bwhat(?:['’]s|\s+is)\s+the\s+time\b|\bthe\s+current\s+time\b", re.IGNORECASE
)
_NO_LENGTH = re.compile(
    rf"(?:\bfor\s+)?((?:(?<![\w-])[-−–]\s?|\b(?:minus|negative)\s+){AMOUNT}[\s-]*{UNIT}\b|\b(?:0|zero)[\s-]+{UNIT}\b)",
    re.IGNORECASE,
)
_AT = re.compile(rf"\b(?:at|around|about|by|from|starting(?:\s+at)?|@)\s+({_CLOCK})(?![\w%€$])", re.IGNORECASE)
_ALONE = re.compile(rf"(?<![\d.:-])\b({_SURE})(?![\d:-])", re.IGNORECASE)
_BARE = re.compile(rf"^\W*({_HOUR}|\d{{1,2}}[:.]\d\d)\W*(?:works|please|then|is\s+(?:good|fine))?\W*$", re.IGNORECASE)


def _part(reader: _Reader) -> str | None:
    match = reader.take(_PART)
    if match is None:
        return None
    word = (match[1] or match[2] or "tonight").lower()
    return "lunch" if word.startswith("lunch") else word


def _length(reader: _Reader) -> int | None:
    match = reader.take(_FOR) or reader.take(LENGTH)
    return minutes_of(match["amount"], match["unit"]) if match else None


def _range(reader: _Reader, part: str | None) -> tuple[time | None, time | None]:
    match = reader.take(_RANGE)
    if match is None:
        return None, None
    first, second = (match[place] or match[place + 2] or match[place + 4] for place in (1, 2))
    suffix = re.search(r"[ap]\.?\s?m\b", second, re.IGNORECASE)
    said = re.search(r"[ap]\.?\s?m\b", first, re.IGNORECASE)
    if suffix and not said:
        first = f"{first} {suffix[0]}"
    start, end = _clock(first, part), _clock(second, part)
    if start is not None and end is not None and end <= start and end.hour < 12 and not suffix:
        later = end.replace(hour=end.hour + 12)
        end = later if later.hour - start.hour <= _LONGEST_HOURS else end  # "from 10 to 9" is a slip
    if start is not None and end is not None and end <= start and suffix and not said and start.hour >= 12:
        start = start.replace(hour=start.hour - 12)  # "11 to 1 pm" begins in the morning
    return start, end


def _single(reader: _Reader, part: str | None, bare: bool) -> time | None:
    match = reader.take(_ALONE) or reader.take(_AT) or (reader.take(_BARE) if bare else None)
    return _clock(match[1], part) if match else None


def _clock(text: str, part: str | None) -> time | None:
    """A clock time; an hour that may be of the morning or the afternoon is the one at which people are about."""
    words = text.lower().replace("’", "'").strip()
    if words in ("noon", "midday"):
        return time(12)
    if words == "midnight":
        return time(0)
    half = re.match(rf"(half\s+past|(?:a\s+)?quarter\s+past|(?:a\s+)?quarter\s+to)\s+({_HOUR})", words)
    if half:
        hour = _hour(half[2], None, part)
        if half[1].startswith("half"):
            return time(hour, 30)
        return time(hour, 15) if "past" in half[1] else time((hour - 1) % 24, 45)
    match = re.match(rf"({_HOUR})(?:[:.h]([0-5]\d)|\s+(thirty|fifteen|forty-five))?\s*([ap])?", words)
    if match is None:
        return None
    minute = int(match[2]) if match[2] else {"thirty": 30, "fifteen": 15, "forty-five": 45}.get(match[3] or "", 0)
    return time(_hour(match[1], match[4], part), minute)


def _hour(text: str, suffix: str | None, part: str | None) -> int:
    hour = int(amount_of(text))
    if suffix is not None:
        return hour % 12 + (12 if suffix == "p" else 0) if hour <= 12 else hour
    if hour > 12 or hour == 0 or (text.isdecimal() and text.startswith("0")):
        return hour
    if part == "morning":
        return hour % 12
    if part in ("afternoon", "evening", "night", "tonight"):
        return hour % 12 + 12
    return hour + 12 if hour < 8 else hour


def moment_of(value: object) -> datetime | None:
    """The moment that a tool wrote down; None where it is none, or no zone says when it was."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def is_name_of_time(word: str) -> bool:
    """Whether a word names a day or a month rather than a person."""
    return word.lower().strip(".,") in {*_DAYS, *_MONTHS, *PARTS, "today", "tomorrow", "yesterday", "tonight", "next"}


def spoken(moment: datetime, now: datetime | None = None) -> str:
    """A moment as people say it; the year only if it is another."""
    year = f" {moment.year}" if now is None or moment.year != now.year else ""
    return f"{moment:%A} {moment.day} {moment:%B}{year}, {moment:%H:%M}"
