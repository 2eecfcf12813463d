"""calendar_create_event: held for a person, previewed, and created exactly once, whatever happens to calls and processes."""

import asyncio
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

import handrail_reference
from handrail import Registry, Runtime
from handrail.build.guide import examples_in
from handrail.cli import main
from handrail.contract.errors import ErrorType, ToolError
from handrail.contract.store import LedgerState
from handrail.runtime.confirmation import NOT_LOOKED_UP
from handrail.runtime.reconcile import reconcile
from handrail.testing import CrashAt, Crashed
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.file_import import read_file
from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Draft

TOOLS = Path(handrail_reference.__file__).parent / "tools"
WORKER = Path(__file__).parent / "calendar_worker.py"
NAME = "calendar_create_event"
NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)
ARGS = {
    "title": "Design review",
    "start_time": "2026-01-13T14:00:00Z",
    "end_time": "2026-01-13T15:00:00Z",
    "attendees": ["ana@example.com", "ivo@example.com"],
}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(TOOLS / "calendar-create-event", folder / "tools" / "calendar-create-event")
    path = folder / "tool_registry.json"
    assert main(["build", "--strict", str(folder / "tools"), "-o", str(path)]) == 0
    return path


class CalendarCase:
    """A runtime on a store and a calendar in files, and the person who approves."""

    def __init__(self, runtime, calendar, session, folder):
        self.runtime, self.calendar, self.session, self.folder = runtime, calendar, session, folder

    async def held(self, args=ARGS, call_id="call_1"):
        """The confirmation request of a call, with its token."""
        response = await self.session.call(NAME, args, call_id=call_id)
        assert response.error.type is ErrorType.CONFIRMATION_REQUIRED
        async for event in self.session.events():
            if event.type == "confirmation":
                return event.data
        raise AssertionError("nobody was asked")

    async def created(self, args=ARGS, call_id="call_1"):
        request = await self.held(args, call_id)
        return await self.runtime.approve(request["id"], token=request["token"])

    async def count(self):
        return sum((await CalendarLibrary(self.calendar).counts()).values())


@pytest.fixture
def open_calendar(artifact, tmp_path):
    @asynccontextmanager
    async def opened_calendar(zone="Europe/Zagreb", **options):
        registry = Registry.load(artifact)
        registry.lock()
        calendar = EmbeddedCalendar(tmp_path / "calendar.db", names=("team",), time_zone=zone, clock=NOW.timestamp)
        store = f"sqlite:////{(tmp_path / 'handrail.db').as_posix().lstrip('/')}"
        try:
            async with Runtime(registry, store=store, capabilities={"calendar": calendar}, **options) as runtime:
                session = await runtime.open_session(user="ana")
                await session.begin_turn("m1")
                yield CalendarCase(runtime, calendar, session, tmp_path)
        finally:
            await calendar.close()

    return opened_calendar


async def _clash(calendar, start="2026-01-13T14:30:00Z", end="2026-01-13T16:00:00Z", uid="other", name="team"):
    times = {"start": datetime.fromisoformat(start), "end": datetime.fromisoformat(end)}
    await calendar.create(Draft(uid=uid, title="Secret plans", calendar=name, **times))


async def test_nothing_is_created_before_a_person_has_said_yes(open_calendar):
    async with open_calendar() as at:
        request = await at.held()
        assert await at.count() == 0
        response = await at.runtime.decline(request["id"], token=request["token"])
        assert response.error.type is ErrorType.DECLINED
        assert await at.count() == 0


async def test_the_preview_names_title_local_time_length_attendees_and_clashes(open_calendar):
    async with open_calendar() as at:
        await _clash(at.calendar)
        preview = (await at.held({**ARGS, "location": "Room 1\u202e"}))["preview"]
        assert preview == (
            'Create "Design review" in the calendar primary: Tuesday 13 January 2026, 14:00 (UTC+0000) to Tuesday 13 January '
            "2026, 15:00 (UTC+0000). Attendees (2): ana@example.com, ivo@example.com. Meeting link: yes.\n"
            "location: Room 1\\u{202e}\n"
            "Jitsi room in place of Zoom; no invitations are sent. "
            "Local time: Tue 13 Jan 2026, 15:00–16:00 (Europe/Zagreb), 1 h. "
            "Clashes with 1 busy time: Tue 13 Jan 2026, 15:30–17:00 in team."
        )


