"""Online meetings, as a port: whoever can make one for an event may stand behind it.

The default is Jitsi Meet: a room is there as soon as somebody opens its address. So the host needs no account; whether those who
meet need one is the server's rule.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from handrail.errors import ConfigError

if TYPE_CHECKING:
    from handrail_reference.services.calendar.port import Draft, MeetingProvider


class Meeting(NamedTuple):
    """`ref` is what its provider removes it by; empty where there is nothing to remove. One that is not new was found."""

    provider: MeetingProvider
    link: str | None
    ref: str
    is_new: bool = True


NO_MEETING = Meeting("none", None, "")


class MeetingPort(Protocol):
    """Asking twice for the same UID makes no second meeting: one that has to be made is the same, and one that is nothing but an
    address is thrown away where the event has another."""

    @property
    def provider(self) -> MeetingProvider: ...

    async def make(self, draft: Draft) -> Meeting: ...

    async def find(self, uid: str) -> Meeting | None:
        """A meeting that was made for this UID and has to be removed if its event is not there."""
        ...

    async def move(self, ref: str, *, uid: str, title: str, start: datetime, end: datetime) -> None:
        """`ToolError` if it was not made for this UID."""
        ...

    async def remove(self, ref: str, *, uid: str) -> None:
        """One that is gone already is removed. `ToolError` if it was not made for this UID: it is somebody else's."""
        ...

    async def check(self) -> str:
        """A few words for `handrail doctor`, after its service was asked; empty where there is none to ask."""
        ...

    async def close(self) -> None: ...


class NoMeetings:
    """No link at all."""

    provider: MeetingProvider = "none"

    async def make(self, draft: Draft) -> Meeting:
        return NO_MEETING

    async def find(self, uid: str) -> Meeting | None:
        return None

    async def move(self, ref: str, *, uid: str, title: str, start: datetime, end: datetime) -> None:
        pass

    async def remove(self, ref: str, *, uid: str) -> None:
        pass

    async def check(self) -> str:
        return ""

    async def close(self) -> None:
        pass


class MeetMeetings(NoMeetings):
    """Google Meet: Google Calendar makes, moves and removes the meeting together with its event."""

    provider: MeetingProvider = "meet"

    async def make(self, draft: Draft) -> Meeting:
        return Meeting("meet", None, "")


class JitsiMeetings(NoMeetings):
    """Rooms on a Jitsi server. Who knows a room's name may enter it, so the name is random: whatever else is known of the event,
    such as its UID, does not lead to it. The event keeps it."""

    provider: MeetingProvider = "jitsi"

    def __init__(
        self, base_url: str = "https://meet.jit.si", *, room: Callable[[], str] = lambda: token_hex(16)
    ) -> None:
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
        self._room = room

    async def make(self, draft: Draft) -> Meeting:
        return Meeting("jitsi", f"{self._base}/handrail-{self._room()}", "")
