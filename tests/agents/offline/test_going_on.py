"""What was looked at or booked before is meant by "it", by an hour without a day, and by a correction."""

import pytest


def booked(here):
    return dict(here.calls).get("calendar_create_event", {})


def looked(here):
    return dict(here.calls).get("calendar_get_availability", {})


@pytest.mark.parametrize(
    ("asked", "words", "start", "end", "title"),
    [
        (
            "am I free tomorrow between 9 and 11?",
            "book it with zoe@x.com at 9:30",
            "17T09:30",
            "17T10:30",
            "Meeting with Zoe",
        ),
        (
            "am I free on friday at 2pm?",
            "ok book that with ana@example.com",
            "20T14:00",
            "20T15:00",
            "Meeting with Ana",
        ),
        (
            "is thursday at 10 free?",
            "please schedule a review with ivo@x.com then",
            "19T10:00",
            "19T11:00",
            "Review with Ivo",
        ),
        (
            "when am I free tomorrow?",
            "great, put it in at 11 with ana@example.com",
            "17T11:00",
            "17T12:00",
            "Meeting with Ana",
        ),
        ("what times are free on wednesday?", "reserve 4pm with zoe@x.com", "18T16:00", "18T17:00", "Meeting with Zoe"),
        (
            "do I have time on the 24th from 3 to 4:30 pm?",
            "take that and invite ivo@x.com",
            "24T15:00",
            "24T16:30",
            None,
        ),
    ],
)
async def test_a_time_that_was_looked_at_is_meant(at_home, asked, words, start, end, title):
    async with at_home() as here:
        await here.say(asked)
        await here.say(words)
        made = booked(here)
        assert made["start_time"].startswith(f"2026-11-{start}")
        assert made["end_time"].startswith(f"2026-11-{end}")
        assert title is None or made["title"] == title
        assert "it" not in made["title"].lower().split()


async def test_a_day_of_its_own_comes_first(at_home):
    async with at_home() as here:
        await here.say("am I free tomorrow between 9 and 11?")
        await here.say("book a meeting with zoe@x.com on friday at 9:30")
        assert booked(here)["start_time"] == "2026-11-20T09:30:00+01:00"


async def test_what_was_looked_at_before_another_question_is_forgotten(at_home):
    async with at_home() as here:
        await here.say("am I free on friday at 2pm?")
        await here.say("What is Handrail?")
        assert "When?" in await here.say("book a meeting with zoe@x.com")
        assert here.calls == []


async def test_a_look_goes_on_with_another_hour_or_day(at_home):
    async with at_home() as here:
        await here.say("am I free on friday at 2pm?")
        await here.say("and at 4?")
        assert looked(here)["start_date"] == "2026-11-20T16:00:00+01:00"
        await here.say("what about thursday?")
        assert looked(here)["start_date"] == "2026-11-19T16:00:00+01:00"
        await here.say("how about noon?")
        assert looked(here)["start_date"] == "2026-11-19T12:00:00+01:00"


async def test_a_look_at_another_part_of_the_day_wants_no_longer_gaps(at_home):
    async with at_home() as here:
        await here.say("what's free on monday morning?")
        await here.say("and in the afternoon?")
        assert looked(here) == {"start_date": "2026-11-23T12:00:00+01:00", "end_date": "2026-11-23T18:00:00+01:00"}


@pytest.mark.parametrize(
    ("words", "start", "end"),
    [
        ("actually make it 3pm", "17T15:00", "17T15:45"),
        ("no, friday instead", "20T10:00", "20T10:45"),
        ("make it two hours", "17T10:00", "17T12:00"),
        ("sorry, I meant 11", "17T11:00", "17T11:45"),
        ("can we move it to thursday at 4pm?", "19T16:00", "19T16:45"),
        ("better at half past one", "17T13:30", "17T14:15"),
        ("ok, change the meeting to 5pm", "17T17:00", "17T17:45"),
    ],
)
async def test_a_booking_that_waits_is_corrected(at_home, words, start, end):
    async with at_home() as here:
        await here.say("book a planning session with ana@example.com tomorrow at 10 for 45 minutes")
        answer = await here.say(words)
        made = booked(here)
        assert made["start_time"].startswith(f"2026-11-{start}")
        assert made["end_time"].startswith(f"2026-11-{end}")
        assert (made["title"], made["attendees"]) == ("Planning session with Ana", ["ana@example.com"])
        assert "takes the place of the request before" in answer


async def test_a_correction_is_corrected_and_somebody_is_added(at_home):
    async with at_home() as here:
        await here.say("book a meeting with zoe@x.com tomorrow at 9:30")
        await here.say("actually make it 3pm")
        await here.say("no, friday instead")
        assert booked(here)["start_time"] == "2026-11-20T15:00:00+01:00"
        await here.say("please add bob@x.com")
        assert booked(here)["attendees"] == ["zoe@x.com", "bob@x.com"]


async def test_what_is_in_the_calendar_is_not_booked_twice_by_a_correction(at_home):
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com tomorrow at 10")
        [asked] = here.told("confirmation")
        envelope = (await here.runtime.approve(asked["id"], token=asked["token"])).to_dict()
        told = {"callId": "c", "toolId": "calendar_create_event", "envelope": envelope, "confirmationId": asked["id"]}
        await here.agent.late(here.session, here.conversation, told)
        answer = await here.say("actually make it 3pm")
        assert "settled already" in answer
        assert here.calls == []


@pytest.mark.parametrize("words", ["yes", "no", "ok"])
async def test_a_plain_yes_or_no_corrects_nothing(at_home, words):
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com tomorrow at 10")
        await here.say(words)
        assert here.calls == []


# -------------------------------------------------------------------------------------------------------- slips
@pytest.mark.parametrize(
    "when",
    ["from 10 to 9", "from 3pm to 2pm", "between 11 and 11", "from 16:00 to 15:30", "from 9:30 am to 9 am"],
)
async def test_an_end_before_the_start_is_asked_about(at_home, when):
    async with at_home() as here:
        answer = await here.say(f"book a meeting with ana@example.com tomorrow {when}")
        assert "end before it begins" in answer
        assert here.calls == []


async def test_the_end_or_the_length_mends_it(at_home):
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com tomorrow from 10 to 9")
        await here.say("11:30")
        assert booked(here)["start_time"] == "2026-11-17T10:00:00+01:00"
        assert booked(here)["end_time"] == "2026-11-17T11:30:00+01:00"
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com tomorrow from 3pm to 2pm")
        await here.say("for one hour")
        assert booked(here)["end_time"] == "2026-11-17T16:00:00+01:00"


@pytest.mark.parametrize("length", ["-5 minutes", "minus two hours", "0 minutes", "-1 hour"])
async def test_a_length_that_is_none_is_asked_about(at_home, length):
    async with at_home() as here:
        answer = await here.say(f"book a meeting with ana@example.com tomorrow at 10 for {length}")
        assert "Nothing can last" in answer
        assert here.calls == []
        await here.say("30 minutes")
        assert booked(here)["end_time"] == "2026-11-17T10:30:00+01:00"


async def test_what_begins_late_may_end_in_the_night(at_home):
    async with at_home() as here:
        await here.say("book drinks with ana@example.com tomorrow from 10pm to 1am")
        assert booked(here)["end_time"] == "2026-11-18T01:00:00+01:00"
