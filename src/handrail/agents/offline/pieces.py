"""What stands in a text that could be an argument: addresses, quotations, codes, numbers, names, phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from handrail.agents.offline.numbers import numbers_in
from handrail.agents.offline.vocabulary import NO_NAME, PREPOSITIONS, VERBS
from handrail.picking.words import ASKING, COMMON, split_words, stem

MOST_READ = 8_000
_EMAIL = re.compile(r"[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_URL = re.compile(r"\b(?:https?|ftp)://[^\s<>\"'“”]+[^\s<>\"'“”.,;:!?)\]]")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|«([^»\n]{1,2000})»|(?<!\w)['‘]([^'’\n]{2,500})['’](?!\w)"
)
_TYPED = re.compile(r"(?<![\w/:@.])[a-z][a-z0-9]{0,30}:[a-z0-9][\w.-]*[\w]")
_CODE = re.compile(r"(?<![\w@.])#?(?=[A-Za-z0-9_/-]*\d)[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*(?![\w@]|\.\w)")
_NAME = re.compile(
    r"\b[A-ZÀ-ÖØ-Þ][\w'’&.-]*(?:\s+(?:(?:of|de|la|van|von|der|del|di|the|and)\s+)?[A-ZÀ-ÖØ-Þ][\w'’&.-]*)*"
)
_PLACE = r"[A-ZÀ-ÖØ-Þ][\w'’.-]*(?:\s+[A-ZÀ-ÖØ-Þ][\w'’.-]*)*(?:,\s?[A-ZÀ-ÖØ-Þ][\w.]+)*"
_START = re.compile(r"(?:^|[.!?:;]\s+|\n\s*)$")
_STOP = rf"(?:{'|'.join(sorted(PREPOSITIONS))}|and|or|but|please|that|which|who|is|are|was|if|when|because|so|then)"


class Pieces:
    """The pieces of one text. `rest` is the text without what was read as time, in the same places."""

    def __init__(self, text: str, rest: str | None = None) -> None:
        self.text = text[:MOST_READ]
        self.rest = (rest if rest is not None and len(rest) == len(text) else text)[:MOST_READ]

    @cached_property
    def emails(self) -> list[str]:
        return list(dict.fromkeys(match[0] for match in _EMAIL.finditer(self.text)))

    @cached_property
    def urls(self) -> list[str]:
        return list(dict.fromkeys(match[0] for match in _URL.finditer(self.text)))

    @cached_property
    def uuids(self) -> list[str]:
        return [match[0] for match in _UUID.finditer(self.text)]

    @cached_property
    def quoted(self) -> list[str]:
        return [next(part for part in match.groups() if part).strip() for match in _QUOTED.finditer(self.text)]

    @cached_property
    def bare(self) -> str:
        """The text without times, addresses and quotations, in the same places."""
        text = self.rest
        for pattern in (_URL, _EMAIL, _QUOTED):
            text = pattern.sub(lambda match: " " * len(match[0]), text)
        return text

    @cached_property
    def codes(self) -> list[tuple[int, str]]:
        """What looks like an identifier, with its place: typed ones first, then those with letters and digits, then digits."""
        typed = [(match.start(), match[0]) for match in _TYPED.finditer(self.bare)]
        rest = _TYPED.sub(lambda match: " " * len(match[0]), self.bare)
        codes = [(match.start(), match[0].lstrip("#")) for match in _CODE.finditer(rest)]
        return typed + sorted(codes, key=lambda code: (code[1].isdecimal(), code[0]))

    @cached_property
    def numbers(self) -> list[tuple[int, int, float]]:
        return numbers_in(self.bare)

    @cached_property
    def names(self) -> list[tuple[int, str]]:
        """Capitalised phrases with their place. What only stands at the start of a sentence comes last."""
        found: list[tuple[int, str]] = []
        doubtful: list[tuple[int, str]] = []
        for match in _NAME.finditer(self.bare):
            words, place = match[0].rstrip(".'’&-").split(), match.start()
            at_start = bool(_START.search(self.bare[:place]))
            while words and (
                words[0].lower() in COMMON | ASKING | NO_NAME or (at_start and len(words) > 1 and _is_verb(words[0]))
            ):
                place += len(words[0]) + 1
                words, at_start = words[1:], False
            if words:
                name = re.sub(r"['’]s$", "", " ".join(words))
                (doubtful if at_start else found).append((place, name))
        return found + [pair for pair in doubtful if not _is_verb(pair[1])]

    def after(self, *words: str) -> Iterator[str]:
        """The phrases that follow one of these words, up to the next preposition or sign."""
        listed = "|".join(re.escape(word) for word in words)
        word = rf"(?!{_STOP}\b)[^\s,;:!?()\[\]]+"
        pattern = rf"\b(?:{listed})\s+(?:the\s+|an?\s+|my\s+|our\s+)?({word}(?:\s+{word}){{0,5}})"
        for match in re.finditer(pattern, self.rest, re.IGNORECASE):
            phrase = re.split(r"\s{2,}|[.!?](?:\s|$)", match[1])[0].strip(" .'\"")
            if phrase:
                yield phrase

    def places(self, *words: str) -> Iterator[str]:
        """Names that follow one of these words, with what stands behind a comma: "in Portland, OR"."""
        listed = "|".join(re.escape(word) for word in words)
        for match in re.finditer(rf"\b(?i:{listed})\s+(?:the\s+)?({_PLACE})", self.rest):
            yield match[1].rstrip(".,'’ ")

    def beside(self, label: str) -> str | None:
        """What follows a word without any sign: "directed by Wes Anderson", "album Salam", "nickname 'PG1'"."""
        for word in [label, *label.split()]:
            if len(word) < 4 or word in COMMON:
                continue
            stemmed = re.escape(word[:-1] if word.endswith(("e", "s")) else word)
            spoken = (
                r"[\s_-]+".join(map(re.escape, word.split())) if " " in word else rf"{stemmed}(?:e|s|es|ed|ing|name)?"
            )
            link = r"(?:\s+(?:name|is|called|named|titled|by|as|of|the|id|number))*"
            match = re.search(rf"\b(?i:{spoken}{link})\s+({_QUOTED.pattern}|{_NAME.pattern})", self.text)
            if match:
                return match[1].strip(" .'’‘\"“”«»,") or None
        return None

    def labelled(self, label: str) -> str | None:
        """What stands behind a name: "order id: 17", "priority = high", "city is Split"."""
        words = r"[\s_-]+".join(map(re.escape, label.split()))
        sign = re.search(rf"\b{words}\s*(?::|=)\s*([^\n,;]+)", self.text, re.IGNORECASE)
        if sign:
            return sign[1].strip(" .'\"“”") or None
        said = re.search(rf"\b{words}\s+(?:is|called|named|number|no\.?|#)\s*#?([^\s,;?!]+)", self.text, re.IGNORECASE)
        return said[1].strip(" .'\"“”") if said else None

    def near(self, place: int, end: int, words: frozenset[str]) -> int:
        """How many of the words around a place are among `words` (stems), the nearest counting most."""
        before = [stem(word) for word in split_words(self.text[max(0, place - 40) : place])][-3:]
        behind = [stem(word) for word in split_words(self.text[end : end + 40])][:2]
        score = sum(3 - distance for distance, word in enumerate(reversed(before)) if word in words)
        return score + sum(3 - distance for distance, word in enumerate(behind) if word in words)


def _is_verb(word: str) -> bool:
    return word.lower().split()[0] in VERBS
