"""A conversation: the messages of one session, written or spoken, as the model is sent them. Serialisable, so
that a host can keep it.

Messages of one turn belong together: a call is always followed by its envelope, also where a turn was cancelled, because
providers refuse a history in which one is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import orjson

from handrail.agents.context_watch import ContextWatch
from handrail.agents.unacknowledged_writes import UnacknowledgedWrites
from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.frozen import for_json, thaw
from handrail.contract.live import Answer, Note, Utterance
from handrail.contract.model import AssistantMessage, HostMessage, Message, ToolMessage, UserMessage
from handrail.providers.live_history import late_note, left_out_envelope
from handrail.runtime.session import Session

FORMAT = 1
MAX_MESSAGES = 1_000
MAX_TOKENS = 200_000
"""Older turns are forgotten beyond either of them, until half is left."""
_MAX_REPORTED = 200
_MAX_ON_OFFER = 20
ANSWER_LEFT_OUT = "(This old answer is no longer sent, to save room.)"
UNHEARD = "(The person spoke; their words are not known.)"
"""In the place of words that come later, or never."""


def tokens_of(text: str) -> int:
    """Estimated as everywhere in Handrail: a token is four characters."""
    return -(-len(text) // 4)


def tokens_of_json(value: Any) -> int:
    """The tokens of a value as it is sent. What is no JSON counts as its text."""
    try:
        return -(-len(orjson.dumps(value, default=for_json)) // 4)
    except TypeError:
        return tokens_of(str(value))


def tokens_of_message(message: Message) -> int:
    if isinstance(message, ToolMessage):
        return tokens_of_json(message.envelope) + tokens_of(message.name)
    calls = message.calls if isinstance(message, AssistantMessage) else ()
    return tokens_of(message.text) + sum(
        tokens_of(call.name) + (tokens_of(call.args) if isinstance(call.args, str) else tokens_of_json(call.args))
        for call in calls
    )


class Conversation:
    """What was said in one session. `time_zone` is the user's, where it is known."""

    def __init__(self, *, time_zone: str = "") -> None:
        self.time_zone = time_zone
        self.messages: list[Message] = []
        self.inputs: dict[str, int] = {}
        """The message ids of the turns that are kept → where each turn begins in `messages`."""
        self.told: list[str] = []
        """Confirmations whose late envelope the model was told of, so that it is told once."""
        self.unread: list[str] = []
        """Those among them whose envelope the model has not been asked with since."""
        self.offered: list[str] = []
        """Tools that were called or found: they stay on offer when others are picked."""
        self.unfinished: str | None = None
        """The input whose answer broke off; sent again, it is answered anew."""
        self.later: list[HostMessage] = []
        """What the model gets to know before it is asked the next time."""
        self.unacknowledged = UnacknowledgedWrites()
        """Writing calls whose outcome whoever continues with it may not know."""
        self.keep: Callable[[], Awaitable[None]] | None = None
        """Has the host store it now, before something happens that must not be forgotten."""
        self._measured: list[Message] = []
        self._tokens: list[int] = []
        """Of each message that was measured."""
        self.context: ContextWatch | None = None
        """How full the model's window is; made by the agent that asks the model."""
        self.lock = asyncio.Lock()
        """A turn and a late envelope do not write into it at the same time."""

    def begin(self, text: str, message_id: str | None) -> None:
        """The user's input begins a turn."""
        # At the beginning of a turn and never within: a call and its envelope must not be separated.
        if len(self.messages) > MAX_MESSAGES or sum(self._measure()) > MAX_TOKENS:
            self._forget_oldest()
        if self.later:
            self.tell_later()
        self.unfinished = None
        if message_id is not None:
            self.inputs[message_id] = len(self.messages)
        self.messages.append(UserMessage(text))

    def begin_again(self) -> None:
        """The last input was sent again: what is left of its broken answer goes."""
        if self.unfinished is not None and self.messages:
            last = self.messages[-1]
            # One with calls stays: they have run, and their envelopes follow it.
            if isinstance(last, AssistantMessage) and not last.calls:
                self.messages.pop()
        self.unfinished = None

    def tell_later(self) -> None:
        """Put what waits for the model behind what was said."""
        self.messages.extend(self.later)
        self.later = []

    def add(self, *messages: Message) -> None:
        self.messages.extend(messages)
        for message in messages:
            if isinstance(message, ToolMessage):
                self.keep_on_offer([message.name])

    def keep_on_offer(self, names: Sequence[str]) -> None:
        """These tools were called or found: they stay declared when others are picked, the newest twenty."""
        new = [name for name in names if name not in self.offered]
        if new:
            self.offered = [*self.offered, *new][-_MAX_ON_OFFER:]

    def tell(self, confirmation_id: str) -> bool:
        """Note that the model is told what became of a confirmation; False if it was told before."""
        if confirmation_id in self.told:
            return False
        self.told = [*self.told, confirmation_id][-_MAX_REPORTED:]
        self.unread = [*self.unread, confirmation_id][-_MAX_REPORTED:]
        return True

    async def read(self, session: Session, confirmation_ids: Sequence[str], turn: int) -> None:
        """The model has answered with these outcomes before it: the runtime is told that it knows them."""
        for confirmation_id in confirmation_ids:
            if confirmation_id in self.unread:
                self.unread.remove(confirmation_id)
                await session.outcome_delivered(confirmation_id, turn=turn)

    async def catch_up(self, session: Session, turn: int) -> None:
        """A model continues with it: what became of calls of a process that is gone is written down, and counts as told."""
        for call, envelope in await self.unacknowledged.look_up(session):
            for place, message in enumerate(self.messages):
                if message == lost(call, doubtful=True):
                    self.messages[place] = ToolMessage(call.call_id, call.name, envelope)
        self.unacknowledged.taken_up(turn)

    def answer_to(self, message_id: str | None) -> str | None:
        """The answer that this input got, if it was answered; so that a message sent again is not answered anew."""
        turn = [] if message_id == self.unfinished else self.turn_of(message_id)
        last = turn[-1] if turn else None
        return last.text if isinstance(last, AssistantMessage) and not last.calls else None

    def turn_of(self, message_id: str | None) -> list[Message]:
        """The messages of the turn that this input began; none if it is not known."""
        start = self.inputs.get(message_id) if message_id is not None else None
        if start is None:
            return []
        end = next((place for place in sorted(self.inputs.values()) if place > start), len(self.messages))
        for place in range(start + 1, end):
            if isinstance(self.messages[place], UserMessage):
                end = place
                break
        return self.messages[start:end]

    def current_turn(self) -> list[Message]:
        """The messages from the last user's message on."""
        for place in range(len(self.messages) - 1, -1, -1):
            if isinstance(self.messages[place], UserMessage):
                return self.messages[place:]
        return list(self.messages)

    def tokens(self) -> int:
        """Of all that is kept."""
        return sum(self._measure())

    def within(self, max_tokens: int) -> list[Message]:
        """What a model is sent: everything if it fits; see `sent_within`."""
        return self.sent_within(max_tokens)[0]

    def sent_within(self, max_tokens: int, room: int | None = None) -> tuple[list[Message], int, int]:
        """What a model is sent, how many results and answers were left out of it so that it fits, and its tokens.

        The oldest results go first, then the oldest answers, each with a note in its place; the user's words and what the model
        has just asked for stay. Where the user's words alone are too many, the oldest turns go whole. The current turn's are
        always sent. `room` is what the model's window has left: for its sake only results are left out.
        """
        total = sum(self._measure())
        over = total - max_tokens
        too_full = 0 if room is None else total - room
        if (over <= 0 and too_full <= 0) or not any(isinstance(message, UserMessage) for message in self.messages):
            return list(self.messages), 0, total
        sized = list(zip(self.messages, self._tokens, strict=True))
        asked = (place for place in range(len(sized) - 1, -1, -1) if _has_calls(sized[place][0]))
        left_out = 0
        for place in range(next(asked, len(sized))):
            message, size = sized[place]
            if (over > 0 or too_full > 0) and isinstance(message, ToolMessage):
                note = _result_left_out(message)
                saved = size - tokens_of_message(note)
                if saved > 0:
                    sized[place], left_out = (note, size - saved), left_out + 1
                    over, too_full = over - saved, too_full - saved
        turns = _turns_of(sized)
        answer = AssistantMessage(ANSWER_LEFT_OUT)
        for turn in turns[:-1]:
            words = next(place for place, (message, _) in enumerate(turn) if isinstance(message, UserMessage)) + 1
            saved = sum(size for _, size in turn[words:]) - tokens_of_message(answer)
            if over > 0 and saved > 0:
                turn[words:] = [(answer, tokens_of_message(answer))]
                over, left_out = over - saved, left_out + 1
        while over > 0 and len(turns) > 1:
            over -= sum(size for _, size in turns.pop(0))
            left_out += 1
        sent = [message for turn in turns for message, _ in turn]
        return sent, left_out, sum(size for turn in turns for _, size in turn)

    def _forget_oldest(self) -> None:
        tokens = self._measure()
        count, total = len(self.messages), sum(tokens)
        starts = [place for place, message in enumerate(self.messages) if isinstance(message, UserMessage)]
        if not starts:
            return
        # Half at once: what is sent begins differently after it, which spoils a provider's cache, so it is done seldom.
        max_messages = MAX_MESSAGES // 2 if count > MAX_MESSAGES else count
        left = total if total <= MAX_TOKENS else MAX_TOKENS // 2
        before = [0, *accumulate(tokens)]
        fitting = (place for place in starts if count - place <= max_messages and total - before[place] <= left)
        cut = next(fitting, starts[-1])
        self.messages = self.messages[cut:]
        self.inputs = {name: place - cut for name, place in self.inputs.items() if place >= cut}

    def _measure(self) -> list[int]:
        """The tokens of each message; those that were measured before are not measured again."""
        # By identity: messages are replaced and never changed, and those that were measured are held, so that no id is
        # used again.
        known = {id(message): size for message, size in zip(self._measured, self._tokens, strict=True)}
        self._tokens = [known.get(id(message)) or tokens_of_message(message) for message in self.messages]
        self._measured = list(self.messages)
        return self._tokens

    # ----------------------------------------------------------------------------------------------------- spoken
    def live_history(self, tokens: int) -> list[Utterance | Answer | Note]:
        """What was said, called and told before, for a model that begins to listen."""
        self.tell_later()
        said: list[Utterance | Answer | Note] = []
        made: list[Call] = []
        for message in self.within(tokens):
            if isinstance(message, UserMessage) and message.text.strip():
                said.append(Utterance("user", message.text))
            elif isinstance(message, HostMessage):
                said.append(Note(message.text))
            elif isinstance(message, AssistantMessage):
                said += [Utterance("model", message.text)] if message.text.strip() else []
                made += message.calls
            elif isinstance(message, ToolMessage):
                said += _answer_in_history(made, message)
        return said

    def say(self, text: str) -> AssistantMessage | None:
        """Something that the user has heard or read."""
        if not text.strip():
            return None
        message = AssistantMessage(text)
        self.add(message)
        return message

    def cut(self, message: AssistantMessage, heard: str) -> AssistantMessage | None:
        """The user heard only so much of it."""
        if not heard.strip():
            if not message.calls:
                self.replace(message, None)
                return None
            kept = AssistantMessage("", message.calls)
        else:
            kept = AssistantMessage(f"{heard} …", message.calls)
        self.replace(message, kept)
        return kept

    def farewell_words(self) -> str | None:
        """The goodbye of the tool that ended this turn, if it has one."""
        for message in reversed(self.current_turn()):
            if isinstance(message, ToolMessage) and message.envelope.get("ok"):
                data = message.envelope.get("data")
                words = data.get("farewellMessage") if isinstance(data, Mapping) else None
                if isinstance(words, str) and words:
                    return words
        return None

    def replace(self, old: Message, new: Message | None) -> None:
        """Put a message in the place of another, such as an envelope in that of what stands for it; None takes it away."""
        # By identity, from the end: the conversation may have forgotten its older half, so that places do not last.
        messages = self.messages
        for place in range(len(messages) - 1, -1, -1):
            if messages[place] is not old:
                continue
            if new is not None:
                messages[place] = new
                return
            del messages[place]
            self.inputs = {name: at - (at > place) for name, at in self.inputs.items()}
            return

    # ------------------------------------------------------------------------------------------------------- kept
    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {
            "format": FORMAT,
            "timeZone": self.time_zone,
            "messages": [_to_dict(message) for message in self.messages],
            "inputs": dict(self.inputs),
            "told": list(self.told),
            "unread": list(self.unread),
            "offered": list(self.offered),
            "unfinished": self.unfinished,
            "later": [message.text for message in self.later],
            "unanswered": self.unacknowledged.to_list() if self.unacknowledged.writes else [],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conversation:
        """The conversation in `data`; `UsageError` with a sentence if it is none."""
        try:
            if data["format"] != FORMAT:
                raise UsageError(f"A conversation of format {data['format']!r} cannot be read; known is {FORMAT}.")
            made = cls(time_zone=str(data.get("timeZone", "")))
            made.messages = [_from_dict(message) for message in data["messages"]]
            made.inputs = {
                str(name): int(place)
                for name, place in data["inputs"].items()
                if 0 <= int(place) < len(made.messages) and isinstance(made.messages[int(place)], UserMessage)
            }
            made.told = [str(name) for name in data["told"]]
            made.unread = [str(name) for name in data.get("unread", ())]
            made.offered = [str(name) for name in data["offered"]]
            made.unfinished = data.get("unfinished")
            made.later = [HostMessage(str(text)) for text in data.get("later", ())]
            made.unacknowledged = UnacknowledgedWrites.from_list(data.get("unanswered", ()))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"This is no kept conversation: {error!r}.") from None
        made.close_open_calls()
        return made

    def close_open_calls(self) -> None:
        """Answer calls that have no envelope, because the process ended before they had one: the model must not wait."""
        mended: list[Message] = []
        waiting: list[Call] = []
        for message in self.messages:
            if isinstance(message, ToolMessage):
                waiting = _without(waiting, message)
            elif waiting:
                mended += [lost(call) for call in waiting]
                waiting = []
            mended.append(message)
            if isinstance(message, AssistantMessage):
                waiting = list(message.calls)
        if waiting:
            mended += [lost(call) for call in waiting]
        if len(mended) != len(self.messages):
            self._replace(mended)

    def _replace(self, mended: list[Message]) -> None:
        places = {id(message): place for place, message in enumerate(mended)}
        self.inputs = {name: places[id(self.messages[place])] for name, place in self.inputs.items()}
        self.messages = mended


