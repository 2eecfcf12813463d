"""How a voice socket is closed: a code for programs, a word for the `error` before it, and what each means."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class CloseCode:
    """`word` is the `code` of the `error` message that comes before; without one there is no error."""

    code: int
    word: str
    about: str


ENDED = CloseCode(1000, "", "the conversation has ended")
RESTART = CloseCode(1001, "restart", "the server restarts: come back in a moment, the conversation can continue")
BAD_MESSAGE = CloseCode(4400, "bad_message", "a message was not right, or not due")
TICKET = CloseCode(4401, "ticket", "the ticket or its key is not valid: ask for a new ticket")
NO_SESSION = CloseCode(4404, "no_session", "there is no such session")
TOO_SLOW = CloseCode(
    4408, "too_slow", "the client said nothing, or took nothing, for too long: come back, the conversation continues"
)
TAKEN_OVER = CloseCode(4409, "taken_over", "another client has taken the conversation over")
SESSION_ENDED = CloseCode(4410, "session_ended", "the session has ended")
BAD_AUDIO = CloseCode(4413, "bad_audio", "a frame was too large, empty, or not made of whole samples")
FLOOD = CloseCode(4429, "flood", "too much came too quickly, or there are too many conversations")
FAULT = CloseCode(4500, "fault", "something went wrong in the server")
NO_PROVIDER = CloseCode(4503, "provider", "the model cannot be had, or no conversation can begin at the moment")

CLOSINGS = (
    ENDED, RESTART, BAD_MESSAGE, TICKET, NO_SESSION, TOO_SLOW, TAKEN_OVER, SESSION_ENDED, BAD_AUDIO, FLOOD, FAULT, NO_PROVIDER,
)  # fmt: skip


class ClientRefused(Exception):
    """A client that cannot continue: how its socket is closed, and the sentence before."""

    def __init__(self, closing: CloseCode, message: str, word: str = "") -> None:
        super().__init__(message)
        self.closing = replace(closing, word=word) if word else closing
        self.message = message
