"""Zones that files define: kept with their events however they are written, followed in bounded time, and written out."""

import logging
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from tests.services.calendar.kit import busy, fill, open_calendar, read, sheet

from handrail_reference.services.calendar import zones as zones_module
from handrail_reference.services.calendar.library import CalendarLibrary
from handrail_reference.services.calendar.port import Draft
from handrail_reference.services.calendar.zones import MAX_ZONES, custom_zone

DAY = ("2026-07-13T00:00Z", "2026-07-14T00:00Z")
PLAIN = "UID:plain\nDTSTART:20260713T200000Z\nDURATION:PT1H"
OFFSET = """BEGIN:{kind}
DTSTART:{start}
{more}TZOFFSETFROM:{before}
TZOFFSETTO:{after}
END:{kind}
"""
SUMMER = "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3\n"
WINTER = "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10\n"


def offset(kind="STANDARD", start="19700101T030000", more="", before="+0200", after="+0100"):
    return OFFSET.format(kind=kind, start=start, more=more, before=before, after=after)


def zone(*offsets, name="Ours"):
    return f"BEGIN:VTIMEZONE\nTZID:{name}\n{''.join(offsets)}END:VTIMEZONE\n"


def ours(start="19700101", name="Ours"):
    summer = offset("DAYLIGHT", f"{start}T020000", SUMMER, "+0100", "+0200")
    return zone(offset("STANDARD", f"{start}T030000", WINTER), summer, name=name)


@pytest.fixture
def calendar(tmp_path):
    return open_calendar(tmp_path)


WRITTEN = [
    "DTSTART;TZID=Ours:20260713T120000",
    "DTSTART;TZID=Ours;VALUE=DATE-TIME:20260713T120000",
    "DTSTART;VALUE=DATE-TIME;TZID=Ours:20260713T120000",
    'DTSTART;TZID="Ours";X-A=b:20260713T120000',
    'DTSTART;X-A=";TZID=Theirs:";TZID=Ours;X-B="c:d":20260713T120000',
    "dtstart;tzid=Ours;value=date-time:20260713T120000",
]


@pytest.mark.parametrize("rule", ["", "\nRRULE:FREQ=DAILY;COUNT=2"], ids=["once", "repeated"])
@pytest.mark.parametrize("written", WRITTEN)
async def test_a_zone_is_kept_wherever_its_parameter_stands(calendar, written, rule):
    await fill(calendar, f"UID:a\n{written}\nDURATION:PT1H{rule}", head=ours())
    expected = [("2026-07-13T10:00", "2026-07-13T11:00")]
    assert await busy(calendar, *DAY) == expected
    library = CalendarLibrary(calendar)
    out = await library.give_out("primary")
    assert out.count(b"BEGIN:VTIMEZONE") == 1
    assert (await library.take_in([read(calendar, out)], "primary")).unchanged == 1
    await library.take_in([read(calendar, out)], "team")
    assert await busy(calendar, *DAY, calendars=["team"]) == expected
    await calendar.close()


def test_two_zones_on_one_line_are_refused(calendar):
    reading = read(calendar, sheet("UID:a\nDTSTART;TZID=Ours;TZID=UTC:20260713T120000", PLAIN, head=ours()))
    assert [problem.message for problem in reading.problems] == ["Its DTSTART has more than one TZID."]
    assert [part.uid for part in reading.components] == ["plain"]


async def test_a_stored_event_that_cannot_be_read_is_named_and_the_others_go_on(calendar, caplog):
    lost = "UID:lost\nDTSTART;TZID=Ours:20260713T120000\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2"
    good = "UID:good\nDTSTART:20260713T080000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY;COUNT=2"
    await fill(calendar, lost, good, PLAIN, head=ours())
    await calendar.database.write(lambda db: db.execute("UPDATE item SET zones = '{}'"))
    assert [begun for begun, _ in await busy(calendar, *DAY)] == ["2026-07-13T08:00", "2026-07-13T20:00"]
    assert "'lost'" in caplog.text
    start, end = datetime(2026, 7, 13, 8, tzinfo=UTC), datetime(2026, 7, 13, 9, tzinfo=UTC)
    assert len((await calendar.create(Draft(uid="new", title="New", start=start, end=end))).conflicts) == 1
    library = CalendarLibrary(calendar)
    assert b"UID:lost" in await library.give_out("primary")
    caplog.set_level(logging.ERROR)
    assert (await fill(calendar, lost, head=ours())).updated == 1
    assert "2026-07-13T10:00" in [begun for begun, _ in await busy(calendar, *DAY)]
    await calendar.close()


@pytest.mark.parametrize(
    "line",
    ["DTSTAMP;TZID=Local Weird:20260101T000000", "X-FOO;TZID=Nowhere/Land:1", 'X-FOO;TZID="A:B";X=1:2'],
    ids=range(3),
)
async def test_a_zone_that_only_other_lines_name_does_not_hinder_an_export(calendar, line):
    await fill(calendar, f"UID:a\nDTSTART;TZID=Asia/Kathmandu:20260713T120000\nDURATION:PT1H\n{line}")
    library = CalendarLibrary(calendar)
    out = await library.give_out("primary")
    assert line.encode() in out
    assert out.count(b"BEGIN:VTIMEZONE") == 1
    assert (await library.take_in([read(calendar, out)], "primary")).unchanged == 1
    await calendar.close()


