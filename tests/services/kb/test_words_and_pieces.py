"""Queries become quoted terms and nothing else; texts become pieces that miss nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail_reference.services.kb.pieces import MAX_SNIPPET, PIECE_CHARS, PIECE_WORDS, lead_of, pieces_of, snippet_of
from handrail_reference.services.kb.query_words import MAX_TERMS, _any_words, plain_words, prepared, query_terms


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("Opening an account", ['"opening"', '"account"']),
        ('title:x AND "a b"* OR (NEAR)', ['"title"', '"x"', '"b"', '"near"']),
        ("what is the", ['"what"', '"is"', '"the"']),
        ("kb_search two-factor", ['"kb"', '"search"', '"two"', '"factor"']),
        ("'; DROP TABLE record; --", ['"drop"', '"table"', '"record"']),
        ("ﬁnance Ｋｅｙ", ['"finance"', '"key"']),
        ("知识库", ['"知 识"', '"识 库"']),
        ("猫", ['"猫"']),
        ("\0\ud800 *", []),
        ("", []),
    ],
    ids=str,
)
def test_a_query_is_only_words(query, terms):
    assert query_terms(query) == terms


@given(st.text(max_size=500))
def test_no_query_holds_syntax(query):
    terms = query_terms(query)
    assert len(terms) <= MAX_TERMS
    for term in terms:
        assert re.fullmatch(r'"[^"\0*]+"', term)


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_plain_english_is_split_as_every_script_is(text):
    with_accent = _any_words(f"{text.lower()} ł")
    assert query_terms(text) == query_terms(f" {text} \u200b")
    assert plain_words(text) == set(with_accent) - {"ł"}


def test_scripts_without_spaces_are_given_some():
    assert prepared("知识库 base").split() == ["知", "识", "库", "base"]
    assert prepared("plain") == "plain"


def test_names_are_compared_without_case_and_accents():
    assert plain_words("Ana-Marija KOVAČ") == {"ana", "marija", "kovac"}


@given(st.text(alphabet="ab \n.é知", max_size=6_000))
def test_pieces_cover_every_word_and_are_small(text):
    pieces = list(pieces_of(text))
    covered = set()
    for piece in pieces:
        assert len(text[piece.start : piece.stop].split()) <= PIECE_WORDS
        assert piece.stop - piece.start <= max(PIECE_CHARS, 200)
        covered |= set(range(piece.start, piece.stop))
    assert all(place in covered for place, char in enumerate(text) if not char.isspace())


def test_pieces_overlap_and_a_text_of_one_endless_word_is_cut():
    text = " ".join(f"w{number}" for number in range(400))
    first, second, *_ = pieces_of(text)
    assert second.start < first.stop
    assert len(list(pieces_of("x" * 10_000))) >= 5
    assert list(pieces_of("")) == [(0, 0)]


def test_the_lead_is_the_beginning():
    assert lead_of("one two") == "one two"
    assert len(lead_of("w " * 500).split()) == 50


def test_the_snippet_shows_the_place_that_fits():
    text = "filler words here. " * 60 + "The overdraft limit is five hundred. " + "more filler words. " * 60
    snippet = snippet_of(text, "what is the overdraft limit?")
    assert "overdraft limit is five hundred" in snippet
    assert snippet.startswith("…")
    assert snippet.endswith("…")


@given(st.text(max_size=3_000), st.text(max_size=100))
def test_a_snippet_is_one_short_line(text, query):
    snippet = snippet_of(text, query)
    assert len(snippet) <= MAX_SNIPPET
    assert "\n" not in snippet
