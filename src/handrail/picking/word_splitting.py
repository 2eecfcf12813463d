"""Words: how a tool's texts and a user's request are cut into the terms that are compared.

The same cutting runs on both sides. Names are split where people join them (`get_weather`, `getWeather`, `COVID-19`), case,
accents and English endings do not count, and scripts that write without spaces are cut into pairs of neighbours.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from functools import lru_cache

# The signs of Indic vowels are no letters to `re`, but belong to their words.
_WORD = re.compile(r"(?:[^\W_]|[\u0900-\u0dff])+")
_SPOKEN = re.compile(r"[\w'’-]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_VOICED = "\u3099\u309a"
_LONGEST_WORD = 64
_NO_PLURAL = frozenset({"always", "lens", "news", "series", "species"})

# Words that hold a sentence or a conversation together and say nothing about a tool: a request that has only these needs no
# tool. The single letters are what an apostrophe leaves over.
_COMMON = """a about above after again all also am an and any are as at be because been before being below between both but by
can cannot could did do does doing don down during each few for from further had has have having he her here hers him his how i
if in into is it its itself just let me more most my myself no nor not of off on once only or other our ours out over own same
shall she should so some such than that the their theirs them then there these they this those through to too under until up
very was we were what when where which while who whom whose why will with would you your yours yourself
bye goodbye hello hey hi okay ok please sorry thank thanks yes
d ll m re s t ve"""
COMMON = frozenset(_COMMON.split())

# Words by which people ask for anything at all. They count little beside others, because they are in every request.
_ASKING = """able appreciate assist assistance detail details find finding get give help helps information interested know
like look looking need needs provide show specific tell trying use using want wants"""
ASKING = frozenset(_ASKING.split())


def split_words(text: str) -> list[str]:
    """The words of a text in their order, small and without accents; a joined word gives its parts and itself."""
    plain = text if text.isascii() else _folded(text)
    words: list[str] = []
    for word in _WORD.findall(plain):
        if len(word) > _LONGEST_WORD:
            word = word[:_LONGEST_WORD]
        if word.isascii():
            words += [word] if word.islower() and word.isalpha() else _parts(word)
        elif _UNSPACED.search(word):
            words += _pairs(word)
        else:
            words.append(word.casefold())
    return words


def name_as_words(name: str) -> str:
    """A name as a person would write it: `getWeather_v2` is "get Weather v 2"."""
    return " ".join(part for word in _WORD.findall(name) for part in (_PART.findall(word) or [word]))


def telling_words(text: str) -> str:
    """A text without the words that every request has; as it was, where nothing else is left."""
    words = [word for word in _SPOKEN.findall(text) if word.lower() not in COMMON and word.lower() not in ASKING]
    return " ".join(words) or text


def joined_words(word: str, known: Collection[str]) -> list[str]:
    """The fewest known words that make up a word written together ("carpark"); empty where they do not."""
    best: list[list[str] | None] = [[], *([None] * len(word))]
    for start in range(len(word)):
        begun = best[start]
        if begun is None:
            continue
        for end in range(start + 3, len(word) + 1):
            piece, reached = word[start:end], best[end]
            if piece != word and piece in known and (reached is None or len(begun) + 1 < len(reached)):
                best[end] = [*begun, piece]
    return best[-1] or []


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without the endings that English gives it, so that "translations" meets "translate"."""
    if len(word) < 4 or not word.isalpha() or not word.isascii():
        return word
    word = _without_inflection(_without_plural(word))
    for ending, least in (("ment", 4), ("ion", 4), ("er", 4), ("or", 4), ("ly", 4)):
        if word.endswith(ending) and len(word) - len(ending) >= least:
            if ending != "ion" or word[-4] in "st":
                word = word[: -len(ending)]
            break
    word = _undoubled(word)
    if len(word) > 4 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 6 and word.endswith("at"):
        return word[:-2]  # "recommendation" and "recommend", "translate" and "translation"
    return f"{word[:-1]}i" if len(word) > 3 and word.endswith("y") else word


def _without_plural(word: str) -> str:
    if word in _NO_PLURAL:
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_inflection(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return f"{word[:-3]}y"
    for ending in ("ing", "ed"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and len(rest) >= 3 and any(vowel in rest for vowel in "aeiouy"):
            return rest
    return word


def _undoubled(word: str) -> str:
    """ "planned" leaves "plann"; "call" and "press" are spelt so."""
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouflsz":
        return word[:-1]
    return word


def _folded(text: str) -> str:
    # Half of a surrogate pair is no character; what JSON can carry must not stop a search.
    plain = unicodedata.normalize("NFKD", text.encode("utf-8", "replace").decode())
    kept = (char for char in plain if not unicodedata.combining(char) or char in _VOICED or "\u0900" <= char < "\u1100")
    return unicodedata.normalize("NFC", "".join(kept))


def _parts(word: str) -> list[str]:
    small = word.lower()
    parts = _PART.findall(word)
    if len(parts) < 2:
        return [small]
    return [*(part.lower() for part in parts if len(part) > 1 or part.isdigit()), small]


def _pairs(word: str) -> list[str]:
    words = [part.casefold() for part in _UNSPACED.split(word) if part]
    for run in _UNSPACED.findall(word):
        words += [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]
    return words
