"""iCalendar files in and out: idempotent, newest wins, broken parts named and left out, nothing by half."""

from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.calendar.kit import busy, fill, open_calendar, read, sheet

from handrail.contract.errors import ToolError, UsageError
from handrail_reference.services.calendar.components import MAX_DATES
from handrail_reference.services.calendar.failures import BadFile
from handrail_reference.services.calendar.file_import import read_file
from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.lines import MAX_FILE_BYTES
from handrail_reference.services.calendar.zones import known_name

PLAIN = "UID:a\nDTSTAMP:20260101T000000Z\nDTSTART:20260113T140000Z\nDTEND:20260113T150000Z\nSUMMARY:Plain"
DAY = ("2026-01-13T00:00Z", "2026-01-14T00:00Z")
ODD_ZONE = """BEGIN:VTIMEZONE
TZID:{name}
BEGIN:STANDARD
DTSTART:16010101T030000
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
TZOFFSETFROM:{summer}
TZOFFSETTO:{winter}
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3
TZOFFSETFROM:{winter}
TZOFFSETTO:{summer}
END:DAYLIGHT
END:VTIMEZONE
"""


@pytest.fixture
def calendar(tmp_path):
    return open_calendar(tmp_path)


async def test_importing_again_changes_nothing(calendar):
    first = await fill(calendar, PLAIN, "DTSTART:20260113T160000Z\nDURATION:PT1H\nSUMMARY:No UID")
    again = await fill(calendar, PLAIN, "DTSTART:20260113T160000Z\nDURATION:PT1H\nSUMMARY:No UID")
    assert (first.added, first.unchanged, again.added, again.updated, again.unchanged) == (2, 0, 0, 0, 2)
    assert len(await busy(calendar, *DAY)) == 2
    await calendar.close()


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("SEQUENCE:1\nDTSTAMP:20250101T000000Z", "updated"),
        ("DTSTAMP:20260102T000000Z", "updated"),
        ("DTSTAMP:20260101T000000Z\nLAST-MODIFIED:20260105T000000Z", "updated"),
        ("DTSTAMP:20251231T000000Z", "unchanged"),
        ("DTSTAMP:20260101T000000Z", "updated"),
    ],
)
async def test_a_newer_sequence_or_stamp_wins(calendar, change, outcome):
    await fill(calendar, PLAIN)
    report = await fill(calendar, f"UID:a\n{change}\nDTSTART:20260113T180000Z\nDTEND:20260113T190000Z")
    assert getattr(report, outcome) == 1
    hour = "18" if outcome == "updated" else "14"
    assert [begun for begun, _ in await busy(calendar, *DAY)] == [f"2026-01-13T{hour}:00"]
    await calendar.close()


async def test_an_exception_that_comes_in_a_later_file_joins_its_event(calendar):
    await fill(calendar, "UID:a\nDTSTART:20260112T090000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3")
    moved = "UID:a\nRECURRENCE-ID:20260113T090000Z\nDTSTART:20260113T110000Z\nDURATION:PT1H"
    assert (await fill(calendar, moved)).updated == 1
    assert (await fill(calendar, moved)).unchanged == 1
    assert await busy(calendar, *DAY) == [("2026-01-13T11:00", "2026-01-13T12:00")]
    await calendar.close()


TOO_OFTEN = "UID:{uid}\nDTSTART:20260112T090000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=99999999"
MOVED = "UID:{uid}\nRECURRENCE-ID:202601{day}T090000Z\nDTSTART:20260113T110000Z\nDURATION:PT1H"
LONG_UID = "u" * 120


