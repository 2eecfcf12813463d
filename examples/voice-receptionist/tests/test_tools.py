"""The tools by themselves, through the governed pipeline."""

from __future__ import annotations

from typing import Any

import pytest

DETAILS = {"name": "Ann Lee", "start": "2030-05-14T09:30", "phone": "+44 20 7946 0018"}


def test_nothing_is_booked_without_a_persons_approval(reception: Any) -> None:
    response = reception.tools.call("book_appointment", DETAILS, mode="voice")
    assert response.error.type == "CONFIRMATION_REQUIRED"
    assert response.error.confirmation_request["preview"] == (
        "Book an appointment for Ann Lee on Tuesday 14 May 2030, 09:30, phone +44 20 7946 0018."
    )
    assert reception.bookings() == []


def test_an_approved_booking_takes_its_slot(reception: Any) -> None:
    assert "2030-05-14T09:30" in reception.tools.call("find_slots", {"day": "2030-05-14"}).data["slots"]
    assert reception.tools.call("book_appointment", DETAILS, approved=True).data == {
        "booking": "B-1",
        "start": "2030-05-14T09:30",
    }
    assert reception.bookings() == [("Ann Lee", "2030-05-14T09:30", "+44 20 7946 0018")]
    assert "2030-05-14T09:30" not in reception.tools.call("find_slots", {"day": "2030-05-14"}).data["slots"]


def test_a_time_that_is_taken_is_a_conflict(reception: Any) -> None:
    reception.tools.call("book_appointment", DETAILS, approved=True)
    response = reception.tools.call("book_appointment", {**DETAILS, "name": "Bob"}, approved=True)
    assert response.error.type == "CONFLICT"
    assert len(reception.bookings()) == 1


@pytest.mark.parametrize(
    "start", ["2030-05-18T09:30", "2030-05-14T08:30", "2030-05-14T09:10", "2030-13-14T09:30", "2020-05-14T09:30"]
)
def test_a_time_that_cannot_be_is_refused_in_a_sentence(reception: Any, start: str) -> None:
    response = reception.tools.call("book_appointment", {**DETAILS, "start": start}, approved=True)
    assert response.error.type == "VALIDATION"
    assert start in response.error.message
    assert reception.bookings() == []


def test_a_caller_hears_three_times_at_most(reception: Any) -> None:
    assert len(reception.tools.call("find_slots", {"day": "2030-05-14"}, mode="voice").data["slots"]) == 3
    assert reception.tools.call("find_slots", {"day": "2030-05-18"}).data["slots"] == []


@pytest.mark.parametrize("name", ["book_appointment", "find_slots"])
def test_the_examples_of_the_guides_are_calls_that_work(reception: Any, name: str) -> None:
    for args in reception.tools.examples(name):
        assert reception.tools.call(name, args, approved=True).ok
