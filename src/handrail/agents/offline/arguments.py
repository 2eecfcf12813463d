"""Arguments: what a tool's schema asks for, found in what the user said. What is not there is missing, never made up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Any

from handrail.agents.offline.agenda import lists_events
from handrail.agents.offline.fitting import fits, local_form
from handrail.agents.offline.free_text import free_text
from handrail.agents.offline.languages import language_in
from handrail.agents.offline.moments import Times, read_times
from handrail.agents.offline.pieces import Pieces
from handrail.agents.offline.view import SeenTool, View
from handrail.agents.offline.vocabulary import BEGINNING, BODY, ENDING, ID, PERSON, PLACE, QUERY, TITLE, words
from handrail.agents.offline.whens import described_format, is_about_free_time
from handrail.agents.offline.wording import named, parts_of
from handrail.agents.offline.zones import conversion_in, own_zone, zone_in, zone_of_city
from handrail.picking.words import COMMON, split_words, stem

_UNITS = {"second": 1 / 60, "minute": 1, "hour": 60, "day": 1440, "week": 10080, "millisecond": 1 / 60000}
_YES = re.compile(r"\b(?:with|include|including|add|enable|enabled|turn on|yes)\b", re.IGNORECASE)
WORKDAY = (time(8), time(18))
_PHONE_WORDS = words("phone telephone tel mobile cell cellphone fax")
_WHO = words("who whom whose person caller customer guest patient client visitor people somebody traveller tenant")


@dataclass(frozen=True, slots=True)
class Filled:
    """The arguments that could be found, what is missing, and how many were found by a sign of their own."""

    args: dict[str, Any]
    missing: tuple[str, ...]
    signs: int
    passed: tuple[str, ...] = ()
    """What was given and is more than the tool takes, as "at most 50 attendees, and there are 60"."""

    @property
    def complete(self) -> bool:
        return not self.missing


@dataclass(slots=True)
class _Source:
    """What the user said, in pieces, and what was used of it already."""

    pieces: Pieces
    times: Times
    now: datetime
    tool: SeenTool
    reply: str = ""
    taken: set[Any] = field(default_factory=set)
    signs: int = 0
    passed: dict[str, str] = field(default_factory=dict)

    def unused(self, values: Iterable[Any]) -> Any:
        for value in values:
            if value not in self.taken:
                return value
        return None


def fill(view: View, tool: SeenTool, texts: list[str], times: Times) -> Filled:
    """The arguments of a call of `tool` for what was said in `texts`, the newest last; `times` is what they say about when."""
    joined = "\n".join(texts)
    blanked = "\n".join([*(read_times(said, view.now).rest for said in texts[:-1]), times.rest])
    source = _Source(Pieces(joined, blanked), times, view.now, tool, texts[-1] if len(texts) > 1 else "")
    args: dict[str, Any] = {}
    missing: list[str] = []
    required = tool.required
    for name in [*required, *(name for name in tool.properties if name not in required)]:
        value = _value(name, tool.properties.get(name, {}), source, required=name in required)
        if value is not None:
            args[name] = value
        elif name in required:
            missing.append(name)
        elif name in tool.parameters.get("required", ()):
            args[name] = None
    _reply(source, args, missing)
    args, missing = _checked(view, tool, args, missing)
    return Filled(args, tuple(missing), source.signs, tuple(source.passed.values()))


def _reply(source: _Source, args: dict[str, Any], missing: list[str]) -> None:
    """A short answer to the question for the one thing that is missing is that thing."""
    reply = source.reply.strip().strip("\"'“”.!")
    if len(missing) != 1 or not reply or len(reply) > 200:
        return
    name = missing[0]
    schema = source.tool.properties.get(name, {})
    kinds = _kinds(schema)
    value: Any = None
    if "string" in kinds and "format" not in schema:
        value = next(source.pieces.after("is", "to", "for"), reply) if len(reply.split()) > 6 else reply
    elif "array" in kinds:
        value = [part.strip() for part in re.split(r",|\band\b", reply) if part.strip()]
    if value and fits(schema, value):
        args[name] = value
        missing.clear()


def _checked(view: View, tool: SeenTool, args: dict[str, Any], missing: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What the schema does not take is left out, or missing."""
    validator = view.validator(tool)
    if validator is None:
        return args, missing
    for _ in range(len(args) + 1):
        wrong = {
            violation.pointer.split("/")[1]
            for violation in validator.violations(args)
            if violation.pointer.count("/") >= 1 and violation.pointer.split("/")[1] in args
        }
        if not wrong:
            break
        for name in wrong:
            del args[name]
            if name in tool.required and name not in missing:
                missing.append(name)
    return args, missing


