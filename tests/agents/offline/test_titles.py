"""A title says what is booked: how it shall be done, and why, is not in it."""

import pytest


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (
            "book a meeting with ana@example.com and bob@example.com tomorrow at 3 for two hours, no meeting link",
            "Meeting with Ana and Bob",
        ),
        ("book a meeting with eve@x.com tomorrow at 4 without asking me", "Meeting with Eve"),
        ("schedule a review with ana@x.com tomorrow at 3 please, and send her the link", "Review with Ana"),
        ("schedule a review with ana@x.com tomorrow at 3 and make it online", "Review with Ana"),
        ("book a call with ana@x.com tomorrow at 3, it is urgent", "Call with Ana"),
        ("book a meeting with ana@x.com tomorrow at 5 without a zoom link", "Meeting with Ana"),
        ("book lunch with ana@x.com tomorrow at noon, no link please", "Lunch with Ana"),
        ("book a sync with ana@x.com, bob@x.com and eve@x.com tomorrow at noon", "Sync with Ana, Bob and Eve"),
        (
            "book a workshop on safety and health with ana@x.com tomorrow at 10",
            "Workshop on safety and health with Ana",
        ),
    ],
)
async def test_a_title_has_no_left_overs(at_home, words, title):
    async with at_home() as here:
        await here.say(words)
        assert dict(here.calls)["calendar_create_event"]["title"] == title
