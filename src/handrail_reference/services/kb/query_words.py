"""Words: how texts are prepared for the full-text index, and how a query becomes terms that no syntax can hide in.

The same preparation runs on both sides. Full-text syntax, wild cards and SQL in a query are only characters between words:
each term is quoted, and it consists of letters, digits and marks alone.
"""

from __future__ import annotations

import re
import unicodedata

INDEX_VERSION = f"1/{unicodedata.unidata_version}"
"""Texts leave the index by the very words they were put in with; where this differs, the index is made anew."""
MAX_TERMS = 32
# Scripts that write without spaces are indexed character by character, and searched by pairs of neighbours.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_RUN = re.compile(rf"{_UNSPACED.pattern}+")
_COMMON = """a about an and any are as at be been but by can could did do does for from had has have how i if in into is it
its me my of on or our please shall should so some than that the their them then there these they this those to was we were
what when where which who whom whose why will with would you your"""
_STOP = frozenset(_COMMON.split())
_PLAIN_WORD = re.compile(r"[a-z0-9]+")
"""Where all is ASCII these are the letters and digits, and nothing else needs to be asked of a character."""


def is_unspaced(word: str) -> bool:
    """Whether it begins with a character of a script that is written without spaces."""
    return _UNSPACED.match(word) is not None


def prepared(text: str) -> str:
    """A text as the index sees it: compatible forms made one, scripts without spaces given some."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if not plain.isascii() and _UNSPACED.search(plain):
        plain = _UNSPACED.sub(r" \g<0> ", plain)
    return plain.replace("\0", " ")


def query_terms(query: str) -> list[str]:
    """The distinct terms of a query, each a quoted full-text string; common English words only if there are no others."""
    plain = unicodedata.normalize("NFKC", query.encode("utf-8", "replace").decode()).lower()
    words = _PLAIN_WORD.findall(plain) if plain.isascii() else _any_words(plain)
    chosen = [word for word in words if word not in _STOP] or words
    return [f'"{word}"' for word in dict.fromkeys(chosen)][:MAX_TERMS]


def _any_words(plain: str) -> list[str]:
    words: list[str] = []
    for word in "".join(char if _counts(char) else " " for char in plain).split():
        words += _parts(word)
    return words


def name_terms(name: str) -> list[str]:
    """The terms of a name, each a quoted full-text string. Here no word is too common: "Will May" is a name."""
    return [f'"{word}"' for word in sorted(plain_words(name))][:MAX_TERMS]


def _counts(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM"


def _parts(word: str) -> list[str]:
    """A word; of a script without spaces, its pairs of neighbouring characters."""
    if not _UNSPACED.search(word):
        return [word]
    parts = [part for part in _RUN.sub(" ", word).split() if part]
    for run in _RUN.findall(word):
        parts += [run] if len(run) == 1 else [f"{run[at]} {run[at + 1]}" for at in range(len(run) - 1)]
    return parts


def plain_words(text: str) -> set[str]:
    """The words of a name, without case and accents: "Ana Kovač" and "ANA KOVAC" have the same."""
    bare = unicodedata.normalize("NFKD", text).casefold()
    if bare.isascii():
        return set(_PLAIN_WORD.findall(bare))
    return set(
        "".join(
            char if unicodedata.category(char)[0] in "LN" else "" if _is_mark(char) else " " for char in bare
        ).split()
    )


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


_NAMES_OF_TYPES = {
    "project": {"project", "projects"},
    "person": {"person", "persons", "people", "everybody", "everyone"},
    "process": {"process", "processes"},
    "link": {"link", "links"},
    "doc": {"doc", "docs", "document", "documents"},
    "lab": {"lab", "labs"},
}
_SAYING_ALL = frozenset(
    {
        "a", "all", "any", "are", "do", "every", "give", "have", "is", "list", "me", "of", "our", "show", "tell", "the",
        "there", "us", "we", "what", "which", "who", "you",
    }
)  # fmt: skip


def asks_for_all(query: str, type: str) -> bool:
    """Whether a query that is filtered by this type asks for all records of it: "projects", "list all the people"."""
    said = re.findall(r"[^\W_]+", query.lower())
    names = _NAMES_OF_TYPES.get(type, {type})
    return (
        bool(said)
        and any(word in names for word in said)
        and all(word in names or word in _SAYING_ALL for word in said)
    )
