"""Which questions are answered from the handbook: those that are known in every word, each by its record, and no other."""

import re
from importlib.resources import files

import pytest
from tests.reference.demo.conftest import Opens

from handrail_reference.demo.handbook import known_answer, quoted_answer
from handrail_reference.demo.phrases import LANGUAGE


def samples(line: str) -> list[str]:
    """Questions that a line of questions.toml is for: with the first words of its places, and with the last ones."""
    places = [place.rstrip("?").split("/") for place in line.split() if not place.endswith("?")]
    questions = (" ".join(words[which] for words in places) for which in (0, -1))
    return [re.sub("^what ", "what is a ", f"{question}?") for question in questions]


QUESTIONS = [
    (answer["record"], question)
    for answer in LANGUAGE["answers"]
    for line in answer["questions"]
    for question in samples(line)
]


@pytest.mark.parametrize(("record", "question"), QUESTIONS)
async def test_each_known_question_is_answered_by_its_record(open_demo_case: Opens, record: str, question: str) -> None:
    async with open_demo_case() as here:
        await here.say(question)
        assert [one["id"] for one in here.events[-1].data["citations"]] == [record]


@pytest.mark.parametrize("more", ["not", "kubernetes", "difference", "and", "your", "never"])
def test_one_word_more_makes_it_another_question(more: str) -> None:
    known = [known_answer(f"{question} {more}") for _, question in QUESTIONS]
    assert [answer for answer in known if answer and answer["record"]] == []


@pytest.mark.parametrize(
    ("question", "record"),
    [
        ("What is Handrail?", "overview"),
        ("what's handrail for", "overview"),
        ("so what exactly is a gate?", "answer_gates"),
        ("Which LLMs does this thing support?", "answer_providers"),
        ("does it work with Claude?", "answer_providers"),
        ("how do I connect a language model", "answer_model"),
        ("How can I write my own tool?", "answer_new_tool"),
        ("How long do I have to approve something before it expires?", "answer_approval"),
        ("Tell me about the ledger", "answer_ledger"),
        ("whats an envelope", "glossary_conversations"),
    ],
)
def test_a_question_is_known_in_other_words(question: str, record: str) -> None:
    known = known_answer(question)
    assert known is not None
    assert known["record"] == f"doc:handrail_{record}"


@pytest.mark.parametrize(
    "question",
    [
        "how do I set up voice with OpenAI Realtime?",
        "What's the difference between a retrieval tool and an action tool?",
        "can I use ollama for voice",
        "which providers do not work",
        "how do I switch the model off",
        "how do I end a session",
        "how do I make a tool faster",
        "where is the ledger stored",
        "which ones are there?",
        "is it free?",
        "hi, how are you? book a call",
        "what is the plan?",
        "why is handrail",
        "how do I install it on windows",
        "can two people approve the same call?",
    ],
)
async def test_a_question_that_only_looks_like_a_known_one_is_declined(open_demo_case: Opens, question: str) -> None:
    async with open_demo_case() as here:
        assert "No language model is connected" in await here.say(question)
        assert here.events[-1].data["citations"] == []


def test_the_demo_takes_no_tool_that_comes_with_handrail_for_the_users_own() -> None:
    folders = [one for package in ("handrail", "handrail_reference") for one in (files(package) / "tools").iterdir()]
    tools = {one.name.replace("-", "_") for one in folders if (one / "schema.json").is_file()}
    assert set(LANGUAGE["reference_tools"]) == tools


def quoted(question: str, text: str, own: str = "doc:orders") -> str:
    known = known_answer(question)
    assert known is not None
    return quoted_answer([{"id": own, "title": "Orders", "full_text": text}], known, voice=False)


def test_a_record_of_the_user_says_what_a_thing_is() -> None:
    text = "Orders are kept for a year. A backorder is an order that waits for goods. It is free."
    assert "A backorder is an order that waits for goods. [1]" in quoted("What is a backorder?", text)
    assert "[1] Orders (doc:orders)" in quoted("Explain the backorder", text)


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("A backorder is sent twice.", "doc:orders"),
        ("Nobody knows what a backorder is. The backorder report is a list.", "doc:orders"),
        ("A backorder is an order.", "doc:handrail_orders"),
    ],
    ids=["what happens to it", "something else", "a page of Handrail"],
)
def test_what_does_not_say_what_a_thing_is_is_not_quoted(text: str, own: str) -> None:
    assert quoted("What is a backorder?", text, own) == ""