WINTER = {**ARGS, "start_time": "2026-01-13T14:00:00+01:00", "end_time": "2026-01-13T15:00:00+01:00"}


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"timeZone": "Europe/Zagreb"}, "Meeting link: yes.\nJitsi room in place of Zoom; no invitations are sent. It takes 1 h. "
            "Clashes with 1 busy time: Tue 13 Jan 2026, 14:30–17:00 in team."),
        ({"timeZone": "Asia/Tokyo"}, "Local time: Tue 13 Jan 2026, 22:00–23:00 (Asia/Tokyo), 1 h. "
            "Clashes with 1 busy time: Tue 13 Jan 2026, 22:30–Wed 14 Jan 2026, 01:00 in team."),
        ({}, "Meeting link: yes.\nJitsi room in place of Zoom; no invitations are sent. It takes 1 h. "
            "Clashes with 1 busy time: Tue 13 Jan 2026, 14:30–17:00 in team."),
        ({"timeZone": "Mars/Olympus"}, "Meeting link: yes.\nJitsi room in place of Zoom; no invitations are sent. It takes 1 h. "
            "Clashes with 1 busy time: Tue 13 Jan 2026, 14:30–17:00 in team."),
    ],
    ids=["the person's", "another than the call's", "nobody's", "an unknown one"],
)  # fmt: skip
async def test_a_calendar_without_a_zone_shows_one_clock_the_persons(open_calendar, attributes, says):
    async with open_calendar(zone="UTC", attributes=attributes) as at:
        await _clash(at.calendar, start="2026-01-13T13:30:00Z")
        preview = (await at.held(WINTER))["preview"]
        assert preview.endswith(says)
        assert preview.count("14:00") == 1, "no clock is shown twice"
        assert "(UTC)" not in preview


async def test_a_zone_that_the_calendar_names_is_shown_to_everybody(open_calendar):
    async with open_calendar(attributes={"timeZone": "Asia/Tokyo"}) as at:
        assert "Local time: Tue 13 Jan 2026, 15:00–16:00 (Europe/Zagreb)" in (await at.held())["preview"]


async def test_a_preview_without_clashes_says_so_and_many_clashes_are_counted(open_calendar):
    async with open_calendar() as at:
        assert (await at.held())["preview"].endswith("1 h. No clashes.")
        for number in range(5):
            await _clash(at.calendar, uid=f"n{number}")
        preview = (await at.held({**ARGS, "title": "Another"}, "call_2"))["preview"]
        assert "Clashes with 5 busy times:" in preview
        assert preview.endswith("; and 2 more.")
        assert "Secret" not in preview


async def test_a_preview_of_what_cannot_be_says_so(open_calendar):
    async with open_calendar() as at:
        preview = (await at.held({**ARGS, "end_time": "2026-01-13T13:00:00Z"}))["preview"]
        assert preview.endswith(
            "It cannot be created like this: The event does not end after it starts; end_time must come after start_time."
        )


async def test_the_event_is_in_the_calendar_with_everything_that_was_approved(open_calendar):
    async with open_calendar() as at:
        await _clash(at.calendar)
        response = await at.created({**ARGS, "description": "Agenda\nOne", "location": "Room 1"})
        data = response.data
        assert (data["calendar"], data["start"], data["end"]) == ("primary", ARGS["start_time"], ARGS["end_time"])
        assert data["attendees"] == ARGS["attendees"]
        assert data["meeting_link"].startswith("https://meet.jit.si/handrail-")
        assert data["html_link"] == f"/calendar/events/{data['event_id']}"
        assert data["conflicts"] == [
            {"start": "2026-01-13T14:30:00Z", "end": "2026-01-13T16:00:00Z", "status": "busy", "calendar": "team"}
        ]
        [lines] = await CalendarLibrary(at.calendar).lines_of("primary", data["uid"])
        assert "SUMMARY:Design review" in lines
        assert "DESCRIPTION:Agenda\\nOne" in lines
        assert "LOCATION:Room 1" in lines
        assert "ATTENDEE:mailto:ana@example.com" in lines


async def test_the_key_of_the_call_is_the_uid(open_calendar):
    async with open_calendar() as at:
        response = await at.created()
        [row] = await at.runtime.store.ledger_rows()
        assert response.data["uid"] == row.key


async def test_a_replayed_call_gets_the_same_event(open_calendar):
    async with open_calendar() as at:
        first = await at.created()
        again = await at.session.call(NAME, ARGS, call_id="call_1")
        assert again.meta["replayed"] is True
        assert again.data == first.data
        assert await at.count() == 1


async def test_a_reconnect_under_a_new_id_gets_the_same_event(open_calendar):
    async with open_calendar() as at:
        first = await at.created()
        session = await at.runtime.resume_session(at.session.id, token=at.session.token)
        again = await session.call(NAME, ARGS, call_id="call_after_reconnect")
        assert again.data == first.data
        assert await at.count() == 1


