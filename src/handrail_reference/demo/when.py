"""Days and times in a sentence: phrases are found by pattern, dateutil computes what they mean.

A wrong day is the worst fault of a booking. So whatever looks like a day or a time has to be understood: what is ambiguous,
over, contradictory or left unread becomes a question.
"""

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta

from handrail_reference.demo.phrases import LANGUAGE, REPLY, SAYS

_NUMBERS = dict(zip(LANGUAGE["numbers"], range(1, 13), strict=True)) | LANGUAGE["other_numbers"]
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(slots=True)
class When:
    """What a sentence says about when. `questions` have to be answered before any of it may be used."""

    day: date | None = None
    clock: time | None = None
    minutes: int | None = None
    hint: str = ""
    """What is said of the time without its start: "in the morning", "until 15:00"."""
    questions: list[str] = field(default_factory=list)
    several: bool = False
    """It names more than one day, or more than one time."""
    rest: str = ""
    other: str = ""
    """The rest without a title, and without days and times that are asked about."""

    def __bool__(self) -> bool:
        return bool(self.day or self.clock or self.minutes or "until" in self.hint or self.questions or self.several)


def read_when(text: str, now: datetime, start: time | None = None) -> When:
    """Read a sentence that is said at `now`, maybe about a meeting whose `start` is known."""
    when = When()
    rest = re.sub(r"(\d{4}-\d\d-\d\d)T(?=\d\d:)", r"\1 ", " ".join(text.split()))
    rest = SAYS["minutes_in_words"].sub(lambda said: f"{_number(said[1])}:{'30' if said[2] else '15'}", rest)
    rest = SAYS["span"].sub(r"\1 to ", rest)
    part, days = SAYS["part_of_day"].search(SAYS["title"].sub(" ", rest)), list(SAYS["day"].finditer(rest))
    half = (part[1].lower() or ("morning" if "breakfast" in rest.lower() else "evening")) if part else ""
    rest = SAYS["day"].sub(" ", rest)
    if length := SAYS["length"].search(rest):
        unit = 1 if length["count"].lower() == "half" or length["unit"][0].lower() == "m" else 60
        more = 30 * (length["more"] is not None) + int(re.sub(r"\D", "", length["plus"] or "0"))
        when.minutes, rest = _number(length["count"]) * unit + more, SAYS["length"].sub(" ", rest, count=1)
    clocks = [match for match in SAYS["clock"].finditer(rest) if _is_clock(match)]
    when.rest = SAYS["part_of_day"].sub(" ", SAYS["clock"].sub(lambda one: " " if _is_clock(one) else one[0], rest))
    when.other = SAYS["title"].sub(" ", when.rest)
    starts, ends = ([one for one in clocks if bool(one["end"]) == is_end] for is_end in (False, True))
    when.several = max(len(days), len(starts), len(ends)) > 1
    if when.several:
        return when
    if days:
        _read_day(when, days[0], now.date())
    said = " ".join(rest[clocks[0].start() : clocks[-1].end()].split()) if clocks else ""
    if starts:
        start = when.clock = _read_clock(when, starts[0], clocks[-1]["half"] or half, said)
    end = _read_clock(when, ends[0], half, said, start) if ends and (start or not starts) else None
    if start and end:  # an end before its start is on the next day; one that contradicts a length is asked about
        span = (60 * (end.hour - start.hour) + end.minute - start.minute) % 1440
        when.minutes = span if when.minutes in (None, span) else 0
    elif not starts:
        when.hint = f"{half and f'in the {half}'} {f'until {end:%H:%M}' if end else ''}".strip()
    if when.minutes is not None and not 0 < when.minutes <= 720:
        when.questions.append(REPLY["how_long"])
        when.minutes = None
    for name, question in LANGUAGE["unread"].items():
        if unread := SAYS[name].search(when.rest if name == "repeats" else when.other):
            when.minutes = when.minutes if name != "unread_time" else None  # "an hour before" is no length
            when.questions.insert(0, question.format(unread[0].strip()))
            when.other = SAYS[name].sub(" ", when.other)
    return when


def spoken_day(day: date) -> str:
    return f"{day:%A} {day.day} {day:%B %Y}"


def _number(word: str) -> int:
    return _NUMBERS.get(word.lower()) or int(word)


