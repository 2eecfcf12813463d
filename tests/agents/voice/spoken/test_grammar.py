"""The closed grammar: a yes is nothing but a yes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.voice.spoken.approvals import approvals

from handrail.agents.voice.spoken import AnswerVerdict, understood
from handrail.agents.voice.spoken.answer_grammar import question
from handrail.agents.voice.spoken.answer_languages import LANGUAGES, AnswerForms

ANSWERS = [text for text in approvals() if understood(text) is AnswerVerdict.YES]


def forms(side: AnswerForms) -> list[str]:
    return [*side.core, *side.before, *side.after, *side.alone, *side.polite]


YES_WORDS = {word for side in LANGUAGES["en"].yes for form in forms(side) for word in form.split()}


@pytest.mark.parametrize(
    "text", ["no", "No.", "Nope!", "no, thank you", "No, no, no.", "cancel", "Please don't.", "never mind"]
)
def test_a_plain_no_is_a_no(text: str) -> None:
    assert understood(text) is AnswerVerdict.NO


@pytest.mark.parametrize(
    "text", ["yes", " Yes.\n", "YES", "Yes!", "Yes, please.", "That\N{RIGHT SINGLE QUOTATION MARK}s right, yes."]
)
def test_a_plain_yes_is_a_yes_however_it_is_written(text: str) -> None:
    assert understood(text) is AnswerVerdict.YES


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Yes?",
        "yes...",
        "yes…",
        "yes,",
        "yes-",
        '"yes"',
        "um, yes",
        "okay",
        "sure",
        "yes " * 5,
        "yes" * 50,
        "yes" + " " * 100,
    ],
)
def test_what_is_nearly_a_yes_is_a_miss(text: str) -> None:
    assert understood(text) is AnswerVerdict.MISS


@pytest.mark.parametrize(
    ("language", "yes", "no"),
    [
        ("de", "Ja, bitte.", "Nein, danke."),
        ("es", "Sí, por favor.", "No, gracias."),
        ("fr-CA", "Oui, s\N{RIGHT SINGLE QUOTATION MARK}il vous plaît.", "Non merci."),
        ("it", "Sì, grazie.", "No."),
        ("nl_BE", "Ja graag.", "Nee."),
        ("pt-BR", "Sim.", "Não, obrigada."),
    ],
)
def test_a_language_is_understood_in_its_own_sessions_only(language: str, yes: str, no: str) -> None:
    assert understood(yes, language=language) is AnswerVerdict.YES
    assert understood(no, language=language) is AnswerVerdict.NO
    assert understood(yes) is AnswerVerdict.MISS
    assert understood("Yes.", language=language) is AnswerVerdict.MISS
    assert understood(yes, language="fi") is AnswerVerdict.MISS
    assert question(language) is not None


@pytest.mark.parametrize(
    ("said", "language"),
    [("Yeah, yeah.", "en"), ("Yeah yeah yeah", "en"), ("Yep, yup.", "en"), ("Yes, right.", "en"), ("Ja, ja.", "de")],
)
def test_a_weary_yes_is_a_miss(said: str, language: str) -> None:
    assert understood(said, language=language) is AnswerVerdict.MISS
    assert understood("Yes, yes, yes.") is AnswerVerdict.YES, "a plain one may be said again"


@pytest.mark.parametrize("language", ["fi", "", "english", "x-en", "../en", "EN "])
def test_a_language_that_has_no_grammar_understands_nothing(language: str) -> None:
    assert understood("yes", language=language) is AnswerVerdict.MISS
    assert question(language) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_form_is_on_both_sides(language: str) -> None:
    words = LANGUAGES[language]
    whole = {form for side in words.yes for form in (*side.core, *side.alone)}
    assert not whole & {form for side in words.no for form in (*side.core, *side.alone)}
    for side, verdict in [
        *((one, AnswerVerdict.YES) for one in words.yes),
        *((one, AnswerVerdict.NO) for one in words.no),
    ]:
        for form in (*side.core, *side.alone):
            assert understood(form, language=language) is verdict, form
    assert understood(words.question, language=language) is AnswerVerdict.MISS


@given(st.sampled_from(ANSWERS), st.integers(0, 10), st.from_regex(r"[a-z]{1,12}", fullmatch=True))
def test_any_word_that_is_no_yes_spoils_a_yes(answer: str, place: int, word: str) -> None:
    words = answer.split(" ")
    place = min(place, len(words))
    if word not in YES_WORDS:
        assert understood(" ".join([*words[:place], word, *words[place:]])) is not AnswerVerdict.YES


@given(st.sampled_from(ANSWERS), st.integers(0, 60), st.characters())
def test_any_strange_character_spoils_a_yes(answer: str, place: int, letter: str) -> None:
    if not re.fullmatch(r"[A-Za-z '’,.!\t\r\n]", letter):
        assert understood(answer[:place] + letter + answer[place:]) is AnswerVerdict.MISS


@given(
    st.lists(st.sampled_from(["yes", "no", "not", "don't", "but", "stop", "cancel", "if", "never", "nah"]), min_size=1)
)
def test_a_yes_with_a_word_that_takes_it_back_is_no_yes(words: list[str]) -> None:
    assert (understood(" ".join(words)) is AnswerVerdict.YES) is (set(words) == {"yes"} and len(words) <= 3)


@given(st.text())
def test_any_text_gets_a_verdict(text: str) -> None:
    assert understood(text) in AnswerVerdict
