"""Answers from the handbook: a passage is quoted only if it has the words of the question."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.picking import split_words, stem, telling_words
from handrail_reference.demo.phrases import LANGUAGE, SAYS

_NO_PROSE = re.compile(r"```.*?(?:```|\Z)|^[-*] `[^`\n]*`:.*?(?=\n[-*#\n]|\Z)|^\|[^\n]*", re.S | re.M)
_MARKUP = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)|[`*]{1,2}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"*])")
_FOCUSED = 450
"""A record of fewer characters is about one thing; of a longer one, and for a single word, the title has to say so."""


def quoted_answer(records: Sequence[Mapping[str, Any]], question: str, voice: bool) -> str:
    """The passage that answers a question, with its source; empty if none does."""
    words = _stems(telling_words(re.sub(r"['’]\w+", "", question)))
    wanted = words - set(map(stem, LANGUAGE["vague"])) or words & {"handrail"}
    # What is the user's own ("my contacts"), no handbook knows, and some words in common say neither yes nor no.
    needed = max(2, len(wanted)) if SAYS["all_words"].search(question) else max(1, len(wanted) - len(wanted) // 4)
    best: tuple[tuple[int, int, int], list[str], Mapping[str, Any]] | None = None
    for rank, record in enumerate(records):
        text = str(record.get("full_text") or record.get("snippet") or "")
        for title, sentences in _passages(str(record.get("title")), text):
            here, named = (wanted & _stems(said) for said in (" ".join(sentences), title))
            covered, enough = here | named, 4 * len(here) >= 3 * len(wanted)
            in_one = max(len(wanted & _stems(one)) for one in sentences) >= max(2, needed)
            key, about = (len(covered), len(here), -rank), named or (len(text) < _FOCUSED and in_one)
            if about and enough and len(covered) >= needed and (best is None or key > best[0]):
                best = key, sentences, record
    if best is None:
        return ""
    _, sentences, record = best
    start = max(range(len(sentences)), key=lambda place: (len(wanted & _stems(sentences[place])), -place))
    passage = " ".join(sentences[0 if len(" ".join(sentences)) < 600 else start :][: 2 if voice else 5])
    if voice:
        return _MARKUP.sub(r"\1", f"The handbook says: {passage}")
    source = f"[1] {record.get('title')} ({record.get('id')}) {record.get('url') or ''}".strip()
    return f"The handbook says: {passage} [1]\n\nSources:\n{source}"


def _stems(text: str) -> set[str]:
    """The stems of the words of a text. What a link names is said elsewhere."""
    return {stem(word) for word in split_words(re.sub(r"\[[^\]\n]*\]\([^)\n]*\)", " ", text))}


def _passages(title: str, text: str) -> Iterator[tuple[str, list[str]]]:
    """The whole sentences of each paragraph and list item, below their heading. Code, tables and the meaning of a
    parameter ("`email`: the address") answer nothing."""
    heading = ""
    for block in re.split(r"\n\s*\n|\n(?=[-*] |\d+\. |#)", _NO_PROSE.sub("\n\n", text)):
        plain = re.sub(r"^[-*#\s]+(?=\S)", "", " ".join(block.split()))
        heading = plain if block.lstrip().startswith("#") else heading
        sentences = [one for one in _SENTENCE.split(plain) if re.match(r"[A-Z`\"*]", one) and one[-1] in ".!?"]
        if sentences and 2 * sum(map(len, re.findall(r"`[^`]*`", plain))) < len(plain):
            yield f"{title} {heading}", sentences