@pytest.mark.parametrize(
    ("master", "uid"),
    [
        (TOO_OFTEN.format(uid="a"), "a"),
        (TOO_OFTEN.format(uid=LONG_UID), LONG_UID),
        (TOO_OFTEN.format(uid="a\\,b\\;c"), "a\\,b\\;c"),
        ('UID;X-FROM="a:b":a\nDTSTART:20260112T090000Z\nRRULE:FREQ=DAILY;COUNT=99999999', "a"),
        ("DTSTART:20260112T090000Z\nSUMMARY:a\x00b\nUID:a\nRRULE:FREQ=DAILY", "a"),
        (f"DTSTART:20260112T090000Z\nDESCRIPTION:{'x' * 1_100_000}\nUID:a\nRRULE:FREQ=DAILY", "a"),
    ],
    ids=["plain", "long UID", "escaped UID", "UID with a parameter", "spoilt before its UID", "too large"],
)
async def test_an_event_that_is_left_out_takes_its_exceptions_along(calendar, master, uid):
    moved = [MOVED.format(uid=uid, day=day) for day in (13, 14)]
    reading = read(calendar, sheet(moved[0], master, moved[1], PLAIN.replace("UID:a", "UID:other")))
    report = await CalendarLibrary(calendar).take_in([reading], "primary")
    assert (report.added, len(report.problems)) == (1, 1)
    assert report.problems[0].message.endswith(" Its 2 exceptions were left out with it.")
    assert await busy(calendar, *DAY) == [("2026-01-13T14:00", "2026-01-13T15:00")]
    await calendar.close()


async def test_exceptions_go_with_their_event_from_file_to_file_and_what_was_stored_stays(calendar):
    good = TOO_OFTEN.format(uid="a").replace("99999999", "3")
    await fill(calendar, good)
    before = await CalendarLibrary(calendar).give_out("primary")
    readings = [read(calendar, sheet(event)) for event in (MOVED.format(uid="a", day=13), TOO_OFTEN.format(uid="a"))]
    report = await CalendarLibrary(calendar).take_in(readings, "primary")
    assert (report.added, report.updated, report.unchanged) == (0, 0, 0)
    assert [problem.message.endswith("Its exception was left out with it.") for problem in report.problems] == [True]
    assert await CalendarLibrary(calendar).give_out("primary") == before
    await calendar.close()


async def test_only_the_exceptions_of_what_is_left_out_are_left_out(calendar):
    """A bad exception, or an older bad event beside a good one of its UID, takes nothing along."""
    good = TOO_OFTEN.format(uid="a").replace("99999999", "3")
    bad_exception = "UID:a\nRECURRENCE-ID:20260112T090000Z\nDTSTART:never"
    lone = MOVED.format(uid="b", day=13)
    reading = read(calendar, sheet(good, bad_exception, TOO_OFTEN.format(uid="a"), MOVED.format(uid="a", day=13), lone))
    report = await CalendarLibrary(calendar).take_in([reading], "primary")
    assert (report.added, len(report.problems)) == (2, 2)
    assert not any("exception" in problem.message for problem in report.problems)
    parts = await CalendarLibrary(calendar).lines_of("primary", "a")
    assert len(parts) == 2
    await calendar.close()


async def test_a_message_that_calls_off_frees_the_time(calendar):
    await fill(calendar, PLAIN)
    await fill(calendar, f"{PLAIN}\nSEQUENCE:1\nSTATUS:CONFIRMED", head="METHOD:CANCEL\n")
    assert await busy(calendar, *DAY) == []
    await calendar.close()


