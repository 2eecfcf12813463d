"""What a local server of a text provider plays: one `Reply` for each time that the model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Fault = Literal[
    "busy", "drop", "duplicate", "error", "flood", "huge", "nonsense", "reissue", "reorder", "stall", "truncate"
]
"""How a server misbehaves the first time that it plays a reply:

`busy` refuses with status 429, `error` says in mid-stream that it failed. `drop` cuts the connection in the middle of a call;
`reissue` when the calls are out but not the end, and makes them again under new ids when asked again. `stall` stops in the
middle and says nothing more. `truncate` cuts arguments off where the format allows it. After these the reply is played again,
properly, when the model is asked the next time. `duplicate` sends every event twice, `reorder` mixes the pieces of calls
as far as the protocol allows, `nonsense` sends what is no event between the events, `flood` makes two thousand more calls in
the message, `huge` sends ten megabytes of arguments along.
"""
FAULTS: tuple[Fault, ...] = get_args(Fault)
PLAYED_AGAIN = frozenset({"busy", "drop", "error", "huge", "reissue", "stall", "truncate"})
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
    """What the model answers: text, then calls. `insist`: it makes the calls again as long as their envelopes are not ok."""

    text: str = ""
    calls: Sequence[ScriptedCall] = ()
    fault: Fault | None = None
    insist: bool = False
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
