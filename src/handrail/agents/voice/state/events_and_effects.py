"""What happens in a spoken conversation (events), and what is to be done about it (effects). Values only.

`ConversationReducer` turns one into the other; `VoiceSession` carries the effects out. The model's own events
(`handrail.contract.live`) are events here as they come. An `Ordered` effect waits for those before it, because a turn
must be stored before a call of it starts. All others happen at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from handrail.agents.voice.host_port import Abilities, Ending, SpeechState
from handrail.agents.voice.spoken import AnswerVerdict
from handrail.contract.events import SessionEvent
from handrail.contract.live import Answer, LiveEvent, Scheduling

if TYPE_CHECKING:
    from handrail.agents.voice.state.spoken_confirmation import PendingAnswer
    from handrail.agents.voice.state.voice_turns import CallBatch, VoiceTurn


class TimerKind(Enum):
    """What a timer is for."""

    IDLE = auto()
    ITEM_PLAYED = auto()
    WORDS_SETTLED = auto()
    WORDS_STOPPED = auto()
    ANSWER_JUDGED = auto()
    ANSWER_OPEN = auto()
    QUESTION_EXPIRED = auto()
    FAREWELL_LATE = auto()
    FAREWELL_QUIET = auto()


class Timer(NamedTuple):
    """A timer by its purpose, and by the thing it is for where there are several."""

    kind: TimerKind
    subject: str | int = ""


# ---------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Started:
    """The conversation begins. `pending` is what the user asked for before."""

    pending: str | None = None


@dataclass(frozen=True, slots=True)
class UserTextReceived:
    """Words that the user typed, or that the client recognised (`spoken`)."""

    text: str
    input_id: str
    spoken: bool = False


@dataclass(frozen=True, slots=True)
class ClientSpeech:
    """The client's own voice detection."""

    state: SpeechState
    ago_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StopPressed:
    """The user wants silence."""


@dataclass(frozen=True, slots=True)
class SpeechContinued:
    """The microphone hears a voice after the words of an answer."""


@dataclass(frozen=True, slots=True)
class NewestToolsWanted:
    """The tools were built again, and the user wants to continue with them."""


@dataclass(frozen=True, slots=True)
class SoundPlayed:
    item: int
    ms: int
    done: bool = False


@dataclass(frozen=True, slots=True)
class SoundLost:
    """Sound of this item did not reach the client; None: of everything that is not played yet."""

    item: int | None


@dataclass(frozen=True, slots=True)
class TextSpoken:
    """The client's voice finished a `speak`, or broke off in it."""

    id: str
    completed: bool


@dataclass(frozen=True, slots=True)
class ClientChanged:
    """A client is on the line; `resumed`: the one that was there before."""

    abilities: Abilities
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class SessionNews:
    """Something that the session reports, at this time of day (seconds since 1970)."""

    event: SessionEvent
    wall_time: float


@dataclass(frozen=True, slots=True)
class SessionResumed:
    """The session continues under this connection, with the model's new one."""

    connection: int


@dataclass(frozen=True, slots=True)
class UserTextSending:
    """The user's text goes to the model now: what the model says from here on answers it."""


@dataclass(frozen=True, slots=True)
class TurnStored:
    """The runtime gave the turn its number. `before` is the turn that it follows."""

    turn: VoiceTurn
    number: int
    before: VoiceTurn | None
    replaced: bool = False
    """The session continues in another connection."""


@dataclass(frozen=True, slots=True)
class ModelToldLate:
    """The model gets a late result now, and will say something about it unless it is `silent`."""

    silent: bool


@dataclass(frozen=True, slots=True)
class CallSlow:
    """A call takes longer than its budget."""

    batch: CallBatch
    tool: str


@dataclass(frozen=True, slots=True)
class CallsEnded:
    """The calls of a message have their envelopes."""

    batch: CallBatch
    answers: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class CallsReported:
    """The model and the client have these envelopes."""


@dataclass(frozen=True, slots=True)
class AnswerRecognised:
    """What the local recogniser made of an answer; None if it heard nothing."""

    answer: PendingAnswer
    verdict: AnswerVerdict | None


@dataclass(frozen=True, slots=True)
class DecisionRecorded:
    """The runtime took a spoken answer."""

    id: str
    declined: bool


@dataclass(frozen=True, slots=True)
class DecisionReopened:
    """The runtime asks anew, because what the preview said has changed."""

    id: str