def _read_day(when: When, match: re.Match[str], today: date) -> None:
    try:
        days = _days(match.groupdict(), today)
    except (ValueError, OverflowError):
        days = []
    said, named = match[0].strip(), match["named"]
    if len(days) > 1:
        when.questions.append(f'With "{said}", do you mean {spoken_day(days[0])} or {spoken_day(days[1])}?')
    elif not days:
        when.questions.append(f'"{said}" is no day that I understand. Which day do you mean?')
    elif named and _WEEKDAYS[days[0].weekday()] != named[:3].lower():
        when.questions.append(f'"{said}" would be {spoken_day(days[0])}. Which day do you mean?')
    elif days[0] < today:
        when.questions.append(f"{spoken_day(days[0])} is over. Which day do you mean?")
    else:
        when.day = days[0]


def _days(said: dict[str, str], today: date) -> list[date]:
    """The days that a phrase may mean: one if it is clear, none if it is no day."""
    from dateutil.parser import parse  # type: ignore[import-untyped]  # noqa: PLC0415  # only for days
    from dateutil.relativedelta import relativedelta  # type: ignore[import-untyped]  # noqa: PLC0415

    if said["iso"]:
        return [date.fromisoformat(said["iso"])]
    if written := said["written"]:
        if re.match(r"\d+[/.]", written) and max(map(int, re.findall(r"\d+", written)[:2])) <= 12:
            return []  # day or month first: nobody knows
        start = datetime.combine(today.replace(day=1), time())
        day = parse(re.sub(r"\bof\b", "", written), default=start, dayfirst=True)
        # Without a year, what is months ago is meant for next year; what is over for some weeks is asked about.
        next_year = len(re.findall(r"\d+|[a-z]{3,}", written, re.I)) < 3 and day.date() < today - timedelta(days=180)
        return [day.date() + relativedelta(years=1 if next_year else 0)]
    if said["nth"]:
        days = (today + timedelta(days=ahead) for ahead in range(62))
        return [day for day in days if day.day == int(said["nth"][:-2])][:1]
    if said["word"]:
        ahead = {"yes": -1, "tod": 0, "ton": 0}.get(said["word"][:3].lower(), 1 + ("after" in said["word"].lower()))
        return [today + timedelta(days=ahead)]
    if said["count"]:
        return [today + relativedelta(**{f"{said['unit'].lower()}s": _number(said["count"])})]
    ahead = _WEEKDAYS.index(said["weekday"][:3].lower()) - today.weekday()
    this_week, first = today + timedelta(days=ahead), today + timedelta(days=ahead % 7)
    which, week = (said["which"] or "").lower(), (said["week"] or "").lower()
    if week or which == "last":
        return [this_week + timedelta(weeks={"next": 1, "last": -1}.get(week or which, 0))]
    if which == "next" or first == today:
        return sorted({day for day in (first, this_week + timedelta(weeks=1)) if day > today or which != "next"})
    return [first]


def _is_clock(match: re.Match[str]) -> bool:
    """A bare number is a time only where something says so."""
    is_to = (match["end"] or "").strip().lower() == "to"  # "talk to three people"
    is_no_end = is_to and not re.search(r"(?:\d|[ap]m|noon)\s*$", match.string[: match.start()], re.I)
    said = any(match.group("at", "end", "limit", "fixed", "side", "half", "oclock")) or ":" in (match["digits"] or "")
    return not is_no_end and bool(said or SAYS["after_clock"].match(match.string, match.end()))


def _read_clock(when: When, match: re.Match[str], half: str, said: str, start: time | None = None) -> time | None:
    """The time, or a question about what was `said`. From eight to twelve it is as on a clock of 24 hours; before that, only an
    end is clear by itself: it comes after its `start`."""
    hours, _, minutes = (match["digits"] or "12").replace(".", ":").partition(":")
    hour, minute = _number(match["hour"] or hours), int(minutes or 0)
    if match["side"]:
        shift = _number(match["shift"])
        hour, minute = (hour, shift) if match["side"].lower() == "past" else (hour - 1 or 12, 60 - shift)
    half, is_24 = (match["half"] or half).lower(), hours[0] == "0" or hour > 12
    fits = hour in ({} if start else LANGUAGE["hours"]).get(half, range(13 if match["half"] else 24))
    if minute > 59 or not fits or match["limit"] or (match["fixed"] or "").lower() == "midnight":
        when.questions.append(f'"{said}" is no time that I understand. At what time do you mean?')
    elif not (half or start or is_24 or hour > 7):
        when.questions.append(REPLY["which_half"].format(said, ("afternoon", "evening")[hour == 7]))
    else:
        late = half not in ("a", "morning") if half else start is not None and time(hour, minute) <= start
        return time(hour if is_24 or not (half or late) else hour % 12 + 12 * late, minute)
    return None
