"""Small turns of phrase that sentences about JSON share: values quoted and cut short, counts, near matches."""

from __future__ import annotations

import json
from collections.abc import Iterable

from handrail.schema.subschemas import Json

ECHO_LENGTH = 60
MAX_LISTED = 20


def cut(text: str) -> str:
    """The text, cut where it is too long to be repeated to anyone."""
    return text if len(text) <= ECHO_LENGTH else text[: ECHO_LENGTH - 1] + "…"


def quoted(value: Json) -> str:
    """A JSON value as text, cut where it is long."""
    return cut(json.dumps(value, ensure_ascii=False, default=str))


def listed(values: Iterable[Json], between: str = ", ") -> str:
    """JSON values as a list in a sentence, cut where it is long."""
    texts = [quoted(value) for value in values]
    more = f" and {len(texts) - MAX_LISTED} more" if len(texts) > MAX_LISTED else ""
    return between.join(texts[:MAX_LISTED]) + more


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 item`, `2 items`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def was_given(number: int) -> str:
    """`1 was given`, `2 were given`."""
    return f"{number} {'was' if number == 1 else 'were'} given"


def lowered(text: str) -> str:
    """A sentence as it goes on inside another one."""
    return text[:1].lower() + text[1:]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, if one is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only wanted once something is misspelt

    return next(iter(get_close_matches(name, list(known), 1)), None)
