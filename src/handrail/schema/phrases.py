"""Small turns of phrase that sentences about JSON share: values quoted and cut short, counts, near matches."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import islice

from handrail.schema.subschemas import Json

ECHO_LENGTH = 60
MAX_LISTED = 20
MAX_COMPARED = 1_000
MAX_COMPARED_LENGTH = 120


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)


def cut(text: str) -> str:
    """The text, cut where it is too long to be repeated to anyone."""
    return text if len(text) <= ECHO_LENGTH else text[: ECHO_LENGTH - 1] + "…"


def quoted(value: Json) -> str:
    """A JSON value as text, cut where it is long."""
    # A long value is not written out only to be cut.
    if isinstance(value, str):
        return cut(_ENCODER.encode(value[: ECHO_LENGTH + 1]))
    if type(value) is int:
        return cut(str(value))
    text = ""
    for part in _ENCODER.iterencode(value):
        text += part[: ECHO_LENGTH + 1]
        if len(text) > ECHO_LENGTH:
            break
    return cut(text)


def listed(values: Collection[Json], between: str = ", ") -> str:
    """JSON values as a list in a sentence, cut where it is long."""
    more = f" and {len(values) - MAX_LISTED} more" if len(values) > MAX_LISTED else ""
    return between.join(quoted(value) for value in islice(values, MAX_LISTED)) + more


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 item`, `2 items`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def was_given(number: int) -> str:
    """`1 was given`, `2 were given`."""
    return f"{number} {'was' if number == 1 else 'were'} given"


def lowered(text: str) -> str:
    """A sentence as it continues inside another one."""
    return text[:1].lower() + text[1:]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, if one is. Of very many names, and for long ones, none is looked for."""
    from difflib import get_close_matches  # noqa: PLC0415 - only wanted once something is misspelt

    some = [other for other in islice(known, MAX_COMPARED) if len(other) <= MAX_COMPARED_LENGTH]
    return next(iter(get_close_matches(name, some, 1)), None) if len(name) <= MAX_COMPARED_LENGTH else None
