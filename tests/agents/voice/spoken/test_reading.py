"""Whether a model read a preview: tolerant of how things are said, of nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.voice.spoken import is_speakable, was_read

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
        ("Pay -€5 to Bob.", "Pay minus 5 euros to Bob."),
        ("Pay €-5.50 to Bob.", "Pay minus five euros fifty to Bob."),
        ("Pay –$5 to Bob.", "Pay -$5 to Bob."),
        ("Pay €5-€10 for 4.05 kg.", "Pay five euros to ten euros for four point zero five kg."),
        ("Pay €5.05.", "Pay five euros and five cents."),
        ("At 7 p.m. or 8:45 am.", "At 19 or quarter to nine in the morning."),
        ("At 12 a.m.", "At midnight."),
        ("Time zone: Europe/Berlin.", "Time zone: Europe slash Berlin."),
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
        ("Pay -€5 to Bob.", "Pay 5 euros to Bob."),
        ("Pay –5 to Bob.", "Pay 5 to Bob."),
        ("Pay (1,-5) to Bob.", "Pay (1, 5) to Bob."),
        ("Pay €-5 to Bob.", "Pay minus 5 to Bob."),
        ("Pay €-5 to Bob.", "Pay 5 euros to Bob."),
        ("Pay €5,00 to Bob.", "Pay 500 euros to Bob."),
        ("Pay €5.05 to Bob.", "Pay 5.5 euros to Bob."),
        ("Pay in $.", "Pay in."),
        ("Add 5.05 kg.", "Add 5.5 kg."),
        ("From 5 -3.", "From 5 3."),
        ("Order #12.", "Order 12."),
        ("Keep 1/2 of it.", "Keep 1 2 of it."),
        ("Delete A/B.", "Delete A B."),
        ("Call +49 170 1234567.", "Call 49 170 1234567."),
        ("At 7 a.m.", "At 7."),
        ("At 12 p.m.", "At 12."),
        ("At 8:45 am.", "At quarter to nine."),
        ("Start 2026-01-13T14:00:30Z.", "Start on 13 January 2026 at 2 PM."),
        ("Pay 5.", "Pay 5 ¥."),
        ("Pay 102.", "Pay 10²."),
    ],
)
def test_a_small_difference_is_a_difference(preview: str, said: str) -> None:
    assert not was_read(preview, said)


@pytest.mark.parametrize(
    "preview",
    [
        *("Delete *", "Pay ₹500", "Pay 5 ¥", "Pay <5", "x > 5", "a = b", "Heat to 20 °C", "Add ½", "Add 10²", "5 × 3"),
        *(
            "Pay .5",
            "Pay ,5",
            "Take 5−3",
            "Send 👍",
            'Set {"a":1}',
            "Set [1]",
            "Send to \\u{202e}",
            "か゛",
            "が",
            "कि",
            "~a",
        ),
    ],
)
def test_a_text_with_a_character_that_is_not_said_is_not_speakable_and_was_not_read(preview: str) -> None:
    assert not is_speakable(preview)
    assert not was_read(preview, preview)


@pytest.mark.parametrize(
    "preview", [PREVIEW, "¿Año, “José” – 100 %?", "Pay −5 and –€5…", "Send 日本 5", "notes: –\ncode: •••"]
)
def test_letters_digits_marks_with_a_name_and_plain_punctuation_are_speakable(preview: str) -> None:
    assert is_speakable(preview)


PLAIN_PUNCTUATION = ".,;:!?'\"()–—…•-"
_PARTS = st.one_of(
    st.text("abmpty ", max_size=6),
    st.text("0123456789", min_size=1, max_size=5),
    st.sampled_from(
        [*"@%&+#/_€$£", *PLAIN_PUNCTUATION, " ", " -", "−", "€-", "-€", "+49 170 ", "7 a.m.", "12 pm", "th"]
    ),
    st.sampled_from(["19:30", "2026-11-18", "T14:00:00Z", "18 November 2026", "UTC+0100", "$1,250.50", "5.05", "and"]),
    st.sampled_from([*"*<>₹¥½²°=~|[]{}", "José", "日本"]),
)


@given(st.lists(_PARTS, min_size=1, max_size=8).map("".join), st.data())
def test_no_character_but_plain_punctuation_may_be_left_out(preview: str, data: st.DataObject) -> None:
    places = [at for at, letter in enumerate(preview) if not letter.isspace() and letter not in PLAIN_PUNCTUATION]
    # A zero that leads a number may go: 08:05 is 8:05, and so is a day of the month.
    places = [at for at in places if preview[at] != "0" or preview[:at].rstrip("0")[-1:] in set("123456789.")]
    if not places:
        return
    at = data.draw(st.sampled_from(places))
    said = preview[:at] + preview[at + 1 :]
    assert not was_read(preview, said), (preview, said)
    assert not was_read(preview, said + " Say yes or no.")


@given(st.lists(_PARTS, min_size=1, max_size=8).map("".join))
def test_what_is_speakable_and_said_as_it_stands_was_read(preview: str) -> None:
    has_words = any(not letter.isspace() and letter not in PLAIN_PUNCTUATION for letter in preview)
    assert was_read(preview, preview) is (is_speakable(preview) and has_words), preview


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
