"""The offline model is careful: it asks where a day, an address or a tool is missing, and never does something else instead."""

import pytest
from tests.agents.inventions import Invented, desk, text
from tests.agents.test_offline_model import (
    CALENDAR_BOOK,
    CALENDAR_LOOK,
    HELP_SEARCH,
    ORDER_CANCEL,
    ORDER_LOOKUP,
    ROTA,
    VOICE,
    WEATHER,
)

DRAW = Invented(
    "image_generate",
    "action",
    "Makes an image of a prompt.",
    {"prompt": text("What the image shows.")},
    ("prompt",),
    "return {'ok': True, 'data': {'images': [{'id': 'img_1', 'url': '/images/img_1'}]}}",
)
SEND = Invented(
    "send_image",
    "action",
    "Shows an image to the user.",
    {"image_id": text("Its id."), "caption": text("A line below.")},
    (),
)
SEND_ONE = Invented(
    "send_image",
    "action",
    "Shows an image to the user: one that image_generate has made, by image_id, or one on the web, by image_url.",
    fields={
        "parameters": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"image_url": text("Its address.", format="uri"), "image_id": text("Its id.")},
            "oneOf": [{"required": ["image_url"]}, {"required": ["image_id"]}],
        },
        "waivers": {"action-unconfirmed": "A test.", "provider-loss": "A test."},
    },
)
AVAILABILITY = Invented(
    "calendar_get_availability",
    "retrieval",
    "Looks into calendars: which times of a range are taken, and which are free.",
    {"start_date": text("From.", format="date-time"), "end_date": text("Until.", format="date-time")},
    ("start_date", "end_date"),
)
EXPENSE = Invented(
    "report_expense",
    "action",
    "Reports an expense.",
    {"amount": {"type": "number", "description": "How much."}, "date": text("The day.", format="date")},
    ("amount", "date"),
)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("Book a shift with ana@example.com on 31 February at 3pm", 'There is no such day as "31 February"'),
        ("Book a shift with ana@example.com on 2026-02-30 at 3pm", 'There is no such day as "2026-02-30"'),
        ("Book a shift with ana@example.com on 2027-02-30T15:00", "There is no such day as"),
        ("Book a shift with ana@example.com yesterday at 3pm", "Sunday 15 November, 15:00, is over"),
        ("Book a shift with ana@example.com today at 8am", "is over"),
        ("Book a shift with ana@example.com yesterday", "That day is over"),
    ],
)
async def test_a_day_that_cannot_be_or_is_over_is_asked_back_and_nothing_is_proposed(words, asked):
    async with desk(*ROTA) as here:
        answer = await here.say(words)
        assert asked in answer
        assert "I still need" in answer
        assert here.calls == []


async def test_another_day_completes_the_request():
    async with desk(*ROTA) as here:
        await here.say("Book a shift with ana@example.com on 31 February at 3pm")
        await here.say("28 February")
        name, args = here.calls[-1]
        assert name == "rota_book_shift"
        assert args["start_time"] == "2027-02-28T15:00:00+01:00"
        assert args["people"] == ["ana@example.com"]


async def test_an_impossible_day_is_not_looked_up_either():
    async with desk(CALENDAR_LOOK) as here:
        assert "no such day" in await here.say("Which times are free on the rota on 31 February at 3pm?")
        assert here.calls == []


async def test_what_is_reported_may_be_past():
    async with desk(EXPENSE) as here:
        await here.say("Report an expense of 12 from yesterday")
        assert here.calls == [("report_expense", {"amount": 12, "date": "2026-11-15"})]


@pytest.mark.parametrize("verb", ["Cancel", "Please delete", "I want to remove", "Could you call off"])
async def test_who_wants_to_cancel_never_gets_something_created(verb):
    async with desk(*ROTA) as here:
        answer = await here.say(f"{verb} the shift with ana@example.com tomorrow at 3pm")
        assert here.calls == []
        assert verb.lower().removeprefix("please ").removeprefix("i want to ").removeprefix("could you ") in answer
        assert "I have no tool for that" in answer


async def test_a_tool_that_cancels_is_found_by_who_wants_to_cancel():
    async with desk(ORDER_LOOKUP, ORDER_CANCEL, CALENDAR_BOOK) as here:
        await here.say("Cancel the order A-1001")
        assert here.calls[-1] == ("order_cancel", {"order_id": "A-1001"})


