"""Answers from the handbook: only to questions that are known in every word, because a passage that has the words of a question
often answers another one.

`questions.toml` says which record answers which questions. What a thing is, is also quoted from records of the user that say so.
Nothing else is answered.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.picking import stem
from handrail_reference.demo.phrases import LANGUAGE, SAYS

_SILENT = frozenset(LANGUAGE["silent"].split())


def _slots(line: str) -> list[tuple[set[str], bool]]:
    return [({*map(stem, slot.rstrip("?").split("/"))}, slot[-1] == "?") for slot in line.split()]


_KNOWN = [(answer, _slots(line)) for answer in LANGUAGE["answers"] for line in answer["questions"]]


def known_answer(question: str) -> Mapping[str, str] | None:
    """The record that answers a question, and what finds it; no record where one of the user may say what a thing is."""
    words, asked = _words(question), SAYS["what_is"].fullmatch(SAYS["explain"].sub("what is ", question))
    thing = re.escape(asked["thing"]) if asked else ""
    for answer, slots in _KNOWN:
        if words <= set[str]().union(*(slot for slot, _ in slots)) and all(may or words & slot for slot, may in slots):
            return {**answer, "thing": thing}
    return {"record": "", "search": question[:500], "thing": thing} if thing else None


def quoted_answer(records: Sequence[Mapping[str, Any]], known: Mapping[str, str], voice: bool) -> str:
    """The passage that answers a known question, with its source; empty if no record has it."""
    answer, passage = known["record"], ""
    for record in records:
        own, text = str(record.get("id")), str(record.get("full_text") or record.get("snippet") or "")
        if answer == own and "glossary" not in own:
            passage = _first_sentences(text, 3 if voice else 5)
        elif answer == own or not (answer or "handrail_" in own):  # its own pages say more by the way than they explain
            said = re.search(LANGUAGE["in_glossary" if answer else "in_text"].format(known["thing"]), text, re.I | re.M)
            passage = said[0].removeprefix("- ") if said else ""
        if passage:
            source = f"[1] {record.get('title')} ({own}) {record.get('url') or ''}".strip()
            spoken = SAYS["markup"].sub(r"\1", f"The handbook says: {passage}")
            return spoken if voice else f"The handbook says: {passage} [1]\n\nSources:\n{source}"
    return ""


def _words(question: str) -> set[str]:
    """The stems of the words that say what is asked."""
    return {*map(stem, {*re.findall(r"\w+", SAYS["explain"].sub("what ", question.lower()))} - _SILENT)}


def _first_sentences(text: str, count: int) -> str:
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`\"])", " ".join(text.split("\n\n")[0].split()))
    return " ".join([one for one in sentences if re.match(r"[A-Z`\"*]", one) and one[-1] in ".!?"][:count])
