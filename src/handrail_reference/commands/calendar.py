"""Calendars of the project: iCalendar files in and out, what is in them, and events to take out.

An import is idempotent: an event is known by its UID (and RECURRENCE-ID), and a newer SEQUENCE or DTSTAMP replaces an older
one. Events that cannot be used are named with their line and left out; `--strict` refuses the whole import instead.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.commands import count, open_service, print_json, progress_for, require_project
from handrail.errors import UsageError
from handrail.text import escaped

if TYPE_CHECKING:
    from handrail_reference.services.calendar.embedded import EmbeddedCalendar
    from handrail_reference.services.calendar.file_import import FileProblem, Reading
    from handrail_reference.services.calendar.library import CalendarLibrary, Report

HELP = "import, export and look at calendars"
EXAMPLES = """examples:
  handrail calendar import holidays.ics work.ics --calendar team
  handrail calendar export --calendar team -o team.ics
  handrail calendar events --from 2026-01-13 --to 2026-01-20 --json
  handrail calendar delete 3f2a9c@example.com"""

_MAX_SHOWN = 20
_LONGEST = timedelta(days=3_660)


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="import|export|list|events|show|delete")
    taking = actions.add_parser("import", help="read iCalendar files into a calendar")
    taking.add_argument("files", nargs="+", metavar="FILE", help="an .ics file; - reads standard input")
    taking.add_argument("--strict", action="store_true", help="change nothing if any event cannot be used")
    giving = actions.add_parser("export", help="write a calendar as an iCalendar file")
    giving.add_argument("-o", "--output", metavar="FILE", help="where to (default: standard output)")
    listing = actions.add_parser("list", help="the calendars, and how many events they have")
    events = actions.add_parser("events", help="what happens within a range, repetitions and all")
    events.add_argument("--from", dest="first", metavar="DATE", help="a date or date-time (default: now)")
    events.add_argument("--to", dest="last", metavar="DATE", help="a date or date-time (default: 7 days later)")
    showing = actions.add_parser("show", help="one event as iCalendar lines")
    removing = actions.add_parser("delete", help="take an event out, with all its repetitions")
    for one in (showing, removing):
        one.add_argument("uid", metavar="UID", help="the event's UID")
    for one in (taking, giving, events, showing, removing):
        one.add_argument("--calendar", default="primary", metavar="NAME", help="which calendar (default: primary)")
    for one in (taking, giving, listing, events, showing, removing):
        one.add_argument("--tenant", default="", help="whose calendars (default: those of no tenant)")
        one.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    return asyncio.run(_run(options))


async def _run(options: Namespace) -> int:
    # Here and below: the parsers of calendars take a fifth of a second, which nobody shall wait who asks for help.
    from handrail_reference.services.calendar.embedded import EmbeddedCalendar
    from handrail_reference.services.calendar.library import CalendarLibrary

    if options.action != "import":
        require_project()
    async with open_service("calendar") as calendar:
        if not isinstance(calendar, EmbeddedCalendar):
            raise UsageError(
                "[services.calendar] names a calendar elsewhere; `handrail calendar` works on the embedded calendar."
            )
        if getattr(options, "calendar", "primary") not in calendar.names:
            raise UsageError(
                f'There is no calendar "{options.calendar}"; known are {", ".join(calendar.names)}. Add it to "names" in '
                "[services.calendar] of handrail.toml."
            )
        return await _ACTIONS[options.action](calendar, CalendarLibrary(calendar, options.tenant), options)


async def _import(calendar: EmbeddedCalendar, library: CalendarLibrary, options: Namespace) -> int:
    from handrail_reference.services.calendar.file_import import whole_events

    readings = [_read(name, calendar.zone) for name in options.files]
    problems = whole_events(readings)[1]
    refused = bool(problems) and options.strict
    report: Report | None = None
    if not refused:
        report = await library.take_in(readings, options.calendar, progress_for("importing"))
    failed = refused or (bool(problems) and report is not None and not report.taken)
    if options.json:
        print_json(_report(None if failed else report, readings, problems))
    else:
        for problem in problems[:_MAX_SHOWN]:
            uid = f' (UID "{problem.uid}")' if problem.uid else ""
            sys.stderr.write(escaped(f"{problem.file}, line {problem.line}{uid}: {problem.message}") + "\n")
        if len(problems) > _MAX_SHOWN:
            sys.stderr.write(f"… and {len(problems) - _MAX_SHOWN} more; `--json` lists them all.\n")
        print(_sentence(None if failed else report, len(problems)))
    return 1 if failed else 0


def _read(name: str, zone: tzinfo) -> Reading:
    from handrail_reference.services.calendar.failures import BadFile
    from handrail_reference.services.calendar.file_import import read_file
    from handrail_reference.services.calendar.lines import MAX_FILE_BYTES

    if name == "-":
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        try:
            with Path(name).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise UsageError(f'"{name}" cannot be read ({error.strerror}).') from None
    try:
        return read_file(name, data, zone, progress_for("reading"))
    except BadFile as error:
        raise BadFile(f'"{name}" was not imported. {error}') from None


def _report(report: Report | None, readings: list[Reading], problems: Sequence[FileProblem]) -> dict[str, Any]:
    return {
        "imported": report is not None,
        "added": report.added if report else 0,
        "updated": report.updated if report else 0,
        "unchanged": report.unchanged if report else 0,
        "ignored": sum(reading.ignored for reading in readings),
        "problems": [
            {"file": problem.file, "line": problem.line, "uid": problem.uid, "message": problem.message}
            for problem in problems
        ],
    }


def _sentence(report: Report | None, problems: int) -> str:
    if report is None:
        return f"Nothing was imported: {count(problems, 'event')} could not be used."
    left = f", {problems} left out" if problems else ""
    other = f", {count(report.ignored, 'part')} of other kinds" if report.ignored else ""
    return f"{count(report.added, 'event')} added, {report.updated} updated, {report.unchanged} unchanged{left}{other}."


async def _export(calendar: EmbeddedCalendar, library: CalendarLibrary, options: Namespace) -> int:
    data = await library.give_out(options.calendar)
    if options.output:
        target = Path(options.output)
        side = target.with_name(f".{target.name}.part")
        try:
            side.write_bytes(data)
            side.replace(target)  # whoever reads the old file meanwhile sees it whole
        except OSError as error:
            side.unlink(missing_ok=True)
            raise UsageError(f'"{options.output}" cannot be written ({error.strerror}).') from None
        if options.json:
            print_json({"calendar": options.calendar, "file": options.output, "bytes": len(data)})
        else:
            print(f'The calendar {options.calendar} was written to "{options.output}" ({len(data)} bytes).')
    elif options.json:
        print_json({"calendar": options.calendar, "ical": data.decode()})
    else:
        text = data.decode().replace("\r\n", "\n")
        if sys.stdout.isatty():  # a file gets what was written; a terminal would obey it
            text = "".join(escaped(line) + "\n" for line in text.removesuffix("\n").split("\n"))
        sys.stdout.write(text)
    return 0


async def _list(calendar: EmbeddedCalendar, library: CalendarLibrary, options: Namespace) -> int:
    counts = await library.counts()
    if options.json:
        print_json([{"calendar": name, "events": number} for name, number in counts.items()])
    else:
        width = max(map(len, counts))
        for name, number in counts.items():
            print(f"{name:<{width}}  {count(number, 'event')}")
    return 0


async def _events(calendar: EmbeddedCalendar, library: CalendarLibrary, options: Namespace) -> int:
    start = _moment(options.first, calendar.zone) if options.first else calendar.now()
    end = _moment(options.last, calendar.zone) if options.last else start + timedelta(days=7)
    if not start < end:
        raise UsageError("--to must come after --from.")
    if end - start > _LONGEST:
        raise UsageError(f"The range is longer than {_LONGEST.days} days; ask for a part of it.")
    found = await calendar.happenings(options.tenant, [options.calendar], start, end)
    rows = [
        {
            "start": one.start.astimezone(calendar.zone).isoformat(),
            "end": one.end.astimezone(calendar.zone).isoformat(),
            "status": one.status,
            "private": one.private,
            "title": one.title,
            "attendees": one.attendees,
            "uid": one.uid,
        }
        for one in found
    ]
    if options.json:
        print_json(rows)
        return 0
    for row in rows:
        title, uid = (escaped(str(row[name])) for name in ("title", "uid"))
        print(f"{row['start']}  {row['end']}  {row['status']:<9}  {title or '–'}  [{uid}]")
    if not rows:
        print(f"Nothing happens from {start.isoformat(timespec='minutes')} to {end.isoformat(timespec='minutes')}.")
    return 0


def _moment(text: str, zone: tzinfo) -> datetime:
    """A date, or a date-time; without an offset it is meant in the calendar's zone."""
    try:
        moment = datetime.fromisoformat(text.upper())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        if not 1900 <= moment.year <= 2200:
            raise ValueError(text)
    except ValueError:
        raise UsageError(
            f'"{text}" is no date between 1900 and 2200; write it like {date(2026, 1, 13)} or 2026-01-13T09:00.'
        ) from None
    return moment.astimezone(UTC)


async def _show(calendar: EmbeddedCalendar, library: CalendarLibrary, options: Namespace) -> int:
    parts = await library.lines_of(options.calendar, options.uid)
    if options.json:
        print_json({"uid": options.uid, "calendar": options.calendar, "components": parts})
    else:
        print("\n".join(escaped(line) for lines in parts for line in lines))
    return 0


async def _delete(calendar: EmbeddedCalendar, library: CalendarLibrary, options: Namespace) -> int:
    gone = await library.delete(options.calendar, options.uid)
    if options.json:
        print_json({"uid": options.uid, "deleted": gone})
    elif gone:
        print(f'The event "{options.uid}" was taken out of {options.calendar}.')
    if not gone and not options.json:
        sys.stderr.write(f'The calendar "{options.calendar}" has no event with the UID "{options.uid}".\n')
    return 0 if gone else 1


_ACTIONS: Mapping[str, Callable[[EmbeddedCalendar, CalendarLibrary, Namespace], Awaitable[int]]] = {
    "import": _import,
    "export": _export,
    "list": _list,
    "events": _events,
    "show": _show,
    "delete": _delete,
}
