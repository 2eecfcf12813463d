"""Answers from evidence: the sentences of the records that answer best, with their sources; and data in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log
from typing import Any

from handrail.agents.offline.moments import moment_of, spoken
from handrail.agents.offline.wording import named, one_line
from handrail.picking.words import ASKING, COMMON, split_words, stem

_TEXTS = ("full_text", "text", "content", "body", "snippet", "summary", "description", "answer", "excerpt")
_MOST_TEXT = 20_000
_MOST_RECORDS = 10
_MOST_SHOWN = 8
_PLACES = ("start", "end", "begin", "offset", "index", "position", "length")
_WENT_WELL = ("complete", "ok", "success", "succeeded", "sent", "done")
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.M | re.S)
_LINK = re.compile(r"!?\[([^\]\n]{0,500}+)\]\([^)\n]{0,2000}+\)")
_KEY = re.compile(r"(?<![0-9a-z])[0-9a-f]{16,}\b", re.IGNORECASE)
_PERSON = re.compile(
    r"(?<!^)\b[A-ZÀ-ÖØ-Þ][a-zà-ÿ]+\s+[A-ZÀ-ÖØ-Þ]|@|\b(?:he|she|they|we|team|people|person|author|group|company|users?|"
    r"operators?|members?|customers?|staff|everybody|nobody|anyone|everyone)\b"
)
_AMOUNT = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|once|twice|dozen|hundred|thousand|million|"
    r"all|none|no|never|each|every|first|second|third|fourth|fifth|sixth|half)\b",
    re.I,
)
_FORM = frozenset(
    map(stem, ("many", "much", "long", "often", "may", "might", "must", "happen", "happens", "work", "without", "used"))
)
"""Words of a question that are about the form of its answer, and seldom in it."""
_BEFORE = re.compile(r"\s\([^()]*\)$")
_SENTENCE = re.compile(r"(?<=[.!?])[\"'”)\]]*\s+(?=[\"'“(\[]?[A-ZÀ-ÖØ-Þ0-9`])")


@dataclass(frozen=True, slots=True)
class Record:
    """Something that was found, and its text."""

    id: str
    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True)
class Sentence:
    record: int
    place: int
    text: str
    words: frozenset[str]


def records_in(data: Any) -> list[Record]:
    """The records in a tool's data: members of its lists that have a text."""
    found: list[Record] = []
    for member in _members(data):
        text = next((member[name] for name in _TEXTS if isinstance(member.get(name), str) and member[name].strip()), "")
        name = str(member.get("id") or member.get("url") or member.get("title") or member.get("name") or "")
        if name and (text or member.get("title")):
            title = str(member.get("title") or member.get("name") or name)
            found.append(Record(name, one_line(title, 200), _web(member.get("url")), text[:_MOST_TEXT]))
    return found[:_MOST_RECORDS]