async def test_an_exported_zone_knows_clocks_after_2038(calendar):
    await fill(calendar, "UID:a\nDTSTART;TZID=Europe/Zagreb:20500713T120000\nDURATION:PT1H")
    out = (await CalendarLibrary(calendar).give_out("primary")).decode().replace("\r\n ", "")
    text = out[out.index("BEGIN:VTIMEZONE") : out.index("BEGIN:VEVENT")].replace("Europe/Zagreb", "Ours")
    written = custom_zone(text)
    for year in (1975, 2026, 2050, 2099):
        for month in (1, 7):
            wall = datetime(year, month, 13, 12)
            assert (
                wall.replace(tzinfo=written).utcoffset() == wall.replace(tzinfo=ZoneInfo("Europe/Zagreb")).utcoffset()
            )
    await calendar.close()


TOO_MUCH = {
    "rules from the year 1": (zone(*[offset(start="00010101T030000", more=WINTER)] * 50), "more than 3000 times"),
    "dates": (
        zone(offset(more="RDATE:" + ",".join(["20200101T000000"] * 3_100) + "\n")),
        "more than 3000 times",
    ),
    "every Sunday": (zone(offset(more="RRULE:FREQ=YEARLY;BYDAY=SU\n")), "more than 3000 times"),
    "every second": (
        zone(offset(more=f"RRULE:FREQ=YEARLY;BYSECOND={','.join(map(str, range(60)))};BYMINUTE=1,2,3\n")),
        "times a day",
    ),
    "30 February": (zone(offset(more="RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30\n")), "never comes true"),
    "counted from 1601": (zone(offset(start="16010101T030000", more=WINTER.strip() + ";COUNT=500\n")), "before 1900"),
    "two rules": (zone(offset(more=SUMMER + WINTER)), "more than one RRULE"),
    "many offsets": (zone(*[offset()] * 600), "600 offsets"),
    "large": (zone(offset(more=f"X-LONG:{'x' * 70_000}\n")), "64 KiB"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_zone_that_would_take_long_to_follow_is_refused(calendar, name):
    head, says = TOO_MUCH[name]
    reading = read(calendar, sheet("UID:a\nDTSTART;TZID=Ours:20260713T120000", PLAIN, head=head))
    assert [part.uid for part in reading.components] == ["plain"]
    assert says in reading.problems[0].message


@pytest.mark.parametrize("start", ["00010101", "16010101", "17000228", "19700101"])
async def test_a_zone_whose_rules_began_long_ago_is_followed_from_1900(calendar, start):
    event = "UID:{0}\nDTSTART;TZID=Ours:{1}T120000\nDURATION:PT1H"
    await fill(calendar, event.format("a", "20260713"), event.format("b", "20260113"), head=ours(start))
    assert await busy(calendar, *DAY) == [("2026-07-13T10:00", "2026-07-13T11:00")]
    assert await busy(calendar, "2026-01-13T00:00Z", "2026-01-14T00:00Z") == [("2026-01-13T11:00", "2026-01-13T12:00")]
    await calendar.close()


def test_a_weekday_among_days_of_the_month_counts_as_one_change_a_year(calendar):
    second = "RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=SU;BYMONTHDAY=8,9,10,11,12,13,14\n"
    head = zone(
        offset(more=second.replace("=3;", "=11;")), offset("DAYLIGHT", "19700101T020000", second, "+0100", "+0200")
    )
    assert read(calendar, sheet("UID:a\nDTSTART;TZID=Ours:20260713T120000", head=head)).problems == []


def test_a_definition_is_read_once_however_many_events_name_it(calendar, monkeypatch):
    asked = []
    custom = zones_module._check
    monkeypatch.setattr(zones_module, "_check", lambda component: (asked.append(component), custom(component)))
    custom_zone.cache_clear()
    events = [f"UID:{n}\nDTSTART;TZID={name}:20260713T120000" for n in range(20) for name in ("Bad", "Good")]
    head = ours(name="Good") + zone(offset(more="RRULE:FREQ=DAILY\n"), name="Bad")
    reading = read(calendar, sheet(*events, head=head))
    assert (len(reading.components), len(reading.problems), len(asked)) == (20, 20, 2)


def test_a_file_may_define_so_many_zones_and_no_more(calendar):
    numbers = range(MAX_ZONES + 6)
    calendars = [
        sheet(
            f"UID:{n}\nDTSTART;TZID=Zone {n}:20260713T120000",
            head=zone(offset(after=f"+{n // 60:02}{n % 60:02}"), name=f"Zone {n}"),
        )
        for n in numbers
    ]
    reading = read(calendar, b"".join(calendars))
    assert (len(reading.components), len(reading.problems)) == (MAX_ZONES, 6)
    assert "more than 64 zones" in reading.problems[0].message
