"""The journey to the handbook: a passage is quoted only if it has the words of the question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from handrail.picking import split_words, stem, telling_words
from handrail_reference.demo.phrases import LANGUAGE
from handrail_reference.demo.view import Outcome, View

SEARCH = "kb_search"
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.S)
_MARKUP = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)|[`*_]{1,2}(?=\S)|(?<=\S)[`*]{1,2}")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"])")
_VAGUE = frozenset(map(stem, LANGUAGE["vague"]))
_LONGEST = {True: 240, False: 600}


def quoted_answer(view: View, found: Outcome, text: str) -> str:
    """The passage that answers a question, with its source; empty if none does."""
    wanted = _stems(telling_words(text)) - _VAGUE or _stems(telling_words(text))
    records = [record for record in found.data.get("results", ()) if isinstance(record, Mapping)]
    best: tuple[tuple[int, int, int], str, Mapping[str, Any]] | None = None
    for rank, record in enumerate(records):
        for context, passage in _passages(record):
            here = wanted & _stems(passage)
            covered = here | wanted & _stems(f"{record.get('title', '')} {context}")
            enough = covered == wanted if len(wanted) <= 3 else len(covered) >= 0.75 * len(wanted)
            key = (len(covered), len(here), -rank)
            if enough and 2 * len(here) >= len(wanted) and (best is None or key > best[0]):
                best = key, passage, record
    if best is None or not wanted:
        return ""
    passage, record = _shortened(best[1], wanted, _LONGEST[view.voice]), best[2]
    if view.voice:
        return "The handbook says: " + _MARKUP.sub(r"\1", passage)
    address = f" {record['url']}" if record.get("url") else ""
    return f"The handbook says: {passage} [1]\n\nSources:\n[1] {record.get('title')} ({record.get('id')}){address}"


def _stems(text: str) -> set[str]:
    return {stem(word) for word in split_words(text)}


def _passages(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The paragraphs and list items of a record, each with its heading. Code and tables answer nothing by themselves."""
    heading = ""
    for block in re.split(
        r"\n\s*\n|\n(?=[-*] |\d+\. |#)", _FENCE.sub("\n\n", str(record.get("full_text") or record.get("snippet") or ""))
    ):
        block = block.strip()
        if block.startswith("#"):
            heading = block.lstrip("# ")
        elif block and not block.startswith(("|", "<", "…")):
            yield heading, " ".join(block.removeprefix("- ").removeprefix("* ").split())


def _shortened(passage: str, wanted: set[str], longest: int) -> str:
    """From the sentence that has most of the words on, as far as there is room."""
    sentences = _SENTENCE.split(passage)
    if len(passage) <= longest:
        return passage
    start = max(range(len(sentences)), key=lambda place: (len(wanted & _stems(sentences[place])), -place))
    shown = sentences[start]
    for sentence in sentences[start + 1 :]:
        if len(shown) + len(sentence) > longest:
            break
        shown += f" {sentence}"
    return shown
