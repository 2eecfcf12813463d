"""A local Gemini Live: `BidiGenerateContent` over TLS on loopback, with a certificate that is made when it is first needed.

A model called "gemini-3…" behaves as that generation does: it takes `clientContent` only directly after a set-up that announced
it, closes the connection with 1007 for any other, and starts no answer because of it.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from handrail.contract.errors import UsageError
from handrail.testing.servers.live.script import FLOOD, Ask, Depart, Fault, Say, Step, Turn, Words
from handrail.testing.servers.live.server import LiveConversation, LiveServer
from handrail.testing.servers.live.sound import spoken
from handrail.testing.servers.script import ScriptedCall

_CLIENT_MESSAGES = frozenset({"setup", "clientContent", "realtimeInput", "toolResponse", "contextUpdate"})
_SNAKE = {
    "client_content": "clientContent",
    "realtime_input": "realtimeInput",
    "tool_response": "toolResponse",
    "context_update": "contextUpdate",
}
"""The SDK writes some names in one way and some in the other; the service takes both."""
_RECENT = re.compile(r"(?:models/)?gemini-(?:live-)?[3-9]")


class GeminiLiveServer(LiveServer):
    """`tls` is a context that trusts this server; give it to the client."""

    def __init__(self, turns: Sequence[Turn] = (), *, api_key: str = "local-key", resumable: bool = True) -> None:
        super().__init__(turns, api_key=api_key)
        self.resumable = resumable
        self.handles: set[str] = set()
        """Those that can be resumed from; take one out and it has expired."""
        self.setups: list[dict[str, Any]] = []

    @property
    def base_url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext:
        return _contexts()[1]

    def certificate(self) -> ssl.SSLContext:
        return _contexts()[0]

    def key_of(self, request: Request) -> str:
        return request.headers.get("x-goog-api-key", "")

    def new_conversation(self, socket: ServerConnection) -> GeminiConversation:
        return GeminiConversation(self, socket)


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's context around an authority that lives as long as this process."""
    try:
        import trustme  # noqa: PLC0415 - only this server needs it
    except ImportError:
        raise UsageError(
            'The local Gemini Live speaks TLS and needs the package "trustme" for its certificate.'
        ) from None
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, client


