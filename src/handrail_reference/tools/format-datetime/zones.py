"""Time zones: from what a model wrote to a zone, or to the names it may have meant; and what people call a zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from difflib import get_close_matches
from importlib.resources import files
from zoneinfo import ZoneInfo

from babel import Locale
from babel.core import get_global
from babel.dates import get_timezone_gmt

from handrail import ErrorType, ToolError

# Only listed names are looked up, so that no name is ever a path, and every machine knows the same ones.
_KEYS = {key.casefold(): key for key in files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()}
# "Etc/GMT+2" is two hours *behind* UTC. Nobody who asks for something similar means that.
_NEAR = [name for name in _KEYS if not name.startswith(("etc/", "gmt"))]
_CITIES: dict[str, list[str]] = {}
for _name in _NEAR:
    _CITIES.setdefault(_name.rsplit("/", 1)[-1], []).append(_name)
_OFFSET = re.compile(r"(?:utc|gmt|z)?_?[+\-−]\d{1,2}(?::?\d{2})?", re.IGNORECASE)
_NAMED_IN = 2026
_NO_NAME = "∅∅∅"  # how CLDR marks a name that must not be taken from elsewhere

# CLDR keeps the names of a zone under the oldest of its identifiers, the world uses the newest, and Babel looks under
# the newest only: so "Asia/Kolkata" would have no name. Here are the older identifiers of each.
_OLDER: dict[str, list[str]] = {}
for _old, _new in get_global("zone_aliases").items():
    _OLDER.setdefault(_new, []).append(_old)


def find(wanted: str) -> ZoneInfo:
    """The zone of that name, in whatever case."""
    folded = wanted.strip().replace(" ", "_").casefold()
    if folded in _KEYS:
        return ZoneInfo(_KEYS[folded])
    offset = _OFFSET.fullmatch(folded)
    near = [] if offset else _nearest(folded)
    wrong = f'"{wanted}" is an offset, not a time zone.' if offset else f'There is no time zone "{wanted}".'
    advice = f"Did you mean {' or '.join(near)}?" if near else 'Give an IANA name of a place, such as "Europe/Madrid".'
    raise ToolError(ErrorType.VALIDATION, f"{wrong} {advice}", details=[{"pointer": "/time_zone"}])


def _nearest(folded: str) -> list[str]:
    city = folded.rsplit("/", 1)[-1]
    found = list(_CITIES.get(city, ()))
    found += get_close_matches(folded, _NEAR, n=3, cutoff=0.75)
    for similar in get_close_matches(city, _CITIES, n=2, cutoff=0.75):
        found += _CITIES[similar]
    return [f'"{_KEYS[name]}"' for name in list(dict.fromkeys(found))[:3]]


def name(local: datetime, zone: ZoneInfo, locale: Locale) -> str:
    """What people call the zone at that moment, such as "British Summer Time"; its offset if it has no name."""
    # CLDR has the names of today: a clock that once stood elsewhere had another name, which is not known here.
    today = {zone.utcoffset(datetime(_NAMED_IN, month, 1)) for month in (1, 7)}  # noqa: DTZ001
    found = _named(local, zone, locale) if local.utcoffset() in today else None
    return found or get_timezone_gmt(local, width="long", locale=locale)


def _named(local: datetime, zone: ZoneInfo, locale: Locale) -> str | None:
    variant = "daylight" if _is_summer_time(local, zone) else "standard"
    newest = get_global("zone_aliases").get(zone.key, zone.key)
    for key in (zone.key, newest, *_OLDER.get(newest, ())):
        metazone = get_global("meta_zones").get(key, "")
        for names in (locale.time_zones.get(key, {}), locale.meta_zones.get(metazone, {})):
            found = names.get("long", {}).get(variant)
            if found and found != _NO_NAME:
                return str(found)
    return None


def _is_summer_time(local: datetime, zone: ZoneInfo) -> bool:
    """Ireland's law has standard time in summer and a *negative* saving in winter; its people, and CLDR, do not."""
    saving = local.dst() or timedelta()
    if saving:
        return saving > timedelta()
    return any((zone.dst(datetime(local.year, month, 1)) or saving) < saving for month in (1, 7))  # noqa: DTZ001
