"""`handrail calendar`: files in and out, what is in a calendar, and what is said about files that are wrong."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.app import open_registry, open_runtime
from handrail.settings import load_settings

WORKER = Path(__file__).parent.parent / "tools" / "calendar_worker.py"

EVENT = """BEGIN:VEVENT
UID:{uid}
DTSTAMP:20260101T000000Z
DTSTART:20260113T140000Z
DURATION:PT1H
SUMMARY:{title}
END:VEVENT
"""
BAD = "BEGIN:VEVENT\nUID:bomb\nDTSTART:20260113T140000Z\nRRULE:FREQ=SECONDLY\nEND:VEVENT\n"
RANGE = ("--from", "2026-01-13", "--to", "2026-01-15")


def write(path, *events):
    path.write_text(f"BEGIN:VCALENDAR\nVERSION:2.0\n{''.join(events)}END:VCALENDAR\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def file(project):
    repeated = EVENT.format(uid="b", title="Daily").replace("DURATION", "RRULE:FREQ=DAILY;COUNT=3\nDURATION")
    return write(project / "work.ics", EVENT.format(uid="a", title="Review"), repeated)


def test_an_import_counts_what_it_did_and_again_changes_nothing(handrail, file):
    assert handrail("calendar", "import", file).out == "2 events added, 0 updated, 0 unchanged.\n"
    assert handrail("calendar", "import", file).out == "0 events added, 0 updated, 2 unchanged.\n"
    assert handrail("calendar", "list").out == "primary  2 events\n"


def test_events_of_a_range_are_listed_with_their_repetitions(handrail, file):
    handrail("calendar", "import", file)
    rows = json.loads(handrail("calendar", "events", *RANGE, "--json").out)
    assert [(row["uid"], row["start"]) for row in rows] == [
        ("a", "2026-01-13T14:00:00+00:00"),
        ("b", "2026-01-13T14:00:00+00:00"),
        ("b", "2026-01-14T14:00:00+00:00"),
    ]
    assert "Review" in handrail("calendar", "events", *RANGE).out
    assert handrail("calendar", "events", "--from", "2027-01-01").out == (
        "Nothing happens from 2027-01-01T00:00+00:00 to 2027-01-08T00:00+00:00.\n"
    )


def test_show_and_delete_take_a_uid(handrail, file):
    handrail("calendar", "import", file)
    assert "SUMMARY:Review" in handrail("calendar", "show", "a").out
    assert json.loads(handrail("calendar", "show", "a", "--json").out)["components"][0][1] == "UID:a"
    assert handrail("calendar", "delete", "a").out == 'The event "a" was taken out of primary.\n'
    again = handrail("calendar", "delete", "a")
    assert (again.code, again.err) == (1, 'The calendar "primary" has no event with the UID "a".\n')
    assert handrail("calendar", "show", "a").code == 2
    assert json.loads(handrail("calendar", "delete", "b", "--json").out) == {"uid": "b", "deleted": True}


def test_bad_events_are_named_and_left_out(handrail, project):
    said = handrail("calendar", "import", write(project / "mixed.ics", BAD, EVENT.format(uid="a", title="x")))
    assert said.code == 0
    assert 'mixed.ics, line 3 (UID "bomb"): Its RRULE repeats SECONDLY' in said.err
    assert said.out == "1 event added, 0 updated, 0 unchanged, 1 left out.\n"


def test_a_series_that_is_left_out_takes_its_exceptions_along_and_that_is_said(handrail, project):
    moved = EVENT.format(uid="bomb", title="moved").replace("DURATION", "RECURRENCE-ID:20260113T140000Z\nDURATION")
    path = write(project / "half.ics", BAD, moved, EVENT.format(uid="a", title="x"))
    said = handrail("calendar", "import", path)
    assert said.out == "1 event added, 0 updated, 0 unchanged, 1 left out.\n"
    assert "Its exception was left out with it.\n" in said.err
    problems = json.loads(handrail("calendar", "import", path, "--json").out)["problems"]
    assert [problem["message"].endswith("left out with it.") for problem in problems] == [True]
    assert [row["uid"] for row in json.loads(handrail("calendar", "events", *RANGE, "--json").out)] == ["a"]


def test_nothing_but_bad_events_is_a_failure(handrail, project):
    bad = write(project / "bad.ics", BAD)
    said = handrail("calendar", "import", bad)
    assert (said.code, said.out) == (1, "Nothing was imported: 1 event could not be used.\n")
    told = handrail("calendar", "import", bad, "--json")
    assert (told.code, json.loads(told.out)["imported"]) == (1, False)


def test_bad_events_beside_what_is_there_already_and_files_without_events_are_no_failure(handrail, project, file):
    bad = write(project / "bad.ics", BAD)
    assert handrail("calendar", "import", file, bad).code == 0
    again = handrail("calendar", "import", file, bad)
    assert (again.code, again.out) == (0, "0 events added, 0 updated, 2 unchanged, 1 left out.\n")
    assert handrail("calendar", "import", write(project / "empty.ics")).code == 0


def test_strict_refuses_and_changes_nothing(handrail, project, file):
    bad = write(project / "bad.ics", BAD)
    said = handrail("calendar", "import", file, bad, "--strict")
    assert (said.code, said.out) == (1, "Nothing was imported: 1 event could not be used.\n")
    assert handrail("calendar", "list").out == "primary  0 events\n"
    report = json.loads(handrail("calendar", "import", file, bad, "--strict", "--json").out)
    assert (report["imported"], report["added"], len(report["problems"])) == (False, 0, 1)


def test_a_file_that_is_none_stops_the_whole_import(handrail, project, file):
    (project / "none.ics").write_bytes(b"PK\x03\x04 a zip")
    said = handrail("calendar", "import", file, str(project / "none.ics"))
    assert said.code == 1
    assert "was not imported. The file has no BEGIN:VCALENDAR" in said.err
    assert handrail("calendar", "list").out == "primary  0 events\n"


def test_many_problems_are_cut_on_the_terminal_and_whole_in_json(handrail, project):
    path = write(project / "bad.ics", *[BAD] * 30)
    said = handrail("calendar", "import", path)
    assert len(said.err.splitlines()) == 21
    assert "… and 10 more" in said.err
    assert len(json.loads(handrail("calendar", "import", path, "--json").out)["problems"]) == 30


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("import", "gone.ics"), '"gone.ics" cannot be read'),
        (("import", "."), '"." cannot be read'),
        (("events", "--from", "yesterday"), '"yesterday" is no date'),
        (("events", "--from", "0001-01-01"), "between 1900 and 2200"),
        (("events", "--to", "9999-12-31"), "between 1900 and 2200"),
        (("events", "--from", "2026-01-02", "--to", "2026-01-01"), "--to must come after --from"),
        (("events", "--from", "2000-01-01", "--to", "2026-01-01"), "longer than"),
        (("show", "nobody"), 'no event with the UID "nobody"'),
        (("export", "--calendar", "team"), 'There is no calendar "team"; known are primary.'),
        (("export", "-o", "gone/x.ics"), '"gone/x.ics" cannot be written'),
        ((), "required"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value) or "nothing",
)
def test_what_cannot_be_done_is_said_in_one_sentence(handrail, project, words, says):
    said = handrail("calendar", *words)
    assert said.code == 2
    assert says in said.err
    assert "Traceback" not in said.err


def test_calendars_are_named_in_the_settings(handrail, project, file):
    (project / "handrail.toml").write_text(
        '[services.calendar]\nnames = ["team"]\ntime_zone = "Asia/Kathmandu"\npath = "data.db"\n'
    )
    assert handrail("calendar", "import", file, "--calendar", "team").code == 0
    assert handrail("calendar", "list").out == "primary  0 events\nteam     2 events\n"
    rows = json.loads(handrail("calendar", "events", "--calendar", "team", *RANGE, "--json").out)
    assert rows[0]["start"] == "2026-01-13T19:45:00+05:45"
    assert (project / "data.db").exists()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ('time_zone = "Mars"', '"time_zone" in [services.calendar] must be an IANA name'),
        ('names = ["A B"]', '"names" in [services.calendar]'),
        ('meeting_url = "x"', '"meeting_url" in [services.calendar]'),
        ("names = 3", "must be a list of texts"),
        ('zone = "UTC"', 'has no key "zone"'),
    ],
    ids=["zone", "names", "url", "type", "unknown"],
)
def test_a_setting_that_cannot_be_is_named(handrail, project, setting, says):
    (project / "handrail.toml").write_text(f"[services.calendar]\n{setting}\n")
    said = handrail("calendar", "list")
    assert said.code == 2
    assert says in said.err


def test_tenants_have_calendars_of_their_own(handrail, file):
    handrail("calendar", "import", file, "--tenant", "acme")
    assert handrail("calendar", "list").out == "primary  0 events\n"
    assert json.loads(handrail("calendar", "list", "--tenant", "acme", "--json").out) == [
        {"calendar": "primary", "events": 2}
    ]


def test_a_calendar_goes_out_and_comes_in_again(process, project, file):
    assert process("calendar", "import", file, cwd=project).code == 0
    out = process("calendar", "export", cwd=project)
    assert out.out.startswith("BEGIN:VCALENDAR\nVERSION:2.0\n")
    said = process("calendar", "export", "-o", "out.ics", cwd=project)
    size = len((project / "out.ics").read_bytes())
    assert (said.code, said.out) == (0, f'The calendar primary was written to "out.ics" ({size} bytes).\n')
    assert (project / "out.ics").read_bytes().startswith(b"BEGIN:VCALENDAR\r\n")
    again = process("calendar", "import", "-", cwd=project, stdin=out.out.encode())
    assert again.out == "0 events added, 0 updated, 2 unchanged.\n"
    assert not list(project.glob(".*.part"))


EVIL = "\x9b2J\u202e"


def test_nothing_that_a_file_says_is_obeyed_by_a_terminal(handrail, project):
    event = EVENT.format(uid="a", title=f"Red{EVIL}").replace("DURATION", f"X-EVIL:x{EVIL}\nDURATION")
    bad = BAD.replace("DTSTART:", f"DTSTART;TZID=Zone{EVIL}:")
    imported = handrail("calendar", "import", write(project / "evil.ics", event, bad))
    shown = [imported, handrail("calendar", "show", "a"), handrail("calendar", "events", *RANGE)]
    for said in shown:
        assert not {"\x9b", "\u202e"} & set(said.out + said.err)
    assert "Zone\\u{9b}2J\\u{202e}" in imported.err
    assert "X-EVIL:x\\u{9b}2J\\u{202e}" in shown[1].out


def test_a_damaged_calendar_is_one_sentence(process, project):
    (project / "calendar.db").write_bytes(b"no database " * 100)
    said = process("calendar", "list", cwd=project)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        'handrail calendar: The calendar "calendar.db" is not a SQLite database; name another file, or restore this one '
        "from a copy.\n"
    )


ARGS = {
    "title": "Review",
    "start_time": "2026-12-01T14:00:00Z",
    "end_time": "2026-12-01T15:00:00Z",
    "attendees": ["ana@example.com"],
}


@pytest.fixture
def with_tools(project, handrail):
    """A project with the two reference tools, built."""
    names = '["calendar_get_availability", "calendar_create_event"]'
    (project / "handrail.toml").write_text(f"[tools]\nreference = {names}\n", encoding="utf-8")
    assert handrail("build").code == 0
    return project


def test_a_called_tool_writes_into_the_calendar_of_the_project(with_tools, handrail):
    said = handrail("call", "calendar_create_event", "--args", json.dumps(ARGS), "--yes")
    uid = json.loads(said.out)["data"]["uid"]
    assert said.code == 0
    assert "SUMMARY:Review" in handrail("calendar", "show", uid).out
    asked = json.dumps({"start_date": "2026-12-01T13:00:00Z", "end_date": "2026-12-01T16:00:00Z"})
    data = json.loads(handrail("call", "calendar_get_availability", "--args", asked).out)["data"]
    assert [slot["duration_minutes"] for slot in data["available_slots"]] == [60, 60]


async def _held(project):
    # The worker's clock: what a person was shown must be what it finds, too.
    settings = load_settings(project, {**os.environ, "HANDRAIL_SERVICES_CALENDAR_TIME_ZONE": "Europe/Zagreb"})
    async with open_runtime(settings, open_registry(settings)) as runtime:
        session = await runtime.open_session()
        await session.call("calendar_create_event", ARGS)
        async for event in session.events():
            if event.type == "confirmation":
                return event.data["id"], event.data["token"]
    raise AssertionError("nobody was asked")


def test_after_a_crash_the_ledger_asks_the_calendar(with_tools, handrail):
    words = [
        sys.executable,
        str(WORKER),
        "die",
        "tool_registry.json",
        ".",
        *asyncio.run(_held(with_tools)),
        "after_handler",
    ]
    assert subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == -9
    [row] = json.loads(handrail("ledger", "list", "--json").out)
    settled = handrail("ledger", "settle", row["key"], "--reconcile", "--json")
    assert settled.code == 0, settled.err
    assert json.loads(settled.out)["envelope"]["data"]["uid"] == row["key"]
    assert json.loads(handrail("calendar", "list", "--json").out) == [{"calendar": "primary", "events": 1}]


def test_a_calendar_whose_folder_is_missing_is_said_once_and_the_place_apart(project, process):
    with (project / "handrail.toml").open("a", encoding="utf-8") as file:
        file.write('\n[services.calendar]\npath = "gone/events.db"\n')
    said = process("calendar", "events", cwd=project)
    assert said.code != 0
    assert said.err.count("its folder is not there") == 1
    assert f'The calendar "events.db" is looked for at {project / "gone" / "events.db"}.' in said.err
