"""calendar_get_availability, through the pipeline and on a real calendar."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

import handrail
import handrail_reference
from handrail.build.guide import examples_in
from handrail.contract.errors import ErrorType, ToolError
from handrail.testing import open_tools
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.file_import import read_file
from handrail_reference.services.calendar.library import CalendarLibrary

TOOLS = Path(handrail_reference.__file__).parent / "tools"
NAME = "calendar_get_availability"
NOW = datetime(2026, 1, 12, 9, tzinfo=UTC)
PRIMARY = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:client
DTSTART:20260113T140000Z
DURATION:PT1H
SUMMARY:Client call
ATTENDEE:mailto:ana@example.com
END:VEVENT
BEGIN:VEVENT
UID:doctor
DTSTART:20260114T093000Z
DTEND:20260114T103000Z
STATUS:TENTATIVE
CLASS:PRIVATE
SUMMARY:Doctor
END:VEVENT
END:VCALENDAR
"""
TEAM = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:standup
DTSTART;TZID=Europe/Zagreb:20260105T100000
DURATION:PT1H
RRULE:FREQ=WEEKLY;BYDAY=MO,WE
SUMMARY:Stand-up
ATTENDEE:mailto:a@example.com
ATTENDEE:mailto:b@example.com
ATTENDEE:mailto:c@example.com
ATTENDEE:mailto:d@example.com
ATTENDEE:mailto:e@example.com
END:VEVENT
END:VCALENDAR
"""


async def _filled(calendar):
    for name, text in (("primary", PRIMARY), ("team", TEAM)):
        await CalendarLibrary(calendar).take_in([read_file(name, text.encode(), calendar.zone)], name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    shutil.copytree(TOOLS / "calendar-get-availability", folder / "calendar-get-availability")
    return folder


@pytest.fixture(scope="module")
def calendar(tmp_path_factory):
    path = tmp_path_factory.mktemp("calendar") / "calendar.db"
    calendar = EmbeddedCalendar(path, names=("team",), time_zone="Europe/Zagreb", clock=NOW.timestamp)
    asyncio.run(_filled(calendar))
    yield calendar
    asyncio.run(calendar.close())


@pytest.fixture(scope="module")
def tools(folder, calendar):
    with open_tools(folder, capabilities={"calendar": calendar}) as tools:
        yield tools


def ask(tools, start="2026-01-13T12:00:00Z", end="2026-01-13T17:00:00Z", **more):
    return tools.call(NAME, {"start_date": start, "end_date": end, **more})


def _examples():
    text = (TOOLS / "calendar-get-availability" / "guide.md").read_text(encoding="utf-8")
    found = list(examples_in(text))
    return [pytest.param(*pair, id=f"line {pair[0].line}") for pair in zip(found[::2], found[1::2], strict=True)]


@pytest.mark.parametrize(("arguments", "shown"), _examples())
def test_an_example_gives_what_the_guide_shows(tools, arguments, shown):
    response = tools.call(NAME, orjson.loads(arguments.text)).to_dict()
    expected = orjson.loads(shown.text)
    if "ok" in expected:
        assert response["ok"] is False
        assert {name: response["error"].get(name) for name in expected["error"]} == expected["error"]
    else:
        assert response["data"] == expected


def test_details_are_told_only_when_asked_for_and_private_ones_never(tools):
    days = {"start": "2026-01-13T00:00:00Z", "end": "2026-01-15T00:00:00Z", "calendars": ["primary", "team"]}
    plain = ask(tools, **days)
    assert all(set(event) == {"start", "end", "status", "calendar"} for event in plain.data["existing_events"])
    detailed = ask(tools, **days, include_details=True)
    assert [event["title"] for event in detailed.data["existing_events"]] == ["Client call", "Stand-up", None]
    assert "Doctor" not in orjson.dumps(detailed.to_dict()).decode()


def test_an_empty_range_is_free_from_end_to_end(tools):
    data = ask(tools, "2026-02-07T00:00:00+01:00", "2026-02-08T00:00:00+01:00").data
    assert data["existing_events"] == []
    assert data["available_slots"] == [
        {"start": "2026-02-07T00:00:00+01:00", "end": "2026-02-08T00:00:00+01:00", "duration_minutes": 1440}
    ]
    assert data["summary"] == "0 events taking 0 minutes; 1 free slot of at least 30 minutes, 1440 minutes in all."


def test_slots_shorter_than_asked_are_left_out(tools):
    few = ask(tools, "2026-01-13T13:40:00Z", "2026-01-13T15:45:00Z").data["available_slots"]
    assert [slot["duration_minutes"] for slot in few] == [45]
    more = ask(tools, "2026-01-13T13:40:00Z", "2026-01-13T15:45:00Z", min_duration_minutes=15).data["available_slots"]
    assert [slot["duration_minutes"] for slot in more] == [20, 45]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"start": "2026-01-13T17:00:00Z"}, "ends before it begins"),
        ({"end": "2026-02-13T12:00:01Z"}, "longer than 31 days"),
        ({"start": "2025-01-01T00:00:00Z", "end": "2025-01-02T00:00:00Z"}, "more than a year ago"),
        ({"start": "0001-01-01T00:00:00Z", "end": "0001-01-02T00:00:00Z"}, "more than a year ago"),
        ({"start": "0001-01-01T00:00:00+14:00", "end": "0001-01-02T00:00:00Z"}, "more than a year ago"),
        ({"start": "0000-01-01T00:00:00Z", "end": "0000-01-02T00:00:00Z"}, "no date that a calendar has"),
        ({"start": "9999-12-31T00:00:00Z", "end": "9999-12-31T23:59:59Z"}, "50 years ahead"),
        ({"start": "9999-12-31T00:00:00-10:00", "end": "9999-12-31T23:59:59-10:00"}, ""),
        ({"start": "2026-01-13T12:00:00"}, ""),
        ({"start": "2026-01-13"}, ""),
        ({"start": "tomorrow"}, ""),
        ({"calendars": ["prime"]}, 'no calendar "prime"; known are primary, team'),
        ({"calendars": ["'; DROP TABLE item; --"]}, "no calendar"),
        ({"calendars": []}, ""),
        ({"min_duration_minutes": 14}, ""),
        ({"min_duration_minutes": 481}, ""),
        ({"unknown": 1}, ""),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(map(str, value.values()))[:40],
)
def test_what_cannot_be_asked_is_refused_with_a_reason(tools, args, says):
    response = ask(tools, **args)
    assert response.error.type is ErrorType.VALIDATION
    assert response.error.partial_side_effects is False
    assert says in response.error.message


def test_a_whole_year_back_and_31_days_are_allowed(tools):
    assert ask(tools, "2025-01-12T00:00:00Z", "2025-02-12T00:00:00Z").ok


def test_it_is_for_text_and_costs_retrieval(tools):
    args = {"start_date": "2026-01-13T12:00:00Z", "end_date": "2026-01-13T17:00:00Z"}
    assert tools.call(NAME, args, mode="voice").error.type is ErrorType.MODE_RESTRICTED

    async def six_in_a_turn():
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            await session.begin_turn()
            return [await session.call(NAME, {**args, "min_duration_minutes": 15 + n}) for n in range(6)]

    answers = asyncio.run(six_in_a_turn())
    assert [answer.ok for answer in answers] == [True] * 5 + [False]
    assert answers[-1].error.type is ErrorType.BUDGET_EXCEEDED


def test_the_same_call_id_is_answered_from_before(tools):
    args = {"start_date": "2026-01-13T12:00:00Z", "end_date": "2026-01-13T17:00:00Z"}

    async def twice():
        async with tools.runtime() as runtime:
            session = await runtime.open_session()
            await session.begin_turn()
            return [await session.call(NAME, args, call_id="call_1") for _ in range(2)]

    first, second = asyncio.run(twice())
    assert second.meta["replayed"] is True
    assert second.data == first.data


class Failing:
    """A backend that fails as a remote one may."""

    def __init__(self, error):
        self.error = error

    def now(self):
        return NOW

    async def availability(self, **asked):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        ToolError(ErrorType.AUTH, "The calendar denies access."),
        ToolError(ErrorType.RATE_LIMIT, "Too many requests.", retryable=True, retry_after=7),
        ToolError(ErrorType.TRANSIENT, "The calendar does not answer.", retryable=True),
    ],
    ids=lambda error: error.type.value,
)
def test_what_the_calendar_says_reaches_the_model(folder, error):
    with open_tools(folder, capabilities={"calendar": Failing(error)}) as tools:
        told = ask(tools).error
    assert (told.type, told.message, told.retryable) == (error.type, error.message, error.retryable)
    assert told.retry_after == error.retry_after


def test_a_host_without_a_calendar_fails_at_its_start(folder):
    with (
        open_tools(folder) as tools,
        pytest.raises(handrail.contract.errors.HandrailError, match='needs the capability "calendar"'),
    ):
        handrail.Runtime(tools.registry, store="memory:")


def test_only_the_tenant_of_the_session_is_looked_at(tools):
    args = {"start_date": "2026-01-13T12:00:00Z", "end_date": "2026-01-13T17:00:00Z"}

    async def as_another():
        async with tools.runtime() as runtime:
            session = await runtime.open_session(tenant="acme")
            return await session.call(NAME, args)

    assert asyncio.run(as_another()).data["existing_events"] == []


def test_a_crowded_month_is_cut_and_says_so(folder, tmp_path):
    calendar = EmbeddedCalendar(tmp_path / "calendar.db", clock=NOW.timestamp)
    event = "UID:h\nDTSTART:20260101T000000Z\nDURATION:PT20M\nRRULE:FREQ=HOURLY"
    rule = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\n{event}\nEND:VEVENT\nEND:VCALENDAR"

    async def fill():
        await CalendarLibrary(calendar).take_in([read_file("h", rule.encode(), UTC)], "primary")

    asyncio.run(fill())
    with open_tools(folder, capabilities={"calendar": calendar}) as tools:
        data = ask(tools, "2026-01-13T00:00:00Z", "2026-02-13T00:00:00Z").data
    assert len(data["existing_events"]) == 500
    assert len(data["available_slots"]) == 31 * 24
    assert data["summary"].startswith("744 events taking 14880 minutes (the first 500 are listed); 744 free slots")
    asyncio.run(calendar.close())
