"""Forgetting a user in the calendar file: the events that they made, and their address among those whom others invited."""

from __future__ import annotations

import json
import re
import sqlite3

from handrail_reference.services.calendar.event_text import UNINVITED
from handrail_reference.services.calendar.marks import read_uninvited, uninvited_text

_PEOPLE = ("ATTENDEE", "ORGANIZER")
_QUOTED = re.compile('"([^"]*)"')
_OF_TENANT = "calendar_id IN (SELECT id FROM calendar WHERE tenant = ?)"


def forget_user(db: sqlite3.Connection, tenant: str, user: str, *, delete: bool) -> int:
    """How many events were deleted; without `delete` they stay, and nobody knows whose they were."""
    deleted = 0
    if delete:
        deleted = db.execute(f"DELETE FROM item WHERE created_by = ? AND {_OF_TENANT}", (user, tenant)).rowcount  # noqa: S608
    else:
        db.execute(f"UPDATE item SET created_by = NULL WHERE created_by = ? AND {_OF_TENANT}", (user, tenant))  # noqa: S608
    changed = _uninvite(db, tenant, user)
    if deleted or changed:
        # Whoever holds repeated events in memory reads them again.
        db.execute("UPDATE calendar SET series_revision = series_revision + 1 WHERE tenant = ?", (tenant,))
    return deleted


def _uninvite(db: sqlite3.Connection, tenant: str, user: str) -> int:
    changed = 0
    for number, text in db.execute(f"SELECT id, lines FROM item WHERE {_OF_TENANT}", (tenant,)).fetchall():  # noqa: S608
        if not any(name in text.upper() for name in (*_PEOPLE, UNINVITED)):
            continue
        before = json.loads(text)
        after = [[_without(line, user) for line in lines if not _names(line, user)] for lines in before]
        if after != before:
            first = sum(line.upper().startswith("ATTENDEE") for line in after[0])
            db.execute("UPDATE item SET lines = ?, attendees = ? WHERE id = ?", (json.dumps(after), first, number))
            changed += 1
    return changed


def _without(line: str, user: str) -> str:
    """A line that says whom a change has uninvited, without this user."""
    name, _, text = line.partition(":")
    if name.upper() != UNINVITED:
        return line
    left = tuple(one for one in read_uninvited(text) if one[1].lower() != user.lower())
    return f"{name}:{uninvited_text(left)}"


def _names(line: str, user: str) -> bool:
    """Whether a line invites this user, says that they invite, or that somebody does so for them."""
    # An address stands behind the first colon that is outside quotes, or in quotes in a parameter such as SENT-BY.
    name, _, address = _QUOTED.sub("", line).partition(":")
    if name.upper().split(";")[0] not in _PEOPLE:
        return False
    return user.lower() in {one.lower().removeprefix("mailto:") for one in (address, *_QUOTED.findall(line))}
