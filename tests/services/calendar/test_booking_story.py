"""The whole story on real servers: availability, confirmation with clashes, creation, invitation, moved, cancelled."""

import json
from datetime import UTC, datetime

import pytest
from tests.services.calendar.approved_calls import (
    CANCEL,
    CREATE,
    LOOK,
    UPDATE,
    built,
    open_host,
    open_world,
    spoken_host,
)
from tests.services.calendar.radicale_server import PASSWORD
from tests.services.calendar.zoom_server import ACCOUNT

from handrail import Call
from handrail.agents import Conversation, TextAgent
from handrail.contract.errors import ErrorType
from handrail.contract.model import HostMessage, ToolMessage
from handrail.testing import PlayedModel
from handrail.testing.servers.live import Ask, Say, Turn, call


@pytest.fixture
def world(radicale_server):
    with open_world(radicale_server) as opened:
        yield opened


THEIRS = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:theirs\r\nDTSTAMP:20260101T000000Z\r\n"
    "DTSTART:20260113T133000Z\r\nDTEND:20260113T143000Z\r\nSUMMARY:Dentist\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def put_theirs(world):
    """Somebody else's event, from 14:30 to 15:30 in Zagreb."""
    address = f"{world.settings['calendars']['team']}theirs.ics"
    assert world.radicale.request("PUT", address, THEIRS, {"Content-Type": "text/calendar"})[0] == 201


@pytest.mark.parametrize("mode", ["text", "voice"])
async def test_a_meeting_is_looked_for_booked_moved_and_cancelled(world, tmp_path, mode):
    async with open_host(world, built(tmp_path), tmp_path, mode) as host:
        put_theirs(world)

        # The model looks, and the two of them talk about it.
        asked = {
            "start_date": "2026-01-13T13:00:00+01:00",
            "end_date": "2026-01-13T17:00:00+01:00",
            "calendars": ["primary", "team"],
        }
        found = (await host.session.call(LOOK, asked, call_id="look")).data
        assert [(slot["start"][11:16], slot["end"][11:16]) for slot in found["available_slots"]] == [
            ("13:00", "14:30"),
            ("15:30", "17:00"),
        ]

        # The person wants 15:00 all the same, sees the clash, and says yes.
        booking = {
            "title": "Design review", "start_time": "2026-01-13T15:00:00+01:00", "end_time": "2026-01-13T16:00:00+01:00",
            "attendees": ["ana@example.com", "ivo@example.com"], "description": "Agenda",
        }  # fmt: skip
        preview, made = await host.approved(CREATE, booking)
        assert "Zoom meeting; the attendees are invited by mail." in preview
        assert "Clashes with 1 busy time: Tue 13 Jan 2026, 14:30–15:30 in team." in preview
        assert "Dentist" not in preview
        [meeting] = world.zoom.meetings.values()
        assert (made["meeting_provider"], made["meeting_link"]) == ("zoom", f"https://zoom.us/j/{meeting['id']}?pwd=x")
        assert (made["invitations"], made["invited"], made["warnings"]) == ("mail", booking["attendees"], [])
        assert [one["start"] for one in made["conflicts"]] == ["2026-01-13T14:30:00+01:00"]
        [(method, invitation, to)] = world.mail.events()
        assert (method, to, str(invitation["UID"])) == ("REQUEST", booking["attendees"], made["uid"])
        assert str(invitation["CONFERENCE"]) == made["meeting_link"]

        # Moved, out of the way of the other.
        change = {"event_id": made["event_id"], "etag": made["etag"], "start_time": "2026-01-13T16:00:00+01:00"}
        preview, moved = await host.approved(UPDATE, change)
        assert 'Before: "Design review", Tue 13 Jan 2026, 15:00–16:00.' in preview
        assert 'After: "Design review", Tue 13 Jan 2026, 16:00–17:00 (Europe/Zagreb).' in preview
        assert preview.endswith("The attendees are told by mail. No clashes.")
        assert (moved["start"], moved["end"]) == ("2026-01-13T16:00:00+01:00", "2026-01-13T17:00:00+01:00")
        [meeting] = world.zoom.meetings.values()
        assert meeting["start_time"] == "2026-01-13T15:00:00Z"
        method, invitation, _ = world.mail.events()[1]
        assert (method, str(invitation["UID"]), int(invitation["SEQUENCE"])) == ("REQUEST", made["uid"], 1)

        # A change to what it was before is refused.
        request = await host.held(UPDATE, {**change, "title": "Another"})
        assert "It has changed since it was looked at." in request["preview"]
        refused = await host.runtime.approve(request["id"], token=request["token"])
        assert (refused.error.type, refused.error.partial_side_effects) == (ErrorType.CONFLICT, False)

        # Called off.
        preview, gone = await host.approved(CANCEL, {"event_id": made["event_id"], "message": "We found another way."})
        assert (
            '"Design review", Tue 13 Jan 2026, 16:00–17:00 (Europe/Zagreb), with ana@example.com, ivo@example.com, is cancelled.'
            in preview
        )
        assert "Its Zoom meeting goes with it." in preview
        assert (gone["status"], gone["invited"], gone["warnings"]) == ("cancelled", booking["attendees"], [])
        assert world.zoom.meetings == {}
        method, invitation, _ = world.mail.events()[-1]
        assert (method, str(invitation["UID"]), int(invitation["SEQUENCE"])) == ("CANCEL", made["uid"], 2)
        assert str(invitation["COMMENT"]) == "We found another way."
        found = (await host.session.call(LOOK, asked, call_id="look_again")).data
        assert len(found["existing_events"]) == 1

        # And it is gone.
        request = await host.held(CANCEL, {"event_id": made["event_id"]})
        assert "It cannot be cancelled" in request["preview"]
        again = await host.runtime.approve(request["id"], token=request["token"])
        assert again.error.type is ErrorType.NOT_FOUND


