"""OpenAI Realtime: its events → live events, and answers → its events. Pure; one transport per live session.

A conversation of the provider lives and dies with its connection, so ids are good for the connection, and after a loss the
new conversation is sent what was said: messages, and calls with their outputs. A call is reported when the response that holds it
is done, with all others of that response, and only if its item is complete. Outputs are followed by one `response.create`,
sent when every call of the response is answered and no response is active.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsMade,
    Interrupted,
    LiveConfig,
    LiveCounters,
    LiveEvent,
    OutputTranscript,
    ProviderWarning,
    Scheduling,
    TurnEnded,
    Usage,
    UserSpeechEnded,
    UserSpeechStarted,
    Utterance,
)
from handrail.providers.event_stream import count_in, read_object, text_in
from handrail.providers.live_history import (
    MAX_CALLS,
    Note,
    SeenCalls,
    SpeechText,
    SpokenHistory,
    as_text,
    count_unknown,
    late_note,
    objects_in,
    read_audio,
    too_many,
)
from handrail.providers.openai import REALTIME
from handrail.providers.openai.realtime import messages
from handrail.providers.openai.realtime.messages import RATE, Message
from handrail.providers.openai.realtime.spoken_inputs import SpokenInputs

PROVIDER = REALTIME.name
INPUT_RATES = (RATE,)
OUTPUT_RATE = RATE
BUSY = "conversation_already_has_active_response"
_QUIET = frozenset(
    {
        "conversation.created", "conversation.item.deleted",
        "conversation.item.done", "conversation.item.input_audio_transcription.failed",
        "conversation.item.input_audio_transcription.segment", "conversation.item.retrieved",
        "conversation.item.truncated", "input_audio_buffer.cleared", "input_audio_buffer.committed",
        "rate_limits.updated", "response.content_part.added", "response.content_part.done",
        "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_audio.done",
        "response.output_item.added", "response.output_text.done", "session.created", "session.updated",
    }
)  # fmt: skip
"""Events that are known and mean nothing here. Arguments are taken from the item when it is done, not from these."""
_MAX_IDS = 2_000
_MAX_RESPONSES = 50


class OpenAIRealtimeTransport:
    """The state of one live session, as the wire shows it."""

    provider = PROVIDER

    def __init__(
        self, config: LiveConfig, counters: LiveCounters | None = None, transcriber: str = messages.TRANSCRIBER
    ) -> None:
        self.counters = counters or LiveCounters()
        self._config = config
        self._transcriber = transcriber
        self._said = SpokenHistory(config.history)
        self._sent = 0
        self._restored: list[str] = []
        self._known: frozenset[str] = frozenset()
        self._seen = 0
        self._asked_mark = 0
        self._readers: dict[str, Callable[[dict[str, Any]], list[LiveEvent]]] = {
            "response.created": self._response_created,
            "response.output_item.done": self._item_done,
            "response.done": self._response_done,
            "response.output_audio.delta": self._audio,
            "response.output_audio_transcript.delta": self._spoke,
            "response.output_audio_transcript.done": self._spoke_all,
            "response.output_text.delta": self._spoke,
            "conversation.item.input_audio_transcription.delta": self._heard_piece,
            "conversation.item.input_audio_transcription.completed": self._heard_all,
            "input_audio_buffer.speech_started": self._speech_started,
            "input_audio_buffer.speech_stopped": self._speech_stopped,
            "conversation.item.added": self._item_added,
            "conversation.item.created": self._item_added,
            "error": self._error,
        }
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._active: str | None = None
        self._cancelled: str | None = None
        self._open: dict[str, Call] = {}
        self._ids = SeenCalls()
        self._retold: dict[str, Answer] = {}
        """Answers that this conversation began with, by the ids of their calls."""
        self._collected: dict[str, list[Call]] = {}
        self._finished: dict[str, bool] = {}
        self._replies: list[Message] = []
        self._wants_response = False
        self._asking: str | None = None
        self._asked: list[str] = []
        self._seeds: dict[str, tuple[str, str | None]] = {}
        self._inputs = SpokenInputs(self.counters)
        self._spoken = SpeechText()
        self._audio_item: str | None = None
        self._audio_bytes = 0
        self._user_speaks = False
        self._is_muted = False

    # ------------------------------------------------------------------------------------------- connections

    @property
    def is_quiet(self) -> bool:
        """Whether the connection can be replaced without losing anything."""
        return not (self._open or self._active or self._user_speaks or self._said.owed or self._wants_response)

    @property
    def waits_for_model(self) -> bool:
        """Whether it is the model's turn to send something."""
        return not self._open and (self._active is not None or self._said.owed)

    def setup(self) -> Message:
        return self._stamped(messages.session_update(self._config, self._transcriber))

    def forget_handle(self) -> None:
        """There are none."""

    def begin(self) -> tuple[list[Message], bool]:
        """A connection is set up: what to send first, and that it is a new conversation."""
        self._restored = []
        # A call that the model has never reacted to may be unknown to it, although it is in the conversation: that is why it is
        # none of `restored_calls`.
        self._known = frozenset(self._said.calls_before(self._seen))
        entries = self._said.since(0)
        # A call that is in the conversation with its output is known by its id here, too: the same one again is no new wish.
        self._retold = {
            entry.call.call_id: entry for entry in entries if isinstance(entry, Answer) and entry.call.call_id
        }
        # Their ids count as seen, so that the provider's own repetition of one is not taken for a new call.
        for answer in self._retold.values():
            self._ids.is_again(answer.call)
        first = [self._seed(item) for entry in entries for item in messages.retell(entry)]
        if self._said.owed:
            first.append(self._respond())
        return first, False

    @property
    def is_settled(self) -> bool:
        """Whether the provider has acknowledged or refused everything that it was sent."""
        return not self._seeds

    @property
    def restored_calls(self) -> tuple[str, ...]:
        """The calls that are in the conversation with their outputs, as far as the model reacted to them before. Should it
        make another one of them again, that meets the first: it more likely lost it than wants it twice."""
        return tuple(self._restored)

    def _seed(self, message: Message) -> Message:
        """An item under an id of ours, by which the provider confirms it."""
        stamped = self._stamped(message)
        item = {"id": f"item_h{self._sent}", **message["item"]}
        call_id = item["call_id"] if item["type"] == "function_call_output" else None
        self._seeds[item["id"]] = (stamped["event_id"], call_id)
        return {**stamped, "item": item}

    def lost(self) -> None:
        """The connection is gone. What was said on it is kept; its open calls are put into the next one when answered."""
        for heard in self._inputs.unfinished():
            self._write_down("user", heard, owed=True)
        self._write_down("model", self._spoken, owed=None)
        owed = (self._said.owed or self._active is not None or self._wants_response) and not self._open
        self._forget_connection()
        self._said.owed = owed

    # ------------------------------------------------------------------------------------------- from the wire

    def receive(self, raw: bytes | str) -> list[LiveEvent]:
        """What a frame means. Never raises: what cannot be read is counted and left out."""
        event = read_object(raw, self.counters)
        if event is None:
            return []
        kind = event.get("type")
        if not isinstance(kind, str):
            self.counters.malformed_events += 1
            return []
        read = self._readers.get(kind)
        if read is not None:
            return read(event)
        if kind not in _QUIET:
            count_unknown(kind, self.counters)
        return []

    def replies(self) -> list[Message]:
        """What has to be sent in answer to what was received, and was not yet taken."""
        taken, self._replies = self._replies, []
        # The provider refuses a second response while one is active; one that began before all outputs are there would miss some.
        is_free = self._active is None and self._asking is None and not self._open and not self._user_speaks
        if self._wants_response and is_free:
            taken.append(self._respond())
        return taken

    def _response_created(self, event: dict[str, Any]) -> list[LiveEvent]:
        response = event.get("response")
        name = text_in(response.get("id")) if isinstance(response, dict) else ""
        if name in self._finished:
            self.counters.duplicate_events += 1
            return []
        self._begin_response(name)
        return []

    def _begin_response(self, name: str) -> None:
        self._active, self._cancelled = name, None
        if self._asking is None:  # begun by the provider, after the user spoke: it knows what was sent before
            self._wants_response = False
        else:
            self._seen = self._asked_mark
        self._asking = None
        self._said.owed = False
        self._is_muted = False

    def _begin_unannounced(self, response: str) -> None:
        """A response shows something, and the event that it began was lost."""
        if self._active is None and response and response not in self._finished:
            self._begin_response(response)

    def _item_done(self, event: dict[str, Any]) -> list[LiveEvent]:
        item = event.get("item")
        if not isinstance(item, dict):
            self.counters.malformed_events += 1
            return []
        if item.get("type") != "function_call":
            return []
        response = text_in(event.get("response_id"))
        self._begin_unannounced(response)
        call = self._completed_call(item)
        if call is None:
            return []
        if response in self._finished:  # it came after the end of its response
            return self._calls_made([call]) if self._finished[response] else self._not_run([call])
        self._collect(response, call)
        return []

    def _collect(self, response: str, call: Call) -> None:
        """Keep a call until its response is done; of responses that never are, and of too many calls, only the limit."""
        calls = self._collected.setdefault(response, [])
        if len(calls) < _MAX_IDS:
            calls.append(call)
        else:
            self.counters.refused_calls += 1
        if len(self._collected) > _MAX_RESPONSES:
            self.counters.unfinished_calls += len(self._collected.pop(next(iter(self._collected))))

    def _item_added(self, event: dict[str, Any]) -> list[LiveEvent]:
        item = event.get("item")
        if isinstance(item, dict):
            _, call_id = self._seeds.pop(text_in(item.get("id")), ("", None))
            if call_id in self._known:
                self._restored.append(call_id)
        return []

    def _completed_call(self, item: dict[str, Any]) -> Call | None:
        """The call of an item that is complete and was not seen before."""
        call_id = text_in(item.get("call_id")) or None
        call = Call(text_in(item.get("name")), item.get("arguments"), call_id, PROVIDER, "connection")
        # Arguments that were cut may still be valid JSON, with other values than the model meant.
        if item.get("status") != "completed":
            self.counters.unfinished_calls += 1
            return None
        if call_id is None:
            self.counters.malformed_events += 1
            return call
        if self._ids.is_again(call):
            self.counters.duplicate_events += 1
            self._answer_repeated(call_id)
            return None
        return call

    def _answer_repeated(self, call_id: str) -> None:
        """The model asks once more for a call of the last connection, under its id: it is given the outcome once more."""
        answer = self._retold.pop(call_id, None)
        if answer is not None:
            self._reply_output(answer.call, dict(answer.envelope))
            self._wants_response = True

    def _response_done(self, event: dict[str, Any]) -> list[LiveEvent]:
        response = event.get("response")
        if not isinstance(response, dict):
            self.counters.malformed_events += 1
            return []
        name = text_in(response.get("id"))
        if name in self._finished:
            self.counters.duplicate_events += 1
            return []
        self._begin_unannounced(name)
        status = text_in(response.get("status"))
        # Only now is it known whether the response was completed: calls of one that was filtered or cancelled do not run.
        calls = self._collected.pop(name, []) + self._calls_at_the_end(response)
        runs = _runs(status, response.get("status_details"))
        self._finish(name, runs)
        events: list[LiveEvent] = [*self._usage(response.get("usage"))]
        events += self._calls_made(calls) if runs else self._not_run(calls)
        self._write_down("model", self._spoken, owed=None)
        # The turn is not over: the model continues when it has the outputs.
        if calls and runs:
            return events
        return events + self._turn_ended(status, response.get("status_details"))

    def _calls_at_the_end(self, response: dict[str, Any]) -> list[Call]:
        """Calls that only the end of the response names: their own events were lost."""
        items = [item for item in objects_in(response.get("output")) if item.get("type") == "function_call"]
        fresh = [
            item for item in items if (name := text_in(item.get("call_id"))) not in self._ids or name in self._retold
        ]
        return [call for item in fresh if (call := self._completed_call(item)) is not None]

    def _finish(self, name: str, runs: bool) -> None:
        self._finished[name] = runs
        for old in list(self._finished)[:-_MAX_RESPONSES]:
            del self._finished[old]
        if self._active in (name, ""):
            self._active = None

    def _calls_made(self, calls: Sequence[Call]) -> list[LiveEvent]:
        reported, refused = calls[:MAX_CALLS], calls[MAX_CALLS:]
        self.counters.refused_calls += len(refused)
        for call in refused:
            self._reply_output(call, too_many())
        self._open.update({call.call_id: call for call in reported if call.call_id})
        return [CallsMade(tuple(reported))] if reported else []

    def _not_run(self, calls: Sequence[Call]) -> list[LiveEvent]:
        """Calls of a response that was cancelled or filtered: nobody is asked, and the conversation does not wait for them."""
        self.counters.unfinished_calls += len(calls)
        message = "The answer was broken off before this call; it did not run."
        for call in calls:
            self._reply_output(call, ToolResponse.failure("CANCELLED", message).to_dict())
        return []

    def _reply_output(self, call: Call, envelope: dict[str, Any]) -> None:
        if call.call_id:
            self._replies.append(self._stamped(messages.function_call_output(call.call_id, as_text(envelope))))

    def _turn_ended(self, status: str, details: object) -> list[LiveEvent]:
        reason = _detail(details)
        match status:
            case "cancelled":
                return [Interrupted(), TurnEnded("interrupted", reason)]
            case "incomplete":
                return [TurnEnded("cut", reason)]
            case "completed":
                return [TurnEnded("done")]
            case _:
                return [TurnEnded("failed", reason or status)]

    def _usage(self, usage: object) -> list[LiveEvent]:
        if not isinstance(usage, dict):
            return []
        return [Usage(count_in(usage.get("input_tokens")), count_in(usage.get("output_tokens")))]

    def _audio(self, event: dict[str, Any]) -> list[LiveEvent]:
        if self._active is None:
            self._begin_unannounced(text_in(event.get("response_id")))
        pcm = read_audio(event.get("delta"), self.counters)
        item = text_in(event.get("item_id"))
        if item != self._audio_item:
            self._audio_item, self._audio_bytes = item, 0
        self._audio_bytes += len(pcm)
        return [AudioOut(pcm, RATE)] if pcm and not self._is_muted else []

    def _spoke(self, event: dict[str, Any]) -> list[LiveEvent]:
        piece = event.get("delta")
        if not isinstance(piece, str):
            self.counters.malformed_events += 1
            return []
        return [OutputTranscript(piece, self._spoken.grow(piece))]

    def _spoke_all(self, event: dict[str, Any]) -> list[LiveEvent]:
        whole = self._spoken.whole
        rest = "" if whole else text_in(event.get("transcript"))
        return [OutputTranscript(rest, self._spoken.grow(rest), True)]

    def _heard_piece(self, event: dict[str, Any]) -> list[LiveEvent]:
        heard = self._inputs.piece(event)
        return [] if heard is None else [heard]

    def _heard_all(self, event: dict[str, Any]) -> list[LiveEvent]:
        heard = self._inputs.all(event)
        if heard is None:
            return []
        if heard.whole.strip():
            self._said.add(Utterance("user", heard.whole.strip()))
        return [heard]

    def _speech_started(self, event: dict[str, Any]) -> list[LiveEvent]:
        item = text_in(event.get("item_id"))
        if not self._inputs.is_new(item, "start"):
            return []
        self._user_speaks = True
        return [UserSpeechStarted(item)]

    def _speech_stopped(self, event: dict[str, Any]) -> list[LiveEvent]:
        item = text_in(event.get("item_id"))
        if not self._inputs.is_new(item, "end"):
            return []
        self._user_speaks = False
        self._wants_response = False
        self._said.owed = True
        return [UserSpeechEnded(item)]

    def _error(self, event: dict[str, Any]) -> list[LiveEvent]:
        error = event.get("error")
        if not isinstance(error, dict):
            self.counters.malformed_events += 1
            return []
        code, cause = text_in(error.get("code")), text_in(error.get("event_id"))
        events: list[LiveEvent] = [
            ProviderWarning(code or text_in(error.get("type")), text_in(error.get("message"))[:500])
        ]
        self._seeds = {item: seed for item, seed in self._seeds.items() if seed[0] != cause}
        if cause in self._asked:
            self._asking = None if self._asking == cause else self._asking
            # Our request met a response that the provider had begun by itself. It is made again when that one has ended.
            if code == BUSY:
                self._wants_response = True
            elif self._active is None:
                self._said.owed = False
                events.append(TurnEnded("failed", code))
        return events

    def _write_down(self, role: Any, speech: SpeechText, *, owed: bool | None) -> None:
        text = speech.take()
        if text:
            self._said.add(Utterance(role, text), owed=owed)

    # ------------------------------------------------------------------------------------------- to the wire

    def audio_frame(self, pcm: bytes, rate: int) -> str:
        return messages.audio_frame(pcm)

    def user_text(self, text: str) -> list[Message]:
        self._said.add(Utterance("user", text), owed=True)
        return [self._stamped(messages.message("user", text)), *self._ask("interrupt")]

    def host_text(self, text: str, scheduling: Scheduling) -> list[Message]:
        self._said.add(Note(text), owed=None if scheduling == "silent" else True)
        return [self._stamped(messages.message("system", text)), *self._ask(scheduling)]

    def answers(self, answers: Sequence[Answer], scheduling: Scheduling) -> list[Message]:
        """Outputs of the calls that wait. A call of a lost connection is put into this conversation with its output."""
        sent: list[Message] = []
        for answer in answers:
            call_id = answer.call.call_id
            if not call_id:
                sent += self.host_text(late_note(answer), "silent")
                continue
            items = messages.retell(answer)
            if self._open.pop(call_id, None) is not None or call_id in self._ids:
                # The call itself is in this conversation already; only its output is new.
                items = items[1:]
            self._said.add(answer, owed=None if scheduling == "silent" else True)
            sent += map(self._stamped, items)
        return sent + self._ask(scheduling)

    def _ask(self, scheduling: Scheduling) -> list[Message]:
        """What makes the model say something to what was sent; `replies` asks later where it cannot be asked now."""
        if scheduling == "silent":
            return []
        self._wants_response = True
        if self._active is not None:
            return self._cancel() if scheduling == "interrupt" else []
        return self.replies()

    def interrupt(self) -> list[Message]:
        if self._active is None:
            return []
        self._is_muted = True
        return self._cancel()

    def _cancel(self) -> list[Message]:
        """Once for a response: the provider complains of a second time, because none is active any more."""
        if self._cancelled == self._active:
            return []
        self._cancelled = self._active
        return [self._stamped(messages.cancel(self._active or None))]

    def change_tools(self, system: str, tools: Sequence[Mapping[str, Any]]) -> list[Message]:
        """At once, and for every connection that follows."""
        self._config = replace(self._config, system=system, tools=tools)
        return [self._stamped(messages.replace_tools(tools, system))]

    def leave_out_results(self) -> bool:
        """The provider keeps every item, and sound costs it ten times what words do: the next connection gets it in words."""
        return self._said.leave_out_results()

    def truncate(self, played_ms: int) -> list[Message]:
        """The last spoken item, cut to what was heard; never to more than was sent, which the provider would refuse."""
        if not self._audio_item:
            return []
        # Two bytes a sample. The client may report a little more than it got, by its own clock.
        there = self._audio_bytes * 1000 // (2 * RATE)
        return [self._stamped(messages.truncate(self._audio_item, max(0, min(played_ms, there))))]

    def _respond(self) -> Message:
        request = self._stamped(messages.respond())
        self._asking, self._asked_mark = request["event_id"], self._said.mark
        self._asked = [*self._asked[-20:], request["event_id"]]
        self._wants_response = False
        return request

    def _stamped(self, message: Message) -> Message:
        """With an id, which the provider repeats in a complaint."""
        self._sent += 1
        return {"type": message["type"], "event_id": f"evt_h{self._sent}", **message}


def _detail(details: object) -> str:
    return text_in(details.get("reason")) if isinstance(details, dict) else ""


def _runs(status: str, details: object) -> bool:
    """Whether whole calls of a response are run: not those of one that was filtered, or cut for a reason not known."""
    return status == "completed" or (status == "incomplete" and _detail(details) in ("", "max_output_tokens"))
