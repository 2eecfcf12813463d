"""The journeys of the demo model from their beginning to their end, on the real tools."""

import pytest
from tests.agents.invented_tools import Invented, built, text
from tests.reference.demo.conftest import Opens

from handrail.model import ModelRequest, UserMessage
from handrail_reference.demo import DemoModel

BOOK = "book a meeting with ana@example.com tomorrow at 3 pm"


async def test_a_meeting_is_asked_for_piece_by_piece_and_booked_after_the_approval(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert "On which day, and at what time?" in await here.say("Book lunch with Ana")
        assert "At what time?" in await here.say("on thursday")
        assert "What is the e-mail address of Ana?" in await here.say("half past twelve")
        assert here.calls == []

        assert "waits for your approval" in await here.say("ana@example.com")
        assert here.written["calendar_create_event"] == {
            "title": "Lunch with Ana",
            "start_time": "2026-11-19T12:30:00+01:00",
            "end_time": "2026-11-19T13:30:00+01:00",
            "attendees": ["ana@example.com"],
        }
        assert "Thursday 19 November 2026, 12:30–13:30, with ana@example.com" in await here.decide()
        assert "is booked" in await here.say("What did I just book?")
        assert "no tool that changes" in await here.say("move it to friday")


@pytest.mark.parametrize(
    ("question", "words", "page"),
    [
        ("What is Handrail?", "a tool runtime", "doc:handrail_overview"),
        ("Which providers are supported?", "OpenAI", "doc:handrail_answer_providers"),
        ("How do I write my own tool?", "`handrail new NAME`", "doc:handrail_answer_new_tool"),
    ],
)
async def test_a_question_about_handrail_is_answered_with_its_source(
    open_demo_case: Opens, question: str, words: str, page: str
) -> None:
    async with open_demo_case() as here:
        assert words in await here.say(question)
        assert [(one["number"], one["id"]) for one in here.events[-1].data["citations"]] == [(1, page)]


async def test_a_day_that_may_be_two_is_chosen_by_its_place(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        await here.say("lunch with ana@example.com next friday at 12:30", "the second one")
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-27T12:30:00+01:00"


async def test_a_day_that_was_to_be_changed_is_not_kept_while_the_new_one_is_unclear(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert "Friday 20 November 2026 or Friday 27 November 2026?" in await here.say(BOOK, "no, next friday")
        assert "On which day?" in await here.say("at 4 pm")
        assert here.written == {}
        await here.say("on the 27th")
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-27T16:00:00+01:00"


async def test_an_hour_that_may_be_two_is_asked_about(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert "in the morning or in the evening?" in await here.say("call bob tomorrow at 7 with bob@example.com")
        await here.say("in the evening")
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-17T19:00:00+01:00"


@pytest.mark.parametrize(
    "answer", ["in the afternoon", "Afternoon, please", "pm", "4 in the afternoon", "at 4 pm", "16:00"]
)
async def test_at_four_is_asked_about_and_never_guessed(open_demo_case: Opens, answer: str) -> None:
    async with open_demo_case() as here:
        asked = await here.say("book a meeting with ana@example.com tomorrow at 4")
        assert 'Do you mean "at 4" in the morning or in the afternoon?' in asked
        assert here.written == {}
        await here.say(answer)
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-17T16:00:00+01:00"


async def test_a_span_that_is_asked_about_keeps_its_end(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        asked = await here.say("book a meeting with ana@example.com tomorrow from 3 to 4:30")
        assert 'Do you mean "from 3 to 4:30" in the morning or in the afternoon?' in asked
        await here.say("in the afternoon")
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-17T15:00:00+01:00"
        assert here.written["calendar_create_event"]["end_time"] == "2026-11-17T16:30:00+01:00"


async def test_a_day_keeps_its_meaning_after_midnight(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        await here.say("book a meeting with ana@example.com tomorrow")
        await here.runtime.clock.advance(24 * 3600)  # type: ignore[attr-defined]
        await here.say("at 4 pm")
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-17T16:00:00+01:00"


async def test_a_time_that_is_taken_is_booked_only_if_the_person_insists(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        await here.say(BOOK)
        await here.decide()
        assert "You are busy at that time" in await here.say("book a call with bob@example.com tomorrow at 15:30")
        assert here.written == {}
        await here.say("yes, please")
        assert here.written["calendar_create_event"]["title"] == "Call with Bob"
        assert "15:00–16:00" in await here.say("what is on my calendar tomorrow?")


async def test_what_is_booked_cannot_be_cancelled_and_that_is_said(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        await here.say(BOOK)
        await here.decide()
        assert "no tool that changes or deletes one" in await here.say("cancel it")


async def test_what_was_declined_is_left_and_can_be_corrected(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        await here.say(BOOK)
        assert "You declined that" in await here.decide("decline")
        assert "was not booked" in await here.say("so is it booked?")
        await here.say("no, at 4 pm")
        assert here.written["calendar_create_event"]["start_time"] == "2026-11-17T16:00:00+01:00"


async def test_a_question_of_its_own_is_dropped_by_a_no_and_by_another_wish(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert await here.say("book a meeting tomorrow", "never mind") == "All right, I leave it."
        await here.say("book a meeting tomorrow", "What is Handrail?")
        assert [name for name, _ in here.calls] == ["kb_search"]


async def test_what_is_forbidden_is_not_offered_as_an_example(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        answer = await here.say("Don't book anything with ana@example.com tomorrow at 3 pm")
        assert "Nothing is booked." in answer
        assert "ana@example.com" not in f"{answer}{here.events[-1].data['suggestions']}"


async def test_a_yes_that_answers_nothing_does_nothing(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert "I have asked nothing that this answers" in await here.say("yes")


async def test_a_picture_is_drafted_chosen_and_shown(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        await here.say("draw a lighthouse at dawn")
        assert here.events[-1].data["suggestions"] == ["Use the first one", "Use the second one", "Use the third one"]
        assert "placeholder card" in await here.say("Use the second one")
        assert here.written["image_generate"]["prompt"].startswith("a lighthouse at dawn. Close-up")
        assert "3 pictures" in await here.say("use the fourth one")
        await here.say("The LAST one, please")
        assert here.written["image_generate"]["prompt"].startswith("a lighthouse at dawn. Seen from low")


async def test_who_wants_several_pictures_or_a_format_is_told_what_is_drawn_and_nothing_is(
    open_demo_case: Opens,
) -> None:
    async with open_demo_case() as here:
        answer = await here.say("Make three pictures of a red bicycle, landscape format")
        assert "I draft one square picture" in answer
        assert here.calls == []


async def test_contacts_are_found_in_a_text_that_is_pasted_afterwards(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert "Please paste the text" in await here.say("find the contacts")
        assert "- Ana Kovac: ana@example.com" in await here.say("Ana Kovac <ana@example.com>, +44 20 7946 0958")


async def test_an_apology_makes_a_warning_forgotten_and_a_threat_needs_none(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        assert "not in this tone" in await here.say("you idiot", "sorry about that", "you idiot")
        assert here.written == {}
        await here.say("I will kill you")
        assert here.written["ignore_user"]["duration_seconds"] == 86_400


async def test_own_tools_are_named_and_not_used(open_demo_case: Opens) -> None:
    refund = Invented(
        "refund_order", "action", "Refunds an order.", {"order": text("Which.")}, ("order",), confirm=True
    )
    with built(refund) as (kit, _):
        async with open_demo_case(kit=kit) as here:
            answer = await here.say("refund order 17")
            assert "Your own tools need one: `refund_order`." in answer
            assert "`handrail call`" in answer
            assert here.calls == []


async def test_how_to_connect_a_model_is_said_once_and_journeys_are_offered_each_time(open_demo_case: Opens) -> None:
    async with open_demo_case() as here:
        first = await here.say("sing me a song")
        assert ("Ollama" in first, "OPENAI_API_KEY" in first, ".gguf" in first) == (True, True, True)
        assert "What is Handrail?" in here.events[-1].data["suggestions"]
        assert "Ollama" not in await here.say("sing me a song")
        assert "What is Handrail?" in here.events[-1].data["suggestions"]


async def test_in_voice_it_answers_in_short_sentences_without_markup(open_demo_case: Opens) -> None:
    async with open_demo_case("voice") as here:
        answer = await here.say("What is Handrail?")
        assert answer.startswith("The handbook says: Handrail is a tool runtime for agents that speak and type.")
        assert not set("*`[]") & set(answer)
        assert await here.say("tell me a joke") == "No language model is connected, so I cannot help with that."
        assert "in text only" in await here.say(BOOK)
        assert await here.say("yes") == "All right, please type it."
        assert here.written == {"end_voice_session": {"reason": "handover"}}


async def test_voice_is_ended_by_a_goodbye(open_demo_case: Opens) -> None:
    async with open_demo_case("voice") as here:
        await here.say("bye")
        assert here.written == {"end_voice_session": {"reason": "user_requested"}}


@pytest.mark.parametrize("words", ["How do I start voice mode?", "please do not start voice mode"])
async def test_voice_is_not_started_by_words_about_it(open_demo_case: Opens, words: str) -> None:
    async with open_demo_case() as here:
        await here.say(words)
        assert here.written == {}


async def test_the_same_request_gives_the_same_stream_and_no_tools_give_words() -> None:
    session = {"now": "2026-11-16T10:00:00+01:00", "time_zone": "Europe/Zagreb", "mode": "text"}
    request = ModelRequest(system="", messages=[UserMessage(BOOK)], session=session)
    first, second = [[event async for event in DemoModel().stream(request)] for _ in range(2)]
    assert first == second
    assert "is not offered" in "".join(getattr(event, "text", "") for event in first)
