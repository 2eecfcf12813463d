"""Finds phone numbers, with the rules of every country that libphonenumber knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phonenumbers import SUPPORTED_REGIONS, PhoneNumberFormat, PhoneNumberMatcher, format_number

from handrail import ErrorType, ToolError

from .places import TextSpan

# A page of figures has thousands of strings that might be numbers, and each takes as long as a real one.
_MAX_TRIES = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Phone(TextSpan):
    extension: str | None


class Phones:
    """The numbers of a text, in its order. `gave_up`, asked after the last one, says that the rest was not searched."""

    def __init__(self, text: str, region: str | None) -> None:
        self._matcher = PhoneNumberMatcher(text, region, max_tries=_MAX_TRIES)

    def __iter__(self) -> Iterator[Phone]:
        for match in self._matcher:
            yield Phone(
                start=match.start,
                end=match.end,
                value=format_number(match.number, PhoneNumberFormat.E164),
                extension=match.number.extension or None,
            )

    @property
    def gave_up(self) -> bool:
        # The matcher keeps its count to itself; a test makes sure that it is still found here.
        return int(getattr(self._matcher, "_max_tries", 0)) <= 0


def region_of(wanted: str | None) -> str | None:
    """The region as libphonenumber calls it; a sentence if it knows none of that name."""
    if wanted is None or wanted.upper() in SUPPORTED_REGIONS:
        return wanted and wanted.upper()
    advice = "Did you mean GB?" if wanted.upper() == "UK" else "Give an ISO 3166 code of two letters, such as GB."
    raise ToolError(
        ErrorType.VALIDATION, f'There is no region "{wanted}". {advice}', details=[{"pointer": "/default_region"}]
    )