class Chat:
    """Ana, who writes to the text agent and answers its questions; the model says what is written down for it."""

    def __init__(self, host):
        self.host, self.script, self.conversation = host, [], Conversation()
        self.model = PlayedModel(self.script)
        self.agent = TextAgent(host.runtime, self.model)

    async def say(self, text, *answers):
        """What the person sees of the turn, by the type of event."""
        self.script += answers
        seen = {}
        async for event in self.agent.run(self.host.session, self.conversation, text):
            seen.setdefault(event.type, []).append(event.data)
        assert "error" not in seen
        return seen

    async def approve(self, seen, answer):
        """The person says yes, and the model is told. The data of the result, as the model has it."""
        [asked], [card] = seen["confirmation"], seen["tool_finished"]
        assert card["held"]
        held = self.sent(ToolMessage)[-1].envelope["error"]
        assert (held["type"], held["confirmation_request"]["preview"]) == ("CONFIRMATION_REQUIRED", asked["preview"])
        envelope = await self.host.runtime.approve(asked["id"], token=asked["token"])
        told = {
            "callId": card["callId"], "toolId": card["toolId"], "envelope": envelope.to_dict(), "confirmationId": asked["id"]
        }  # fmt: skip
        self.script.append([answer])
        late = await self.agent.late(self.host.session, self.conversation, told)
        assert late[-1].data["text"] == answer
        note = self.sent(HostMessage)[-1].text
        assert (
            f'"{card["toolId"]}" (call "{card["callId"]}") was approved by the person and has been carried out' in note
        )
        assert asked["token"] not in repr(self.model.requests)
        return json.loads(note.partition("which is data: ")[2])["data"]

    def sent(self, kind):
        """The messages of this kind that the model was sent last."""
        return [one for one in self.model.requests[-1].messages if isinstance(one, kind)]


async def test_a_person_and_a_model_talk_a_meeting_over_and_book_move_and_cancel_it(world, tmp_path):
    async with open_host(world, built(tmp_path), tmp_path) as host:
        chat = Chat(host)
        put_theirs(world)
        asked = {
            "start_date": "2026-01-13T13:00:00+01:00",
            "end_date": "2026-01-13T17:00:00+01:00",
            "calendars": ["primary", "team"],
        }
        await chat.say("When are we free on Tuesday?", [Call(LOOK, asked, "c1")], ["13:00 to 14:30, and from 15:30."])
        [looked] = chat.sent(ToolMessage)
        assert [(slot["start"][11:16], slot["end"][11:16]) for slot in looked.envelope["data"]["available_slots"]] == [
            ("13:00", "14:30"),
            ("15:30", "17:00"),
        ]
        await chat.say("Is 15:00 possible?", ["Half an hour of it is taken."])
        assert (world.count(), world.mail.mails) == (1, [])

        booking = {
            "title": "Design review", "start_time": "2026-01-13T15:00:00+01:00", "end_time": "2026-01-13T16:00:00+01:00",
            "attendees": ["ana@example.com", "ivo@example.com"],
        }  # fmt: skip
        seen = await chat.say("Take it all the same.", [Call(CREATE, booking, "c2")], ["I need your word for that."])
        preview = seen["confirmation"][0]["preview"]
        assert "Clashes with 1 busy time: Tue 13 Jan 2026, 14:30–15:30 in team." in preview
        assert (world.count(), world.mail.mails, world.zoom.meetings) == (1, [], {})
        made = await chat.approve(seen, "It is booked.")
        [meeting] = world.zoom.meetings.values()
        assert made["meeting_link"] == f"https://zoom.us/j/{meeting['id']}?pwd=x"
        assert [one["start"] for one in made["conflicts"]] == ["2026-01-13T14:30:00+01:00"]
        [(method, invitation, to)] = world.mail.events()
        assert (method, to, str(invitation["UID"])) == ("REQUEST", booking["attendees"], made["uid"])
        assert str(invitation["CONFERENCE"]) == made["meeting_link"]

        change = {"event_id": made["event_id"], "etag": made["etag"], "start_time": "2026-01-13T16:00:00+01:00"}
        seen = await chat.say("Then an hour later.", [Call(UPDATE, change, "c3")], ["Shall I?"])
        assert seen["confirmation"][0]["preview"].endswith("The attendees are told by mail. No clashes.")
        moved = await chat.approve(seen, "It is moved.")
        assert (moved["start"], moved["conflicts"]) == ("2026-01-13T16:00:00+01:00", [])
        assert [one["start_time"] for one in world.zoom.meetings.values()] == ["2026-01-13T15:00:00Z"]

        gone = {"event_id": made["event_id"], "etag": moved["etag"], "message": "We found another way."}
        seen = await chat.say("Call it off after all.", [Call(CANCEL, gone, "c4")], ["Shall I?"])
        assert "Its Zoom meeting goes with it." in seen["confirmation"][0]["preview"]
        assert (await chat.approve(seen, "It is off."))["status"] == "cancelled"
        assert world.zoom.meetings == {}
        told = [(method, str(one["UID"]), int(one["SEQUENCE"])) for method, one, _ in world.mail.events()]
        assert told == [(kind, made["uid"], number) for number, kind in enumerate(SENT)]

        await chat.say("Thank you.", ["You are welcome."])
        assert len(chat.model.requests) == len(chat.script), "it was asked as often as it had something to say"
        everything = repr(chat.model.requests)
        for secret in (PASSWORD, ACCOUNT["client_secret"], "HOST-SECRET", "zoom-token", "Dentist"):
            assert secret not in everything