async def test_approving_twice_and_at_once_makes_one_event(open_calendar):
    async with open_calendar() as at:
        request = await at.held()
        answers = await asyncio.gather(*(at.runtime.approve(request["id"], token=request["token"]) for _ in range(5)))
        assert len({answer.data["event_id"] for answer in answers}) == 1
        assert await at.count() == 1


def _process(action, artifact, folder, *rest):
    return subprocess.Popen(
        [sys.executable, str(WORKER), action, str(artifact), str(folder), *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def test_two_processes_that_approve_make_one_event(open_calendar, artifact):
    async with open_calendar() as at:
        request = await at.held()
    approving = [_process("approve", artifact, at.folder, request["id"], request["token"]) for _ in range(2)]
    said = [await asyncio.to_thread(process.communicate, timeout=60) for process in approving]
    answers = [orjson.loads(out) for out, _ in said]
    assert [answer["ok"] for answer in answers] == [True, True], said
    assert answers[0]["data"] == answers[1]["data"]
    async with open_calendar() as again:
        assert await again.count() == 1


async def test_two_processes_that_take_the_session_over_under_new_ids_get_the_one_event(open_calendar, artifact):
    async with open_calendar() as at:
        first = await at.created()
    words = (at.session.id, at.session.token, orjson.dumps(ARGS).decode())
    for number in range(2):
        process = _process("again", artifact, at.folder, *words, f"call_new_{number}")
        out, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert orjson.loads(out)["data"] == first.data, err
    async with open_calendar() as again:
        assert await again.count() == 1


@pytest.mark.parametrize(("point", "events"), [("after_handler", 1), ("before_handler", 0)])
async def test_a_process_that_dies_leaves_one_event_or_none_and_reconcile_knows_which(
    open_calendar, artifact, point, events
):
    async with open_calendar() as at:
        request = await at.held()
    process = _process("die", artifact, at.folder, request["id"], request["token"], point)
    await asyncio.to_thread(process.communicate, timeout=60)
    assert process.returncode == -9
    async with open_calendar() as later:
        assert await later.count() == events
        again = await later.runtime.approve(request["id"], token=request["token"])
        assert again.error.type is ErrorType.CONFLICT
        [row] = await later.runtime.store.ledger_rows()
        assert row.state is LedgerState.UNKNOWN
        settled = await reconcile(later.runtime, row)
        assert settled.state is (LedgerState.SUCCEEDED if events else LedgerState.FAILED)
        envelope = orjson.loads(settled.envelope)
        if events:
            assert envelope["data"]["uid"] == row.key
        else:
            assert "not created" in envelope["error"]["message"]
        assert await later.count() == events


async def test_a_crash_right_after_the_event_was_made_never_makes_another(open_calendar):
    with pytest.raises((Crashed, asyncio.CancelledError)):
        async with open_calendar(crash=CrashAt("after_handler")) as at:
            await at.created()
    async with open_calendar() as later:
        assert await later.count() == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"end_time": "2026-01-13T13:00:00Z"}, "does not end after it starts"),
        ({"end_time": "2026-01-13T14:00:00Z"}, "does not end after it starts"),
        ({"end_time": "2027-06-13T14:00:00Z"}, "longer than 366 days"),
        ({"start_time": "0001-01-01T00:00:00Z", "end_time": "0001-01-01T01:00:00Z"}, "more than a year ago"),
        ({"start_time": "9999-12-31T00:00:00Z", "end_time": "9999-12-31T01:00:00Z"}, "50 years ahead"),
        ({"start_time": "0000-12-31T00:00:00Z"}, "no date that a calendar has"),
        ({"calendar": "prime"}, 'no calendar "prime"'),
    ],
    ids=["backwards", "no length", "very long", "year 1", "year 9999", "year 0", "unknown calendar"],
)
async def test_an_approved_event_that_cannot_be_is_refused_and_nothing_is_written(open_calendar, change, says):
    async with open_calendar() as at:
        response = await at.created({**ARGS, **change})
        assert response.error.type is ErrorType.VALIDATION
        assert response.error.partial_side_effects is False
        assert says in response.error.message
        assert await at.count() == 0


