"""Whose calendar it is: the mail address under which a CalDAV server invites for its user (RFC 6638)."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urljoin, urlsplit

from handrail_reference.services.calendar.caldav_client import DavAnswer, DavRefusal

_HEADERS = {"Content-Type": "application/xml; charset=utf-8", "Depth": "0"}
_PRINCIPAL, _ADDRESSES = "{DAV:}current-user-principal", "{urn:ietf:params:xml:ns:caldav}calendar-user-address-set"


class Read(Protocol):
    async def __call__(self, method: str, address: str, body: str, headers: dict[str, str]) -> DavAnswer: ...


async def address_of_principal(read: Read, calendar: str) -> str:
    """The address of the account, asked for at one of its calendars; empty where the server names none."""
    try:
        principals = await _hrefs(read, calendar, "<D:current-user-principal/>", _PRINCIPAL)
        if not principals:
            return ""
        principal = urljoin(calendar, principals[0])
        if urlsplit(principal)[:2] != urlsplit(calendar)[:2]:  # the password is for this server
            return ""
        found = await _hrefs(read, principal, "<C:calendar-user-address-set/>", _ADDRESSES)
    except DavRefusal as refusal:
        if refusal.retryable:
            raise
        return ""  # a server that does not say
    mails = (href[len("mailto:") :] for href in found if href.lower().startswith("mailto:"))
    return next((mail for mail in mails if "@" in mail and mail.isprintable()), "")


async def _hrefs(read: Read, address: str, what: str, tag: str) -> list[str]:
    spaces = 'xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"'
    body = f'<?xml version="1.0" encoding="utf-8"?><D:propfind {spaces}><D:prop>{what}</D:prop></D:propfind>'
    answer = await read("PROPFIND", address, body, _HEADERS)
    if answer.status != 207 or answer.tree is None:
        return []
    return [href.text.strip() for one in answer.tree.iter(tag) for href in one.iter("{DAV:}href") if href.text]