def _answer_in_history(made: list[Call], message: ToolMessage) -> list[Answer | Note]:
    """The envelope and its call, which is then no longer open; in words if the call has no id."""
    for place, call in enumerate(made):
        if (call.name, call.call_id) == (message.name, message.call_id):
            answer = Answer(made.pop(place), message.envelope)
            return [answer] if call.call_id else [Note(late_note(answer))]
    return []


def _without(waiting: Sequence[Call], answer: ToolMessage) -> list[Call]:
    left = list(waiting)
    for call in waiting:
        if call.name == answer.name and call.call_id == answer.call_id:
            left.remove(call)
            break
    return left


def _turns_of(sized: Sequence[tuple[Message, int]]) -> list[list[tuple[Message, int]]]:
    """Messages by the turns that they belong to; what stands before the first one, such as a handover from voice, to that."""
    turns: list[list[tuple[Message, int]]] = [[]]
    begun = False
    for one in sized:
        if isinstance(one[0], UserMessage):
            if begun:
                turns.append([])
            begun = True
        turns[-1].append(one)
    return turns


def _has_calls(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and bool(message.calls)


def _result_left_out(message: ToolMessage) -> ToolMessage:
    """In the place of an old result: how the call ended, and that the rest is not sent any more."""
    return ToolMessage(message.call_id, message.name, left_out_envelope(message.envelope))


def lost(call: Call, *, doubtful: bool = False) -> ToolMessage:
    """What the model gets to know of a call whose envelope did not reach it; `doubtful`: it may have changed something."""
    message = (
        "The turn was ended before this call was answered. If it changes something, look before you call it again."
    )
    envelope = ToolResponse.failure("CANCELLED", message, partial_side_effects=doubtful).to_dict()
    return ToolMessage(call.call_id, call.name, envelope)


def _to_dict(message: Message) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        return {"role": "user", "text": message.text}
    if isinstance(message, HostMessage):
        return {"role": "host", "text": message.text}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "callId": message.call_id, "name": message.name, "envelope": message.envelope}
    calls = []
    for call in message.calls:
        args = call.args
        if not isinstance(args, (str, dict)):
            args = args.decode("utf-8", "replace") if isinstance(args, bytes) else thaw(args)
        named = {"name": call.name, "args": args, "callId": call.call_id}
        calls.append({**named, "provider": call.provider, "idScope": call.id_scope})
    return {"role": "assistant", "text": message.text, "calls": calls, "raw": message.raw}


def _from_dict(data: Mapping[str, Any]) -> Message:
    role = data["role"]
    if role == "user":
        return UserMessage(str(data["text"]))
    if role == "host":
        return HostMessage(str(data["text"]))
    if role == "tool":
        return ToolMessage(data["callId"], str(data["name"]), dict(data["envelope"]))
    if role != "assistant":
        raise ValueError(f"a message has no role {role!r}")
    calls = tuple(
        Call(str(call["name"]), call["args"], call["callId"], call["provider"], call["idScope"])
        for call in data["calls"]
    )
    return AssistantMessage(str(data["text"]), calls, data.get("raw"))
