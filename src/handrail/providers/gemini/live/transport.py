"""Gemini Live: its messages → live events, and answers → its messages. Pure; one transport per live session.

Ids: every call has one, and it stays the same for as long as the provider's session does, which a resumption handle carries
over to the next connection. Where a session had to be begun anew, ids are good for the connection only. A call that the
provider took back, or made before its connection was lost, cannot be answered under its id: its envelope is sent in words.

The end of the user's speech is reported by few models. For the others it is the first output of the model after its last turn
ended and speech was heard since; speech is known from its transcript, which may come late, and then it is that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handrail.contract.call import Call, IdScope
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsCancelled,
    CallsMade,
    GoAway,
    InputTranscript,
    Interrupted,
    LiveConfig,
    LiveCounters,
    LiveEvent,
    OutputTranscript,
    ResumptionHandle,
    Scheduling,
    TurnEnded,
    Usage,
    UserSpeechEnded,
    UserSpeechStarted,
    Utterance,
)
from handrail.providers.event_stream import count_in, read_object, text_in
from handrail.providers.gemini import LIVE
from handrail.providers.gemini.live import messages
from handrail.providers.gemini.live.messages import Message
from handrail.providers.gemini.live.model_families import family_of
from handrail.providers.live_history import (
    MAX_CALLS,
    LiveEntry,
    Note,
    SeenCalls,
    SpeechText,
    SpokenHistory,
    count_unknown,
    ended_without_effect,
    late_note,
    objects_in,
    read_audio,
    too_many,
)

PROVIDER = LIVE.name
INPUT_RATES = (16_000, 24_000, 48_000, 8_000)
OUTPUT_RATE = 24_000
_FINE = frozenset({"", "TURN_COMPLETE_REASON_UNSPECIFIED", "NEED_MORE_INPUT"})
"""Every other reason for the end of a turn is a failure, a rejection or a filter."""
_MAX_TAKEN_BACK = 500
_MAX_UNSENT = 20


class GeminiLiveTransport:
    """The state of one live session, as the wire shows it."""

    provider = PROVIDER

    def __init__(self, model: str, config: LiveConfig, counters: LiveCounters | None = None) -> None:
        self.counters = counters or LiveCounters()
        self._model = model
        self._family = family_of(model)
        self._configure(config)
        self._said = SpokenHistory(config.history)
        self._handle: str | None = None
        self._handle_mark = 0
        self._seen = 0
        self._number = 0
        self._scope: IdScope = "session"
        self._resuming = False
        self._speech_waits = False
        """The user was heard, and that input was not yet reported as committed."""
        self._was_ended = False
        """The provider reported that the user stopped, and not yet that they began again."""
        self._restored: tuple[str, ...] = ()
        self._readers: dict[str, Callable[[dict[str, Any]], list[LiveEvent]]] = {
            "toolCall": self._calls,
            "toolCallCancellation": self._cancelled,
            "serverContent": self._content,
            "voiceActivity": self._activity,
            "sessionResumptionUpdate": self._resumption,
            "goAway": self._go_away,
            "usageMetadata": self._usage,
            "setupComplete": lambda _: [],
            "voiceActivityDetectionSignal": lambda _: [],
        }
        self._forget_connection()

    def _configure(self, config: LiveConfig) -> None:
        self._config = config
        self._background = {
            str(tool.get("name"))
            for tool in messages.setup(self._model, config)["setup"]
            .get("tools", [{}])[0]
            .get("functionDeclarations", ())
            if tool["behavior"] == "NON_BLOCKING"
        }

    def _forget_connection(self) -> None:
        self._open: dict[str, Call] = {}
        self._of_turn: set[str] = set()
        """Ids of the calls that the model made in this turn."""
        self._ids = SeenCalls()
        self._taken_back: dict[str, None] = {}
        self._unsent: list[tuple[int, str]] = []
        """Notes that the model is not to speak of, and where they stand, for a model that speaks of every note at once: they go
        along with the next."""
        self._replies: list[Message] = []
        self._heard = SpeechText()
        self._spoken = SpeechText()
        self._was_interrupted = False
        self._is_muted = False
        self._is_generating = False
        self._in_turn = False
        self._input_reported = False
        self._user_speaks = self._was_ended = False

    # ------------------------------------------------------------------------------------------- connections

    @property
    def is_quiet(self) -> bool:
        """Whether the connection can be replaced without losing anything."""
        return not (self._open or self._is_generating or self._user_speaks or self._said.owed)

    @property
    def waits_for_model(self) -> bool:
        """Whether it is the model's turn to send something."""
        return not self._open and (self._is_generating or self._said.owed or bool(self._heard.whole))

    def setup(self) -> Message:
        """The first message of the next connection, with the newest handle if there is one."""
        self._resuming = self._handle is not None
        seeds_history = not self._family.takes_content_any_time and not self._resuming and bool(self._history()[0])
        return messages.setup(self._model, self._config, self._handle, seeds_history=seeds_history)

    def forget_handle(self) -> None:
        """The provider does not take the handle: the next connection begins a new session."""
        self._handle, self._handle_mark = None, 0

    def begin(self) -> tuple[list[Message], bool]:
        """A connection is set up: what to send first, and whether it continues from a handle."""
        self._number += 1
        resumed = self._resuming
        # A new session of the provider counts its ids anew, so that an id means nothing beyond its connection.
        if self._number > 1 and not resumed:
            self._scope = "connection"
        known = self._handle_mark if resumed else 0
        self._seen = known
        if self._family.takes_content_any_time:
            first = messages.retell(self._said.since(known), complete=self._said.owed)
        elif resumed:
            first = self._history_since(known)
        else:
            history, asked = self._history()
            first = [messages.seed(history)] if history else []
            if asked is not None:
                first.append(messages.realtime_text(messages.in_words([asked])))
        self._restored = self._said.calls_before(known)
        return first, resumed

    def _history(self) -> tuple[list[LiveEntry], LiveEntry | None]:
        """What a new session is seeded with, and the last entry apart if the model has still to react to it."""
        entries = self._said.since(0)
        return (entries[:-1], entries[-1]) if self._said.owed and entries else (entries, None)

    def _history_since(self, mark: int) -> list[Message]:
        """What a resumed session does not know, where it cannot be seeded."""
        entries = self._said.since(mark)
        if not entries:
            return []
        text = messages.in_words(entries)
        if self._said.owed:
            return [messages.realtime_text(text)]
        self._unsent.append((mark, text))
        return []

    @property
    def is_settled(self) -> bool:
        """Whether it is known what the model remembers."""
        return True

    @property
    def restored_calls(self) -> tuple[str, ...]:
        """The calls that the model remembers since the connection began. Those that it only read of in words are not
        among them: should it make one of them again, it meets the first."""
        return self._restored

    def lost(self) -> None:
        """The connection is gone. What was said on it is kept; its open calls are answered in words later."""
        self._write_down_user()
        self._write_down_model(owed=None)
        # With calls open, the model is asked to continue by their answers.
        owed = (self._said.owed or self._is_generating) and not self._open
        # In a turn it may be a late piece of what the turn answers. Taken for a new input, it would make a call that is issued
        # again on the next connection a new one.
        self._speech_waits = self._speech_waits and not self._in_turn
        self._forget_connection()
        self._said.owed = owed

    # ------------------------------------------------------------------------------------------- from the wire

    def receive(self, raw: bytes | str) -> list[LiveEvent]:
        """What a frame means. Never raises: what cannot be read is counted and left out."""
        message = read_object(raw, self.counters)
        if message is None:
            return []
        events: list[LiveEvent] = []
        content = message.get("serverContent")
        # One message may ask for a call and end its turn as filtered. Such a call must not run.
        if "toolCall" in message and isinstance(content, dict) and self._rejects(content):
            self.counters.unfinished_calls += 1
            del message["toolCall"]
        # A message may combine fields; calls come before content, so that they are not kept waiting by it.
        for name, read in self._readers.items():
            if name not in message:
                continue
            body = message.pop(name)
            if isinstance(body, dict):
                events += read(body)
            else:
                self.counters.malformed_events += 1
        for name in message:
            count_unknown(name, self.counters)
        return events

    def replies(self) -> list[Message]:
        """What has to be sent in answer to what was received, and was not yet taken."""
        taken, self._replies = self._replies, []
        return taken

    def _calls(self, body: dict[str, Any]) -> list[LiveEvent]:
        self._write_down_user()
        events = self._reacted()
        reported: list[Call] = []
        refused: list[Call] = []
        asked = body.get("functionCalls")
        listed = list(objects_in(asked))
        if not isinstance(asked, list) or not listed or len(listed) != len(asked):
            self.counters.malformed_events += 1
        for item in listed:
            # A name or arguments of the wrong type are passed on as they are: the pipeline refuses them, and so the model
            # learns of it.
            call = Call(text_in(item.get("name")), item.get("args"), self._id(item), PROVIDER, self._scope)
            if self._is_duplicate(call):
                self.counters.duplicate_events += 1
                continue
            (reported if len(reported) < MAX_CALLS else refused).append(call)
        if refused:
            self.counters.refused_calls += len(refused)
            self._replies.append(self._answered([Answer(call, too_many()) for call in refused if call.call_id], None))
        if reported:
            named = {call.call_id: call for call in reported if call.call_id}
            self._open.update(named)
            self._of_turn.update(named)
            events.append(CallsMade(tuple(reported)))
        return events

    def _id(self, item: Mapping[str, Any]) -> str | None:
        call_id = item.get("id")
        if isinstance(call_id, str) and call_id:
            return call_id
        self.counters.malformed_events += 1
        return None

    def _is_duplicate(self, call: Call) -> bool:
        """Whether this call came before on this connection. Another call under its id is reported: the pipeline refuses it. So is
        one that was taken back and is made again: the model waits for its answer."""
        is_again = self._ids.is_again(call)
        # The provider took it back and issues it again under the same id: to leave that out would let the model wait for ever.
        if call.call_id in self._taken_back:
            del self._taken_back[call.call_id]
            return False
        return is_again

    def _cancelled(self, body: dict[str, Any]) -> list[LiveEvent]:
        ids = body.get("ids")
        known = [one for one in ids if isinstance(one, str)] if isinstance(ids, list) else []
        if not known:
            self.counters.malformed_events += 1
            return []
        for call_id in known:
            self._open.pop(call_id, None)
            self._taken_back[call_id] = None
        # Bounded, because a connection may live for hours and a provider may send anything.
        for old in list(self._taken_back)[:-_MAX_TAKEN_BACK]:
            del self._taken_back[old]
        return [CallsCancelled(tuple(known))]

    def _content(self, body: dict[str, Any]) -> list[LiveEvent]:
        events: list[LiveEvent] = []
        events += self._input_transcript(body)
        events += self._model_turn(body.get("modelTurn"))
        events += self._output_transcript(body)
        if body.get("interrupted") is True:
            self._was_interrupted = True
            self._is_muted = False
            self._said.owed = False
            events.append(Interrupted())
        if self._ends_turn(body):
            # Only those of this turn: a call of an earlier one may run on while the model talks.
            waiting = [call_id for call_id in self._open if call_id in self._of_turn]
            if waiting and self._rejects(body):
                events += self._cancelled({"ids": waiting})
            self._of_turn.clear()
            events.append(self._turn_ended(text_in(body.get("turnCompleteReason"))))
        return events

    def _rejects(self, body: dict[str, Any]) -> bool:
        """Whether the turn ends because it was rejected or filtered: what it asked for is not to be done."""
        return self._ends_turn(body) and text_in(body.get("turnCompleteReason")) not in _FINE

    def _input_transcript(self, body: dict[str, Any]) -> list[LiveEvent]:
        heard = body.get("inputTranscription")
        if not isinstance(heard, dict) or not isinstance(heard.get("text"), str):
            return []
        self._user_speaks = True
        self._is_muted = False
        whole = self._heard.grow(heard["text"])
        final = heard.get("finished") is True
        if final:
            self._write_down_user()
        events: list[LiveEvent] = [InputTranscript(heard["text"], whole, final)]
        # The transcript may come after the model has begun to answer. Then it was this input that the turn began with.
        if self._in_turn and not self._input_reported:
            self._input_reported = True
            events.append(UserSpeechEnded())
        else:
            self._speech_waits = True
        return events

    def _model_turn(self, turn: object) -> list[LiveEvent]:
        if not isinstance(turn, dict):
            return []
        self._write_down_user()
        events = self._reacted()
        self._is_generating = True
        for part in objects_in(turn.get("parts")):
            inline = part.get("inlineData")
            if isinstance(inline, dict) and text_in(inline.get("mimeType")).startswith("audio/"):
                pcm = read_audio(inline.get("data"), self.counters)
                # There is no message to stop an answer; what is left of it is received and not passed on.
                if pcm and not self._is_muted:
                    events.append(AudioOut(pcm, _rate(text_in(inline.get("mimeType")))))
            elif isinstance(part.get("text"), str) and part.get("thought") is not True:
                events.append(OutputTranscript(part["text"], self._spoken.grow(part["text"])))
        return events

    def _output_transcript(self, body: dict[str, Any]) -> list[LiveEvent]:
        said = body.get("outputTranscription")
        if not isinstance(said, dict) or not isinstance(said.get("text"), str):
            return []
        events = self._reacted()
        final = said.get("finished") is True
        return [*events, OutputTranscript(said["text"], self._spoken.grow(said["text"]), final)]

    def _ends_turn(self, body: dict[str, Any]) -> bool:
        """As the SDK has it: by the status where there is one, else by `turnComplete`."""
        status = body.get("interactionStatus")
        if isinstance(status, str) and status != "INTERACTION_STATUS_UNSPECIFIED":
            return status == "IDLE"
        return body.get("turnComplete") is True

    def _turn_ended(self, reason: str) -> TurnEnded:
        self._write_down_user()
        self._knows_all()
        self._write_down_model(owed=False)
        interrupted, self._was_interrupted = self._was_interrupted, False
        if self._in_turn and not interrupted:  # it was a late piece of what this turn answered
            self._speech_waits = False
        self._is_muted = self._is_generating = self._in_turn = self._input_reported = self._was_ended = False
        if interrupted:
            return TurnEnded("interrupted", reason)
        return TurnEnded("done" if reason in _FINE else "failed", reason)

    def _activity(self, body: dict[str, Any]) -> list[LiveEvent]:
        match body.get("voiceActivityType"):
            case "ACTIVITY_START":
                self._user_speaks, self._was_ended = True, False
                return [UserSpeechStarted()]
            case "ACTIVITY_END":
                self._user_speaks = self._speech_waits = False
                self._input_reported = self._said.owed = self._was_ended = True
                return [UserSpeechEnded()]
            case _:
                return []

    def _resumption(self, body: dict[str, Any]) -> list[LiveEvent]:
        handle = body.get("newHandle")
        resumable = body.get("resumable") is True
        if resumable and isinstance(handle, str) and handle:
            # Only what the model has shown to know is taken to be behind the handle.
            self._handle, self._handle_mark = handle, self._seen
            return [ResumptionHandle(handle, True)]
        return [ResumptionHandle(None, False)]

    def _go_away(self, body: dict[str, Any]) -> list[LiveEvent]:
        left = text_in(body.get("timeLeft")).removesuffix("s")
        try:
            seconds = float(left)
        except ValueError:
            return [GoAway(None)]
        return [GoAway(seconds if 0 <= seconds < 86_400 else None)]

    def _usage(self, body: dict[str, Any]) -> list[LiveEvent]:
        return [Usage(count_in(body.get("promptTokenCount")), count_in(body.get("responseTokenCount")))]

    def _reacted(self) -> list[LiveEvent]:
        """The model shows something. Where its turn begins with it, the user's input was committed."""
        self._knows_all()
        # Gemini does not say that a turn begins. It shows, by the first thing that the model does.
        begins, self._in_turn = not self._in_turn, True
        if not (begins and self._speech_waits):
            return []
        self._speech_waits, self._input_reported = False, True
        return [UserSpeechEnded(again=self._was_ended)]

    def _knows_all(self) -> None:
        """All that was said until now is known to the model, but for notes that were not sent and what came after them."""
        self._seen = self._unsent[0][0] if self._unsent else self._said.mark
        self._said.owed = False
        self._user_speaks = False

    def _write_down_user(self) -> None:
        heard = self._heard.take()
        if heard:
            self._said.add(Utterance("user", heard), owed=True)

    def _write_down_model(self, *, owed: bool | None) -> None:
        spoken = self._spoken.take()
        if spoken:
            self._said.add(Utterance("model", spoken), owed=owed)
            self._seen = self._unsent[0][0] if self._unsent else self._said.mark

    # ------------------------------------------------------------------------------------------- to the wire

    def audio_frame(self, pcm: bytes, rate: int) -> str:
        return messages.audio_frame(pcm, rate)

    def user_text(self, text: str) -> list[Message]:
        self._said.add(Utterance("user", text), owed=True)
        self._is_muted = False  # what comes now answers this
        return [messages.realtime_text(text)]

    def host_text(self, text: str, scheduling: Scheduling) -> list[Message]:
        """Interrupting where that is wanted; in silence as content that is not complete, to which nothing is said."""
        mark = self._said.mark
        self._said.add(Note(text), owed=None if scheduling == "silent" else True)
        if not self._family.takes_content_any_time:
            return self._as_text(mark, text, scheduling)
        if scheduling == "when_idle":
            return [messages.realtime_text(text)]
        return [messages.content([("user", text)], complete=scheduling == "interrupt")]

    def _as_text(self, mark: int, text: str, scheduling: Scheduling) -> list[Message]:
        """A note for a model that takes only text and speaks of it at once."""
        if scheduling == "silent":
            self._unsent.append((mark, text))
            del self._unsent[:-_MAX_UNSENT]
            return []
        if scheduling == "interrupt":
            self.interrupt()
        unsent, self._unsent = self._unsent, []
        return [messages.realtime_text("\n".join([*(note for _, note in unsent), text]))]

    def answers(self, answers: Sequence[Answer], scheduling: Scheduling) -> list[Message]:
        """The calls that wait, in one message; the others in words, silently where the provider had taken them back."""
        sent: list[Message] = []
        waiting = [answer for answer in answers if answer.call.call_id in self._open]
        if waiting:
            sent.append(self._answered(waiting, scheduling))
        for answer in answers:
            call_id = answer.call.call_id
            if call_id in self._open:
                continue
            if call_id in self._taken_back:
                if not ended_without_effect(answer.envelope):
                    sent += self.host_text(late_note(answer), "silent")
                continue
            mark = self._said.mark
            self._said.add(answer, owed=None if scheduling == "silent" else True)
            if self._family.takes_content_any_time:
                sent.append(messages.content([("user", late_note(answer))], complete=scheduling != "silent"))
            else:
                sent += self._as_text(mark, late_note(answer), scheduling)
        for answer in waiting:
            self._open.pop(answer.call.call_id or "", None)
            self._said.add(answer, owed=None if scheduling == "silent" else True)
        return sent

    def _answered(self, answers: Sequence[Answer], scheduling: Scheduling | None) -> Message:
        return messages.tool_response(
            messages.function_response(
                call.call_id or "",
                call.name,
                messages.envelope_response(answer),
                scheduling if call.name in self._background else None,
            )
            for answer in answers
            # Under the name that the model used: the host may know the call by another.
            for call in (self._open.get(answer.call.call_id or "", answer.call),)
        )

    def interrupt(self) -> list[Message]:
        """The provider has no message for it: the rest of this answer is not reported."""
        self._is_muted = self._is_generating
        return []

    def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> list[Message]:
        """Most models of this provider keep the tools of their set-up on a connection; the next one has these, resumed or not."""
        self._configure(replace(self._config, system=system, tools=tools))
        return []

    def leave_out_results(self) -> bool:
        """The provider slides its window by itself (`contextWindowCompression`); a new session begins without them."""
        self._said.leave_out_results()
        return False

    def truncate(self, played_ms: int) -> list[Message]:
        """The provider keeps account itself."""
        return []


def _rate(mime_type: str) -> int:
    _, _, rate = mime_type.partition("rate=")
    digits = rate.partition(";")[0].strip()
    return int(digits) if digits.isdecimal() and 0 < len(digits) < 7 else OUTPUT_RATE
