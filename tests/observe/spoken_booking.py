"""A booking by voice with every part traced: the client, the voice agent on the local live server, the pipeline, the calendar.

The spans are sent by the real SDK to a receiver on loopback, and those that were received are what `play` gives back. The
client's spans (`microphone`, `loudspeaker`) and the calendar's are those that a host adds; the others are the runtime's.
"""

import asyncio
from contextlib import asynccontextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.agents.voice.kit import Client, obedient, on_model
from tests.agents.voice.test_spoken_booking import EVENT, IN_VOICE, registry
from tests.clients.live.kit import new_model, new_server
from tests.observe.otlp_receiver import Receiver

from handrail import Runtime
from handrail.observe.tracing import Tracing
from handrail.testing.servers.live import Ask, Say, Turn, call, silence, speech
from handrail_reference.services.calendar.embedded import EmbeddedCalendar

PURPOSE = "reception.purpose"
TURNS = (
    Turn([Ask(call("calendar_create_event", **EVENT)), Say("I need your word for that.")], "Book it."),
    Turn([Say("Fine.")], "Yes."),
)


def _reaction(note):
    """What the model says to a note of the host: the question word for word, and later that it is done."""
    return obedient(note) or ([Say("It is in your calendar.")] if "has been carried out" in note else [])


class TracedCalendar(EmbeddedCalendar):
    """The calendar of a host that traces it: what a handler does with it becomes a child of the handler's call."""

    def __init__(self, path, tracer):
        super().__init__(path)
        self._tracer = tracer

    async def clashes(self, **asked):
        with self._tracer.start_as_current_span("calendar clashes"):
            return await super().clashes(**asked)

    async def create(self, draft, **asked):
        with self._tracer.start_as_current_span("calendar create"):
            return await super().create(draft, **asked)


class TracedClient(Client):
    """A client that takes `pace` seconds for each second of sound, and has a span for each thing that it plays."""

    def __init__(self, tracer, pace):
        super().__init__(reports=False)
        self._tracer, self._pace, self._playing, self._ends = tracer, pace, {}, 0.0
        self.idle = asyncio.Event()

    def tell(self, type, data):
        super().tell(type, data)
        if type == "audio_end":
            loop = asyncio.get_running_loop()
            self._ends = max(loop.time(), self._ends) + data["ms"] / 1000 * self._pace
            loop.call_at(self._ends, self._played, data["item"], data["ms"])

    def play(self, sound):
        super().play(sound)
        self.idle.clear()
        if sound.item not in self._playing:
            states = [one["state"] for one in self.of("question")]
            is_done = any(card.get("late") for card in self.of("tool_finished"))
            purpose = "the question" if states[-1:] == ["reading"] else "the news" if is_done else "an answer"
            self._playing[sound.item] = self._tracer.start_span("loudspeaker", attributes={PURPOSE: purpose})

    def _played(self, item, milliseconds):
        self.voice.played(item, milliseconds, True)
        if item in self._playing:
            self._playing.pop(item).end()
        if not self._playing:
            self.idle.set()


async def _say(case, tracer, purpose, milliseconds, pace):
    """Speak and be silent, in frames of 20 ms."""
    rate = case.voice.input_rates[0]
    pcm, size = speech(milliseconds, rate) + silence(260, rate), rate // 50 * 2
    with tracer.start_as_current_span("microphone", attributes={PURPOSE: purpose}):
        for place in range(0, len(pcm), size):
            case.voice.hear(pcm[place : place + size], rate)
            await asyncio.sleep(0.02 * pace)


@asynccontextmanager
async def _conversation(folder, url, pace):
    provider = TracerProvider(resource=Resource.create({"service.name": "reception"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    tracer = provider.get_tracer("reception")
    calendar = TracedCalendar(folder / "calendar.db", tracer)
    runtime = Runtime(
        registry(folder, **IN_VOICE),
        store="memory:",
        capabilities={"calendar": calendar},
        tracing=Tracing(provider),
    )
    async with new_server("openai-realtime", TURNS) as server:
        server.on_note = _reaction
        model = new_model("openai-realtime", server)
        try:
            with tracer.start_as_current_span("voice conversation", kind=trace.SpanKind.SERVER):
                async with on_model(model, runtime=runtime, client=TracedClient(tracer, pace)) as case:
                    yield case, tracer
        finally:
            await model.close()
    assert server.complaints == []
    await calendar.close()
    await asyncio.to_thread(provider.shutdown)  # it sends what is not sent yet


async def play(folder, pace=0.0):
    """The spans of one spoken booking, as they were received."""
    receiver = Receiver()
    try:
        async with _conversation(folder, receiver.url, pace) as (case, tracer):
            await _say(case, tracer, "the request", 700, pace)
            await case.client.until(lambda client: "asking" in [one["state"] for one in client.of("question")])
            await asyncio.wait_for(case.client.idle.wait(), 60)
            await _say(case, tracer, "the yes", 300, pace)
            await case.client.until(lambda client: any(card.get("late") for card in client.of("tool_finished")))
            await case.client.until(lambda client: any("in your calendar" in one for one in client.words("model")))
            await asyncio.wait_for(case.client.idle.wait(), 60)
        return receiver.spans
    finally:
        await asyncio.to_thread(receiver.close)
