"""What a developer asks in the first minutes is answered by what to do, and not by what stands near it."""

import tomllib
from pathlib import Path

import pytest

from handrail_reference.services.kb.starter_answers import ANSWERS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("How do I write my own tool?", "handrail new NAME"),
        ("how can I add my own tool?", "handrail new NAME"),
        ("How do I change the model?", "set the line model under [agent]"),
        ("how do I switch to Claude?", "anthropic:NAME-OF-THE-MODEL"),
        ("How do I use another model?", "set the line model under [agent]"),
        ("How do I install Handrail?", "pip install ."),
        ("How do I run the tests?", "make test"),
        ("How do confirmations work?", "held until a person approves or declines it"),
        ("How do I deploy Handrail?", "reverse proxy"),
        ("Is Handrail free?", "MIT"),
        ("What licence is it under?", "MIT"),
        ("What is the license of Handrail?", "MIT"),
        ("What is the ledger?", "claimed in it before its handler runs"),
        ("Does handrail support voice?", "Handrail supports voice"),
    ],
)
async def test_a_first_question_is_answered(at_home, words, told):
    async with at_home() as here:
        answer = await here.say(words)
        assert told in answer.partition("Sources:")[0]


def test_what_the_answers_tell_to_run_is_there():
    told = {name: text for name, (_, text) in ANSWERS.items()}
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"under the {about['license']} licence" in told["licence"]
    assert f"Python {about['requires-python'].removeprefix('>=')} or newer" in told["install"]
    targets = (ROOT / "Makefile").read_text("utf-8")
    assert "\ntest:" in targets
    assert "\nrun:" in targets


def page(text):
    return {"id": "doc:onboarding", "title": "Onboarding", "text": text}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mara runs onboarding.", "who runs onboarding?"),
        ("Mara usually runs onboarding here.", "Who runs the onboarding?"),
        ("Onboarding is led by Mara.", "who leads onboarding?"),
        ("The owner of onboarding is Mara.", "who is the owner of onboarding?"),
    ],
)
async def test_who_does_something_is_answered_by_a_first_name(at_home, text, words):
    async with at_home(page(text)) as here:
        answer = await here.say(words)
        assert answer.startswith(f"{text} [1]")


async def test_a_sentence_about_the_same_thing_names_nobody(at_home):
    async with at_home(page("The onboarding runs for two weeks.")) as here:
        assert "nothing that answers this directly" in await here.say("who runs onboarding?")