@pytest.mark.parametrize(
    "change",
    [
        {"title": ""},
        {"title": "x" * 201},
        {"start_time": "2026-01-13T14:00:00"},
        {"attendees": []},
        {"attendees": [f"a{number}@example.com" for number in range(51)]},
        {"attendees": [f"a{number}@example.com" for number in range(2_000)]},
        {"attendees": ["nobody"]},
        {"attendees": ["a@example.com\r\nBCC: b@example.com"]},
        {"description": "x" * 2001},
        {"uid": "mine"},
        {"approved": True},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_arguments_outside_of_the_schema_are_refused_and_nobody_is_asked(open_calendar, change):
    async with open_calendar() as at:
        response = await at.session.call(NAME, {**ARGS, **change})
        assert response.error.type is ErrorType.VALIDATION
        assert await at.count() == 0


async def test_it_is_for_text_only(open_calendar):
    async with open_calendar() as at:
        voice = await at.runtime.open_session(mode="voice")
        assert (await voice.call(NAME, ARGS)).error.type is ErrorType.MODE_RESTRICTED


@pytest.mark.parametrize("part", ["prepare", "write"])
async def test_a_calendar_that_fails_is_told_and_leaves_nothing(open_calendar, monkeypatch, part):
    async def fail(*args, **options):
        raise ToolError(ErrorType.TRANSIENT, "The calendar is away.", retryable=True)

    async with open_calendar() as at:
        monkeypatch.setattr(at.calendar.database, part, fail)
        response = await at.created()
        assert (response.error.type, response.error.partial_side_effects) == (ErrorType.TRANSIENT, False)
        monkeypatch.undo()
        assert (await at.created(call_id="call_2")).ok  # nothing happened, so it may be asked for again
        assert await at.count() == 1


async def test_a_preview_says_that_clashes_could_not_be_looked_up_and_asks_again_when_they_can(
    open_calendar, monkeypatch
):
    async with open_calendar() as at:
        clashes = at.calendar.clashes

        async def fails(**facts):
            raise ToolError(ErrorType.TRANSIENT, "The calendar did not answer.")

        monkeypatch.setattr(at.calendar, "clashes", fails)
        request = await at.held()
        assert request["preview"].endswith(NOT_LOOKED_UP)
        assert "No clashes" not in request["preview"]
        monkeypatch.setattr(at.calendar, "clashes", clashes)
        response = await at.runtime.approve(request["id"], token=request["token"])
        assert response.error.type is ErrorType.CONFIRMATION_REQUIRED
        assert response.error.confirmation_request["preview"].endswith("No clashes.")
        assert await at.count() == 0


async def test_a_damaged_calendar_is_one_clear_sentence(open_calendar, tmp_path):
    (tmp_path / "calendar.db").write_bytes(b"not a database at all, but long enough to look into" * 10)
    async with open_calendar() as at:
        response = await at.created()
        assert response.error.type is ErrorType.PERMANENT
        assert response.error.message.startswith('The calendar "calendar.db" is not a SQLite database')


def _examples():
    text = (TOOLS / "calendar-create-event" / "guide.md").read_text(encoding="utf-8")
    found = list(examples_in(text))
    return [pytest.param(*pair, id=f"line {pair[0].line}") for pair in zip(found[::2], found[1::2], strict=True)]


@pytest.mark.parametrize(("arguments", "shown"), _examples())
async def test_an_example_gives_what_the_guide_shows(open_calendar, arguments, shown):
    made_here = ("event_id", "uid", "etag", "html_link", "meeting_link")
    expected = orjson.loads(shown.text)
    async with open_calendar() as at:
        # The clash that one of the examples tells of.
        event = "UID:t\nDTSTART:20260114T130000Z\nDURATION:PT1H\nSTATUS:TENTATIVE"
        lines = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\n{event}\nEND:VEVENT\nEND:VCALENDAR"
        await CalendarLibrary(at.calendar).take_in([read_file("t", lines.encode(), UTC)], "primary")
        data = (await at.created(orjson.loads(arguments.text))).data
    assert {name: value for name, value in data.items() if name not in made_here} == {
        name: value for name, value in expected.items() if name not in made_here
    }
    for name in made_here:
        assert (data[name] is None) == (expected[name] is None)
        assert data[name] is None or len(data[name]) == len(expected[name])


@pytest.mark.parametrize("mark", ["\n", "\x1b[2J", "\x9b", "\u2028"], ids=["line", "escape", "c1", "separator"])
async def test_a_title_with_control_characters_is_refused(open_calendar, mark):
    async with open_calendar() as at:
        request = await at.held({**ARGS, "title": f"Design{mark}review"})
        assert "It cannot be created like this: The title has control characters" in request["preview"]
        response = await at.runtime.approve(request["id"], token=request["token"])
        assert (response.error.type, response.error.details[0]["pointer"]) == (ErrorType.VALIDATION, "/title")
        assert await at.count() == 0
