"""Bold words on a terminal, from Markdown that arrives in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.cli.bold_text import BoldText

ON, OFF = "\x1b[1m", "\x1b[22m"


def shown(*pieces: str) -> str:
    text = BoldText()
    return "".join([*map(text.feed, pieces), text.rest()])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents that **speak and type**.", f"agents that {ON}speak and type{OFF}."),
        ("**a** and **b**", f"{ON}a{OFF} and {ON}b{OFF}"),
        ("2**10 is not 3**4", "2**10 is not 3**4"),
        ("f(**kwargs, **more)", "f(**kwargs, **more)"),
        ("** not ** this", "** not ** this"),
        ("**never closed\nor **here", "**never closed\nor **here"),
        ("* a list\n* and **more**", f"* a list\n* and {ON}more{OFF}"),
        ("****", "****"),
        ("", ""),
    ],
)
def test_words_between_two_stars_are_bold_however_they_are_cut(text: str, said: str) -> None:
    assert shown(text) == said
    assert shown(*text) == said
    for at in range(len(text)):
        assert shown(text[:at], text[at:]) == said


def test_text_that_opens_nothing_is_shown_at_once() -> None:
    text = BoldText()
    assert text.feed("Handrail is a ") == "Handrail is a "
    assert text.feed("**tool") == ""
    assert text.feed("** runtime") == f"{ON}tool{OFF} runtime"
    assert text.feed(f"**{'x' * 300}") == f"**{'x' * 300}"


@given(st.lists(st.text(alphabet="* a\n", max_size=8), max_size=8))
def test_nothing_is_lost(pieces: list[str]) -> None:
    marks = "".join(pieces)
    assert shown(*pieces).replace(ON, "**").replace(OFF, "**") == marks
