"""Forgetting a user in the calendar: an address is found wherever a line may carry it."""

import pytest

from handrail_reference.services.calendar.forgetting import _names, _without
from handrail_reference.services.calendar.marks import uninvited_text


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("ATTENDEE:mailto:ana@x.com", True),
        ("attendee:ANA@x.com", True),
        ('ATTENDEE;PARTSTAT=ACCEPTED;CN="Ana":MAILTO:ana@x.com', True),
        ('ATTENDEE;SENT-BY="mailto:boss@x.com":mailto:ana@x.com', True),
        ('ATTENDEE;CN="a:b":mailto:ana@x.com', True),
        ('ORGANIZER;SENT-BY="mailto:ana@x.com":mailto:boss@x.com', True),
        ("ATTENDEE;CN=Bob:mailto:bob@x.com", False),
        ("ATTENDEE:mailto:banana@x.com", False),
        ("SUMMARY:mailto:ana@x.com", False),
    ],
)
def test_a_line_that_names_the_user_is_found(line: str, named: bool) -> None:
    assert _names(line, "ana@x.com") is named


def test_whom_a_change_has_uninvited_is_forgotten_too() -> None:
    line = f"X-HANDRAIL-UNINVITED:{uninvited_text((('m1', 'ana@x.com'), ('m1', 'bob+a,b@x.com'), ('m2', 'Ana@x.com')))}"
    assert _without(line, "ana@x.com") == f"X-HANDRAIL-UNINVITED:{uninvited_text((('m1', 'bob+a,b@x.com'),))}"
    assert _without("SUMMARY:m1:ana@x.com", "ana@x.com") == "SUMMARY:m1:ana@x.com"
