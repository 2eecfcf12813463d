"""Invitations by mail: an event as an iCalendar message (iMIP, RFC 6047) over SMTP, for calendars that send none themselves.

A message about the same version of an event has the same UID, SEQUENCE and Message-ID whenever it is sent, so that sending it
again after a crash shows its reader one invitation.
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP as MAIL_POLICY
from email.utils import format_datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from icalendar import Calendar, Event
from icalendar.prop import vCalAddress, vUri

from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.calendar.remote import Line, Maybe, RemoteThreads

if TYPE_CHECKING:
    from handrail_reference.services.calendar.port import BookedEvent

InvitationMethod = Literal["REQUEST", "CANCEL"]
MailSecurity = Literal["starttls", "tls", "none"]

_ADDRESS = re.compile(r"[^\s@<>,;:\"\\]+@[^\s@<>,;:\"\\]+")
_LINE_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_SUBJECTS: Mapping[InvitationMethod, str] = {"REQUEST": "Invitation", "CANCEL": "Cancelled"}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MAX_REASON = 200
_BUSY = (421, 450, 451, 452)


class Delivery(NamedTuple):
    """Whom the server refused, and of whom nobody knows whether they were written to, with the reasons."""

    refused: Mapping[str, str]
    doubtful: Mapping[str, str]


class InvitationPort(Protocol):
    @property
    def sender(self) -> str:
        """The address that invites: the organizer of the events."""
        ...

    async def send(
        self, event: BookedEvent, method: InvitationMethod, to: Sequence[str], message: str = ""
    ) -> Delivery:
        """Write to them, times on the clock that the event's have. `ToolError` if it is certain that nobody was written to."""
        ...

    async def check(self) -> str:
        """A few words for `handrail doctor`, after the server was asked."""
        ...

    async def close(self) -> None: ...


