"""The offline model's answers from what it read: sentences to the point, or the plain word that there are none."""

import pytest

from handrail.agents.offline.answering import Record, answer_from

FILLER = " ".join(f"Sentence {name} is about something else entirely." for name in ("alpha", "beta", "gamma", "delta"))
NOTHING = "I found nothing that answers this directly."


def record(text: str, title: str = "A page", name: str = "doc:a") -> Record:
    return Record(name, title, "", text)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Who wrote the parser?", "The parser wrote three files. The parser is written once for all."),
        ("How many parsers are there?", "Parsers read what a model sent. There are parsers for what others wrote."),
        ("Does it work without internet?", "They are a choice: without them everything works on words. It works."),
    ],
)
def test_what_cannot_be_the_answer_is_not_quoted_whatever_its_words(question, text):
    filler = " ".join(
        f"Sentence {name} is about something else entirely." for name in ("alpha", "beta", "gamma", "delta")
    )
    assert answer_from(question, [record(f"{text} {filler}")]).startswith(NOTHING)


@pytest.mark.parametrize(
    ("question", "text", "quoted"),
    [
        ("Who wrote the parser?", "Ada Lovelace wrote the parser with Charles Babbage.", "Charles Babbage"),
        ("Who may approve a call?", "The operators approve a call.", "operators"),
        ("How many parsers are there?", "There are three parsers in this house.", "three parsers"),
    ],
)
def test_what_can_be_the_answer_is_quoted(question, text, quoted):
    assert quoted in answer_from(question, [record(f"{text} {FILLER}")]).partition("Sources:")[0]


def test_a_sentence_that_announces_something_or_remarks_on_something_is_not_quoted_alone():
    text = (
        "To book a room, run this:\n\n```\nbook room\n```\n\n(Rooms can be booked twice.) A room is booked at the desk."
    )
    said = answer_from("How do I book a room?", [record(text)])
    assert said.startswith("A room is booked at the desk. [1]")


def test_a_second_record_is_quoted_only_where_it_answers_nearly_as_well():
    good = record("A parcel can be returned within 30 days of its delivery.", "Returns", "doc:returns")
    beside = record("A delivery by night costs more.", "Delivery", "doc:delivery")
    also = record("Returned within 30 days, a parcel is paid back after its delivery to us.", "Money", "doc:money")
    question = "Until when can a parcel be returned after delivery?"
    assert "by night" not in answer_from(question, [good, beside])
    assert "paid back" in answer_from(question, [good, also])


def test_what_a_question_points_back_to_counts_less_than_what_it_asks():
    parcel = record(
        "To return a parcel, print a label and put the parcel into a box for its return.", "Parcels", "doc:p"
    )
    refund = record("A refund is paid by the shop.", "Money", "doc:m")
    said = answer_from("What about a refund? (How can I return a parcel)", [parcel, refund])
    assert said.startswith("A refund is paid by the shop. [1]")
    assert "print a label" in answer_from("How can I return a parcel", [parcel, refund])
