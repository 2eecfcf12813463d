"""A local OpenAI Realtime (GA): events over a WebSocket on loopback."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from handrail.testing.servers.live.script import FLOOD, Ask, Fault, Say, Step, Words
from handrail.testing.servers.live.server import LiveConversation, LiveServer, ScriptWaiting
from handrail.testing.servers.live.sound import spoken

_BETA = frozenset({"modalities", "input_audio_format", "output_audio_format", "voice", "turn_detection", "temperature"})


class OpenAIRealtimeServer(LiveServer):
    @property
    def base_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1"

    def key_of(self, request: Request) -> str:
        return request.headers.get("Authorization", "").removeprefix("Bearer ")

    def new_conversation(self, socket: ServerConnection) -> RealtimeConversation:
        return RealtimeConversation(self, socket)


class RealtimeConversation(LiveConversation):
    server: OpenAIRealtimeServer

    def __init__(self, server: LiveServer, socket: ServerConnection) -> None:
        super().__init__(server, socket)
        self.active: str | None = None
        self.calls: dict[str, str] = {}
        """The function calls of this conversation: id → name."""
        self.outputs: set[str] = set()
        self.asked: set[str] = set()
        """The calls of the step that waits."""
        self.audio_ms: dict[str, int] = {}
        self._drops_at_answer = False
        self._is_set_up = False
        self._declared: list[str] = []
        self.utterances: list[str] = []
        """The items of what the user said."""

    @property
    def declared(self) -> list[str]:
        return self._declared

    def _name(self, kind: str) -> str:
        return f"{kind}_{next(self.server.numbers)}"

    async def event(self, kind: str, *, times: int = 1, **fields: Any) -> None:
        await self.send({"type": kind, "event_id": self._name("event"), **fields}, times=times)

    async def greet(self) -> None:
        await self.event("session.created", session={"type": "realtime", "id": self._name("sess")})

    # ------------------------------------------------------------------------------------------- from the client

    async def take(self, message: dict[str, Any]) -> None:
        match message.get("type"):
            case "session.update":
                await self._update(message)
            case "input_audio_buffer.append":
                await self._append(message)
            case "conversation.item.create":
                await self._item(message)
            case "conversation.item.truncate":
                await self._truncate(message)
            case "response.create":
                await self._create(message)
            case "response.cancel":
                if self.active is None:
                    await self._complain(message, "response_cancel_not_active", "No response is active.")
                else:
                    await self.stop_playing()
                    self.server.progress.end_turn()
                    await self._response_done("cancelled", reason="client_cancelled")
            case kind:
                await self._complain(message, "unknown_event", f"There is no event {kind!r}.")

    async def _complain(self, message: dict[str, Any], code: str, text: str) -> None:
        self.server.complaints.append(f"{code}: {text}")
        error = {"type": "invalid_request_error", "code": code, "message": text, "param": None}
        await self.event("error", error={**error, "event_id": message.get("event_id")})

    async def _update(self, message: dict[str, Any]) -> None:
        session = message.get("session", {})
        if session.get("type") != "realtime" or session.keys() & _BETA:
            await self._complain(message, "beta_api_shape_disabled", "The beta shape is not taken any more.")
            await self.socket.close(4000, "beta_api_shape_disabled")
            return
        if "tools" in session:
            self._declared = [tool["name"] for tool in session["tools"]]
        await self.event("session.updated", session=session)
        if self._is_set_up:
            return
        self._is_set_up = True
        step = self.server.progress.current
        if isinstance(step, Ask) and step.fault == "reissue" and len(self.server.conversations) > 1:
            self.play()

    async def _append(self, message: dict[str, Any]) -> None:
        for change in self.speech_detector.listen(b64decode(message["audio"]), 24_000):
            if change == "start":
                self.utterances.append(self._name("item"))
                start, item = int(self.speech_detector.heard_ms), self.utterances[-1]
                await self.event("input_audio_buffer.speech_started", audio_start_ms=start, item_id=item)
                await self._barge_in()
            else:
                await self._spoken_input()

    async def _barge_in(self) -> None:
        playing = self.is_playing
        await self.stop_playing()
        if playing:
            self.server.progress.end_turn()
        if self.active is not None:
            await self._response_done("cancelled", reason="turn_detected")

    async def _spoken_input(self) -> None:
        """The model heard it, whether or not the line still holds when that is reported."""
        turn = self.server.progress.next_turn()
        item = self.utterances[-1]
        end = int(self.speech_detector.heard_ms)
        await self.event("input_audio_buffer.speech_stopped", audio_end_ms=end, item_id=item)
        await self.event("input_audio_buffer.committed", item_id=item, previous_item_id=None)
        if turn is None:
            return
        content = [{"type": "input_audio", "transcript": None}]
        added = {"id": item, "object": "realtime.item", "type": "message", "role": "user", "content": content}
        await self.event("conversation.item.added", previous_item_id=None, item=added)
        if turn.hears:
            await self.tell_words(len(self.utterances), turn.hears)
        self.play()

    async def tell_words(self, utterance: int, text: str) -> None:
        """The transcript of what the user said, of any of their utterances."""
        item = self.utterances[utterance - 1]
        kind = "conversation.item.input_audio_transcription"
        await self.event(f"{kind}.delta", item_id=item, content_index=0, delta=text[:4])
        await self.event(f"{kind}.completed", item_id=item, content_index=0, transcript=text)

    async def _item(self, message: dict[str, Any]) -> None:
        item = dict(message.get("item", {}))
        call_id = str(item.get("call_id"))
        match item.get("type"):
            case "function_call":
                self.calls[call_id] = item.get("name", "")
            case "function_call_output" if call_id not in self.calls:
                await self._complain(message, "unknown_call", f'There is no call "{call_id}" in this conversation.')
                return
            case "function_call_output" if call_id in self.outputs:
                await self._complain(message, "duplicate_output", f'The call "{call_id}" has an output.')
                return
            case "function_call_output":
                if self._drops_at_answer:
                    await self.cut()
                self.outputs.add(call_id)
                self.server.outcomes.append((self.calls[call_id], orjson.loads(item["output"])))
            case _:
                pass
        item.setdefault("id", self._name("item"))
        await self.event("conversation.item.added", previous_item_id=None, item={"object": "realtime.item", **item})

    async def _truncate(self, message: dict[str, Any]) -> None:
        there = self.audio_ms.get(message.get("item_id", ""))
        if there is None or message.get("audio_end_ms", 0) > there:
            await self._complain(message, "invalid_value", "There is not that much audio.")
            return
        await self.event(
            "conversation.item.truncated",
            item_id=message["item_id"],
            content_index=0,
            audio_end_ms=message["audio_end_ms"],
        )

    async def _create(self, message: dict[str, Any]) -> None:
        """Continue: with the step that waited for outputs, with the next turn after a typed message, or with nothing."""
        if self.active is not None:
            await self._complain(message, "conversation_already_has_active_response", "A response is already active.")
            return
        progress = self.server.progress
        step = progress.current
        if isinstance(step, Ask):
            names = [asked.name for asked in step.calls]
            has_all = self.asked <= self.outputs if self.asked else set(names) <= self._answered_names()
            if has_all and (self.asked or names):
                self.asked = set()
                progress.done(step)
            elif self.asked - self.outputs:
                await self._complain(message, "outputs_missing", "A call of the response before has no output.")
                return
        elif step is None and self._last_message("user"):
            progress.next_turn()
        elif step is None and (note := self._last_message("system")):
            self.server.reacts(note)
        self.play()

    def _answered_names(self) -> set[str]:
        return {self.calls[one] for one in self.outputs}

    def _last_message(self, role: str) -> str:
        """The text of the last item, if it is a message of this role."""
        items = [one["item"] for one in self.received if one.get("type") == "conversation.item.create"]
        last = items[-1] if items else {}
        if last.get("type") != "message" or last.get("role") != role:
            return ""
        return "".join(part.get("text", "") for part in last.get("content", ()))

    # ------------------------------------------------------------------------------------------- to the client

    async def play_step(self, step: Step) -> None:
        match step:
            case Say():
                await self._say(step)
            case Ask():
                await self._ask(step, self.server.progress.fault(step))
            case Words(utterance, text):
                await self.tell_words(utterance, text)
            case _:
                pass  # this provider does not say when it goes

    async def _begin_response(self, *, times: int = 1) -> None:
        if self.active is None:
            self.active = self._name("resp")
            await self.event("response.created", times=times, response=self._response("in_progress"))

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        return {
            "id": self.active,
            "object": "realtime.response",
            "status": status,
            "status_details": None,
            "output": [],
            **fields,
        }

    async def _response_done(self, status: str, *, reason: str = "", times: int = 1, **fields: Any) -> None:
        details = {"type": status, "reason": reason} if reason else None
        usage = {"total_tokens": 70, "input_tokens": 50, "output_tokens": 20}
        response = self._response(status, status_details=details, usage=usage, **fields)
        self.active = None
        await self.event("response.done", times=times, response=response)

    async def _say(self, step: Say) -> None:
        await self._begin_response()
        item = self._name("item")
        place: dict[str, Any] = {"response_id": self.active, "item_id": item, "output_index": 0, "content_index": 0}
        for piece in spoken(step.text):
            self.audio_ms[item] = self.audio_ms.get(item, 0) + 100
            await self.event("response.output_audio.delta", delta=b64encode(piece).decode(), **place)
            await asyncio.sleep(step.pace)
        await self.event("response.output_audio_transcript.delta", delta=step.text, **place)
        await self.event("response.output_audio_transcript.done", transcript=step.text, **place)
        await self.event("response.output_audio.done", **place)

    async def _ask(self, step: Ask, fault: Fault | None) -> None:
        """The calls of one response. The step is over when `response.create` comes after their outputs."""
        times = 2 if fault == "duplicate" else 1
        await self._begin_response(times=times)
        calls = step.calls if fault != "flood" else step.calls + (FLOOD,) * 1000
        items = [_function_call(self._name("item"), self._name("call"), one.name, one.args) for one in calls]
        if fault == "truncate":
            await self._truncated(items[0])
            await self._ask(step, None)
            return
        self.calls.update({item["call_id"]: item["name"] for item in items})
        self.asked = {item["call_id"] for item in items}
        if fault == "nonsense":
            await self.send_nonsense()
        self._drops_at_answer = fault == "drop_answer"
        response = self.active
        if fault == "reorder":
            await self._response_done("completed")
        for index, item in enumerate(items):
            await self._call_events(response, index, item, times)
        if fault == "nonsense":
            await self.send_nonsense()
        if fault == "stall":
            await self.stall()
        if fault != "reorder":
            await self._response_done("completed", times=times, output=items)
        if fault in ("drop", "reissue"):
            await self.cut()
        raise ScriptWaiting

    async def _call_events(self, response: str | None, index: int, item: dict[str, Any], times: int) -> None:
        place = {"response_id": response, "output_index": index}
        about = {**place, "item_id": item["id"], "call_id": item["call_id"]}
        begun = {**item, "status": "in_progress", "arguments": ""}
        await self.event("response.output_item.added", times=times, item=begun, **place)
        await self.event("conversation.item.added", times=times, previous_item_id=None, item=begun)
        text = item["arguments"]
        for part in (text[: len(text) // 2], text[len(text) // 2 :]):
            await self.event("response.function_call_arguments.delta", times=times, delta=part, **about)
        kind = "response.function_call_arguments.done"
        await self.event(kind, times=times, name=item["name"], arguments=text, **about)
        await self.event("response.output_item.done", times=times, item=item, **place)
        await self.event("conversation.item.done", times=times, previous_item_id=None, item=item)

    async def _truncated(self, item: dict[str, Any]) -> None:
        """A call that is cut off in its arguments, in a response that ends for want of tokens."""
        cut = {**item, "status": "incomplete", "arguments": item["arguments"][: len(item["arguments"]) // 2]}
        await self._call_events(self.active, 0, cut, 1)
        await self._response_done("incomplete", reason="max_output_tokens", output=[cut])

    async def end_turn(self) -> None:
        await self._begin_response()
        await self._response_done("completed")


def _function_call(item_id: str, call_id: str, name: str, args: Any) -> dict[str, Any]:
    arguments = args if isinstance(args, str) else orjson.dumps(args).decode()
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }
