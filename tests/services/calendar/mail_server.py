"""A real SMTP server for tests: aiosmtpd on a free port, which keeps what it was sent, and misbehaves on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import icalendar
from aiosmtpd.controller import Controller


@dataclass
class MailServer:
    """`mails` are those that it took, with their recipients. A refusal is answered to whoever it names."""

    port: int = 0
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    answers: list[str | None] = field(default_factory=list)
    """To the coming messages: a line, `drop` to take it and hang up, or None to take it."""
    on_step: Callable[[], None] = lambda: None
    """Called when a message has come, and when it was taken and before that is said."""

    def events(self) -> list[tuple[str, Any, list[str]]]:
        """The scheduling objects of what came: method, event, recipients."""
        found = []
        for to, mail in self.mails:
            [part] = [one for one in mail.walk() if one.get_content_type() == "text/calendar"]
            assert part.get_param("method")
            calendar = icalendar.Calendar.from_ical(part.get_content())
            [event] = calendar.walk("VEVENT")
            assert part.get_param("method") == str(calendar["METHOD"])
            found.append((str(calendar["METHOD"]), event, to))
        return found

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        self.on_step()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None and answer != "drop":
            return answer
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append((list(envelope.rcpt_tos), mail))
        self.on_step()
        if answer == "drop":
            server.transport.close()
        return "250 Taken"


@contextmanager
def mail_server(**options: Any) -> Iterator[MailServer]:
    """Started, and stopped at the end. `options` are those of aiosmtpd, such as a certificate or a password."""
    handler = MailServer()
    controller = _FreePort(handler, hostname="127.0.0.1", port=0, ready_timeout=60, **options)
    controller.start()
    try:
        yield handler
    finally:
        controller.stop()


class _FreePort(Controller):
    """On whatever port is free; the handler is told which."""

    def _trigger_server(self) -> None:
        assert self.server is not None
        self.port = self.handler.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()