BAD = {
    "no start": ("UID:x\nSUMMARY:x", "no DTSTART"),
    "bad start": ("DTSTART:yesterday", "DTSTART cannot be read"),
    "two starts": ("DTSTART:20260101T000000Z\nDTSTART:20260102T000000Z", "more than one DTSTART"),
    "end before start": ("DTSTART:20260113T150000Z\nDTEND:20260113T140000Z", "ends before it starts"),
    "negative duration": ("DTSTART:20260113T150000Z\nDURATION:-PT1H", "ends before it starts"),
    "both ends": ("DTSTART:20260113T150000Z\nDTEND:20260113T160000Z\nDURATION:PT1H", "both DTEND and DURATION"),
    "day and time": ("DTSTART;VALUE=DATE:20260113\nDTEND:20260114T000000Z", "a day and the other a time"),
    "bad duration": ("DTSTART:20260113T150000Z\nDURATION:an hour", "DURATION cannot be read"),
    "year 1": ("DTSTART:00010101T000000Z", "outside of the years"),
    "year 9999": ("DTSTART:99991231T235959Z", "outside of the years"),
    "unknown zone": ("DTSTART;TZID=Mars/Olympus:20260113T150000", 'The zone "Mars/Olympus" is not known'),
    "endless": ("DTSTART:20260101T000000Z\nDTEND:22000101T000000Z", "longer than fifty years"),
    "long and repeated": ("DTSTART:20260101T000000Z\nDURATION:P500D\nRRULE:FREQ=DAILY", "longer than a year"),
    "no colon": ("DTSTART:20260113T150000Z\nthis is no line", "cannot be parsed"),
    "exrule": ("DTSTART:20260113T150000Z\nEXRULE:FREQ=DAILY", "EXRULE"),
    "long uid": (f"UID:{'u' * 600}\nDTSTART:20260113T150000Z", "UID"),
    "nul": ("DTSTART:20260113T150000Z\nSUMMARY:a\x00b", "control characters"),
    "many dates": (
        "DTSTART:20260113T150000Z\nEXDATE:" + ",".join(["20260113T150000Z"] * (MAX_DATES + 1)),
        "more than 5000",
    ),
    "huge": (f"DTSTART:20260113T150000Z\nDESCRIPTION:{'x' * 1_100_000}", "larger than 1 MiB"),
    "nested": ("DTSTART:20260113T150000Z\n" + "BEGIN:VALARM\n" * 20 + "END:VALARM\n" * 20, "nested deeper"),
    "not closed inside": ("DTSTART:20260113T150000Z\nBEGIN:VALARM", "not closed"),
    "closes nothing": ("DTSTART:20260113T150000Z\nEND:VALARM", "closes nothing"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_event_is_named_with_its_line_and_its_neighbours_are_read(calendar, name):
    lines, says = BAD[name]
    reading = read(calendar, sheet("UID:before\nDTSTART:20260113T100000Z\nDURATION:PT1H", lines, PLAIN))
    assert [part.uid for part in reading.components] == ["before", "a"]
    assert len(reading.problems) == 1
    assert reading.problems[0].line == 9
    assert says in reading.problems[0].message


def test_a_file_that_is_cut_off_gives_what_was_whole(calendar):
    data = sheet(PLAIN, "UID:b\nDTSTART:20260113T100000Z\nDURATION:PT1H")
    for cut in range(data.index(b"UID:b"), len(data) - len("END:VEVENT\nEND:VCALENDAR\n")):
        reading = read(calendar, data[:cut])
        assert [part.uid for part in reading.components] == ["a"]
        assert len(reading.problems) == 1


def test_an_event_that_was_not_closed_does_not_swallow_the_next(calendar):
    reading = read(
        calendar, sheet(PLAIN).replace(b"END:VEVENT", b"BEGIN:VEVENT\nUID:b\nDTSTART:20260113T100000Z\nEND:VEVENT")
    )
    assert [part.uid for part in reading.components] == ["b"]
    assert "not closed" in reading.problems[0].message


def test_a_line_that_is_not_utf8_spoils_its_event_only(calendar):
    data = sheet(PLAIN, "UID:b\nDTSTART:20260113T100000Z\nSUMMARY:Käse").replace(
        "Käse".encode(), "Käse".encode("latin-1")
    )
    reading = read(calendar, data)
    assert [part.uid for part in reading.components] == ["a"]
    assert reading.problems[0].message == "Line 14 is not UTF-8 text."


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no BEGIN:VCALENDAR"),
        (b"\x00\x01\x02", "no BEGIN:VCALENDAR"),
        (b'{"json": true}', "no BEGIN:VCALENDAR"),
        (b"BEGIN:VEVENT\nUID:a\nEND:VEVENT\n", "no BEGIN:VCALENDAR"),
        ("BEGIN:VCALENDAR".encode("utf-16"), "UTF-16"),
        (b" " * (MAX_FILE_BYTES + 1), "larger than 32 MiB"),
    ],
    ids=["empty", "binary", "json", "no calendar", "utf-16", "too large"],
)
def test_a_file_that_is_none_is_refused_in_one_sentence(calendar, data, says):
    with pytest.raises(BadFile, match=says):
        read(calendar, data)


