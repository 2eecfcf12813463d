"""What the offline model says: what was done, what is missing and what it can do, in words for people."""

import pytest
from tests.agents.inventions import Invented, desk, text
from tests.agents.test_offline_care import SEND
from tests.agents.test_offline_model import TABLE, WEATHER

BRIEF = Invented(
    "light_candle", "action", "Lights a candle.", {"room": text("Where.")}, ("room",), "return {'ok': True}"
)


@pytest.mark.parametrize(
    ("words", "of"),
    [
        ("draw me a picture of a red fox", "a red fox"),
        ("Generate an image of a lighthouse at dusk", "a lighthouse at dusk"),
        ("paint three boats on a lake", "three boats on a lake"),
        ("draw a map of Narnia", "a map of Narnia"),
        ("illustrate a fairy tale castle", "a fairy tale castle"),
    ],
)
async def test_a_draft_card_is_called_one(at_home, words, of):
    async with at_home() as here:
        answer = await here.say(words)
        assert f"Here is a draft card of {of}" in answer
        assert "not a painted picture" in answer


async def test_what_another_engine_made_is_no_draft():
    drawn = Invented(
        "image_generate",
        "action",
        "Makes an image of a prompt.",
        {"prompt": text("What it shows.")},
        ("prompt",),
        "return {'ok': True, 'data': {'images': [{'id': 'i1', 'engine': 'big-painter'}, {'id': 'i2', 'engine': 'x'}]}}",
    )
    async with desk(drawn, SEND) as here:
        answer = await here.say("paint a mill")
        assert answer.startswith("Done. Here are the images of a mill.")


async def test_a_tool_that_says_nothing_is_told_by_its_name_and_what_it_was_given():
    async with desk(BRIEF) as here:
        answer = await here.say("Light a candle in the Kitchen")
        assert here.calls == [("light_candle", {"room": "Kitchen"})]
        assert answer.startswith("Done. Light candle: Room: Kitchen.")


async def test_where_something_stands_in_a_text_is_not_read_out(at_home):
    async with at_home() as here:
        answer = await here.say("extract the contacts from: Jane Roe, jane@roe.com, +44 20 7946 0958")
        assert "- jane@roe.com\n" in answer
        assert "Jane Roe" in answer
        for word in ("start", "end 22", "Complete", "text jane"):
            assert word not in answer


async def test_a_failed_search_is_told_without_what_the_model_shall_do():
    down = Invented(
        "help_search",
        "retrieval",
        "Searches the documents.",
        {"query": text("What.")},
        ("query",),
        'raise ToolError("PERMANENT", "The documents cannot be searched. Answer without them, and say so.")',
    )
    async with desk(down) as here:
        answer = await here.say("What is a rail?")
        assert "That did not work: The documents cannot be searched." in answer
        assert "say so" not in answer


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("book a meeting with ana@example.com", ["When?", "a day and a time"]),
        ("set up a call with ivo@example.com, please", ["When?"]),
        ("book a meeting", ["When?", "Who? Their e-mail addresses"]),
        ("create an event", ["When?", "Who?"]),
    ],
)
async def test_what_is_missing_is_asked_for_in_plain_words(at_home, words, asked):
    async with at_home() as here:
        answer = await here.say(words)
        assert all(word in answer for word in asked)
        assert not any(word in answer for word in ("offset", "2026-01-13T14:00", "start_time", "start time"))


async def test_a_plain_question_is_answered_in_plain_words(at_home):
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com")
        await here.say("thursday at 4pm")
        assert here.calls[-1][1]["start_time"] == "2026-11-19T16:00:00+01:00"


async def test_the_words_of_an_argument_are_used_where_they_are_for_people():
    async with desk(TABLE) as here:
        assert "- guest name: Who comes" in await here.say("reserve a table")


async def test_what_can_be_done_is_listed_once_and_then_named_in_a_sentence(at_home):
    async with at_home() as here:
        first, second = await here.say("order two pizzas"), await here.say("feed the cat")
        assert first.count("\n- ") > 8
        second = await here.say("order a taxi")
        assert "I have no tool for that" in second
        assert "\n- " not in second
        assert "put an event into the calendar" in second


# ----------------------------------------------------------------------------------------------------- apologies
@pytest.mark.parametrize(
    "words",
    [
        "sorry",
        "I'm so sorry!",
        "Sorry about that",
        "my apologies, I was rude",
        "oh, I apologise",
        "sorry, bad day",
        "sorry for shouting",
    ],
)
async def test_an_apology_is_answered_and_ends_the_warning(at_home, words):
    async with at_home() as here:
        assert "not in this tone" in await here.say("You're an idiot")
        assert "That is all right" in await here.say(words)
        assert here.calls == []
        assert "not in this tone" in await here.say("you stupid bot"), "warned once more, not blocked"
        await here.say("you stupid bot")
        assert [name for name, _ in here.calls] == ["ignore_user"]


@pytest.mark.parametrize("words", ["sorry, what is Handrail?", "Sorry, can you tell me what a gate is?"])
async def test_a_question_after_a_sorry_is_a_question(at_home, words):
    async with at_home() as here:
        await here.say(words)
        assert here.calls[0][0] == "kb_search"


async def test_it_gets_along_with_one_tool():
    async with desk(WEATHER) as here:
        await here.say("delete the database")
        assert "I have no tool for that" in await here.say("delete the backup")


async def test_a_text_behind_its_label_is_taken_whole(at_home):
    async with at_home() as here:
        await here.say("get the contacts out of this text: Bob Ray, bob@ray.org")
        assert here.calls == [("extract_contacts", {"text": "Bob Ray, bob@ray.org"})]


@pytest.mark.parametrize("words", ["cheers, bye", "ok thanks, bye", "thanks, that's all", "bye"])
async def test_a_goodbye_needs_no_search(at_home, words):
    async with at_home() as here:
        assert "Goodbye" in await here.say(words)
        assert here.calls == []
