"""What a local live server plays: one `Turn` for each time that the user said something, each a list of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from handrail.testing.servers.script import ScriptedCall

Fault = Literal["duplicate", "drop", "drop_answer", "reissue", "truncate", "reorder", "stall", "nonsense", "flood"]
"""How a server misbehaves while it asks for calls:

`duplicate` sends every message of the call twice. `drop` cuts the connection when the call is out, `drop_answer` when its
answer comes in. `reissue` cuts it as `drop` does, and makes the call again under a new id on the next connection. `truncate`
cuts the arguments off, and makes the call again properly. `reorder` sends the end of the message before the call. `stall` says
nothing more on this connection. `nonsense` sends what is no message before and after the call. `flood` makes a thousand more
calls, of a tool that does not exist, in the same message.
"""


Outcome = tuple[str, Mapping[str, Any]]
"""A tool's name and the envelope that came back for a call of it."""

FLOOD = ScriptedCall("a_tool_that_is_not_there")


@dataclass(frozen=True, slots=True)
class Say:
    """Speak: a tone of a length that follows from the text, and the text as transcript. `pace`: seconds for each 100 ms."""

    text: str
    pace: float = 0.0


@dataclass(frozen=True, slots=True, init=False)
class Ask:
    """Make calls in one message, and wait until all are answered."""

    calls: tuple[ScriptedCall, ...]
    fault: Fault | None

    def __init__(self, *calls: ScriptedCall, fault: Fault | None = None) -> None:
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "fault", fault)


@dataclass(frozen=True, slots=True)
class Depart:
    """Announce the end of the connection (Gemini), which comes after that time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Cut the connection."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Words:
    """Tell words of the user now: of their utterance of this number, counted from 1 on this connection."""

    utterance: int
    text: str
    finished: bool = True


@dataclass(frozen=True, slots=True)
class Send:
    """Send this frame as it is."""

    frame: str | bytes


@dataclass(frozen=True, slots=True)
class Decide:
    """Continue with the steps that `choose` gives, by the names of the tools that are declared and by the envelopes so far."""

    choose: Callable[[Sequence[str], Sequence[Outcome]], Sequence[Step]]


Step: TypeAlias = Say | Ask | Depart | Drop | Pause | Words | Send | Decide


@dataclass(frozen=True, slots=True)
class Turn:
    """What the server does when the user has spoken or typed; `hears` is the transcript of what was said."""

    steps: Sequence[Step]
    hears: str = ""


@dataclass(slots=True)
class ScriptProgress:
    """Where in the script a server is. It continues across connections: the model behind them is the same."""

    turns: list[Turn]
    turn: int = -1
    step: int = 0
    faulted: set[tuple[int, int]] = field(default_factory=set)

    def next_turn(self) -> Turn | None:
        """The user said something: on to the next turn, if there is one."""
        self.turn, self.step = min(self.turn + 1, len(self.turns)), 0
        return self.turns[self.turn] if self.turn < len(self.turns) else None

    def insert_turn(self, steps: Sequence[Step]) -> None:
        """Play these steps next, before the script continues."""
        self.turn, self.step = self.turn + 1, 0
        self.turns.insert(self.turn, Turn(steps))

    @property
    def current(self) -> Step | None:
        if not 0 <= self.turn < len(self.turns):
            return None
        steps = self.turns[self.turn].steps
        return steps[self.step] if self.step < len(steps) else None

    def replace(self, steps: Sequence[Step]) -> None:
        """Play these in the place of the current step."""
        turn = self.turns[self.turn]
        after = turn.steps[self.step + 1 :]
        self.turns[self.turn] = Turn([*turn.steps[: self.step], *steps, *after], turn.hears)

    def done(self, step: Step) -> None:
        """The step is over, if it is still the one that the script is at."""
        if self.current is step:
            self.step += 1

    def end_turn(self) -> None:
        if 0 <= self.turn < len(self.turns):
            self.step = len(self.turns[self.turn].steps)

    def fault(self, step: Ask) -> Fault | None:
        """The step's fault, the first time that the step is played."""
        place = (self.turn, self.step)
        if place in self.faulted:
            return None
        self.faulted.add(place)
        return step.fault
