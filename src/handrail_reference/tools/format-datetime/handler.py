"""Writes a moment in time for people: in their time zone, in their language, in a style that can be read aloud."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Literal
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_datetime, get_datetime_format

from handrail import ErrorType, ToolError

from . import locales, zones

Style = Literal["short", "medium", "long", "full", "date", "time"]

# A narrow or no-break space is for typesetting; speech engines and comparisons stumble over it.
_PLAIN_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " "})


async def execute(args: Mapping[str, Any], ctx: object) -> dict[str, Any]:
    """The moment `value` in the asked zone, language and style."""
    zone = zones.find(args["time_zone"])
    locale = locales.find(args["locale"])
    local, iso = _moment(args["value"], zone)
    style = args["style"]
    text = iso if style == "iso" else _write(local, zone, style, locale)
    return {
        "ok": True,
        "data": {
            "text": text,
            "iso": iso,
            "time_zone": zone.key,
            "utc_offset": iso[-6:],
            "locale": str(locale).replace("_", "-"),
        },
    }


def _moment(value: str, zone: ZoneInfo) -> tuple[datetime, str]:
    """The moment in that zone, and as RFC 3339. The schema has checked `value`, but RFC 3339 knows more than Python."""
    seconds, text = value[17:19], value.upper()
    leap = seconds == "60"
    try:
        moment = datetime.fromisoformat(text[:17] + ("59" if leap else seconds) + text[19:])
        # Clocks do not show leap seconds: like most of them, count one as the second that follows.
        local = (moment + timedelta(seconds=leap)).astimezone(zone)
        # Before clocks were standardised offsets had seconds, which RFC 3339 cannot carry: the nearest minute is used.
        minutes = round((local.utcoffset() or timedelta()).total_seconds() / 60)
        return local, local.astimezone(timezone(timedelta(minutes=minutes))).isoformat()
    except (ValueError, OverflowError):
        raise ToolError(
            ErrorType.VALIDATION,
            f'"{value}" cannot be shown in "{zone.key}". Give a moment within the years 1 to 9999.',
            details=[{"pointer": "/value"}],
        ) from None


def _write(local: datetime, zone: ZoneInfo, style: Style, locale: Locale) -> str:
    clock = locale.time_formats["short"].pattern
    if style == "full":
        clock = _with_zone(clock, zones.name(local, zone, locale), locale)
    text = format_datetime(local, _pattern(style, clock, locale), tzinfo=zone, locale=locale)
    return text.translate(_PLAIN_SPACES)


def _pattern(style: Style, clock: str, locale: Locale) -> str:
    """The locale's own pattern for the style. The clock has no seconds: nobody says them, and `iso` has them."""
    if style == "time":
        return clock
    if style == "date":
        return str(locale.date_formats["full"].pattern)
    whole = str(get_datetime_format(style, locale=locale))
    return whole.replace("{1}", locale.date_formats[style].pattern).replace("{0}", clock)


def _with_zone(clock: str, zone_name: str, locale: Locale) -> str:
    """Hour, minute and zone in the order of the locale. The name stands in quotes, so that it is no pattern itself."""
    twelve_hours = any(letter in part for part in clock.split("'")[::2] for letter in "hK")
    pattern = locale.datetime_skeletons["hmv" if twelve_hours else "Hmv"].pattern
    literal = "'" + zone_name.replace("'", "''") + "'"
    parts = pattern.split("'")
    parts[::2] = [part.replace("v", literal) for part in parts[::2]]
    return "'".join(parts)
