"""Links to online meetings, as a port: whoever can turn an event into a link may stand behind it.

The default is Jitsi Meet, which needs no account: a room is there as soon as somebody opens its address.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Protocol
from urllib.parse import urlsplit

from handrail.errors import ConfigError


class MeetingPort(Protocol):
    """The same UID always gives the same link, so that asking twice makes no second meeting."""

    async def link(self, uid: str) -> str: ...


class JitsiMeetings:
    """Rooms on a Jitsi server. Who knows a room's name may enter it, so the name is a hash that nobody can guess."""

    def __init__(self, base_url: str = "https://meet.jit.si") -> None:
        try:
            parts = urlsplit(base_url)
            host = parts.hostname
        except ValueError:
            parts, host = urlsplit(""), None
        if parts.scheme not in ("https", "http") or not host or parts.query or parts.fragment or parts.username:
            raise ConfigError(
                '"meeting_url" in [services.calendar] must be the address of a Jitsi server, such as "https://meet.jit.si"; '
                f"{base_url!r} is not."
            )
        self._base = base_url.rstrip("/")

    async def link(self, uid: str) -> str:
        return f"{self._base}/handrail-{sha256(b'meeting:' + uid.encode()).hexdigest()[:32]}"