class GeminiConversation(LiveConversation):
    server: GeminiLiveServer

    def __init__(self, server: GeminiLiveServer, socket: ServerConnection) -> None:
        super().__init__(server, socket)
        self.is_set_up = False
        self.wants_handles = False
        self.open: dict[str, ScriptedCall] = {}
        self.issued: set[str] = set()
        self.takes_content = True
        """Whether `clientContent` is taken now: always by older models, while the history is seeded by newer ones."""
        self.is_recent = False
        self._declared: list[str] = []
        self._answered = asyncio.Event()
        self._drops_at_answer = False
        self._speaking = False

    @property
    def declared(self) -> list[str]:
        return self._declared

    async def greet(self) -> None:
        """The client speaks first."""

    # ------------------------------------------------------------------------------------------- from the client

    async def take(self, message: dict[str, Any]) -> None:
        kinds = [_SNAKE.get(name, name) for name in message]
        if len(kinds) != 1 or kinds[0] not in _CLIENT_MESSAGES:
            self.server.complaints.append(f"A message must hold exactly one known field; this has {kinds}.")
            return
        kind, body = kinds[0], next(iter(message.values()))
        if (kind == "setup") is self.is_set_up:
            self.server.complaints.append(f'"{kind}" came {"twice" if self.is_set_up else "before the set-up"}.')
            return
        match kind:
            case "setup":
                await self._set_up(body)
            case "realtimeInput":
                await self._realtime(body)
            case "clientContent":
                await self._content(body)
            case "toolResponse":
                await self._answers(body.get("functionResponses", []))
            case _:
                pass

    async def _set_up(self, setup: dict[str, Any]) -> None:
        self.is_set_up = True
        self.server.setups.append(setup)
        self._declared = [
            function["name"]
            for tool in setup.get("tools", ())
            for function in tool.get("functionDeclarations", tool.get("function_declarations", ()))
        ]
        self.is_recent = _RECENT.match(str(setup.get("model", ""))) is not None
        if self.is_recent:
            announced = setup.get("historyConfig") or {}
            self.takes_content = True in (
                announced.get("initialHistoryInClientContent"),
                announced.get("initial_history_in_client_content"),
            )
        asked = setup.get("sessionResumption")
        self.wants_handles = asked is not None and self.server.resumable
        handle = (asked or {}).get("handle")
        if handle is not None and handle not in self.server.handles:
            await self.socket.close(1008, "BidiGenerateContent session not found")
            return
        await self.send({"setupComplete": {"sessionId": f"session-{len(self.server.conversations)}"}})
        step = self.server.progress.current
        if isinstance(step, Ask) and step.fault == "reissue" and len(self.server.conversations) > 1:
            self.play()

    async def _realtime(self, body: dict[str, Any]) -> None:
        if self.is_recent and self.takes_content:
            self.server.complaints.append("Input came before the history was complete.")
        if "text" in body:
            await self._text(str(body["text"]))
        sound = body.get("audio")
        if not sound:
            return
        rate = int(str(sound.get("mimeType", sound.get("mime_type"))).partition("rate=")[2] or 16_000)
        pcm = b64decode(sound["data"].replace("-", "+").replace("_", "/"))
        for change in self.speech_detector.listen(pcm, rate):
            if change == "start":
                await self._barge_in()
            else:
                await self._user_input("")

    async def _text(self, text: str) -> None:
        """The user's words, which stop an answer as speech does, or a note of the host, which waits for its end."""
        step = self.server.progress.current
        if "Note of the host" not in text:
            await self._barge_in()
            await self._user_input(None)
        elif isinstance(step, Ask) and self.is_recent:
            self._take_outcome(step, text)
            self.play()
        elif not self.is_playing and self.server.progress.current is None and self.server.reacts(text):
            self.play()

    async def _content(self, body: dict[str, Any]) -> None:
        if not self.takes_content:
            self.server.complaints.append(
                "Content came in the middle of the conversation of a model that does not take it."
            )
            await self.socket.close(1007, "Request contains an invalid argument.")
        elif self.is_recent:
            self.takes_content = body.get("turnComplete", body.get("turn_complete")) is not True
        else:
            await self._turns(body)

    def _take_outcome(self, step: Ask, said: str) -> None:
        """A call that was made on another connection is answered in words."""
        if not all(_tells_of(said, call) for call in step.calls) or "Note of the host" not in said:
            return
        self.server.outcomes += [(call.name, {"told": said}) for call in step.calls]
        self.open.clear()
        if self.is_playing:
            self._answered.set()
        else:
            self.server.progress.done(step)

    async def _turns(self, body: dict[str, Any]) -> None:
        """Turns that are given. Complete ones are answered: by what the script says next."""
        said = " ".join(part.get("text", "") for turn in body.get("turns", ()) for part in turn.get("parts", ()))
        step = self.server.progress.current
        complete = body.get("turnComplete", body.get("turn_complete"))
        if isinstance(step, Ask):
            # Where the words are not about its call, the model, which has forgotten it, asks again.
            self._take_outcome(step, said)
            if complete:
                self.play()
        elif complete and step is not None:
            self.play()
        elif complete and "Note of the host" not in said:
            await self._user_input(None)
        elif complete and self.server.reacts(said):
            self.play()
        elif complete:
            await self.end_turn()

    async def _answers(self, responses: list[dict[str, Any]]) -> None:
        if self._drops_at_answer:
            await self.cut()
        for response in responses:
            call_id = response.get("id")
            if call_id not in self.issued:
                self.server.complaints.append(f'There was no call with the id "{call_id}" on this connection.')
                continue
            asked = self.open.pop(call_id, None)
            if asked is None:
                self.server.complaints.append(f'The call "{call_id}" waits for no answer.')
                continue
            if response.get("name") != asked.name:
                self.server.complaints.append(f'The answer to "{asked.name}" says "{response.get("name")}".')
            body = response.get("response", {})
            if not isinstance(body, dict) or len(body.keys() & {"output", "error"}) != 1:
                self.server.complaints.append(f'The answer to "{asked.name}" has neither output nor error.')
                continue
            self.server.outcomes.append((asked.name, body.get("output") or body["error"]))
        if not self.open:
            self._answered.set()

    async def _barge_in(self) -> None:
        """The user speaks into the model's answer."""
        if not self.is_playing:
            return
        await self.stop_playing()
        self.server.progress.end_turn()
        await self.send({"serverContent": {"interrupted": True}})
        if self.open:
            await self.send({"toolCallCancellation": {"ids": list(self.open)}})
            self.open.clear()
        await self.send({"serverContent": {"turnComplete": True}})

    async def _user_input(self, spoken_text: str | None) -> None:
        await self.stop_playing()
        turn = self.server.progress.next_turn()
        if turn is None:
            return
        if spoken_text is not None and turn.hears:
            await self.tell_words(0, turn.hears)
        if self.wants_handles:
            await self.send({"sessionResumptionUpdate": {"resumable": False}})
        self.play()

    async def tell_words(self, utterance: int, text: str, *, finished: bool = False) -> None:
        """A piece of the transcript; this provider does not say of which utterance."""
        heard = {"text": text, "finished": True} if finished else {"text": text}
        await self.send({"serverContent": {"inputTranscription": heard}})

    # ------------------------------------------------------------------------------------------- to the client

    async def play_step(self, step: Step) -> None:
        match step:
            case Say():
                await self._say(step)
            case Ask():
                await self._ask(step, self.server.progress.fault(step))
            case Depart(seconds):
                await self.send({"goAway": {"timeLeft": f"{seconds:g}s"}})
            case Words(utterance, text, finished):
                await self.tell_words(utterance, text, finished=finished)
            case _:
                pass

    async def _say(self, step: Say) -> None:
        for piece in spoken(step.text):
            data = {"mimeType": "audio/pcm;rate=24000", "data": b64encode(piece).decode()}
            await self.send({"serverContent": {"modelTurn": {"role": "model", "parts": [{"inlineData": data}]}}})
            await asyncio.sleep(step.pace)
        await self.send({"serverContent": {"outputTranscription": {"text": step.text}}})
        await self.send({"serverContent": {"generationComplete": True}})

    async def _ask(self, step: Ask, fault: Fault | None) -> None:
        self.open = {f"fc-{next(self.server.numbers)}": asked for asked in step.calls}
        self._answered.clear()
        calls = [{"id": name, "name": asked.name, "args": asked.args} for name, asked in self.open.items()]
        if fault == "truncate":
            await self._truncated(calls)
            await self._ask(step, None)
            return
        self.issued |= self.open.keys()
        if fault == "flood":
            more = {f"fc-{next(self.server.numbers)}": FLOOD for _ in range(1000)}
            calls += [{"id": name, "name": asked.name, "args": asked.args} for name, asked in more.items()]
            self.issued |= more.keys()
            self.open.update(more)
        if fault == "nonsense":
            await self.send_nonsense()
        if fault == "reorder":
            await self.send({"serverContent": {"turnComplete": True}})
        self._drops_at_answer = fault == "drop_answer"
        await self.send({"toolCall": {"functionCalls": calls}}, times=2 if fault == "duplicate" else 1)
        if fault == "nonsense":
            await self.send_nonsense()
        if fault in ("drop", "reissue"):
            await self.cut()
        if fault == "stall":
            await self.stall()
        await self._answered.wait()

    async def _truncated(self, calls: list[dict[str, Any]]) -> None:
        """A frame that breaks off, and a turn that says that its call was malformed."""
        await self.send_raw(
            '{"toolCall": {"functionCalls": [{"id": "' + calls[0]["id"] + '", "name": "' + calls[0]["name"]
        )
        await self.send({"serverContent": {"turnComplete": True, "turnCompleteReason": "MALFORMED_FUNCTION_CALL"}})

    async def end_turn(self) -> None:
        usage = {"promptTokenCount": 50, "responseTokenCount": 20, "totalTokenCount": 70}
        await self.send({"serverContent": {"turnComplete": True}, "usageMetadata": usage})
        if self.wants_handles:
            handle = f"handle-{next(self.server.numbers)}"
            self.server.handles.add(handle)
            await self.send({"sessionResumptionUpdate": {"newHandle": handle, "resumable": True}})


def _tells_of(said: str, call: ScriptedCall) -> bool:
    """Whether words of the host are about this call. Where they name arguments, another call of its tool is known by its own."""
    return f'"{call.name}"' in said and ("with the arguments" not in said or orjson.dumps(call.args).decode() in said)
