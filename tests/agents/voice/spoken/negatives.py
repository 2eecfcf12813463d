"""What people, rooms and machines say that must not approve anything: made by rule and seed, so the list is kept as this file.

Each kind is a handful of patterns over lists of words; `negatives()` draws the same utterances from them every time. Nothing
here knows the grammar. `python -m tests.agents.voice.spoken.listing` prints the list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random

from tests.agents.voice.spoken import odd_writing
from tests.agents.voice.spoken.patterns import KINDS, WORDS

SEED = 20261117
PER_KIND = 150

_PLACE = re.compile(r"\{(\w+)\}")


def negatives() -> list[tuple[str, str]]:
    """(kind, utterance), each utterance once, in a fixed order."""
    random = Random(SEED)
    seen: set[str] = set()
    found: list[tuple[str, str]] = []
    for kind, source in _sources():
        drawn = 0
        for text in source(random):
            if text in seen:
                continue
            seen.add(text)
            found.append((kind, text))
            drawn += 1
            if drawn == PER_KIND:
                break
    return found


def _sources() -> Iterator[tuple[str, Callable[[Random], Iterator[str]]]]:
    for kind, patterns in KINDS.items():
        yield kind, lambda random, patterns=patterns: _from_patterns(patterns, random)
    for kind, source in odd_writing.SOURCES.items():
        yield kind, lambda random, source=source: _shuffled(source(random), random)


def _shuffled(texts: Iterator[str], random: Random) -> Iterator[str]:
    pool = list(texts)
    random.shuffle(pool)
    yield from pool


def _from_patterns(patterns: tuple[str, ...], random: Random) -> Iterator[str]:
    """Every pattern in turn, with words drawn for its places, in one of the spellings of a transcript."""
    for pattern in patterns:  # each as it stands at least once
        yield _filled(pattern, random)
    for _ in range(PER_KIND * 40):
        text = _filled(random.choice(patterns), random)
        yield random.choice((str, _sentence, _bare, str.upper))(text)


def _filled(pattern: str, random: Random) -> str:
    return _PLACE.sub(lambda place: random.choice(WORDS[place[1]]), pattern)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!,…-" else ".")


def _bare(text: str) -> str:
    """Lower case and without commas, as some transcribers write; one at the end stays, for there somebody was cut off."""
    return text.lower().replace(", ", " ")
