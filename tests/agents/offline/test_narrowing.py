"""Options that are said in plain words are filled, and limits that are passed are named."""

import pytest
from tests.agents.inventions import Invented, desk, text

DOGS = {
    "id": "doc:dogs",
    "title": "Dogs",
    "text": "The dogs eat at seven in the evening.",
    "namespace": "personal",
    "owner": "u1",
}


@pytest.mark.parametrize(
    "words",
    [
        "find dogs in my personal notes",
        "search personal for dogs",
        "what do my personal records say about dogs?",
        "when do the dogs eat, from my personal notes",
        "look for dogs in the personal namespace",
    ],
)
async def test_the_place_that_is_said_is_searched(at_home, words):
    async with at_home(DOGS) as here:
        answer = await here.say(words)
        assert here.calls[0][1]["namespace"] == "personal"
        assert "personal" not in here.calls[0][1]["query"]
        assert "doc:dogs" in answer


@pytest.mark.parametrize("words", ["what is a public key?", "is personal data kept?", "who has a studio in Split?"])
async def test_a_word_that_only_happens_to_be_an_option_narrows_nothing(at_home, words):
    async with at_home() as here:
        await here.say(words)
        assert "namespace" not in here.calls[0][1]


async def test_what_is_not_in_the_usual_place_is_looked_for_in_the_others(at_home):
    async with at_home(DOGS) as here:
        assert "at seven in the evening" in await here.say("What does doc:dogs say?")
    rare = {**DOGS, "id": "doc:rare", "title": "Zyzzyva", "text": "The zyzzyva is a weevil of the tropics."}
    async with at_home(rare) as here:
        assert "weevil" in await here.say("zyzzyva?")


async def test_who_may_not_look_elsewhere_hears_only_that_nothing_was_found(at_home):
    async with at_home(DOGS, user=None) as here:
        assert "found nothing about that" in await here.say("zyzzyva?")
        assert "There is no record doc:dogs" in await here.say("What does doc:dogs say?")


@pytest.mark.parametrize(
    ("words", "locale", "zone"),
    [
        ("format 2026-03-01T10:00:00Z for Berlin in German", "de", "Europe/Berlin"),
        ("write 2026-07-01T08:00:00Z in French for Paris", "fr", "Europe/Paris"),
        ("format 2026-07-01T08:00:00Z in British English", "en-GB", None),
    ],
)
async def test_a_language_is_a_locale_and_the_moment_is_told_once(at_home, words, locale, zone):
    async with at_home() as here:
        answer = await here.say(words)
        name, args = here.calls[0]
        assert (name, args.get("locale"), args.get("time_zone")) == ("format_datetime", locale, zone)
        assert "Iso" not in answer


# -------------------------------------------------------------------------------------------------------- limits
HEAT = Invented(
    "set_heating",
    "action",
    "Sets the heating of a room.",
    {"degrees": {"type": "number", "minimum": 5, "maximum": 30, "description": "How warm."}, "room": text("Which.")},
    ("degrees", "room"),
)


@pytest.mark.parametrize("people", [51, 60])
async def test_too_many_people_are_told_with_the_limit(at_home, people):
    async with at_home() as here:
        who = ", ".join(f"p{number}@example.com" for number in range(people))
        answer = await here.say(f"book a meeting tomorrow at 3pm with {who}")
        assert f"at most 50 attendees, and there are {people}" in answer
        assert here.calls == []


async def test_as_many_as_are_allowed_are_taken(at_home):
    async with at_home() as here:
        who = ", ".join(f"p{number}@example.com" for number in range(50))
        await here.say(f"book a meeting tomorrow at 3pm with {who}")
        assert len(dict(here.calls)["calendar_create_event"]["attendees"]) == 50


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("set the heating in the Kitchen to 45 degrees", "degrees at most 30"),
        ("set the heating in the Kitchen to 2 degrees", "degrees at least 5"),
    ],
)
async def test_a_number_beyond_its_limit_is_told_with_it(words, limit):
    async with desk(HEAT) as here:
        assert limit in await here.say(words)
        assert here.calls == []


async def test_a_number_within_the_limit_mends_it():
    async with desk(HEAT) as here:
        await here.say("set the heating in the Kitchen to 45 degrees")
        await here.say("21 degrees")
        assert here.calls == [("set_heating", {"degrees": 21, "room": "Kitchen"})]


async def test_a_picture_too_many_is_told(at_home):
    async with at_home() as here:
        assert "at most 2" in await here.say("draw nine images of a boat")
        assert here.calls == []
