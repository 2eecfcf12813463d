"""The embedded calendar: time zones and daylight saving, privacy, tenants, creation, and a file that is not as it should be."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.services.calendar.kit import NOW, busy, fill, open_calendar, read

from handrail.contract.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar import database as database_module
from handrail_reference.services.calendar.gaps import merged
from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Busy, Caller, Draft
from handrail_reference.services.calendar.tables import length_class
from handrail_reference.services.meetings import JitsiMeetings

DAY = ("2026-01-13T00:00Z", "2026-01-14T00:00Z")
ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def calendar(tmp_path):
    return open_calendar(tmp_path, time_zone="Europe/Zagreb")


def draft(uid="k1", start="2026-01-13T14:00Z", end="2026-01-13T15:00Z", **more):
    times = {"start": datetime.fromisoformat(start), "end": datetime.fromisoformat(end)}
    return Draft(**{"uid": uid, "title": "Review", **times, **more})


ZONES = {
    "a night that clocks jump over": ("Europe/Zagreb", "20260329T013000", "20260329T033000", "00:30", "01:30"),
    "a start that no clock shows": ("Europe/Zagreb", "20260329T023000", "20260329T040000", "01:30", "02:00"),
    "a start that clocks show twice": ("Europe/Zagreb", "20261025T023000", "20261025T030000", "00:30", "02:00"),
    "a quarter of an hour off": ("Asia/Kathmandu", "20260113T090000", "20260113T100000", "03:15", "04:15"),
    "half an hour of summer time": ("Australia/Lord_Howe", "20260405T013000", "20260405T023000", "14:30", "16:00"),
    "the day that Samoa left out": ("Pacific/Apia", "20111229T230000", "20111231T010000", "09:00", "11:00"),
}


@pytest.mark.parametrize("name", ZONES)
async def test_clocks_that_change_are_followed(calendar, name):
    zone, start, end, begun, ended = ZONES[name]
    await fill(calendar, f"UID:a\nDTSTART;TZID={zone}:{start}\nDTEND;TZID={zone}:{end}")
    day = datetime.strptime(start[:8], "%Y%m%d").replace(tzinfo=UTC)
    window = ((day + timedelta(days=step)).isoformat() for step in (-2, 3))
    assert [(first[11:], last[11:]) for first, last in await busy(calendar, *window)] == [(begun, ended)]
    await calendar.close()


async def test_a_length_in_hours_is_exact_and_one_in_days_goes_by_the_wall(calendar):
    await fill(
        calendar,
        "UID:a\nDTSTART;TZID=Europe/Zagreb:20260329T010000\nDURATION:PT2H",
        "UID:b\nDTSTART;TZID=Europe/Zagreb:20260328T120000\nDURATION:P1D",
    )
    found = await busy(calendar, "2026-03-28T00:00Z", "2026-03-31T00:00Z")
    assert found == [("2026-03-28T11:00", "2026-03-29T10:00"), ("2026-03-29T00:00", "2026-03-29T02:00")]
    await calendar.close()


async def test_a_whole_day_is_one_of_the_calendars_own_zone(tmp_path):
    for zone, expected in (
        ("Europe/Zagreb", "2026-01-12T23:00"),
        ("Pacific/Apia", "2026-01-12T11:00"),
        ("UTC", "2026-01-13T00:00"),
    ):
        folder = tmp_path / zone.replace("/", "-")
        folder.mkdir()
        calendar = open_calendar(folder, time_zone=zone)
        await fill(calendar, "UID:a\nDTSTART;VALUE=DATE:20260113", "UID:b\nDTSTART:20260213T000000\nDURATION:PT1H")
        assert [begun for begun, _ in await busy(calendar, "2026-01-12T00:00Z", "2026-01-15T00:00Z")] == [expected]
        floating = (datetime.fromisoformat(expected) + timedelta(days=31)).isoformat("T", "minutes")
        assert [begun for begun, _ in await busy(calendar, "2026-02-12T00:00Z", "2026-02-15T00:00Z")] == [floating]
        await calendar.close()


async def test_another_home_zone_moves_what_floats_without_a_new_import(tmp_path):
    first = open_calendar(tmp_path, time_zone="UTC")
    await fill(
        first, "UID:a\nDTSTART;VALUE=DATE:20260113", "UID:b\nDTSTART;VALUE=DATE:20260105\nRRULE:FREQ=WEEKLY;COUNT=2"
    )
    await first.close()
    second = open_calendar(tmp_path, time_zone="Asia/Kathmandu")
    found = await busy(second, "2026-01-11T00:00Z", "2026-01-15T00:00Z")
    assert found == [("2026-01-11T18:15", "2026-01-12T18:15"), ("2026-01-12T18:15", "2026-01-13T18:15")]
    await second.close()


async def test_what_takes_no_time_or_is_marked_free_is_free(calendar):
    await fill(
        calendar,
        "UID:a\nDTSTART:20260113T100000Z\nDTEND:20260113T110000Z\nTRANSP:TRANSPARENT",
        "UID:b\nDTSTART:20260113T100000Z\nDTEND:20260113T110000Z\nSTATUS:CANCELLED",
        "UID:c\nDTSTART:20260113T100000Z",
        "UID:d\nDTSTART:20260113T100000Z\nDTEND:20260113T100000Z",
        "UID:e\nDTSTART:20260113T120000Z\nDURATION:PT1H\nSTATUS:TENTATIVE",
    )
    start, end = map(datetime.fromisoformat, DAY)
    found = await calendar.availability(start=start, end=end, calendars=["primary"])
    assert [(one.start.hour, one.status) for one in found.busy] == [(12, "tentative")]
    assert [(gap.start.hour, gap.minutes) for gap in found.free] == [(0, 720), (13, 660)]
    await calendar.close()


async def test_overlapping_calendars_are_merged_before_gaps_are_looked_for(calendar):
    await fill(calendar, "UID:a\nDTSTART:20260113T100000Z\nDURATION:PT2H")
    await fill(
        calendar,
        "UID:b\nDTSTART:20260113T110000Z\nDURATION:PT2H",
        "UID:c\nDTSTART:20260113T130000Z\nDURATION:PT1H",
        "UID:d\nDTSTART:20260113T103000Z\nDURATION:PT15M",
        name="team",
    )
    start, end = map(datetime.fromisoformat, DAY)
    found = await calendar.availability(start=start, end=end, calendars=["primary", "team"])
    assert [(gap.start.hour, gap.end.hour) for gap in found.free] == [(0, 10), (14, 0)]
    assert (len(found.busy), found.busy_minutes) == (4, 240)
    await calendar.close()


async def test_titles_are_for_those_who_ask_and_private_ones_for_nobody(calendar):
    shown = "UID:a\nDTSTART:20260113T100000Z\nDURATION:PT1H\nSUMMARY:Stand\\nup\u202e\nATTENDEE:mailto:a@example.com"
    secrets = [
        f"UID:{word}\nDTSTART:20260113T120000Z\nDURATION:PT1H\nSUMMARY:Doctor\nCLASS:{word}"
        for word in ("PRIVATE", "CONFIDENTIAL")
    ]
    repeated = "UID:r\nDTSTART:20260101T150000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY\nSUMMARY:Doctor\nCLASS:PRIVATE"
    await fill(calendar, shown, *secrets, repeated)
    start, end = map(datetime.fromisoformat, DAY)
    plain = await calendar.availability(start=start, end=end, calendars=["primary"])
    assert {(one.title, one.attendees) for one in plain.busy} == {(None, None)}
    detailed = await calendar.availability(start=start, end=end, calendars=["primary"], details=True)
    assert [(one.title, one.attendees) for one in detailed.busy] == [
        ("Stand up", 1),
        (None, None),
        (None, None),
        (None, None),
    ]
    assert "Doctor" not in repr(detailed)
    await calendar.close()


async def test_a_tenant_never_sees_the_calendars_of_another(calendar):
    await fill(calendar, "UID:a\nDTSTART:20260113T100000Z\nDURATION:PT1H", tenant="acme")
    made = await calendar.create(draft(), caller=Caller(tenant="acme", user="ana"))
    assert len(await busy(calendar, *DAY, caller=Caller(tenant="acme"))) == 2
    for tenant in ("", "Acme", "acme2", "%"):
        assert await busy(calendar, *DAY, caller=Caller(tenant=tenant)) == []
        assert await calendar.find("k1", caller=Caller(tenant=tenant)) is None
    other = await calendar.create(draft(title="Other"), caller=Caller(tenant="globex"))
    assert other.event_id != made.event_id
    await calendar.close()


async def test_an_event_is_created_once_whatever_is_asked_again(calendar):
    first = await calendar.create(draft(attendees=("a@example.com", "b@example.com"), with_meeting=True))
    again = await calendar.create(
        draft(title="Something else", calendar="team", start="2026-01-13T16:00Z", end="2026-01-13T17:00Z")
    )
    assert again == first
    assert first.attendees == ("a@example.com", "b@example.com")
    assert first.meeting_link.startswith("https://meet.jit.si/handrail-")
    assert first.link == f"/calendar/events/{first.event_id}"
    assert await calendar.find("k1") == first
    assert await CalendarLibrary(calendar).counts() == {"primary": 1, "team": 0}
    await calendar.close()


async def test_many_at_once_create_one_event(calendar):
    made = await asyncio.gather(*(calendar.create(draft(with_meeting=True)) for _ in range(30)))
    assert len(set(made)) == 1
    assert len(await busy(calendar, *DAY)) == 1
    await calendar.close()


async def test_clashes_are_told_and_do_not_hinder(calendar):
    await fill(calendar, "UID:a\nDTSTART:20260113T143000Z\nDURATION:PT1H\nSUMMARY:Secret", name="team")
    await fill(
        calendar, "UID:b\nDTSTART:20260113T150000Z\nDURATION:PT1H", "UID:c\nDTSTART:20260113T130000Z\nDURATION:PT1H"
    )
    asked = await calendar.clashes(start=draft().start, end=draft().end, calendar="primary")
    made = await calendar.create(draft())
    assert [(one.calendar, one.start.minute) for one in asked] == [("team", 30)]
    assert made.conflicts == asked
    assert "Secret" not in repr(made)
    await calendar.close()


async def test_of_several_that_are_created_at_once_each_sees_those_before_it(calendar):
    made = await asyncio.gather(*(calendar.create(draft(f"k{number}")) for number in range(4)))
    assert sorted(len(one.conflicts) for one in made) == [0, 1, 2, 3]
    again = await calendar.create(draft("k0"))
    assert len(again.conflicts) == 3
    await calendar.close()


async def test_a_look_for_clashes_that_fails_leaves_no_event(calendar, monkeypatch):
    clashing = calendar._clashing

    def fail(db, *more):
        if db.execute("SELECT count(*) FROM item").fetchone()[0]:
            raise ToolError(ErrorType.TRANSIENT, "The disk is gone.")
        return clashing(db, *more)

    monkeypatch.setattr(calendar, "_clashing", fail)
    with pytest.raises(ToolError, match="disk is gone"):
        await calendar.create(draft())
    assert await CalendarLibrary(calendar).counts() == {"primary": 0, "team": 0}
    await calendar.close()


async def test_whatever_is_in_a_title_stays_text(calendar):
    title = "Lunch\r\nEND:VEVENT\r\nBEGIN:VEVENT;DROP TABLE item;--\x07 \\n, ž"
    made = await calendar.create(draft(title=title, description="a\nb;c", location="x, y"))
    out = await CalendarLibrary(calendar).give_out("primary")
    assert out.count(b"\r\nBEGIN:VEVENT\r\n") == 1
    await CalendarLibrary(calendar).delete("primary", made.uid)
    report = await CalendarLibrary(calendar).take_in([read(calendar, out)], "team")
    assert (report.added, report.problems) == (1, ())
    await calendar.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"end": "2026-01-13T13:00Z"},
        {"end": "2026-01-13T14:00Z"},
        {"start": "0001-01-01T00:00Z"},
        {"end": "9999-12-31T23:59Z"},
        {"uid": ""},
        {"calendar": "prime"},
    ],
    ids=lambda wrong: next(iter(wrong.items()))[0] + next(iter(wrong.values()))[:4],
)
async def test_an_event_that_cannot_be_is_refused_and_nothing_is_written(calendar, wrong):
    with pytest.raises(ToolError) as caught:
        await calendar.create(draft(**wrong))
    assert caught.value.type is ErrorType.VALIDATION
    assert await CalendarLibrary(calendar).counts() == {"primary": 0, "team": 0}
    await calendar.close()


async def test_an_unknown_calendar_is_named_with_the_nearest(calendar):
    with pytest.raises(ToolError, match='no calendar "taem"; known are primary, team') as caught:
        await busy(calendar, *DAY, calendars=["taem"])
    assert caught.value.suggestion == 'Use "team".'
    await calendar.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"time_zone": "Mars/Olympus"}, "IANA name"),
        ({"time_zone": "../../etc/passwd"}, "IANA name"),
        ({"names": ("Team Calendar",)}, "small letters"),
        ({"names": ("",)}, "small letters"),
    ],
    ids=["zone", "path", "blank in a name", "empty name"],
)
def test_a_setting_that_cannot_be_is_named(tmp_path, settings, says):
    with pytest.raises(ConfigError, match=says):
        open_calendar(tmp_path, **settings)


@pytest.mark.parametrize(
    "url", ["ftp://x", "meet.jit.si", "https://", "https://a/?q=1", "https://u:p@host", "http://[", ""]
)
def test_a_meeting_server_needs_an_address(url):
    with pytest.raises(ConfigError, match="meeting_url"):
        JitsiMeetings(url)


async def test_an_event_has_one_room_that_nobody_can_compute_from_what_is_shown_of_it(tmp_path):
    meetings = JitsiMeetings("https://meet.example.com/rooms/")
    rooms = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        calendar = open_calendar(tmp_path / str(number), meetings=meetings)
        booking = draft(with_meeting=True)
        rooms.append((await calendar.create(booking)).meeting_link)
        assert (await calendar.create(booking)).meeting_link == rooms[-1]
        assert (await calendar.settle_creation(booking)).meeting_link == rooms[-1]
        await calendar.close()
    for room in rooms:
        assert room.startswith("https://meet.example.com/rooms/handrail-")
        assert len(room.rpartition("-")[2]) == 32
    assert rooms[0] != rooms[1], "the same event in every way, and another room"


def test_a_length_class_is_never_shorter_than_what_is_in_it():
    for seconds in (0, 1, 1023, 1024, 1025, 3600, 86400, 10**8, 2**33, 2**33 + 1):
        assert seconds <= 2 ** length_class(seconds)


async def test_a_long_event_is_found_from_its_middle_among_many_short_ones(calendar):
    short = [f"UID:s{n}\nDTSTART:202601{1 + n % 28:02}T{n % 24:02}0000Z\nDURATION:PT30M" for n in range(300)]
    await fill(calendar, "UID:long\nDTSTART:20240101T000000Z\nDTEND:20270101T000000Z", *short)
    found = await busy(calendar, "2026-06-01T00:00Z", "2026-06-02T00:00Z")
    assert found == [("2024-01-01T00:00", "2027-01-01T00:00")]
    assert len(await busy(calendar, "2026-01-01T00:00Z", "2026-01-29T00:00Z")) == 301
    await calendar.close()


async def test_a_repeated_event_is_listed_once_wherever_the_range_begins(calendar):
    """Repeated events are followed by blocks of days; what lies in two of them is still one event."""
    await fill(calendar, "UID:a\nDTSTART:20260101T180000Z\nDURATION:PT30H\nRRULE:FREQ=DAILY")
    for first in range(20):
        start = datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(days=first)
        found = await busy(calendar, start.isoformat(), (start + timedelta(days=31)).isoformat())
        assert len(found) == len(set(found)) == 32
    await calendar.close()


def test_busy_times_that_overlap_or_touch_are_one():
    def at(hour):
        return datetime(2026, 1, 13, hour, tzinfo=UTC)

    hours = [(9, 10), (10, 11), (12, 15), (13, 14), (20, 22)]
    found = [Busy(start=at(begun), end=at(ended), status="busy", calendar="primary") for begun, ended in hours]
    assert merged(found, at(8), at(21)) == [(at(9), at(11)), (at(12), at(15)), (at(20), at(21))]


# The file


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            b"this is no database, only text that is long enough to be read as a header. " * 20,
            "is not a SQLite database",
        ),
        (None, "a database of another program"),
    ],
    ids=["text", "another program"],
)
async def test_a_file_that_is_no_calendar_is_named_and_left_as_it_was(tmp_path, content, says):
    path = tmp_path / "calendar.db"
    if content is None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("CREATE TABLE theirs (x)")
        db.close()
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    calendar = open_calendar(tmp_path)
    for request in (busy(calendar, *DAY), calendar.create(draft())):
        with pytest.raises(ToolError, match=says) as caught:
            await request
        assert caught.value.type is ErrorType.PERMANENT
    await calendar.close()
    assert path.read_bytes() == before


async def test_a_damaged_file_is_named_in_one_sentence(tmp_path):
    calendar = open_calendar(tmp_path)
    await fill(
        calendar, *(f"UID:s{n}\nDTSTART:20260113T100000Z\nDURATION:PT30M\nSUMMARY:{'x' * 200}" for n in range(200))
    )
    await calendar.close()
    path = tmp_path / "calendar.db"
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    broken = open_calendar(tmp_path)
    with pytest.raises(ToolError, match="is damaged; restore it from a copy"):
        await busy(broken, *DAY)
    await broken.close()


async def test_a_calendar_of_a_newer_handrail_is_not_touched(tmp_path):
    calendar = open_calendar(tmp_path)
    await calendar.create(draft())
    await calendar.close()
    with closing(sqlite3.connect(tmp_path / "calendar.db")) as db, db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    newer = open_calendar(tmp_path)
    with pytest.raises(ToolError, match="written by a newer Handrail"):
        await busy(newer, *DAY)
    await newer.close()


@pytest.mark.parametrize("wrong", ["no folder", "a folder", "no right"])
async def test_where_the_file_lies_is_for_the_log_and_not_for_the_model(tmp_path, caplog, monkeypatch, wrong):
    calendar = open_calendar(tmp_path / "gone" if wrong == "no folder" else tmp_path)
    if wrong == "a folder":
        (tmp_path / "calendar.db").mkdir()
    if wrong == "no right":

        def refuse(*args):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ToolError, match=r'calendar "calendar\.db"') as caught:
        await calendar.create(draft())
    assert caught.value.type is ErrorType.PERMANENT
    assert str(tmp_path) not in caught.value.message
    assert str(tmp_path) in caplog.text
    await calendar.close()


async def test_a_file_that_is_ready_can_be_opened_for_reading_while_another_process_writes(tmp_path):
    first = open_calendar(tmp_path)
    await first.create(draft())
    await first.close()
    other = sqlite3.connect(tmp_path / "calendar.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    second = open_calendar(tmp_path, busy_ms=50)
    assert len(await busy(second, *DAY)) == 1
    other.execute("ROLLBACK")
    other.close()
    await second.close()


async def test_a_file_that_another_process_holds_is_a_passing_trouble(tmp_path):
    calendar = open_calendar(tmp_path, busy_ms=50)
    await calendar.create(draft())
    other = sqlite3.connect(tmp_path / "calendar.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ToolError, match="locked by another process") as caught:
        await calendar.create(draft("k2"))
    assert (caught.value.type, caught.value.retryable, caught.value.partial_side_effects) == (
        ErrorType.TRANSIENT,
        True,
        False,
    )
    assert len(await busy(calendar, *DAY)) == 1  # reading continues
    other.execute("ROLLBACK")
    other.close()
    assert (await calendar.create(draft("k2"))).uid == "k2"
    await calendar.close()


async def test_too_many_at_once_are_told_to_wait(calendar, monkeypatch):
    monkeypatch.setattr(database_module, "_MAX_WAITING", 3)
    answers = await asyncio.gather(*(busy(calendar, *DAY) for _ in range(6)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, ToolError)]
    assert [(error.type, error.retry_after) for error in refused] == [(ErrorType.RATE_LIMIT, 1.0)] * 3
    await calendar.close()
    with pytest.raises(ToolError, match="closed"):
        await busy(calendar, *DAY)


async def test_a_file_that_may_not_be_written_is_a_matter_of_rights(calendar):
    await calendar.create(draft())

    def refuse(db):
        db.execute("PRAGMA query_only = ON")
        try:
            db.execute("DELETE FROM item")
        finally:
            db.execute("PRAGMA query_only = OFF")

    with pytest.raises(ToolError, match="may only be read") as caught:
        await calendar.database.write(refuse)
    assert caught.value.type is ErrorType.AUTH
    assert len(await busy(calendar, *DAY)) == 1
    await calendar.close()


async def test_a_write_whose_caller_has_gone_is_finished(tmp_path):
    calendar = open_calendar(tmp_path)
    begun, gone = threading.Event(), threading.Event()

    def work(db):
        begun.set()
        gone.wait(10)
        db.execute("INSERT INTO calendar (tenant, name) VALUES ('acme', 'primary')")

    task = asyncio.create_task(calendar.database.write(work))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    gone.set()
    await calendar.close()
    again = open_calendar(tmp_path)
    assert await again.database.read(lambda db: db.execute("SELECT tenant FROM calendar").fetchall()) == [("acme",)]
    await again.close()


WORKER = """
import asyncio, sys
from datetime import datetime
from pathlib import Path
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.port import Draft

