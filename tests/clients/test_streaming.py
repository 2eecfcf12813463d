"""What every client shares: time-outs, asking again only where nothing had begun, and errors in sentences."""

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest

from handrail.contract.model import Finished, ModelError, ModelRequest, TextDelta, UserMessage
from handrail.providers.ollama import transport
from handrail.providers.streaming_model import ClientLimits, Failure, RawAnswer, StreamingModel

REQUEST = ModelRequest(system="", messages=[UserMessage("Hello?")])
LIMITS = ClientLimits(idle_seconds=5.0, total_seconds=5.0, first_wait=3.0, answer_bytes=10_000)


def line(text="", done=False):
    return orjson.dumps({"message": {"role": "assistant", "content": text}, "done": done}) + b"\n"


class Refused(Exception):
    def __init__(self, status, wait=""):
        super().__init__("refused")
        self.status, self.wait = status, wait


class Cable:
    """A wire that plays one list for each request: bytes, exceptions, and numbers of seconds to wait."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.opened = self.closed = 0

    @asynccontextmanager
    async def open(self, body):
        answer = self.answers[min(self.opened, len(self.answers) - 1)]
        self.opened += 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
        try:
            yield RawAnswer("application/x-ndjson", self.chunks(answer))
        finally:
            self.closed += 1

    async def chunks(self, steps):
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    def failure(self, error):
        if isinstance(error, Refused):
            return Failure(error.status, "the reason", error.wait)
        return Failure(None) if isinstance(error, OSError) else None

    async def close(self):
        pass


async def played(cable, limits=LIMITS):
    """The events, the error if there was one, and the pauses between attempts."""
    pauses, told = [], []

    async def sleep(seconds):
        pauses.append(seconds)

    model = StreamingModel("m", transport, cable, limits, lines=True, key_name="THE_KEY", sleep=sleep)
    try:
        async for event in model.stream(REQUEST):
            told.append(event)
    except ModelError as error:
        return told, error, pauses
    return told, None, pauses


GOOD = [line("Hel"), line("lo."), line(done=True)]


async def test_a_request_that_failed_before_it_began_is_sent_again():
    cable = Cable(OSError(), Refused(503), GOOD)
    told, error, pauses = await played(cable)

    assert error is None
    assert [event.text for event in told if isinstance(event, TextDelta)] == ["Hel", "lo."]
    assert isinstance(told[-1], Finished)
    assert (cable.opened, cable.closed, pauses) == (3, 1, [3.0, 6.0])


async def test_the_providers_wish_for_a_pause_is_kept_within_reason():
    _, _, pauses = await played(Cable(Refused(429, "7"), Refused(429, "99999"), GOOD))
    assert pauses == [7.0, 6.0], "a wish beyond an hour is none"
    _, _, pauses = await played(Cable(Refused(429, "3000"), Refused(429, "soon"), GOOD))
    assert pauses == [20.0, 6.0]


async def test_it_is_not_tried_for_ever():
    cable = Cable(Refused(500))
    told, error, _ = await played(cable)

    assert (told, cable.opened) == ([], 3)
    assert error.retryable
    assert error.detail == "Ollama answered with status 500: the reason."
    assert str(error) == "Ollama answered with status 500."


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "Ollama answered with status 400: the reason."),
        (401, "Ollama refused access (status 401); check THE_KEY."),
        (403, "Ollama refused access (status 403); check THE_KEY."),
        (404, 'Ollama does not know the model "m", or the base URL is wrong (404): the reason.'),
    ],
)
async def test_a_request_that_will_never_do_is_sent_once(status, said):
    cable = Cable(Refused(status))
    _, error, _ = await played(cable)

    assert (cable.opened, error.detail, error.retryable) == (1, said, False)
    assert not any(word in str(error) for word in ("the reason", "KEY", "base URL")), "those are not for everybody"


@pytest.mark.parametrize(
    "steps",
    [
        [line("Hel"), OSError()],
        [line("Hel"), line("lo.")[:-5], OSError()],
        [line("Hel")],
        [],
    ],
    ids=["broken", "in the middle of an event", "ended", "empty"],
)
async def test_an_answer_that_broke_off_is_an_error_and_not_asked_for_again_here(steps):
    cable = Cable(steps, GOOD)
    _, error, _ = await played(cable)

    assert (cable.opened, cable.closed) == (1, 1)
    assert error.retryable
    assert "broke off" in str(error)


async def test_a_connection_that_breaks_after_the_end_of_an_answer_takes_nothing_away():
    told, error, _ = await played(Cable([line("Hello."), line(done=True), OSError()]))
    assert error is None
    assert isinstance(told[-1], Finished)


@pytest.mark.parametrize(
    "answer",
    [600.0, [600.0], [line("Hel"), 600.0], [line("a") for _ in range(3)] + [0.04, line("a")] * 500],
    ids=["before it begins", "at its beginning", "in the middle", "for ever"],
)
async def test_a_provider_that_stalls_is_given_up(answer):
    cable = Cable(answer)
    limits = ClientLimits(idle_seconds=0.2, total_seconds=0.4)
    _, error, _ = await played(cable, limits)

    assert "did not answer in time" in str(error)
    assert error.retryable
    assert cable.opened == 1


async def test_an_answer_without_end_is_cut():
    _, error, _ = await played(Cable([b'{"message": {"content": "' + b"x" * 4_000] + [b"x" * 4_000] * 10))
    assert "longer than is read" in str(error)


async def test_what_is_no_failure_of_the_wire_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        await played(Cable(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        await played(Cable([line("a"), ZeroDivisionError()]))


async def test_an_event_that_is_too_large_is_not_dropped_in_silence():
    huge = line("x" * 5_000_000)
    told, error, _ = await played(Cable([line("Hel"), huge, line("lo."), line(done=True)]), ClientLimits())

    assert [event.text for event in told] == ["Hel", "lo."]
    assert str(error) == "Ollama sent more in one event than is read."
    assert error.retryable