def _members(data: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(data, Mapping):
        for value in data.values():
            if isinstance(value, Sequence) and not isinstance(value, str):
                yield from (member for member in value if isinstance(member, Mapping))


def _web(url: object) -> str:
    return url if isinstance(url, str) and re.fullmatch(r"https?://[^\s]+", url) else ""


def answer_from(question: str, records: Sequence[Record], *, spoken_aloud: bool = False) -> str:
    """The best sentences with their sources; where none answers, what was found, and that it may not.

    What stands in brackets at the end of the question is what it points back to: it says what the question is about, and what
    is asked are the other words.
    """
    sentences = [sentence for place, record in enumerate(records) for sentence in _sentences(place, record)]
    wanted = telling(question) - _FORM or telling(question)
    if not sentences or not wanted:
        return _only_found(records, spoken_aloud)
    asked = _BEFORE.sub("", question)
    weights = _weights(wanted, telling(asked), sentences)
    scored = sorted(
        ((_score(s, asked, wanted, weights, records), s) for s in sentences),
        key=lambda p: (-p[0], p[1].record, p[1].place),
    )
    best, first = scored[0]
    chosen = [sentence for score, sentence in scored[:4] if _belongs(sentence, first, score, best, wanted, weights)]
    chosen = _within(_distinct(chosen), 300 if spoken_aloud else 700)
    covered = set().union(*(s.words | _title_words(records[s.record]) for s in chosen)) & wanted
    share = sum(weights[word] for word in covered) / sum(weights.values())
    if best <= 0 or share < 0.55 or not _could_answer(chosen, asked):
        return _only_found(records, spoken_aloud)
    return _composed(chosen, records, spoken_aloud)


def _belongs(
    sentence: Sentence,
    first: Sentence,
    score: float,
    best: float,
    wanted: frozenset[str],
    weights: Mapping[str, float],
) -> bool:
    """Whether a sentence is worth being quoted beside the best one. Next to it, it goes on; elsewhere it has to answer
    nearly as well, by words of its own."""
    if sentence is first:
        return True
    if sentence.record == first.record and abs(sentence.place - first.place) <= 1:
        return score >= max(0.5 * best, 0.01)
    own = sum(weights[word] for word in wanted & sentence.words)
    return score >= max(0.7 * best, 0.01) and own >= 0.6 * sum(weights[word] for word in wanted & first.words)


def _could_answer(chosen: Sequence[Sentence], question: str) -> bool:
    """Some questions ask for a kind of thing: without one, what was found is beside the point, whatever its words."""
    if re.match(r"\W*who\b(?!\s+(?:can|may|could|should|must|is\s+allowed)\b)", question, re.I):
        return any(_PERSON.search(sentence.text) or _does_it(sentence.text, question) for sentence in chosen)
    if re.search(r"\bhow\s+(?:many|much|long|old)\b", question, re.I):
        return any(_AMOUNT.search(sentence.text) for sentence in chosen)
    return True


def _does_it(text: str, question: str) -> bool:
    """Whether a sentence names one who does what is asked about: "Mara runs onboarding", "it is led by Mara"."""
    asked = re.match(r"\W*who\s+(?:(?:is|are|was|will|does|did|has|have)\s+)?(?:the\s+)?(\w+)", question, re.I)
    if asked is None:
        return False
    verb = re.escape(asked[1].lower()[: max(3, len(asked[1]) - 3)])
    named = re.findall(
        rf"\b([A-ZÀ-ÖØ-Þ][a-zà-ÿ]+)\s+(?:\w+\s+){{0,2}}?(?i:{verb})|\b(?:by|is)\s+([A-ZÀ-ÖØ-Þ][a-zà-ÿ]+)", text
    )
    return any(name.lower() not in COMMON | ASKING for pair in named for name in pair if name)


def telling(text: str) -> frozenset[str]:
    """The words of a question that say what it is about."""
    words = [word for word in split_words(text) if word not in COMMON and word not in ASKING]
    return frozenset(stem(word) for word in words or split_words(text))


def _sentences(place: int, record: Record) -> Iterable[Sentence]:
    text = _LINK.sub(r"\1", _FENCE.sub(" ", record.text))
    number = 0
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+[.)])\s)", text):
        if block.lstrip().startswith(("|", "#", "---")):
            block = re.sub(r"^\s*(?:#+[^\n]*|---+)\s*$", "", block, flags=re.M)
            if block.lstrip().startswith("|"):
                continue
        plain = re.sub(r"[`*]{1,3}(?=\S)|(?<=\S)[`*]{1,3}", "", re.sub(r"^\s*(?:[-*+>]|\d+[.)])\s+", "", block))
        for part in _SENTENCE.split(" ".join(plain.split())):
            part = part.strip()
            # What ends in a colon announces something that is not quoted with it; a remark in brackets is one to a sentence.
            if 15 <= len(part) <= 600 and part.count("|") < 2 and part[-1] != ":" and part[0] not in "(…":
                yield Sentence(place, number, one_line(part, 600), frozenset(map(stem, split_words(part))))
                number += 1


def _weights(wanted: frozenset[str], asked: frozenset[str], sentences: Sequence[Sentence]) -> dict[str, float]:
    total = len(sentences)
    rare = {word: log(1 + total / (0.5 + sum(word in s.words for s in sentences))) for word in wanted}
    return {word: weight if word in asked else 0.35 * weight for word, weight in rare.items()}


def _score(
    sentence: Sentence, question: str, wanted: frozenset[str], weights: Mapping[str, float], records: Sequence[Record]
) -> float:
    record = records[sentence.record]
    score = sum(weights[word] for word in wanted & sentence.words)
    score += 0.5 * sum(weights[word] for word in (wanted & _title_words(record)) - sentence.words)
    if score <= 0:
        return 0.0
    score *= (
        1.0 / (1.0 + 0.15 * sentence.record) * (1.25 if sentence.place == 0 else 1.1 if sentence.place < 3 else 1.0)
    )
    if len(sentence.text) > 300:
        score *= 0.85
    if sentence.text.startswith("…") or sentence.text.endswith("…"):
        score *= 0.4  # cut out of the middle of something
    return score * _suits(sentence.text, question)