# ------------------------------------------------------------------------------------------------------- values
def _value(name: str, schema: Mapping[str, Any], source: _Source, *, required: bool) -> Any:
    schema = _plain(schema)
    label = " ".join(parts_of(name))
    if "enum" in schema:
        return _of_enum(schema["enum"], label, source)
    kinds = _kinds(schema)
    if "boolean" in kinds:
        return _truth(label, source, required=required)
    if "array" in kinds:
        return _list(name, schema, source, required=required)
    if "object" in kinds and "string" not in kinds:
        return _object(schema, source) if required else None
    if "integer" in kinds or "number" in kinds:
        return _number(name, schema, source, required=required)
    return _string(name, label, schema, source, required=required)


def _plain(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema that is a choice between one kind and null, as that kind."""
    branches = [branch for branch in schema.get("anyOf", ()) if isinstance(branch, Mapping)]
    real = [branch for branch in branches if branch.get("type") != "null"]
    return {**schema, **real[0]} if real and "type" not in schema else schema


def _kinds(schema: Mapping[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type", "string")
    return (kind,) if isinstance(kind, str) else tuple(kind)


def _of_enum(values: Iterable[Any], label: str, source: _Source) -> Any:
    text = source.pieces.text
    said = {stem(word) for word in split_words(text)}
    best: tuple[int, Any] = (0, None)
    for value in values:
        if not isinstance(value, str) or not value:
            continue
        spoken = value.replace("_", " ").replace("-", " ")
        if re.search(rf"(?<!\w){re.escape(value)}(?!\w)|(?<!\w){re.escape(spoken)}s?(?!\w)", text, re.IGNORECASE):
            # A common word such as "to" or "all" says little unless the argument is named, too.
            weight = len(value) if value.lower() not in COMMON or label in text.lower() else 0
        else:
            words = {stem(word) for word in split_words(value)} - {stem(word) for word in COMMON}
            weight = len(value) if words and words <= said and len(value) > 3 else 0
        if weight > best[0]:
            best = (weight, value)
    if best[1] is not None:
        source.signs += 1
    return best[1]


def _truth(label: str, source: _Source, *, required: bool) -> bool | None:
    words = [
        word
        for word in label.split()
        if word not in COMMON and word not in ("include", "is", "with", "enable", "use", "add")
    ]
    text = source.pieces.text.lower()
    if not words:
        return None
    if {"detail", "details"} & set(words) and lists_events(text):
        return True
    named = next((word for word in words if re.search(rf"\b{re.escape(word)}s?\b", text)), None)
    if named is None:
        return None
    if re.search(
        rf"\b(?:without|no|not|don't|do not|skip|exclude|excluding)\b[^.?!]{{0,25}}\b{re.escape(named)}", text
    ):
        return False
    return True if required or _YES.search(text) or all(word in text for word in words) else None


def _number(name: str, schema: Mapping[str, Any], source: _Source, *, required: bool) -> int | float | None:
    words = parts_of(name)
    whole = "integer" in _kinds(schema)
    unit = next((word.rstrip("s") for word in words if word.rstrip("s") in _UNITS), None)
    if unit is None and {"duration", "length"} & set(words):
        unit = next((known for known in _UNITS if known in str(schema.get("description", "")).lower()), "minute")
    if unit is not None and source.times.minutes is not None:
        amount = source.times.minutes / _UNITS[unit]
        source.signs += 1
        return round(amount) if whole else amount
    near = frozenset(stem(word) for word in words) | frozenset(
        stem(word) for word in split_words(str(schema.get("description", ""))) if word not in COMMON
    )
    free = [number for number in source.pieces.numbers if number[0] not in source.taken]
    ranked = sorted(free, key=lambda number: (-source.pieces.near(number[0], number[1], near), number[0]))
    for place, end, amount in ranked:
        close = source.pieces.near(place, end, near)
        if not required and close < 2:
            return None
        value = int(amount) if whole and amount == int(amount) else amount
        if (whole and amount != int(amount)) or not fits(schema, value):
            if (said := _beyond(name, schema, amount)) and (close or (required and len(free) == 1)):
                source.passed[name] = said
            continue
        source.passed.pop(name, None)
        source.taken.add(place)
        source.signs += 1
        return value if whole or amount != int(amount) else int(amount)
    return None


def _beyond(name: str, schema: Mapping[str, Any], amount: float) -> str:
    """The limit that a number passes, in words; empty if it passes none."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(most, (int, float)) and amount > most:
        return f"{named(name)} at most {most:g}, and {amount:g} was said"
    if isinstance(least, (int, float)) and amount < least:
        return f"{named(name)} at least {least:g}, and {amount:g} was said"
    return ""


def _list(name: str, schema: Mapping[str, Any], source: _Source, *, required: bool) -> list[Any] | None:
    items = schema.get("items")
    items = _plain(items) if isinstance(items, Mapping) else {}
    words = set(parts_of(name))
    pieces = source.pieces
    found: list[Any] = []
    if "enum" in items:
        found = [
            v
            for v in items["enum"]
            if isinstance(v, str) and re.search(rf"\b{re.escape(v.replace('_', ' '))}s?\b", pieces.text, re.I)
        ]
        found = found if required or pieces.labelled(" ".join(parts_of(name))) else []
    elif items.get("format") == "email" or words & {"email", "emails", "attendees", "recipients"}:
        found = list(pieces.emails)
    elif {"integer", "number"} & set(_kinds(items)):
        found = [int(n) if n == int(n) else n for place, _, n in pieces.numbers if place not in source.taken]
    elif items.get("format") in ("uri", "url"):
        found = list(pieces.urls)
    elif words & ID:
        found = [code for _, code in pieces.codes]
    else:
        listed = pieces.labelled(" ".join(parts_of(name)))
        found = (
            [part.strip() for part in re.split(r",|\band\b", listed) if part.strip()] if listed else list(pieces.quoted)
        )
        if not found and required:
            found = [name for _, name in pieces.names]
    found = list(dict.fromkeys(value for value in found if fits(items, value)))
    most = schema.get("maxItems")
    if isinstance(most, int) and len(found) > most:
        if required or items.get("format") is not None:
            source.passed[name] = f"at most {most} {named(name)}, and there are {len(found)}"
        found = found[:most]
    if not found or (
        not required
        and items.get("format") is None
        and not words & ID
        and "enum" not in items
        and not pieces.labelled(name)
    ):
        return None
    source.signs += 1
    return found


def _object(schema: Mapping[str, Any], source: _Source) -> dict[str, Any] | None:
    members = schema.get("properties")
    if not isinstance(members, Mapping):
        return None
    filled: dict[str, Any] = {}
    for name in schema.get("required") or ():
        value = _value(name, members.get(name, {}), source, required=True)
        if value is None:
            return None
        filled[name] = value
    return filled or None


# ----------------------------------------------------------------------------------------------------- strings
def _string(name: str, label: str, schema: Mapping[str, Any], source: _Source, *, required: bool) -> str | None:
    words = set(parts_of(name))
    # A text that follows its label is the whole of it, commas and all; `free_text` takes it.
    told = source.pieces.labelled(label) if len(label) > 2 and not words & BODY else None
    when = _when(words, schema, source, required=required)
    if when is not None:
        return when
    by_format = _by_format(schema, words, source)
    if by_format is not None:
        source.signs += 1
        return by_format
    if "format" in schema:
        return None
    if _is_phone(words, schema):
        return _signed(_phone(schema, source), source)
    if _is_person(words, schema):
        person = source.unused(value for value in source.pieces.people if fits(schema, value))
        if person is not None:
            return _signed(str(person), source)
    if told is not None and fits(schema, told):
        source.signs += 1
        return told
    beside = source.pieces.beside(label) if not words & (BODY | QUERY | TITLE | ID) else None
    if beside is not None and beside not in source.taken and "pattern" not in schema and fits(schema, beside):
        return _signed(beside, source)
    if {"zone", "timezone", "tz"} & words:
        conversion = conversion_in(source.pieces.text)
        if conversion is not None:
            return _signed(conversion.target or own_zone(source.pieces, source.now), source)
        said = zone_in(source.pieces) or _signed(zone_of_city(source.pieces), source)
        return said or (None if required else own_zone(source.pieces, source.now))
    if "locale" in words and told is None:
        return _signed(language_in(source.pieces.text, schema), source)
    if words & {"email", "mail", "url", "uri", "link", "website"}:
        return None
    if "pattern" in schema and not words & (BODY | QUERY | TITLE):
        found = source.unused(value for value in _tokens(source) if fits(schema, value))
        return _signed(found, source)
    if words & ID:
        return _signed(_code(words, schema, source), source)
    if not required and not words & (PLACE | PERSON | TITLE):
        return None
    required = required or (not source.tool.required and bool(words & (PLACE | PERSON)))
    return _free(words, schema, source, required=required)


def _is_phone(words: set[str], schema: Mapping[str, Any]) -> bool:
    if words & _PHONE_WORDS:
        return not words & (BODY | QUERY | TITLE | PLACE | PERSON | {"id", "type", "model", "brand"})
    return bool(words & {"number", "contact"} and set(split_words(str(schema.get("description", "")))) & _PHONE_WORDS)


def _phone(schema: Mapping[str, Any], source: _Source) -> str | None:
    """A number to call, as it was said where the schema takes it so, otherwise its digits."""
    for said in source.pieces.phones:
        spaced = " ".join(re.sub(r"[^\d+]+", " ", said).split())
        for value in (said, spaced, re.sub(r"[^\d+]", "", said), re.sub(r"\D", "", said)):
            if value not in source.taken and fits(schema, value):
                return value
    return None


def _is_person(words: set[str], schema: Mapping[str, Any]) -> bool:
    """Whether a name is a person's: by the name of the argument, or by what is said about it."""
    if "name" not in words or words & (TITLE | BODY | QUERY | {"file", "user", "company", "product"}):
        return False
    return bool((words | set(split_words(str(schema.get("description", ""))))) & _WHO)


def _signed(value: str | None, source: _Source) -> str | None:
    if value is not None:
        source.signs += 1
        source.taken.add(value)
    return value


def _by_format(schema: Mapping[str, Any], words: set[str], source: _Source) -> str | None:
    kind = schema.get("format")
    pieces = source.pieces
    values: Iterable[str] = ()
    if kind == "email" or words & {"email", "mail"}:
        loose = () if kind else re.findall(r"[^\s,;<>()]*@[^\s,;<>()?!]*", pieces.text)
        values = [*pieces.emails, *loose]
    elif kind in ("uri", "url", "uri-reference") or words & {"url", "uri", "link", "website"}:
        values = pieces.urls
    elif kind == "uuid":
        values = pieces.uuids
    elif kind in ("ipv4", "ipv6", "hostname"):
        values = re.findall(r"[\w.:-]+", pieces.text)
    found = source.unused(value for value in values if fits(schema, value))
    if found is not None:
        source.taken.add(found)
        return str(found)
    return None


def _code(words: set[str], schema: Mapping[str, Any], source: _Source) -> str | None:
    """An identifier: the one beside the noun that it identifies, or the only one there is."""
    nouns = frozenset(stem(word) for word in words | set(source.tool.words)) | {"id", "number"}
    codes = [(place, code) for place, code in source.pieces.codes if code not in source.taken and fits(schema, code)]
    beside = [code for place, code in codes if source.pieces.near(place, place + len(code), nouns)]
    if beside:
        return beside[0]
    sure = [code for _, code in codes if not code.isdecimal()]
    if sure:
        return sure[0]
    return codes[0][1] if len(codes) == 1 else None


def _tokens(source: _Source) -> Iterable[str]:
    yield from source.pieces.quoted
    yield from (code for _, code in source.pieces.codes)
    yield from (name for _, name in source.pieces.names)
    for token in re.findall(r"[^\s,;?!]{1,80}", source.pieces.text):
        yield token.strip(".:()\"'")


def _free(words: set[str], schema: Mapping[str, Any], source: _Source, *, required: bool) -> str | None:
    """Text without a form of its own, by what its name says it is: what has a sign first, then a guess if it is needed."""
    acting = source.tool.category == "action" and not _is_person(words, schema)
    told = free_text(words, source.pieces, acting=acting)
    for values, sure in ((told.signed, True), (told.guessed if required else (), False)):
        found: str | None = source.unused(value for value in values if value and fits(schema, value))
        if found is not None:
            source.taken.add(found)
            source.signs += sure
            return found
    return None


# -------------------------------------------------------------------------------------------------------- when
def _when(words: set[str], schema: Mapping[str, Any], source: _Source, *, required: bool) -> str | None:
    """A date or time in the form that is asked for; by its name it is the beginning, the end, or the moment itself."""
    kind = schema.get("format") or described_format(words, schema)
    if kind not in ("date-time", "date", "time"):
        return None
    times, now = source.times, source.now
    looking = source.tool.category != "action"
    proposing = is_about_free_time(source.tool) and not (looking and lists_events(source.pieces.text))
    window = times.window(now, hours=WORKDAY if proposing else None)
    moment: datetime | None
    if words & ENDING:
        moment = (window[1] if window else None) if looking else times.ends(now)
    elif words & BEGINNING:
        moment = (window[0] if window else None) if looking else times.begins(now)
        moment = _not_past(moment, now) if moment is not None and proposing else moment
    else:
        moment = times.begins(now) or (window[0] if window and (looking or kind == "date") else None)
    if moment is None or (kind == "time" and not times.has_clock):
        return None
    if not required and not times.has_day and not times.has_clock:
        return None
    source.signs += 1
    if kind == "date":
        day = (
            moment - timedelta(days=1)
            if words & ENDING and moment.time() == time(0) and not times.has_clock
            else moment
        )
        return day.date().isoformat()
    if kind == "time":
        return f"{moment:%H:%M}" if "format" not in schema else moment.timetz().isoformat()
    local = local_form(schema)
    if local is not None:
        return moment.astimezone(now.tzinfo).strftime(local)
    return moment.isoformat(timespec="seconds")


def _not_past(moment: datetime, now: datetime) -> datetime:
    """From now on, in full quarters of an hour: nobody meets in the past."""
    if moment >= now or moment.date() != now.date():
        return moment
    return (now + timedelta(minutes=14 - (now.minute - 1) % 15)).replace(second=0, microsecond=0)
