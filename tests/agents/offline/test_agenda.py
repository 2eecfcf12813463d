"""Who asks what is planned hears of the whole day, with titles; who asks for free times hears of those."""

import pytest


async def put(here, words):
    await here.say(words)
    [asked] = here.told("confirmation")
    envelope = (await here.runtime.approve(asked["id"], token=asked["token"])).to_dict()
    told = {"callId": "c", "toolId": "calendar_create_event", "envelope": envelope, "confirmationId": asked["id"]}
    await here.agent.late(here.session, here.conversation, told)


@pytest.mark.parametrize(
    "words",
    [
        "What do I have on my calendar tomorrow?",
        "what's on my calendar tomorrow?",
        "what do I have tomorrow?",
        "list my events tomorrow",
        "show me my calendar for tomorrow",
        "what meetings do I have tomorrow?",
        "do I have any meetings tomorrow?",
        "do I have anything on tomorrow?",
        "what is planned for tomorrow?",
        "what does my day look like tomorrow?",
    ],
)
async def test_what_is_planned_is_told_with_its_title_at_any_hour(at_home, words):
    async with at_home() as here:
        await put(here, "book a meeting with ana@example.com tomorrow at 7pm called Quarterly dinner")
        await put(here, "book a meeting with ivo@example.com tomorrow at 6:30 am called Early run")
        answer = await here.say(words)
        [(name, args)] = here.calls
        assert name == "calendar_get_availability"
        assert args["include_details"] is True
        assert (args["start_date"], args["end_date"]) == ("2026-11-17T00:00:00+01:00", "2026-11-18T00:00:00+01:00")
        assert "Tuesday 17 November, 06:30–07:30: Early run\n" in answer
        assert "Tuesday 17 November, 19:00–20:00: Quarterly dinner" in answer


async def test_a_day_without_events_is_told_as_such(at_home):
    async with at_home() as here:
        assert "Nothing is in your calendar then." in await here.say("what do I have on my calendar tomorrow?")


@pytest.mark.parametrize(
    "words", ["am I free tomorrow?", "when do I have time tomorrow?", "what times are free tomorrow?"]
)
async def test_free_times_are_those_at_which_people_meet_and_name_no_titles(at_home, words):
    async with at_home() as here:
        await put(here, "book a meeting with ana@example.com tomorrow at 3pm called Quarterly dinner")
        answer = await here.say(words)
        [(_, args)] = here.calls
        assert (args["start_date"], args["end_date"]) == ("2026-11-17T08:00:00+01:00", "2026-11-17T18:00:00+01:00")
        assert "include_details" not in args
        assert "Quarterly" not in answer