def _suits(text: str, question: str) -> float:
    """Whether a sentence has the form of an answer to this kind of question."""
    asked = question.lower()
    defined = re.search(r"\bwhat(?:['’]s|\s+is|\s+are)\s+(?:an?\s+|the\s+)?([\w-]++)\W*$", asked)
    if defined and re.match(
        rf"(?:an?\s+|the\s+)?{re.escape(defined[1])}s?\b[^.:]{{0,40}}(?:\s(?:is|are|means|lets|gives|makes|checks)\b|:)",
        text,
        re.I,
    ):
        return 2.0
    if re.search(r"\bhow\s+(?:many|much|long|old|often)\b|\bwhen\b|\bwhat\s+(?:time|date)\b", asked):
        return 1.4 if re.search(r"\d", text) else 1.0
    if re.search(r"\bwho\b", asked):
        return 1.3 if re.search(r"(?<!^)\b[A-Z][a-z]+\s+[A-Z][a-z]+", text) else 1.0
    if re.search(r"\bwhy\b", asked):
        return 1.3 if re.search(r"\b(?:because|so that|since|therefore)\b", text) else 1.0
    return 1.0


def _title_words(record: Record) -> frozenset[str]:
    return frozenset(map(stem, split_words(record.title)))


def _distinct(sentences: Iterable[Sentence]) -> list[Sentence]:
    kept: list[Sentence] = []
    for sentence in sentences:
        if all(len(sentence.words & other.words) < 0.8 * len(sentence.words | other.words) for other in kept):
            kept.append(sentence)
    return kept


def _within(sentences: Sequence[Sentence], most: int) -> list[Sentence]:
    kept: list[Sentence] = []
    for sentence in sentences:
        if not kept or sum(len(s.text) for s in kept) + len(sentence.text) <= most:
            kept.append(sentence)
    best = kept[0].record if kept else 0
    return sorted(kept, key=lambda s: (s.record != best, s.record, s.place))


def _composed(sentences: Sequence[Sentence], records: Sequence[Record], spoken_aloud: bool) -> str:
    if spoken_aloud:
        text = " ".join(sentence.text for sentence in sentences[:2])
        return f"{text} That is from {records[sentences[0].record].title}."
    numbers: dict[int, int] = {}
    parts = []
    for sentence, after in zip(sentences, [*sentences[1:], None], strict=True):
        number = numbers.setdefault(sentence.record, len(numbers) + 1)
        goes_on = after is not None and after.record == sentence.record
        parts.append(sentence.text if goes_on else f"{sentence.text} [{number}]")
    return f"{' '.join(parts)}\n\n{_sources([records[place] for place in numbers])}"


def _sources(records: Sequence[Record]) -> str:
    lines = [_source(number, record) for number, record in enumerate(records, 1)]
    return "\n".join(["Sources:", *lines])


def _source(number: int, record: Record) -> str:
    address = f" {record.url}" if record.url and record.url != record.id else ""
    return f"[{number}] {record.title} ({record.id}){address}"


def _only_found(records: Sequence[Record], spoken_aloud: bool) -> str:
    if spoken_aloud:
        return f"I found nothing that answers this directly. The closest is {records[0].title}."
    begun = [
        f"- {record.title}: {one_line(first.text, 200)} [{number}]"
        for number, record in enumerate(records[:3], 1)
        if (first := next(iter(_sentences(0, record)), None)) is not None
    ]
    shown = "\n".join([*begun, ""]) + "\n" if begun else ""
    return f"I found nothing that answers this directly. The closest records are:\n\n{shown}{_sources(records[:3])}"


# ------------------------------------------------------------------------------------------------- data in words
def is_empty(data: Any) -> bool:
    """As the pipeline sees it: nothing, or lists and all of them empty."""
    if data is None or data in ({}, []):
        return True
    lists = [value for value in data.values() if isinstance(value, list)] if isinstance(data, Mapping) else []
    return bool(lists) and not any(lists)


def described(data: Any, now: datetime) -> str:
    """Any tool's data as a few lines that a person can read."""
    while isinstance(data, Mapping) and len(data) == 1 and isinstance(next(iter(data.values())), Mapping):
        data = next(iter(data.values()))
    if not isinstance(data, Mapping):
        text = "\n".join(_items(data, now)) if isinstance(data, list) else _scalar(data, now)
        return text.strip() or "There is nothing to show."
    facts = [f"{named(k).capitalize()}: {_told(k, v, now)}" for k, v in _facts(data)]
    lines = [". ".join(facts[:_MOST_SHOWN]) + "." if facts else ""]
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            inner = [f"{named(k)} {_told(k, v, now)}" for k, v in _facts(value)]
            lines.append(f"{named(key).capitalize()}: {', '.join(inner[:_MOST_SHOWN])}." if inner else "")
        elif isinstance(value, list) and value:
            lines += [f"{named(key).capitalize()}:", *_items(value, now)]
    return "\n".join(line for line in lines if line) or "It is done."


