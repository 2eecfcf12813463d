"""What a local server of a text provider plays: one `Reply` for each time that the model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Fault = Literal[
    "busy",
    "down",
    "drop",
    "duplicate",
    "echo",
    "empty",
    "error",
    "flood",
    "garble",
    "huge",
    "misfit",
    "nonsense",
    "page",
    "reissue",
    "reorder",
    "reset",
    "stall",
    "trickle",
    "truncate",
]
"""How a server misbehaves the first time that it plays a reply, or every time (`lasting`).

Instead of an answer: `busy` refuses with status 429, `down` with 503 and a page; `reset` hangs up without a word; `page` sends
a page with status 200, as a proxy may; `empty` an answer without events. In the middle of a call: `drop` cuts the connection,
`stall` says nothing more, `trickle` only that it is still there, `error` that it failed; `truncate` cuts the arguments off,
where the format allows it. `reissue` cuts the connection when the calls are out but not the end, and makes them again under new
ids when asked again. `huge` sends ten megabytes of arguments along. After these the reply is played again, properly, when the
model is asked the next time. `echo` is played again as it was, with its ids, as by a cache in between.

Besides the reply: `duplicate` sends every event twice, `reorder` mixes the pieces of calls as far as the protocol allows,
`nonsense` sends what is no event between the events, `garble` bytes that are no text, `misfit` makes calls that are none (no
name, a list or a number as arguments, too deep), `flood` two thousand more calls in the message.
"""
FAULTS: tuple[Fault, ...] = get_args(Fault)
PLAYED_AGAIN = frozenset(
    {
        "busy", "down", "drop", "echo", "empty", "error", "huge", "page", "reissue", "reset", "stall", "trickle",
        "truncate",
    }
)  # fmt: skip
INSTEAD_OF_AN_ANSWER = frozenset({"busy", "down", "page", "reset"})
FLOOD = 2_000
HUGE = 10_000_000


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    name: str
    args: Any = field(default_factory=dict)


def call(tool: str, /, **args: Any) -> ScriptedCall:
    return ScriptedCall(tool, args)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answers: text, then calls.

    `insist`: it makes the calls again as long as their envelopes are not ok. `lasting`: it misbehaves whenever it is asked.
    """

    text: str = ""
    calls: Sequence[ScriptedCall] = ()
    fault: Fault | None = None
    insist: bool = False
    lasting: bool = False
    reason: Literal["stop", "length", "refusal"] = "stop"
    usage: tuple[int, int] = (10, 5)


@dataclass(frozen=True, slots=True)
class NumberedCall:
    """A call as it goes out, with the id that the server gave it; None where it gives none."""

    number: int
    id: str | None
    name: str
    args: Any


@dataclass(frozen=True, slots=True)
class Frame:
    """One event to send. `part` is the number of the call that it is a piece of; `end` marks the end of the message."""

    payload: Any
    part: int | None = None
    end: bool = False
