"""Finds e-mail addresses, phone numbers, web addresses and the names beside them in a text.

What was found by one finder is hidden from the next: an e-mail address within a web address belongs to the web address,
a phone number within either belongs to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar

from . import addresses, links, names, phones
from .places import TextSpan, hide

_MAX_CONTACTS = 200

Found = TypeVar("Found", bound=TextSpan)


# A plain function: a long text takes tens of milliseconds of pure computing, during which nothing else could continue.
def execute(args: Mapping[str, Any], ctx: object) -> dict[str, Any]:
    """Everything that was found, kind by kind, in the order of the text. A contact that stands twice is found twice."""
    text = args["text"]
    region = phones.region_of(args.get("default_region"))

    urls, end = _first(links.find(text), len(text))
    visible = hide(text, urls)
    rest = visible[:end]
    emails, end = _first(addresses.find(rest), end)
    search = phones.Phones(hide(rest, emails)[:end], region)
    numbers, end = _first(search, end)
    people = names.find(visible, sorted([*emails, *numbers], key=lambda place: place.start))

    return {
        "ok": True,
        "data": {
            "emails": [{"email": email.value, "text": text[email.start : email.end], **_at(email)} for email in emails],
            "phones": [
                {
                    "phone": phone.value,
                    "extension": phone.extension,
                    "text": text[phone.start : phone.end],
                    **_at(phone),
                }
                for phone in numbers
            ],
            "urls": [{"url": url.value, **_at(url)} for url in urls],
            "people": [{"name": person.value, "contact": person.contact, **_at(person)} for person in people],
            "complete": end == len(text) and not search.gave_up,
        },
    }


def _first(found: Iterable[Found], end: int) -> tuple[list[Found], int]:
    """As many as are reported, and up to where the text was searched: the first one left out, or the end."""
    some = list(islice(found, _MAX_CONTACTS + 1))
    return some[:_MAX_CONTACTS], some[_MAX_CONTACTS].start if len(some) > _MAX_CONTACTS else end


def _at(place: TextSpan) -> dict[str, int]:
    return {"start": place.start, "end": place.end}