def test_a_file_of_bombs_is_given_up(calendar):
    with pytest.raises(BadFile, match="More than 1000"):
        read(calendar, sheet(*["UID:x\nDTSTART:20260101T000000Z\nRRULE:FREQ=SECONDLY"] * 1_100))


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_stumble(data):
    whole = b"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101T000000Z\n" + data + b"\nEND:VEVENT\nEND:VCALENDAR"
    for given_bytes in (data, whole):
        try:
            reading = read_file("x.ics", given_bytes, UTC)
        except BadFile:
            continue
        assert all(problem.message.endswith(".") for problem in reading.problems)


NAMES = st.sampled_from(
    [
        "DTSTART",
        "DTEND",
        "DURATION",
        "RRULE",
        "RDATE",
        "EXDATE",
        "RECURRENCE-ID",
        "UID",
        "SEQUENCE",
        "ATTENDEE",
        "SUMMARY",
        "STATUS",
    ]
)
VALUES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "20260101T000000Z",
            "20260101",
            "PT1H",
            "FREQ=DAILY",
            "P1W",
            "20260101T000000/PT1H",
            "-1",
            "",
            "FREQ=YEARLY;BYDAY=1MO",
        ]
    ),
)
PARAMETERS = st.sampled_from(
    [
        "",
        ";VALUE=DATE",
        ";VALUE=PERIOD",
        ";TZID=Europe/Zagreb",
        ";TZID=",
        ";X=1",
        ";RANGE=THISANDFUTURE",
        ";VALUE=DATE-TIME",
    ]
)


@given(st.lists(st.tuples(NAMES, PARAMETERS, VALUES), max_size=8))
def test_no_properties_make_the_reader_stumble(found):
    lines = "\n".join(f"{name}{parameter}:{value}" for name, parameter, value in found)
    reading = read_file("x.ics", sheet(f"DTSTART:20260101T000000Z\n{lines}", PLAIN), UTC)
    assert reading.components[-1].uid == "a"


