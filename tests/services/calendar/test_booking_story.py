"""The whole story on real servers: availability, confirmation with clashes, creation, invitation, moved, cancelled."""

import pytest
from tests.services.calendar.desk import CANCEL, CREATE, LOOK, UPDATE, built, open_host, open_world

from handrail.contract.errors import ErrorType


@pytest.fixture
def world(radicale_server):
    with open_world(radicale_server) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["text", "voice"])
async def test_a_meeting_is_looked_for_booked_moved_and_cancelled(world, tmp_path, mode):
    async with open_host(world, built(tmp_path), tmp_path, mode) as host:
        # Somebody else's event is on the server already.
        text = (
            "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:theirs\r\nDTSTAMP:20260101T000000Z\r\n"
            "DTSTART:20260113T133000Z\r\nDTEND:20260113T143000Z\r\nSUMMARY:Dentist\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
        )
        address = f"{world.settings['calendars']['team']}theirs.ics"
        assert world.radicale.request("PUT", address, text, {"Content-Type": "text/calendar"})[0] == 201

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
        assert "Clashes with 1 taken: Tue 13 Jan 2026, 14:30–15:30 in team." in preview
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