@pytest.mark.parametrize(
    ("words", "who"),
    [
        ("Book a shift with Ana and bob@example.com tomorrow at 3pm", "address for Ana."),
        ("Book a shift with bob@example.com, Ana Horvat and Ivo tomorrow at 3pm", "addresses for Ana Horvat and Ivo."),
        ("Book a shift with Ana tomorrow at 3pm", "address for Ana."),
    ],
)
async def test_who_has_no_address_is_named_and_asked_for(words, who):
    async with desk(*ROTA) as here:
        answer = await here.say(words)
        assert who in answer
        assert [name for name, _ in here.calls] == ["rota_get_shifts"]


async def test_the_address_completes_the_request():
    async with desk(*ROTA) as here:
        await here.say("Book a shift with Ana and bob@example.com tomorrow at 3pm")
        await here.say("a.horvat@example.com")
        assert here.calls[-1][1]["people"] == ["bob@example.com", "a.horvat@example.com"]


@pytest.mark.parametrize(
    "words",
    [
        "Book a shift with Bob (bob@example.com) tomorrow at 3pm",
        "Book a shift with bob@example.com Tuesday at 3pm",
        "Book a shift with bob@example.com and ana@example.com on Friday at 3pm",
    ],
)
async def test_who_has_an_address_is_not_asked_for(words):
    async with desk(*ROTA) as here:
        await here.say(words)
        assert here.calls[-1][0] == "rota_book_shift"


async def test_what_cancels_something_else_is_not_taken_for_it():
    async with desk(ORDER_LOOKUP, ORDER_CANCEL, *ROTA) as here:
        assert "I cannot cancel anything" in await here.say("Cancel my meeting tomorrow")
        assert here.calls == []


async def test_a_verb_that_may_mean_a_look_is_one():
    async with desk(ORDER_LOOKUP, WEATHER) as here:
        await here.say("Open the order A-1001")
        assert here.calls == [("order_lookup", {"order_id": "A-1001"})]


async def test_an_action_that_is_not_offered_is_said_and_not_replaced_by_a_look():
    async with desk(AVAILABILITY, HELP_SEARCH) as here:
        answer = await here.say("Book a meeting with ana@example.com tomorrow at 3pm")
        assert here.calls == []
        assert "I have no tool for that" in answer


async def test_an_action_of_which_only_the_neighbour_is_offered_is_said():
    async with desk(SEND_ONE) as here:
        assert "I have no tool for that" in await here.say("Generate an image of a lighthouse at dusk")
        assert here.calls == []


async def test_voice_that_is_not_offered_is_said():
    async with desk(WEATHER, HELP_SEARCH) as here:
        assert "I have no tool for that" in await here.say("Switch to voice, please")
        assert here.calls == []


@pytest.mark.parametrize(
    "words",
    [
        "Let's talk about the weather in Split",
        "Call me Ana",
        "How do I start a voice session?",
        "What is a voice call?",
        "Please do not switch to voice",
        "I'd rather talk to a human",
        "Can we talk about the weather in Split?",
        "My colleague is on the phone",
    ],
)
async def test_voice_is_only_started_on_request(words):
    async with desk(VOICE, WEATHER) as here:
        await here.say(words)
        assert "start_voice_session" not in [name for name, _ in here.calls]


@pytest.mark.parametrize(
    "words", ["Call me, please.", "Can we speak on the phone?", "I want a voice call", "Let's talk"]
)
async def test_voice_is_started_on_request(words):
    async with desk(VOICE, WEATHER) as here:
        await here.say(words)
        assert [name for name, _ in here.calls] == ["start_voice_session"]


@pytest.mark.parametrize(
    ("words", "carried"),
    [
        ("And what does a refund cost?", False),
        ("And who pays for it?", True),
        ("What about refunds?", True),
        ("And for shoes?", True),
        ("What does a refund cost?", False),
    ],
)
async def test_earlier_words_are_carried_only_for_what_points_back(words, carried):
    async with desk(HELP_SEARCH) as here:
        await here.say("How can I return a parcel?")
        await here.say(words)
        assert ("parcel" in here.calls[0][1]["query"]) is carried


async def test_a_picture_that_was_made_is_shown():
    async with desk(DRAW, SEND) as here:
        answer = await here.say("Generate an image of a lighthouse at dusk")
        assert [name for name, _ in here.calls] == ["image_generate", "send_image"]
        assert here.calls[1][1] == {"image_id": "img_1"}
        assert answer.startswith("Done.")


async def test_a_picture_is_told_of_where_none_can_be_shown():
    async with desk(DRAW) as here:
        answer = await here.say("Generate an image of a lighthouse at dusk")
        assert [name for name, _ in here.calls] == ["image_generate"]
        assert "img_1" in answer