@pytest.mark.parametrize(
    ("tzid", "means"),
    [
        ("Europe/Zagreb", "Europe/Zagreb"),
        ("europe/zagreb", "Europe/Zagreb"),
        ("/freeassociation.sourceforge.net/Europe/Zagreb", "Europe/Zagreb"),
        ("/example.org/20260101/America/Argentina/Buenos_Aires", "America/Argentina/Buenos_Aires"),
        ("W. Europe Standard Time", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("Mars/Olympus", None),
        ("../../etc/passwd", None),
        ("", None),
    ],
)
def test_zones_go_by_many_names(tzid, means):
    assert known_name(tzid) == means


async def test_zones_that_files_define_do_not_meet_even_under_one_name(calendar):
    odd = "UID:{uid}\nDTSTART;TZID=Our time:20260713T120000\nDURATION:PT1H"
    await fill(calendar, odd.format(uid="one"), head=ODD_ZONE.format(name="Our time", winter="+0100", summer="+0200"))
    await fill(calendar, odd.format(uid="two"), head=ODD_ZONE.format(name="Our time", winter="-0500", summer="-0400"))
    both = [("2026-07-13T10:00", "2026-07-13T11:00"), ("2026-07-13T16:00", "2026-07-13T17:00")]
    assert await busy(calendar, "2026-07-13T00:00Z", "2026-07-14T00:00Z") == both
    data = await CalendarLibrary(calendar).give_out("primary")
    assert data.count(b"BEGIN:VTIMEZONE") == 2
    await CalendarLibrary(calendar).take_in([read(calendar, data)], "team")
    assert await busy(calendar, "2026-07-13T00:00Z", "2026-07-14T00:00Z", calendars=["team"]) == both
    await calendar.close()


async def test_a_time_that_a_zone_of_the_file_skips_counts_with_the_offset_before(calendar):
    head = ODD_ZONE.format(name="Ours", winter="+0100", summer="+0200")
    await fill(calendar, "UID:a\nDTSTART;TZID=Ours:20260329T023000\nDURATION:PT1H", head=head)
    assert await busy(calendar, "2026-03-29T00:00Z", "2026-03-30T00:00Z") == [("2026-03-29T01:30", "2026-03-29T02:30")]
    await calendar.close()


@pytest.mark.parametrize(
    "zone",
    [
        ODD_ZONE.format(name="Odd", winter="+0100", summer="+0200").replace("YEARLY", "SECONDLY"),
        ODD_ZONE.format(name="Odd", winter="+0100", summer="+0200").replace("FREQ=YEARLY", "FREQ=often"),
        "BEGIN:VTIMEZONE\nTZID:Odd\nEND:VTIMEZONE\n",
        "BEGIN:VTIMEZONE\nTZID:Odd\nBEGIN:STANDARD\nEND:STANDARD\nEND:VTIMEZONE\n",
        "BEGIN:VTIMEZONE\nTZID:Odd\nBEGIN:STANDARD\nEND:VTIMEZONE\n",
    ],
    ids=["bomb", "nonsense", "empty", "no offsets", "not closed"],
)
def test_a_zone_that_cannot_be_one_spoils_only_the_events_that_use_it(calendar, zone):
    reading = read(calendar, sheet("UID:x\nDTSTART;TZID=Odd:20260113T120000", PLAIN, head=zone))
    assert [part.uid for part in reading.components] == ["a"]
    assert "zone" in reading.problems[0].message.lower()


async def test_what_goes_out_comes_in_again_the_same(calendar):
    long = "ž" * 300
    everything = [
        f'{PLAIN}\nDESCRIPTION:{long}\\, and\\n more\nATTENDEE;CN="A: B":mailto:a@example.com\nX-OWN;P="q;r":kept',
        "UID:b\nDTSTART;TZID=Asia/Kathmandu:20260113T090000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE;TZID=Asia/Kathmandu:20260114T090000\nBEGIN:VALARM\nACTION:DISPLAY\nTRIGGER:-PT15M\nEND:VALARM",
        "UID:b\nRECURRENCE-ID;TZID=Asia/Kathmandu:20260115T090000\nDTSTART;TZID=Asia/Kathmandu:20260115T120000\nDURATION:PT1H",
        "UID:c\nDTSTART;VALUE=DATE:20260113",
    ]
    await fill(calendar, *everything)
    library = CalendarLibrary(calendar)
    out = await library.give_out("primary")
    assert all(len(line) <= 75 for line in out.split(b"\r\n"))
    assert b"BEGIN:VTIMEZONE\r\nTZID:Asia/Kathmandu" in out
    report = await library.take_in([read(calendar, out)], "primary")
    assert (report.unchanged, report.added, report.updated, report.problems) == (3, 0, 0, ())
    await library.take_in([read(calendar, out)], "team")
    again = await library.give_out("team")
    assert again.replace(b"CALNAME:team", b"CALNAME:primary") == out
    await calendar.close()


async def test_tasks_and_journals_are_counted_and_left_alone(calendar):
    head = "BEGIN:VTODO\nUID:t\nEND:VTODO\nBEGIN:VJOURNAL\nUID:j\nEND:VJOURNAL\n"
    report = await fill(calendar, PLAIN, head=head)
    assert (report.added, report.ignored) == (1, 2)
    await calendar.close()


async def test_a_deleted_event_is_gone_with_its_repetitions(calendar):
    await fill(calendar, "UID:a\nDTSTART:20260101T090000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY")
    library = CalendarLibrary(calendar)
    assert len(await busy(calendar, *DAY)) == 1
    assert await library.delete("primary", "a") is True
    assert await library.delete("primary", "a") is False
    assert await busy(calendar, *DAY) == []
    with pytest.raises(UsageError, match='no event with the UID "a"'):
        await library.lines_of("primary", "a")
    with pytest.raises(ToolError, match='no calendar "prime"'):
        await library.delete("prime", "a")
    await calendar.close()


async def test_an_import_that_fails_in_the_middle_leaves_nothing(calendar):
    await fill(calendar, PLAIN)
    reading = read(calendar, sheet(*(f"UID:n{n}\nDTSTART:20260113T100000Z\nDURATION:PT1H" for n in range(5))))
    seen = []

    def progress(done, total):
        seen.append(done)
        if done == 3:
            raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError):
        await CalendarLibrary(calendar).take_in([reading], "primary", progress)
    assert seen == [1, 2, 3]
    assert await CalendarLibrary(calendar).counts() == {"primary": 1, "team": 0}
    await calendar.close()