@dataclass(frozen=True, slots=True)
class DecisionNotRecorded:
    """The runtime did not take a spoken answer, or nobody knows whether it did; `message` tells the user more."""

    id: str
    reason: str
    message: str = ""
    expired: bool = False


@dataclass(frozen=True, slots=True)
class EndWanted:
    """Somebody outside ends the conversation. `to_text`: the session goes back to text mode."""

    ending: Ending
    to_text: bool = True


@dataclass(frozen=True, slots=True)
class EndBegun:
    """The conversation is over; what is open is to be closed."""


@dataclass(frozen=True, slots=True)
class EndCompleted:
    """Everything of the conversation is stored; nothing listens any more."""


@dataclass(frozen=True, slots=True)
class TimerElapsed:
    timer: Timer


Event: TypeAlias = (
    LiveEvent
    | Started
    | UserTextReceived
    | ClientSpeech
    | StopPressed
    | NewestToolsWanted
    | SpeechContinued
    | SoundPlayed
    | SoundLost
    | TextSpoken
    | ClientChanged
    | SessionNews
    | SessionResumed
    | UserTextSending
    | TurnStored
    | ModelToldLate
    | CallSlow
    | CallsEnded
    | CallsReported
    | AnswerRecognised
    | DecisionRecorded
    | DecisionReopened
    | DecisionNotRecorded
    | EndWanted
    | EndBegun
    | EndCompleted
    | TimerElapsed
)


# --------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class TellClient:
    """Report this to the host's listener."""

    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecogniseAnswer:
    """Have the local recogniser hear this answer."""

    answer: PendingAnswer
    pcm: bytes
    rate: int


@dataclass(frozen=True, slots=True)
class RecordDecision:
    """Bring a spoken yes or no to the runtime."""

    id: str
    token: str
    approve: bool


@dataclass(frozen=True, slots=True)
class EndSession:
    """End the conversation."""

    ending: Ending
    to_text: bool


@dataclass(frozen=True, slots=True)
class StoreTurn:
    turn: VoiceTurn
    before: VoiceTurn | None


@dataclass(frozen=True, slots=True)
class EndTurn:
    turn: VoiceTurn


@dataclass(frozen=True, slots=True)
class SendUserText:
    text: str
    clears_pending: bool = False


@dataclass(frozen=True, slots=True)
class TruncateModel:
    """The user heard this much of the model's answer."""

    played_ms: int


@dataclass(frozen=True, slots=True)
class InterruptModel:
    """Stop the model's answer."""


@dataclass(frozen=True, slots=True)
class TellModel:
    """Tell the model something in the host's name."""

    text: str
    scheduling: Scheduling


@dataclass(frozen=True, slots=True)
class TellModelLate:
    """Tell the model a result that came late, and mark its confirmation as read."""

    text: str
    silent: bool
    confirmation_id: str | None


@dataclass(frozen=True, slots=True)
class InterruptCalls:
    """Stop the calls with these ids; None: all of them."""

    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class StartCalls:
    batch: CallBatch


@dataclass(frozen=True, slots=True)
class RefuseCalls:
    """Answer calls that do not run, without asking the model to continue."""

    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ResumeSession:
    """Continue the session under the number of the model's new connection."""

    restored_calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakeNewestTools:
    """Pin the session to the newest tools, and declare them to the model."""


@dataclass(frozen=True, slots=True)
class RecordWithdrawnEnd:
    """Store that an end which a tool had asked for was taken back."""

    intent: Mapping[str, Any]


Ordered: TypeAlias = (
    StoreTurn
    | EndTurn
    | SendUserText
    | TruncateModel
    | InterruptModel
    | TellModel
    | TellModelLate
    | InterruptCalls
    | StartCalls
    | RefuseCalls
    | ResumeSession
    | TakeNewestTools
    | RecordWithdrawnEnd
)
Effect: TypeAlias = TellClient | RecogniseAnswer | RecordDecision | EndSession | Ordered


class EffectQueue(list[Effect]):
    """The effects of one event. The parts of the reducer share it, and with it the moment of the event and the timers."""

    def __init__(self) -> None:
        super().__init__()
        self.now = -inf
        self.timers: dict[Timer, float] = {}
        """When each timer that is set elapses. Whoever carries the effects out keeps to it."""
