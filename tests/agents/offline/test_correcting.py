"""A booking that waits, or that was declined, is corrected in the words that people use for it."""

import pytest

BOOK = "book a meeting with ana@example.com tomorrow at three"


def booked(here):
    return dict(here.calls).get("calendar_create_event", {})


async def decided(here, verdict):
    """A person's word on what waits, as a host tells it."""
    [asked] = here.told("confirmation")
    decide = here.runtime.approve if verdict == "yes" else here.runtime.decline
    envelope = (await decide(asked["id"], token=asked["token"])).to_dict()
    told = {"callId": "c", "toolId": "calendar_create_event", "envelope": envelope, "confirmationId": asked["id"]}
    await here.agent.late(here.session, here.conversation, told)


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("make it four", "17T16:00", "17T17:00"),
        ("make it 4", "17T16:00", "17T17:00"),
        ("make it four please", "17T16:00", "17T17:00"),
        ("actually make it four", "17T16:00", "17T17:00"),
        ("actually, make it four instead", "17T16:00", "17T17:00"),
        ("let's do 5 o'clock", "17T17:00", "17T18:00"),
        ("can we move it to five?", "17T17:00", "17T18:00"),
        ("how about half past four?", "17T16:30", "17T17:30"),
        ("same time on Friday", "20T15:00", "20T16:00"),
        ("and 45 minutes long please", "17T15:00", "17T15:45"),
        ("2pm", "17T14:00", "17T15:00"),
    ],
)
async def test_a_time_that_is_said_of_what_waits_corrects_it(at_home, words, start, end):
    async with at_home() as here:
        await here.say(BOOK)
        answer = await here.say(words)
        made = booked(here)
        assert (made["start_time"], made["end_time"]) == (f"2026-11-{start}:00+01:00", f"2026-11-{end}:00+01:00")
        assert (made["title"], made["attendees"]) == ("Meeting with Ana", ["ana@example.com"])
        assert "takes the place of the request before" in answer


async def test_one_correction_goes_on_from_another(at_home):
    async with at_home() as here:
        await here.say(BOOK)
        await here.say("make it half past four")
        await here.say("and 45 minutes long please")
        await here.say("call it Quarterly planning")
        await here.say("without a meeting link please")
        assert booked(here) == {
            "title": "Quarterly planning",
            "start_time": "2026-11-17T16:30:00+01:00",
            "end_time": "2026-11-17T17:15:00+01:00",
            "attendees": ["ana@example.com"],
            "include_zoom_link": False,
        }


@pytest.mark.parametrize("words", ["make it 4pm", "make it four", "actually, at four instead"])
async def test_a_question_in_between_does_not_lose_what_waits(at_home, words):
    async with at_home() as here:
        await here.say(BOOK)
        await here.say("What is Handrail?")
        await here.say(words)
        assert booked(here)["start_time"] == "2026-11-17T16:00:00+01:00"


@pytest.mark.parametrize("words", ["make it four instead", "make it 4pm", "no, at four", "book it at four instead"])
async def test_a_new_time_for_what_was_declined_is_a_new_request(at_home, words):
    async with at_home() as here:
        await here.say(BOOK)
        await decided(here, "no")
        answer = await here.say(words)
        made = booked(here)
        assert made["start_time"] == "2026-11-17T16:00:00+01:00"
        assert (made["title"], made["attendees"]) == ("Meeting with Ana", ["ana@example.com"])
        assert "waits for your approval" in answer
        assert "decline that one" not in answer


@pytest.mark.parametrize("words", ["make it four", "no, at four", "call it Quarterly planning"])
async def test_what_was_approved_stays_as_it_is(at_home, words):
    async with at_home() as here:
        await here.say(BOOK)
        await decided(here, "yes")
        await here.say(words)
        assert here.calls == []


async def test_a_weekday_is_of_the_week_that_was_talked_about(at_home):
    async with at_home() as here:
        await here.say("book a review with ana@example.com next tuesday at 14:30")
        await here.say("no, wednesday")
        assert booked(here)["start_time"] == "2026-11-25T14:30:00+01:00"


@pytest.mark.parametrize("words", ["am I free on Friday at 4?", "what time is it?", "thanks", "What is Handrail?"])
async def test_a_question_of_its_own_corrects_nothing(at_home, words):
    async with at_home() as here:
        await here.say(BOOK)
        await here.say(words)
        assert booked(here) == {}