@pytest.mark.long
async def test_a_meeting_is_booked_moved_and_cancelled_by_spoken_words(world, tmp_path):
    """The voice agent on the provider's SDK and a local live server: each question is read out, and answered by a spoken yes."""
    async with spoken_host(world, built(tmp_path), tmp_path) as (case, calendar):
        look = {"start_date": "2026-01-13T13:00:00+01:00", "end_date": "2026-01-13T17:00:00+01:00"}
        case.server.progress.turns.append(Turn([Ask(call(LOOK, **look)), Say("All afternoon.")], "When are we free?"))
        await case.speak()
        await case.client.until("turn_done")
        booking = {
            "title": "Design review", "start_time": "2026-01-13T15:00:00+01:00", "end_time": "2026-01-13T16:00:00+01:00",
            "attendees": ["ana@example.com", "ivo@example.com"],
        }  # fmt: skip
        await said_yes(case, CREATE, booking)
        [meeting] = world.zoom.meetings.values()
        [(method, invitation, to)] = world.mail.events()
        assert (method, to, int(invitation["SEQUENCE"])) == ("REQUEST", booking["attendees"], 0)
        assert str(invitation["CONFERENCE"]) == f"https://zoom.us/j/{meeting['id']}?pwd=x"
        event_id = f"primary:{invitation['UID']}"
        await said_yes(case, UPDATE, {"event_id": event_id, "start_time": "2026-01-13T16:00:00+01:00"})
        assert (await calendar.get(event_id)).end == datetime(2026, 1, 13, 16, tzinfo=UTC)
        assert [one["start_time"] for one in world.zoom.meetings.values()] == ["2026-01-13T15:00:00Z"]
        await said_yes(case, CANCEL, {"event_id": event_id})
        assert (await calendar.get(event_id)).cancelled
        assert world.zoom.meetings == {}
        told = [(method, str(one["UID"]), int(one["SEQUENCE"])) for method, one, _ in world.mail.events()]
        assert told == [(kind, str(invitation["UID"]), number) for number, kind in enumerate(SENT)]
        assert case.server.complaints == []


SENT = ("REQUEST", "REQUEST", "CANCEL")


async def said_yes(case, tool, args):
    """The model calls the tool, the host has it read the question, and the person says yes."""
    cards = [one for one in case.client.of("tool_finished") if one.get("late")]
    questions = len(case.client.of("question"))
    case.server.progress.turns += [
        Turn([Ask(call(tool, **args)), Say("I need your word for that.")], "Please do."),
        Turn([Say("Fine.")], "Yes."),
    ]
    await case.speak()
    await case.client.until(lambda it: "asking" in [one["state"] for one in it.of("question")[questions:]])
    assert [one for one in case.client.of("tool_finished") if one.get("late")] == cards
    await case.speak()
    await case.client.until(lambda it: len([one for one in it.of("tool_finished") if one.get("late")]) > len(cards))
    done = [one for one in case.client.of("tool_finished") if one.get("late")][-1]
    assert (done["toolId"], done["ok"]) == (tool, True)


async def test_by_voice_only_where_the_host_allows_it(world, tmp_path):
    async with open_host(world, built(tmp_path), tmp_path) as host:
        spoken = await host.runtime.open_session(mode="voice", user="ana")
        for tool in (CREATE, UPDATE, CANCEL):
            args = {"event_id": "primary:x"}
            if tool == CREATE:
                args = {
                    "title": "x",
                    "start_time": "2026-01-13T15:00:00Z",
                    "end_time": "2026-01-13T16:00:00Z",
                    "attendees": ["a@example.com"],
                }
            assert (await spoken.call(tool, args)).error.type is ErrorType.MODE_RESTRICTED