def _items(values: Sequence[Any], now: datetime) -> list[str]:
    lines = []
    for value in values[:_MOST_SHOWN]:
        if isinstance(value, Mapping):
            facts = _facts(value)
            head = next((v for k, v in facts if k in ("title", "name", "label", "id")), None)
            if head is None and len(facts) == 1:
                head = facts[0][1]
            rest = [f"{named(k)} {_told(k, v, now)}" for k, v in facts if v is not head][:5]
            lines.append("- " + ", ".join([*([one_line(head, 120)] if head is not None else []), *rest]))
        else:
            lines.append(f"- {_scalar(value, now)}")
    if len(values) > _MOST_SHOWN:
        lines.append(f"- and {len(values) - _MOST_SHOWN} more")
    return lines


def _facts(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What of a mapping tells a person something: not where in a text a thing stands, that all went well, or the same again."""
    kept: list[tuple[str, Any]] = []
    known: set[str] = set()
    for key, value in data.items():
        if not _says_something(value) or (value is True and key in _WENT_WELL):
            continue
        if key in _PLACES and isinstance(value, int):
            continue
        same = re.sub(r"\W", "", str(value)).lower() if isinstance(value, str) else ""
        if (same and same in known) or (key == "iso" and "text" in data):
            continue
        known.add(same)
        kept.append((key, value))
    return kept


def _told(key: str, value: Any, now: datetime) -> str:
    """A value in words; one in a form for machines stays in it."""
    return (
        one_line(value)
        if isinstance(value, str) and (key == "iso" or key.endswith(("_id", "Id")))
        else _scalar(value, now)
    )


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _says_something(value: object) -> bool:
    """Whether a person can do anything with a value; keys for machines are left out."""
    if not _is_scalar(value) or value in (None, ""):
        return False
    return not (isinstance(value, str) and _KEY.search(value) and not value.startswith("http"))


def _scalar(value: Any, now: datetime) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d.*", value):
        moment = moment_of(value)
        return spoken(moment.astimezone(now.tzinfo), now) if moment is not None else one_line(value)
    return one_line(value).rstrip(".")


# -------------------------------------------------------------------------------------------------------- slots
@dataclass(frozen=True, slots=True)
class Slots:
    """Free and taken times, as a calendar tool gives them."""

    free: tuple[tuple[datetime, datetime], ...]
    taken: tuple[tuple[datetime, datetime], ...]

    def is_free(self, begin: datetime, end: datetime) -> bool:
        return not any(start < end and begin < finish for start, finish in self.taken)

    def proposals(self, minutes: int, most: int = 3) -> list[tuple[datetime, datetime]]:
        """Times that are free and long enough: the start of each free stretch, then later within the long ones."""
        length = timedelta(minutes=minutes)
        found = [(begin, begin + length) for begin, end in self.free if begin + length <= end]
        for begin, end in self.free:
            later = begin + timedelta(hours=2)
            while later + length <= end and len(found) < most:
                found.append((later, later + length))
                later += timedelta(hours=2)
        return sorted(found[:most])


def slots_in(data: Any) -> Slots | None:
    """The free and taken times in a tool's data; None if it is not about such."""
    if not isinstance(data, Mapping):
        return None
    free: list[tuple[datetime, datetime]] = []
    taken: list[tuple[datetime, datetime]] = []
    seen = False
    for key, value in data.items():
        words = set(split_words(key))
        target = (
            free
            if words & {"available", "free", "slots", "gaps", "open"}
            else taken
            if words & {"events", "busy", "taken", "booked", "conflicts"}
            else None
        )
        if target is None or not isinstance(value, list):
            continue
        seen = True
        target += [span for member in value if (span := _span(member)) is not None]
    return Slots(tuple(sorted(free)), tuple(sorted(taken))) if seen and (free or taken) else None


def _span(member: Any) -> tuple[datetime, datetime] | None:
    if not isinstance(member, Mapping):
        return None
    begin, end = moment_of(member.get("start")), moment_of(member.get("end"))
    return (begin, end) if begin is not None and end is not None and begin < end else None