async def main():
    calendar = EmbeddedCalendar(Path(sys.argv[1]))
    start, end = map(datetime.fromisoformat, ("2026-01-13T14:00Z", "2026-01-13T15:00Z"))
    for number in range(20):
        made = await calendar.create(Draft(uid=f"k{number}", title=sys.argv[2], start=start, end=end))
        print(made.event_id)
    await calendar.close()

asyncio.run(main())
"""


async def test_processes_that_start_together_on_a_new_file_make_each_event_once(tmp_path):
    path = str(tmp_path / "calendar.db")
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, path, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for name in ("one", "two", "three")
    ]
    said = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    assert len({out for out, _ in said}) == 1
    calendar = open_calendar(tmp_path)
    assert (await CalendarLibrary(calendar).counts())["primary"] == 20
    await calendar.close()


async def test_the_loop_is_never_held_by_a_large_calendar(calendar):
    """What takes long is done in threads: the loop goes round while a thousand repeated events are read and followed."""
    await fill(
        calendar,
        *(f"UID:r{n}\nDTSTART:20200106T{n % 24:02}0000Z\nDURATION:PT30M\nRRULE:FREQ=WEEKLY" for n in range(300)),
    )
    rounds = 0

    async def turn():
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    turning = asyncio.create_task(turn())
    found = await busy(calendar, "2026-01-01T00:00Z", "2026-02-01T00:00Z")
    turning.cancel()
    assert len(found) == 300 * 4
    assert rounds > 10
    assert calendar.now() == NOW
    await calendar.close()
