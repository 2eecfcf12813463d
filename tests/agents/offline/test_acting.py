"""The offline model acts only where the request fits what a tool says of itself; otherwise it says that it cannot."""

import pytest
from tests.agents.inventions import Invented, desk, text
from tests.agents.test_offline_model import ORDER_CANCEL, ORDER_LOOKUP, ROTA, WEATHER

UNFIT = [
    "order two pizzas",
    "make me a sandwich",
    "generate a report of sales",
    "send a message to the team saying the office is closed",
    "can you send an email to joe@x.org saying hi?",
    "start the timer",
    "create a ticket for the login bug",
    "send hello to joe",
    "transfer money to Bob",
    "book a flight to Paris",
    "please turn on the lights in the kitchen",
    "call a taxi for me",
    "write a poem about the sea",
    "post this on our blog",
    "set an alarm for seven",
    "buy three train tickets to Split",
    "move the sofa to the garden",
    "could you print my boarding pass?",
]


@pytest.mark.parametrize("words", UNFIT)
async def test_what_no_tool_does_is_not_done(at_home, words):
    async with at_home() as here:
        answer = await here.say(words)
        assert here.calls == []
        assert "I have no tool for that" in answer


@pytest.mark.parametrize("words", ["order two pizzas", "book a flight to Paris", "start the washing machine"])
async def test_neither_is_it_done_by_other_tools(words):
    async with desk(ORDER_LOOKUP, ORDER_CANCEL, WEATHER, *ROTA) as here:
        await here.say(words)
        assert here.calls == []


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("draw me a cat", "image_generate"),
        ("paint a ship in a storm", "image_generate"),
        ("make a picture of two owls", "image_generate"),
        ("I'd like an image of a bridge", "image_generate"),
        ("generate a photo of a market", "image_generate"),
        ("book a meeting with ana@example.com tomorrow at three", "calendar_create_event"),
        ("schedule lunch with ana@example.com tomorrow at noon", "calendar_create_event"),
        ("set up a call with ivo@example.com on friday at 10", "calendar_create_event"),
        ("put an appointment with ivo@example.com into my calendar on friday at 10", "calendar_create_event"),
        ("let's meet tomorrow at 11 with zoe@example.com", "calendar_create_event"),
        ("arrange a workshop with ana@example.com and ivo@example.com next tuesday at 9", "calendar_create_event"),
    ],
)
async def test_what_a_tool_does_is_done(at_home, words, tool):
    async with at_home() as here:
        await here.say(words)
        assert tool in [name for name, _ in here.calls]


async def test_a_prompt_is_what_shall_be_seen_without_the_asking(at_home):
    async with at_home() as here:
        for words in ("draw me a red fox", "please paint a red fox", "draw a picture of a red fox"):
            await here.say(words)
            assert here.calls[0] == ("image_generate", {"prompt": "a red fox"})


async def test_who_asks_for_prompts_gets_prompts_and_no_picture(at_home):
    async with at_home() as here:
        await here.say("draft a prompt for an image of a lighthouse")
        assert [name for name, _ in here.calls] == ["image_draft_prompt"]


async def test_a_verb_that_a_tool_is_named_after_is_enough_if_nothing_is_missing():
    play = Invented("play_music", "action", "Plays music.", {"query": text("What to play.")}, ("query",))
    async with desk(play, WEATHER) as here:
        await here.say("play some jazz")
        assert [name for name, _ in here.calls] == ["play_music"]


async def test_what_is_only_made_is_not_sent(at_home):
    async with at_home() as here:
        for words in (
            "send an image of a dog to the team",
            "share a drawing of a cat with Bob",
            "email a photo to Ivo",
        ):
            assert "I have no tool for that" in await here.say(words)
            assert here.calls == []


async def test_a_picture_with_an_address_is_shown(at_home):
    async with at_home() as here:
        await here.say("send me the picture https://example.com/a.png")
        assert here.calls == [("send_image", {"image_url": "https://example.com/a.png"})]


async def test_an_invitation_is_called_after_what_it_is_for(at_home):
    async with at_home() as here:
        await here.say("invite ana@example.com to a planning meeting tomorrow at 4pm")
        name, args = here.calls[-1]
        assert (name, args["title"]) == ("calendar_create_event", "Planning meeting with Ana")
