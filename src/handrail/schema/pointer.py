"""JSON pointers (RFC 6901): how an error names a place inside a JSON value, in messages, details and the audit."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SHORT_POINTER = 200


def pointer(path: Iterable[str | int]) -> str:
    """The JSON pointer of a path of keys and indexes; the empty path is the root, `""`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def short_pointer(path: Iterable[str | int | None]) -> str:
    """The pointer of a path, or of the nearest place around it that has a short one: foreign keys may be of any length.

    None stands for a key that is not known yet; such a path ends before it.
    """
    found = ""
    for part in path:
        longer = found if part is None else found + pointer((part,))
        if part is None or len(longer) > MAX_SHORT_POINTER:
            break
        found = longer
    return found
