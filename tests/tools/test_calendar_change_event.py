"""calendar_update_event and calendar_cancel_event: held for a person, shown before and after, made once, settled."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

import handrail_reference
from handrail import Registry, Runtime
from handrail.cli import main
from handrail.contract.errors import ErrorType
from handrail.contract.store import LedgerState
from handrail.runtime.reconcile import reconcile
from handrail.testing import CrashAt, Crashed
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.file_import import read_file
from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Caller, Draft

TOOLS = Path(handrail_reference.__file__).parent / "tools"
UPDATE, CANCEL = "calendar_update_event", "calendar_cancel_event"
NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)
START, END = datetime(2026, 1, 13, 14, tzinfo=UTC), datetime(2026, 1, 13, 15, tzinfo=UTC)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    for name in ("calendar-update-event", "calendar-cancel-event"):
        shutil.copytree(TOOLS / name, folder / "tools" / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "tool_registry.json"
    assert main(["build", "--strict", str(folder / "tools"), "-o", str(path)]) == 0
    return path


class CalendarCase:
    """A runtime on a store and a calendar in files, with one event, and the person who approves."""

    def __init__(self, runtime, calendar, session, event):
        self.runtime, self.calendar, self.session, self.event = runtime, calendar, session, event

    async def held(self, tool, **args):
        response = await self.session.call(tool, {"event_id": self.event.event_id, **args}, call_id=f"c{args}")
        assert response.error.type is ErrorType.CONFIRMATION_REQUIRED, response.to_dict()
        async for event in self.session.events():
            if event.type == "confirmation":
                return event.data
        raise AssertionError("nobody was asked")

    async def done(self, tool, **args):
        request = await self.held(tool, **args)
        return await self.runtime.approve(request["id"], token=request["token"])

    async def stored(self):
        return await self.calendar.get(self.event.event_id)


@pytest.fixture
def open_calendar(artifact, tmp_path):
    @asynccontextmanager
    async def opened_calendar(**options):
        registry = Registry.load(artifact)
        registry.lock()
        calendar = EmbeddedCalendar(
            tmp_path / "calendar.db", names=("team",), time_zone="Europe/Zagreb", clock=NOW.timestamp
        )
        store = f"sqlite:////{(tmp_path / 'handrail.db').as_posix().lstrip('/')}"
        draft = Draft(uid="k1", title="Review", start=START, end=END, attendees=("ana@example.com", "ivo@example.com"))
        try:
            event = await calendar.create(draft, caller=Caller(user="ana"))
            capabilities = {"calendar": calendar}
            async with Runtime(
                registry, store=store, capabilities=capabilities, policy={"lease_ms": 20}, **options
            ) as runtime:
                session = await runtime.open_session(user="ana")
                await session.begin_turn("m1")
                yield CalendarCase(runtime, calendar, session, event)
        finally:
            await calendar.close()

    return opened_calendar


async def test_nothing_changes_before_a_person_has_said_yes(open_calendar):
    async with open_calendar() as at:
        for tool, args in ((UPDATE, {"title": "Retro"}), (CANCEL, {})):
            request = await at.held(tool, **args)
            assert (await at.runtime.decline(request["id"], token=request["token"])).error.type is ErrorType.DECLINED
        assert (await at.stored()).etag == at.event.etag


async def test_a_request_shows_the_event_before_and_after(open_calendar):
    async with open_calendar() as at:
        people = ["eva@example.com", "ivo@example.com"]
        request = await at.held(UPDATE, title="Retro", start_time="2026-01-13T16:00:00Z", attendees=people)
        assert request["preview"].endswith(
            'Before: "Review", Tue 13 Jan 2026, 15:00–16:00. After: "Retro", Tue 13 Jan 2026, 17:00–18:00 (Europe/Zagreb). '
            "Added: eva@example.com. Uninvited: ana@example.com. The attendees are not told. No clashes."
        )
        request = await at.held(CANCEL)
        assert request["preview"].endswith(
            '"Review", Tue 13 Jan 2026, 15:00–16:00 (Europe/Zagreb), with ana@example.com, ivo@example.com, is cancelled. The '
            "attendees are not told."
        )


async def test_an_event_that_is_moved_keeps_its_length_and_the_rest(open_calendar):
    async with open_calendar() as at:
        data = (await at.done(UPDATE, start_time="2026-01-13T16:30:00+01:00")).data
        assert (data["start"], data["end"]) == ("2026-01-13T16:30:00+01:00", "2026-01-13T17:30:00+01:00")
        assert (data["event_id"], data["title"], data["attendees"]) == (
            at.event.event_id,
            "Review",
            list(at.event.attendees),
        )
        assert data["etag"] != at.event.etag


@pytest.mark.parametrize("names", [("title", "location", "etag"), ("etag", "location", "title")])
async def test_in_whatever_order_the_model_names_arguments_one_yes_is_enough(open_calendar, names):
    async with open_calendar() as at:
        values = {"title": "Retro", "location": "Hall", "etag": at.event.etag}
        answer = await at.done(UPDATE, **{name: values[name] for name in names})
        assert answer.data["title"] == "Retro"


async def test_facts_that_change_between_the_request_and_the_yes_are_shown_again(open_calendar):
    async with open_calendar() as at:
        request = await at.held(UPDATE, title="Retro")
        await at.calendar.cancel(at.event.event_id, key="other")
        answer = await at.runtime.approve(request["id"], token=request["token"])
        assert answer.error.type is ErrorType.CONFIRMATION_REQUIRED
        assert "It cannot be changed like this" in answer.error.confirmation_request["preview"]


@pytest.mark.parametrize(
    ("tool", "args", "kind", "says"),
    [
        (UPDATE, {}, ErrorType.VALIDATION, "Nothing is to be changed"),
        (UPDATE, {"end_time": "2026-01-13T13:00:00Z"}, ErrorType.VALIDATION, "does not end after it starts"),
        (UPDATE, {"start_time": "2099-01-13T13:00:00Z"}, ErrorType.VALIDATION, "years ahead"),
        (UPDATE, {"title": "a\nb"}, ErrorType.VALIDATION, "one plain line"),
        (UPDATE, {"event_id": "evt_none", "title": "x"}, ErrorType.NOT_FOUND, "not in the calendar"),
        (UPDATE, {"title": "x", "etag": "old"}, ErrorType.CONFLICT, 'it is now "Review"'),
        (CANCEL, {"event_id": "evt_none"}, ErrorType.NOT_FOUND, "not in the calendar"),
        (CANCEL, {"etag": "old"}, ErrorType.CONFLICT, 'it is now "Review"'),
    ],
    ids=["nothing", "backwards", "far", "lines", "unknown", "stale", "unknown to cancel", "stale to cancel"],
)
async def test_what_cannot_be_is_refused_and_nothing_changes(open_calendar, tool, args, kind, says):
    async with open_calendar() as at:
        answer = await at.done(tool, **args)
        assert (answer.error.type, answer.error.partial_side_effects) == (kind, False)
        assert says in answer.error.message
        assert (await at.stored()).etag == at.event.etag


async def test_a_repeated_event_is_not_changed_by_a_tool(open_calendar):
    async with open_calendar() as at:
        event = "UID:r\nDTSTART:20260113T090000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY"
        text = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\n{event}\nEND:VEVENT\nEND:VCALENDAR".encode()
        await CalendarLibrary(at.calendar).take_in([read_file("t", text, UTC)], "primary")
        at.event = await at.calendar.find("r")
        for tool, args in ((UPDATE, {"title": "x"}), (CANCEL, {})):
            answer = await at.done(tool, **args)
            assert answer.error.type is ErrorType.VALIDATION
            assert "repeats" in answer.error.message


@pytest.mark.parametrize("point", ["before_handler", "after_handler"])
@pytest.mark.parametrize(("tool", "args"), [(UPDATE, {"title": "Retro"}), (CANCEL, {})], ids=["update", "cancel"])
async def test_after_a_crash_the_calendar_says_what_happened(open_calendar, tool, args, point):
    with pytest.raises((Crashed, asyncio.CancelledError)):
        async with open_calendar(crash=CrashAt(point)) as at:
            await at.done(tool, **args)
    async with open_calendar() as later:
        [row] = await later.runtime.store.ledger_rows()
        for _ in range(50):
            if row.state is LedgerState.UNKNOWN:
                break
            await asyncio.sleep(0.02)
            [row] = await later.runtime.store.ledger_rows()
        settled = await reconcile(later.runtime, row)
        happened = point == "after_handler"
        assert settled.state is (LedgerState.SUCCEEDED if happened else LedgerState.FAILED)
        event = await later.stored()
        assert (event.title == "Retro" or event.cancelled) is happened
        if happened:
            assert orjson.loads(settled.envelope)["data"]["event_id"] == event.event_id
