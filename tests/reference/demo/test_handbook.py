"""Which passage of a record answers a question, and which does not."""

import pytest

from handrail_reference.demo.handbook import quoted_answer

PAGE = """A key opens the server for one user.

- `key`: The key of the server. Spaces around the key are ignored
  by the server.
- Every key of a server is stored as a hash.

| what | how |
| --- | --- |
| a stolen key | Revoke it. The server then refuses the stolen key. Make another. |
"""


def quoted(question: str) -> str:
    return quoted_answer([{"id": "doc:keys", "title": "Keys", "full_text": PAGE}], question, voice=False)


def test_a_paragraph_and_an_item_of_a_list_are_quoted() -> None:
    assert "A key opens the server" in quoted("What does a key open?")
    assert "stored as a hash" in quoted("How is a key stored?")


@pytest.mark.parametrize("question", ["Are spaces around a key ignored?", "What happens to a stolen key?"])
def test_the_meaning_of_a_parameter_and_the_rows_of_a_table_are_not(question: str) -> None:
    assert quoted(question) == ""


def test_what_a_link_names_is_said_elsewhere() -> None:
    text = "Keys end by themselves. The [rotation of keys](rotation.md) has a page of its own."
    assert (
        quoted_answer([{"id": "doc:end", "title": "The end", "full_text": text}], "What is key rotation?", False) == ""
    )


@pytest.mark.parametrize("question", ["Is it a key?", "Was the key there?", "Where is my key?"])
def test_one_word_in_common_answers_nothing_about_the_state_of_things(question: str) -> None:
    assert quoted(question) == ""
    assert quoted("What is a key?")


def test_words_that_are_spread_over_sentences_answer_nothing_that_the_title_does_not_name() -> None:
    text = "The policy says who may call. No refund is paid at night."
    records = [{"id": "doc:gates", "title": "Gates", "full_text": text}]
    assert quoted_answer(records, "What is the refund policy?", False) == ""
    assert quoted_answer(records, "When is no refund paid?", False)


def test_each_alternative_of_a_question_has_to_be_answered() -> None:
    assert quoted("Does a key open the server for one user or a robot?") == ""
    assert quoted("Does a key open the server for one user?")


def test_a_question_for_yes_or_no_needs_every_word() -> None:
    text = "A handle is dropped if the connection was closed twice."
    records = [{"id": "doc:rules", "title": "Handles and the connection", "full_text": text}]
    assert quoted_answer(records, "Is it booked twice if the connection drops?", False) == ""
    assert quoted_answer(records, "Is a handle dropped if the connection was closed?", False)
