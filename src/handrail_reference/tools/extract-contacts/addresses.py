"""Finds e-mail addresses: from each @-sign outwards, and then checked by the rules for addresses.

An @-sign ends the walk to either side, so each character is looked at twice at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from email_validator import EmailNotValidError, validate_email

from .places import TextSpan, is_ascii_word, is_unspaced, is_word

_LOCAL_MARKS = frozenset("._%+-'&~")
_MAX_LOCAL = 64
_MAX_BYTES = 254


def find(text: str) -> Iterator[TextSpan]:
    """E-mail addresses in the order of the text, without the punctuation around them."""
    at = text.find("@")
    while at != -1:
        found = _around(text, at)
        if found is not None:
            yield found
        at = text.find("@", at + 1)


def _around(text: str, at: int) -> TextSpan | None:
    start, end = _local_start(text, at), _domain_end(text, at)
    if start == at or text[start - 1 : start] == "@" or text[end : end + 1] == "@":
        return None
    if text[end : end + 1] == ":" and is_word(text[end + 1 : end + 2]):
        return None  # git@example.org:project is a place on a server
    if text[start] == "_" == text[end : end + 1]:
        start += 1  # _ana@example.org_ is emphasis
    written = text[start:end]
    if "." not in text[at:end] or len(written.encode("utf-8", "replace")) > _MAX_BYTES:
        return None
    try:
        # The reserved domain "test" is let through: it stands in many texts that people try things out with.
        checked = validate_email(written, check_deliverability=False, test_environment=True)
    except EmailNotValidError:
        return None
    return TextSpan(start=start, end=end, value=checked.normalized)


def _local_start(text: str, at: int) -> int:
    """Where the part before the @-sign starts; `at` itself if there is none."""
    start = at
    while start and (is_word(text[start - 1]) or text[start - 1] in _LOCAL_MARKS):
        # A sentence in Chinese may end right where an address in Latin letters starts.
        if is_unspaced(text[start - 1]) and is_ascii_word(text[at - 1]):
            break
        start -= 1
        if at - start > _MAX_LOCAL:
            return at
    while start < at and text[start] in _LOCAL_MARKS and text[start] != "_":
        start += 1
    return start


def _domain_end(text: str, at: int) -> int:
    end = at + 1
    while end < len(text) and end - at < _MAX_BYTES:
        character = text[end]
        if is_unspaced(character) and is_ascii_word(text[end - 1]):
            break
        if character in ".-":
            if not is_word(text[end + 1 : end + 2]) and text[end + 1 : end + 2] != "-":
                break
        elif not is_word(character):
            break
        end += 1
    return end
