"""How names and sentences are cut into terms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.picking.word_splitting import joined_words, name_as_words, split_words, stem, telling_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("get_weather", ["get", "weather"]),
        ("getWeather", ["get", "weather", "getweather"]),
        ("HTTPServerError", ["http", "server", "error", "httpservererror"]),
        ("parse-JSON.file", ["parse", "json", "file"]),
        ("COVID-19", ["covid", "19"]),
        ("mp3Player2", ["mp", "3", "player", "2", "mp3player2"]),
        ("3D", ["3", "3d"]),
        ("Father's day", ["father", "s", "day"]),
        ("  __  ", []),
        ("Café Zürich", ["cafe", "zurich"]),
        ("погода Завтра", ["погода", "завтра"]),
        ("天气预报", ["天气", "气预", "预报"]),
        ("मौसम", ["मौसम"]),
    ],
    ids=[
        *("snake", "camel", "capitals", "dots", "hyphen", "digits", "short", "apostrophe", "none", "accents"),
        *("cyrillic", "chinese", "hindi"),
    ],
)
def test_words_are_split_where_people_join_them(text, words):
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("translate", "translations"),
        ("recommend", "recommendation"),
        ("calculate", "calculator"),
        ("movies", "movie"),
        ("studies", "studying"),
        ("planned", "planning"),
        ("invest", "investments"),
        ("scrape", "scraper"),
        ("boxes", "box"),
        ("currency", "currencies"),
    ],
)
def test_forms_of_a_word_meet(one, other):
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("news", "new"), ("form", "format"), ("bus", "bu"), ("red", "r"), ("ring", "r")]
)
def test_words_that_only_look_alike_do_not_meet(one, other):
    assert stem(one) != stem(other)


def test_a_word_written_together_is_cut_into_the_fewest_known_words():
    known = {"car", "park", "parking", "carp", "ark"}
    assert joined_words("carpark", known) == ["car", "park"]
    assert joined_words("carparks", known) == []
    assert joined_words("park", known) == []


def test_a_name_reads_like_words():
    assert name_as_words("getWeather_v2") == "get Weather v 2"


def test_the_telling_words_are_what_is_left_of_a_request():
    assert telling_words("Can you please help me find a vegan restaurant?") == "vegan restaurant"
    assert telling_words("Can you help me?") == "Can you help me?"


@given(st.text(max_size=200))
def test_any_text_can_be_cut(text):
    words = split_words(text)
    assert all(words)
    assert split_words(" ".join(words)) == [part for word in words for part in split_words(word)]
    assert all(stem(word) for word in words)
    telling_words(text)
