"""What stands in a text that could be an argument: addresses, quotations, codes, numbers, names, phrases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from handrail.agents.offline.numbers import WORDS, numbers_in
from handrail.agents.offline.vocabulary import NO_NAME, PREPOSITIONS, VERBS
from handrail.picking.words import ASKING, COMMON, split_words, stem

MOST_READ = 8_000
_EMAIL = re.compile(r"[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}\b")
_URL = re.compile(r"\b(?:https?|ftp)://[^\s<>\"'“”]+[^\s<>\"'“”.,;:!?)\]]")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^“”\n]{1,2000})”|«([^«»\n]{1,2000})»|(?<!\w)['‘]([^'’\n]{2,500})['’](?!\w)"
)
_TYPED = re.compile(r"(?<![\w/:@.])[a-z][a-z0-9]{0,30}:[a-z0-9][\w.-]*[\w]")
_CODE = re.compile(
    r"(?<![\w@.])#?(?=[A-Za-z0-9][A-Za-z0-9_/-]{0,200}(?<=\d))[A-Za-z0-9]+(?:[-_/][A-Za-z0-9]+)*(?![\w@]|\.\w)"
)
_NAME = re.compile(
    r"\b[A-ZÀ-ÖØ-Þ][\w'’&.-]*(?:\s+(?:(?:of|de|la|van|von|der|del|di|the|and)\s+)?[A-ZÀ-ÖØ-Þ][\w'’&.-]*)*"
)
_PLACE = r"[A-ZÀ-ÖØ-Þ][\w'’.-]*(?:\s+[A-ZÀ-ÖØ-Þ][\w'’.-]*)*(?:,\s?[A-ZÀ-ÖØ-Þ][\w.]+)*"
_PHONE = re.compile(r"(?<![\w@.:/+-])(?:\+|00)?\(?\d(?:[ ()/.-]{0,2}\d){4,16}(?![\w@:/-]|[.,]\d)")
_DIGIT = {
    name: str(digit)
    for digit, name in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
}
_DIGIT |= {"oh": "0", "o": "0", "plus": "+"}
_SPELLED = re.compile(rf"\b(?:(?:{'|'.join(_DIGIT)})\b[ ,-]*){{5,}}", re.IGNORECASE)
_SAID_NAME = re.compile(
    r"\b(?:(?i:name\s+is|name['’]s|under\s+the\s+name(?:\s+of)?|in\s+the\s+name\s+of|on\s+behalf\s+of|this\s+is|i\s+am|i['’]m|for|is\s+called)\s+)"
    r"(?:(?i:mr|mrs|ms|dr|miss)\.?\s+)?([^\W\d_][\w'’.-]*(?:[ \t][^\W\d_][\w'’-]*){0,3})"
)
_NO_NAMES = COMMON | ASKING | NO_NAME
_NO_PERSON = frozenset(
    [
        "me",
        "us",
        "him",
        "her",
        "them",
        "it",
        "that",
        "this",
        "the",
        "a",
        "an",
        "my",
        "our",
        "your",
        "his",
        "their",
        "all",
        "everybody",
        "someone",
        "today",
    ]
)
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
            at_start = _starts_a_sentence(self.bare[:place])
            while words and (
                re.split("['’]", words[0].lower())[0] in _NO_NAMES
                or (at_start and len(words) > 1 and _is_verb(words[0]))
            ):
                place += len(words[0]) + 1
                words, at_start = words[1:], False
            if words:
                name = re.sub(r"['’]s$", "", " ".join(words))
                (doubtful if at_start else found).append((place, name))
        return found + [pair for pair in doubtful if not _is_verb(pair[1])]

    @cached_property
    def phones(self) -> list[str]:
        """Numbers to call, in digits or spelled digit by digit. What was read as time is none."""
        found = [(match.start(), match[0].strip()) for match in _PHONE.finditer(self.bare)]
        for match in _SPELLED.finditer(self.bare):
            found.append((match.start(), "".join(_DIGIT[word] for word in re.findall(r"[a-z]+", match[0].lower()))))
        return [number for _, number in sorted(found)]

    @cached_property
    def people(self) -> list[str]:
        """Names of people by the words before them: "for Ana Kovac", "my name is Ana". Written small, they are names only
        where nothing else fits."""
        large: list[str] = []
        small: list[str] = []
        for match in _SAID_NAME.finditer(self.bare):
            words = match[1].split()
            stop = next((place for place, word in enumerate(words) if re.fullmatch(_STOP, word, re.IGNORECASE)), None)
            words = words[:stop]
            if not words or words[0].lower() in _NO_PERSON or any(word.lower() in WORDS for word in words):
                continue
            named = [word for word in words if word[:1].isupper()]
            if words[0][:1].isupper():
                large.append(" ".join(words[: len(named)] if words[: len(named)] == named else words[:1]))
            else:
                small.append(" ".join(words))
        return [name.rstrip(".,'’") for name in [*large, *small]]

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


def _starts_a_sentence(before: str) -> bool:
    ended = before.rstrip()
    space = before[len(ended) :]
    return not before or "\n" in space or (bool(space) and ended.endswith((".", "!", "?", ":", ";")))


def _is_verb(word: str) -> bool:
    return word.lower().split()[0] in VERBS