class MailInvitations:
    """Invitations through one SMTP server."""

    def __init__(
        self,
        host: str,
        *,
        port: int,
        sender: str,
        security: MailSecurity = "starttls",
        user: str = "",
        password: str = "",
        timeout: float = 8.0,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not _ADDRESS.fullmatch(sender):
            raise ConfigError(
                '"mail_from" in [services.calendar] must be the address that invites, such as "team@example.com"; '
                f"{sender!r} is not."
            )
        if not 1 <= port <= 65_535:
            raise ConfigError(f'"mail_port" in [services.calendar] must be a port, 1 to 65535; {port} is not.')
        if security == "none" and host not in _LOOPBACK:
            raise ConfigError(
                '"mail_security" in [services.calendar] may be "none" for a mail server on this machine only; use "starttls" '
                'or "tls".'
            )
        self.sender = sender
        self._host, self._port, self._security = host, port, security
        self._user, self._password = user, password
        self._timeout = timeout
        self._tls = tls
        self._now = now
        self._threads = RemoteThreads("mail", timeout * 2)

    async def close(self) -> None:
        await self._threads.close()

    async def send(
        self, event: BookedEvent, method: InvitationMethod, to: Sequence[str], message: str = ""
    ) -> Delivery:
        mail = invitation(event, method, to, sender=self.sender, now=self._now(), message=message)
        with suppress(_MaybeSent):
            return Delivery(await self._delivered(mail, to), {})
        # Whoever has it already sees the same invitation, so the doubt may be settled by sending it again. Who is refused
        # now may have got the first.
        try:
            return Delivery({}, await self._delivered(mail, to))
        except ToolError as error:
            return Delivery({}, dict.fromkeys(to, error.message.rstrip(".")))
        except _MaybeSent:
            return Delivery({}, dict.fromkeys(to, "the mail server did not say whether it took the message"))

    async def check(self) -> str:
        """The server is greeted and signed in to; nothing is sent."""
        try:
            await self._threads.run(self._greet)
        except Maybe:
            raise _no_answer() from None
        return f"mail by {self._host}"

    async def _delivered(self, mail: EmailMessage, to: Sequence[str]) -> Mapping[str, str]:
        """Whom the server refused. A server that takes too long is given up: for certain while it does not have the message."""
        sending = threading.Lock()
        try:
            return await self._threads.run(lambda line: self._deliver(line, mail, list(to), sending))
        except Maybe:
            raise (_no_answer() if sending.acquire(blocking=False) else _MaybeSent()) from None

    def _greet(self, line: Line) -> None:
        with self._connected(line):
            pass

    def _deliver(self, line: Line, mail: EmailMessage, to: list[str], sending: threading.Lock) -> Mapping[str, str]:
        with self._connected(line) as server:
            if not sending.acquire(blocking=False):
                raise _no_answer()  # it was given up meanwhile
            try:
                refused = server.send_message(mail, from_addr=self.sender, to_addrs=to)
            except smtplib.SMTPRecipientsRefused as error:
                raise _failure("refused every address", *next(iter(error.recipients.values()))) from None
            except smtplib.SMTPResponseException as error:
                raise _failure("refused the message", error.smtp_code, error.smtp_error) from None
            except (smtplib.SMTPServerDisconnected, OSError):
                raise _MaybeSent from None
            except (smtplib.SMTPException, UnicodeError) as error:
                raise ToolError(ErrorType.PERMANENT, f"The mail server cannot take the message ({error}).") from None
            return {address: _reason(code, text) for address, (code, text) in refused.items()}

    def _connected(self, line: Line) -> _SmtpSession:
        return _SmtpSession(self._open(line))

    def _open(self, line: Line) -> smtplib.SMTP:
        server: smtplib.SMTP | None = None
        try:
            tls = self._tls or ssl.create_default_context()
            plain, secured = _noting(line)
            if self._security == "tls":
                server = secured(self._host, self._port, timeout=self._timeout, context=tls)
            else:
                server = plain(self._host, self._port, timeout=self._timeout)
            server.ehlo()
            if self._security == "starttls":
                server.starttls(context=tls)
                server.ehlo()
            if self._user:
                server.login(self._user, self._password)
        except smtplib.SMTPAuthenticationError:
            _close(server)
            raise ToolError(
                ErrorType.AUTH, "The mail server refused the host's sign-in; the host has to mend its password."
            ) from None
        except smtplib.SMTPNotSupportedError as error:
            _close(server)
            raise ToolError(
                ErrorType.PERMANENT, f"The mail server cannot be used as it is set up: {str(error).rstrip('.')}."
            ) from None
        except smtplib.SMTPResponseException as error:
            _close(server)
            raise _failure("refused the connection", error.smtp_code, error.smtp_error) from None
        except ssl.SSLError:
            _close(server)
            raise ToolError(
                ErrorType.PERMANENT, "The mail server's certificate is not valid, so nothing was sent."
            ) from None
        except (OSError, smtplib.SMTPException):
            _close(server)
            raise _no_answer() from None
        return server


def _noting(line: Line) -> tuple[type[smtplib.SMTP], type[smtplib.SMTP_SSL]]:
    """Connections that are noted on a line, in a copy: a socket that TLS takes over cannot be cut while it shakes hands."""

    class Plain(smtplib.SMTP):
        copy: socket.socket | None = None

        def _get_socket(self, *where: Any) -> socket.socket:
            opened: socket.socket = super()._get_socket(*where)  # type: ignore[misc]
            self.copy = copied = opened.dup()
            line.uses(lambda: [copied])
            return opened

        def close(self) -> None:
            super().close()
            if self.copy is not None:
                self.copy.close()

    class Secured(smtplib.SMTP_SSL, Plain):
        def _get_socket(self, *where: Any) -> socket.socket:
            try:
                return super()._get_socket(*where)
            except OSError:
                self.close()
                raise

    return Plain, Secured


class _SmtpSession:
    """A session with the server, ended politely where that is possible."""

    def __init__(self, server: smtplib.SMTP) -> None:
        self._server = server

    def __enter__(self) -> smtplib.SMTP:
        return self._server

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._server.quit()
        except (OSError, smtplib.SMTPException):
            pass  # the message was taken; how the server says goodbye does not matter
        finally:
            self._server.close()


class _MaybeSent(Exception):
    """The server went away while it had the message."""


def invitation(
    event: BookedEvent, method: InvitationMethod, to: Sequence[str], *, sender: str, now: datetime, message: str = ""
) -> EmailMessage:
    """The message: words for people, and the event for their calendars."""
    title = _LINE_BREAKS.sub(" ", event.title).strip() or "Event"
    mail = EmailMessage(policy=MAIL_POLICY)
    mail["Subject"] = f"{_SUBJECTS[method]}: {title}"[:250]
    mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Date"] = format_datetime(now)
    identity = sha256("\0".join((event.uid, str(event.sequence), method, *sorted(to))).encode()).hexdigest()[:40]
    mail["Message-ID"] = f"<{identity}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_words(event, method, message))
    text = scheduling_object(event, method, sender=sender, now=now, message=message)
    mail.add_alternative(text, subtype="calendar", params={"method": method, "component": "VEVENT"})
    return mail


def scheduling_object(
    event: BookedEvent, method: InvitationMethod, *, sender: str, now: datetime, message: str = ""
) -> str:
    """The iCalendar object of the invitation."""
    calendar = Calendar()
    calendar.add("prodid", "-//Handrail//Invitations//EN")
    calendar.add("version", "2.0")
    calendar.add("method", method)
    part = Event()
    part.add("uid", event.uid)
    part.add("sequence", event.sequence)
    part.add("dtstamp", now)
    part.add("dtstart", event.start.astimezone(UTC))
    part.add("dtend", event.end.astimezone(UTC))
    part.add("summary", event.title)
    part.add("organizer", f"mailto:{sender}")
    for address in event.attendees:
        answer = {"RSVP": "TRUE", "PARTSTAT": "NEEDS-ACTION", "ROLE": "REQ-PARTICIPANT"} if method == "REQUEST" else {}
        part.add("attendee", vCalAddress(f"mailto:{address}", params=answer))
    part.add("status", "CONFIRMED" if method == "REQUEST" else "CANCELLED")
    for name, text in (("description", event.description), ("location", event.location), ("comment", message)):
        if text:
            part.add(name, text)
    if event.meeting_link and method == "REQUEST":
        part.add("conference", vUri(event.meeting_link, params={"VALUE": "URI", "FEATURE": "AUDIO,VIDEO"}))
    calendar.add_component(part)
    return str(calendar.to_ical().decode())


def _words(event: BookedEvent, method: InvitationMethod, message: str) -> str:
    start, end = event.start, event.end
    lines = [
        f"{'You are invited' if method == 'REQUEST' else 'This is cancelled'}: {event.title}",
        f"{start:%A %d %B %Y, %H:%M} to {end:%A %d %B %Y, %H:%M} ({start.tzinfo})",
        event.location,
        event.meeting_link if method == "REQUEST" and event.meeting_link != event.location else "",
        event.description if method == "REQUEST" else "",
        message,
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _no_answer() -> ToolError:
    return ToolError(ErrorType.TRANSIENT, "The mail server does not answer.", retryable=True)


def _failure(what: str, code: int, text: bytes | str) -> ToolError:
    passing = code in _BUSY
    kind = ErrorType.TRANSIENT if passing else ErrorType.AUTH if code in (530, 535) else ErrorType.PERMANENT
    return ToolError(kind, f"The mail server {what}: {_reason(code, text)}.", retryable=passing)


def _reason(code: int, text: bytes | str) -> str:
    """What the server said, as the first sentence of it: it is not ours, and stands in one that goes to a model and a person."""
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    first = _SENTENCE_END.split(_LINE_BREAKS.sub(" ", said).strip(), maxsplit=1)[0]
    return f"{code} {first}"[:_MAX_REASON].rstrip(" .!?")


def _close(server: smtplib.SMTP | None) -> None:
    if server is not None:
        server.close()
