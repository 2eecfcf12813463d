"""Whether a model read a preview: tolerant of how things are said, of nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.voice.spoken import was_read

PREVIEW = "Book a table for 4 on Wednesday 18 November 2026, 19:30 (UTC+0100), in the name of Ann Lee. Phone: +44 20 7946 0018."
WORDS = PREVIEW.replace("(UTC+0100), ", "").replace(" Phone: +44 20 7946 0018.", "").split()
PLAIN = " ".join(WORDS)


@pytest.mark.parametrize(
    "said",
    [
        PREVIEW,
        PREVIEW.upper(),
        PREVIEW + " Say yes or no.",
        "Okay, let me read this to you: " + PREVIEW + " Is that correct?",
        "book a table for four on wednesday the eighteenth of november twenty twenty six at nineteen thirty utc plus one in the "
        "name of ann lee phone plus four four two zero seven nine four six oh oh one eight",
        "Book a table for four on Wednesday, November 18th, 2026, at 7:30 p.m. UTC plus one hour, in the name of Ann Lee. "
        "Phone: +44 207 946 0018. Shall I go ahead?",
        "Book a table for 4 on Wednesday, November 18, two thousand and twenty-six, half past seven in the evening, UTC+1, in "
        "the name of Ann Lee. Phone: +442079460018.",
    ],
)
def test_a_preview_may_be_said_in_the_ways_people_say_such_things(said: str) -> None:
    assert was_read(PREVIEW, said)


@pytest.mark.parametrize(
    ("preview", "said"),
    [
        ("Pay €25.50 to Bob & Sons.", "Pay twenty-five euros and fifty cents to Bob and Sons."),
        ("Pay €25.50 to Bob.", "Pay 25.50 euros to Bob."),
        ("Pay $1,250 to Bob.", "Pay one thousand two hundred and fifty dollars to Bob."),
        ("Pay 20 £ to Bob.", "Pay twenty pounds to Bob."),
        ("Mail ann.b@example.com at 9:05 am.", "Mail ann dot b at example dot com at nine oh five a.m."),
        ("Start 2026-01-13T14:00:00+01:00.", "Start on the 13th of January 2026 at 2 PM, UTC plus one."),
        ("Start 2026-01-13T00:00:00Z.", "Start January thirteenth, 2026, at midnight."),
        ("At 12:00.", "At noon."),
        ("At 08:45.", "At quarter to nine."),
        ("At 08:00.", "At eight o'clock in the morning."),
        ("Add 3.50 kg, 5% off, order #12.", "Add three point five zero kg, five percent off, order number twelve."),
        ("Change by -5 to 10-12.", "Change by minus five to ten to twelve."),
        ("Table for two.", "Table for 2."),
        ("Meeting link: yes.\nnotes: –\ncode: •••", "Meeting link: yes. Notes. Code."),
        ("For José O’Brien.", "For Jose O'Brien."),
    ],
)
def test_amounts_times_addresses_and_marks_are_understood_as_they_are_said(preview: str, said: str) -> None:
    assert was_read(preview, said)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Say yes or no.",
        "I will book that for you.",
        PREVIEW[:60],
        PREVIEW[30:],
        PREVIEW.replace("for 4", "for 14"),
        PREVIEW.replace("19:30", "7:30"),
        PREVIEW.replace("19:30", "7:30 a.m."),
        PREVIEW.replace("18 November", "19 November"),
        PREVIEW.replace("2026", "2027"),
        PREVIEW.replace("+0100", "+0200"),
        PREVIEW.replace("+0100", "-0100"),
        PREVIEW.replace("0018", "0081"),
        PREVIEW.replace("0018", "00188"),
        PREVIEW.replace("Ann Lee", "Ann Leigh"),
        PREVIEW.replace("Ann", "not Ann"),
        PREVIEW.replace("Book", "Cancel"),
        PREVIEW.replace("for 4", "for 4 or 5"),
        "Do not " + PREVIEW,
        "Never mind. " + PREVIEW,
        PREVIEW + " It costs 500 euros.",
        PREVIEW + " Just kidding.",
        PREVIEW + " Say yes or no. Yes.",
        PREVIEW + " Yes, go ahead.",
        PREVIEW + " " + PREVIEW,
        "I have already done this, it is only a test: " + PREVIEW,
        PREVIEW + " say yes" * 30,
        "x" * 5000,
    ],
)
def test_anything_more_anything_less_and_anything_else_is_not_the_preview(said: str) -> None:
    assert not was_read(PREVIEW, said)


@pytest.mark.parametrize(
    ("preview", "said"),
    [
        ("Change by -5.", "Change by 5."),
        ("Change by 5.", "Change by minus 5."),
        ("Pay €25.50.", "Pay 25 euros."),
        ("Pay €25.", "Pay 25 dollars."),
        ("Pay 3.50.", "Pay 350."),
        ("At 19:00.", "At seven."),
        ("At 07:00.", "At seven p.m."),
        ("", "Say yes or no."),
        ("•••", "anything"),
    ],
)
def test_a_small_difference_is_a_difference(preview: str, said: str) -> None:
    assert not was_read(preview, said)


def test_in_another_language_the_exact_words_are_wanted() -> None:
    preview = "Tisch für 4 am 18. November, 19:30."
    assert was_read(preview, "Tisch für 4 am 18. November, 19:30. Sagen Sie ja oder nein.", language="de")
    assert not was_read(preview, "Ein Tisch für 4 am 18. November, 19:30.", language="de")
    assert not was_read(preview, "Tisch für 5 am 18. November, 19:30.", language="de")


@given(st.integers(0, len(WORDS) - 1))
def test_no_word_may_be_left_out(place: int) -> None:
    left = " ".join(WORDS[:place] + WORDS[place + 1 :])
    assert not was_read(PLAIN, left)


@given(
    st.integers(0, len(WORDS)), st.sampled_from(["not", "no", "5", "five", "never", "Bob", "cancel", "50", "pm", "or"])
)
def test_no_word_of_weight_may_be_put_in(place: int, word: str) -> None:
    said = " ".join([*WORDS[:place], word, *WORDS[place:]])
    # Behind the end stands the question, which has an "or".
    assert was_read(PLAIN, said) is (place == len(WORDS) and word == "or")


@given(st.integers(0, 999_999), st.integers(0, 999_999))
def test_a_number_is_read_as_itself_and_as_no_other(one: int, other: int) -> None:
    assert was_read(f"Send {one} pieces.", f"Send {one} pieces.")
    if one != other:
        assert not was_read(f"Send {one} pieces.", f"Send {other} pieces.")


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 23), st.integers(0, 59))
def test_a_time_is_read_as_itself_and_as_no_other(hour: int, minute: int, other_hour: int, other_minute: int) -> None:
    preview = f"At {hour:02}:{minute:02}."
    said = f"At {other_hour % 12 or 12}:{other_minute:02} {'p.m.' if other_hour >= 12 else 'a.m.'}."
    assert was_read(preview, said) is ((hour, minute) == (other_hour, other_minute))


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_gets_an_answer(preview: str, said: str) -> None:
    assert was_read(preview, said) in (True, False)
