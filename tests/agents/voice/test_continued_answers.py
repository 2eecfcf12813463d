"""Whoever continues after a yes has not answered: generated answers with both providers and in noise.

Each conversation is played in virtual time over the real link and transports, with real frames from the microphone. `python -m
tests.agents.voice.test_continued_answers` plays as many as it is told and prints the figures.
"""

import asyncio
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.agents.voice.kit import VoiceCase
from tests.agents.voice.test_spoken_confirmation import question
from tests.agents.voice.virtual import Microphone, provider_side, virtual_voice
from tests.clients.live.kit import PROVIDERS
from tests.conftest import RecordFigures

from handrail.agents.voice.host_port import VoicePolicy
from handrail.agents.voice.spoken import AnswerVerdict, understood
from handrail.agents.voice.spoken.answer_languages import LANGUAGES
from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.servers.live.sound import spoken
from handrail.testing.virtual_time import run_virtually

MORE = {
    "en": ("but not today", "but for six people", "no", "no, wait", "what was the time again?", "if it is free"),
    "de": ("aber nicht heute", "aber für sechs", "nein", "nein, warten Sie", "wie viel Uhr war das noch?"),
    "es": ("pero hoy no", "pero para seis", "no", "no, espere", "¿a qué hora era?"),
    "fr": ("mais pas aujourd'hui", "mais pour six", "non", "non, attendez", "c'était à quelle heure ?"),
    "it": ("ma non oggi", "ma per sei", "no", "no, aspetti", "a che ora era?"),
    "nl": ("maar niet vandaag", "maar voor zes", "nee", "nee, wacht", "hoe laat was het ook weer?"),
    "pt": ("mas hoje não", "mas para seis", "não", "não, espere", "a que horas era mesmo?"),
}
ROOMS = (
    ("zeros", -96.0),
    ("white", -70.0),
    *((kind, level) for kind in ("white", "hum", "babble") for level in (-50.0, -40.0, -31.0, -25.0)),
)
LONGEST_WAIT = 4.0
"""Seconds after all words, in which it is known what became of an answer."""


def approvals(language: str) -> list[str]:
    """Plain ones, of the grammar's own words, as a transcript writes them."""
    said = []
    for side in LANGUAGES[language].yes:
        for core in side.core:
            said += [core, *(f"{core}, {after}" for after in side.after)]
    written = [f"{text[0].upper()}{text[1:]}." for text in said]
    assert all(understood(text, language=language) is AnswerVerdict.YES for text in written)
    return written


@dataclass(frozen=True)
class Signs:
    """What else tells of somebody's speech beside the microphone's level, and when words come."""

    provider: bool
    client: bool
    stop_seconds: float
    """Of silence, after which the provider takes an utterance to be complete."""
    words_lag: float
    more_lag: float | None
    """Of the words of what follows; None: they never come."""
    finished: bool
    """Gemini Live says that the words are all."""
    answers: bool
    """The model answers the yes."""


@dataclass(frozen=True)
class Spoken:
    """One answer, in one room."""

    provider: str
    language: str
    room: tuple[str, float]
    level: float
    text: str
    more: str
    pause: float
    signs: Signs

    def __str__(self) -> str:
        more = f" -{self.pause:.2f} s- {self.more!r}" if self.more else ""
        return f"{self.provider} {self.language} {self.text!r}{more} at {self.level:.0f} in {self.room}: {self.signs}"


def seconds_of(text: str, pace: float) -> float:
    return max(0.24, pace * sum(map(str.isalnum, text)))


def drawn(random: Random, provider: str, language: str, *, goes_on: bool) -> Spoken:
    room = random.choice(ROOMS)
    signs = Signs(
        provider=random.random() < 0.5,
        client=random.random() < 0.4,
        stop_seconds=random.choice((0.2, 0.5, 0.8)),
        words_lag=random.choice((0.05, 0.2, 0.5, 0.9)),
        more_lag=random.choice((0.05, 0.3, 1.0, 1.6, 2.4, None)),
        finished=random.random() < 0.5,
        answers=random.random() < 0.5,
    )
    return Spoken(
        provider=provider,
        language=language,
        room=room,
        level=min(-12.0, max(-32.0, room[1] + random.choice((10.5, 14.0, 20.0)))),
        text=random.choice(approvals(language)),
        more=random.choice(MORE[language]) if goes_on else "",
        pause=random.uniform(0.2, 1.1),
        signs=signs,
    )


class Person:
    """Says one answer into the microphone, while provider and client tell what they notice of it."""

    def __init__(self, case: VoiceCase, microphone: Microphone, said: Spoken, random: Random) -> None:
        self.case = case
        self.microphone = microphone
        self.said = said
        self.pace = random.uniform(0.055, 0.08)
        self._later: list[asyncio.Task[None]] = []

    def later(self, seconds: float, act: Callable[[], Awaitable[None] | None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            done = act()
            if done is not None:
                await done

        self._later.append(asyncio.create_task(wait()))

    async def speak(self) -> None:
        said, signs = self.said, self.said.signs
        hears = self._gemini if said.provider == "gemini-live" else self._openai
        await hears()
        for part, pause in ((said.text, said.pause), (said.more, 0.0)):
            if not part:
                continue
            if signs.client:
                self.later(0.1, lambda: self.case.voice.speech("started", 0.1))
            await self.microphone.say(seconds_of(part, self.pace), said.level)
            if signs.client and (pause > 0.4 or part == said.more or not said.more):
                self.later(0.3, lambda: self.case.voice.speech("ended"))
            if said.more and pause:
                await asyncio.sleep(pause)

    async def close(self) -> None:
        await asyncio.gather(*self._later)

    # ----------------------------------------------------------------------------------------- what the providers send

    def _times(self) -> tuple[float, float, float]:
        """From now: the end of the yes, the beginning and the end of what follows."""
        first = seconds_of(self.said.text, self.pace)
        more = first + self.said.pause
        return first, more, more + seconds_of(self.said.more, self.pace)

    async def _gemini(self) -> None:
        """Words without names, and the model's answer if it takes the yes for all; `interrupted` if it is told."""
        talk: Any = provider_side(self.case)
        said, signs = self.said, self.said.signs
        first, more, end = self._times()
        words_at = first + signs.words_lag
        answers_at = max(first + signs.stop_seconds, words_at) + 0.1
        self.later(words_at, lambda: talk.tell_words(0, said.text, finished=signs.finished))
        if not said.more:
            self.later(answers_at, self._gemini_answer)
            return
        if signs.more_lag is not None:
            self.later(end + signs.more_lag, lambda: talk.tell_words(0, f" {said.more}.", finished=signs.finished))
        if not signs.answers or more < answers_at:
            self.later(max(end + signs.stop_seconds, words_at) + 0.1, self._gemini_answer)
            return
        self.later(answers_at, lambda: self._gemini_sound(2))
        if signs.provider:
            self.later(more + 0.15, lambda: talk.send({"serverContent": {"interrupted": True}}))
            self.later(more + 0.16, lambda: talk.send({"serverContent": {"turnComplete": True}}))
        else:
            self.later(answers_at + 0.3, lambda: talk.send({"serverContent": {"turnComplete": True}}))

    async def _gemini_sound(self, pieces: int) -> None:
        talk: Any = provider_side(self.case)
        for piece in spoken("x" * 5 * pieces):
            data = {"mimeType": "audio/pcm;rate=24000", "data": b64encode(piece).decode()}
            await talk.send({"serverContent": {"modelTurn": {"role": "model", "parts": [{"inlineData": data}]}}})

    async def _gemini_answer(self) -> None:
        talk: Any = provider_side(self.case)
        await self._gemini_sound(2)
        await talk.send({"serverContent": {"outputTranscription": {"text": "Fine."}}})
        await talk.send({"serverContent": {"turnComplete": True}})

    async def _openai(self) -> None:
        """Named utterances: one if the pause was too short for the provider, or two; without its signal it misses the second."""
        said, signs = self.said, self.said.signs
        first, more, end = self._times()
        stop = signs.stop_seconds
        if not said.more or (said.pause < stop and signs.more_lag is not None):
            whole = f"{said.text} {said.more}".strip()
            self._openai_utterance(0.1, (end if said.more else first) + stop, signs.words_lag, whole, answers=True)
            return
        self._openai_utterance(0.1, first + stop, signs.words_lag, said.text, answers=signs.answers)
        if signs.provider:
            self._openai_utterance(
                more + 0.1, end + stop, signs.more_lag, said.more, answers=True, earliest=first + stop + 0.01
            )

    def _openai_utterance(
        self, start: float, stop: float, lag: float | None, text: str, *, answers: bool, earliest: float = 0.0
    ) -> None:
        talk: Any = provider_side(self.case)
        talk.utterances.append(item := talk._name("item"))
        number = len(talk.utterances)
        buffer = "input_audio_buffer"

        async def began() -> None:
            await talk.event(f"{buffer}.speech_started", audio_start_ms=0, item_id=item)
            if talk.active is not None:
                await talk._response_done("cancelled", reason="turn_detected")

        async def stopped() -> None:
            await talk.event(f"{buffer}.speech_stopped", audio_end_ms=0, item_id=item)
            await talk.event(f"{buffer}.committed", item_id=item, previous_item_id=None)

        async def answered() -> None:
            if talk.active is not None or talk.utterances[-1] != item:
                return
            await talk.play_step(Say("Fine."))
            await talk._response_done("completed")

        self.later(max(start, earliest), began)
        self.later(stop, stopped)
        if lag is not None:
            self.later(stop + lag, lambda: talk.tell_words(number, text))
        if answers:
            self.later(stop + 0.4, answered)


@dataclass
class Figures:
    said: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, said: Spoken, outcome: str, expected: str) -> None:
        self.said += 1
        self.outcomes[outcome] += 1
        if (outcome == "approved") is not (expected == "approved"):
            self.wrong.append(f"{outcome}: {said}")

    def __str__(self) -> str:
        counted = ", ".join(f"{outcome} {count}" for outcome, count in sorted(self.outcomes.items()))
        return f"{self.said} answers: {counted}"


def tables(count: int) -> list[Turn]:
    return [Turn([Ask(call("buy_table", guest=f"number {number}"))]) for number in range(count)]


@asynccontextmanager
async def asked_about(
    provider: str, language: str, said: Spoken, count: int
) -> AsyncIterator[tuple[VoiceCase, Microphone]]:
    async with virtual_voice(provider, tables(count), policy=VoicePolicy(language=language)) as case:
        microphone = Microphone(case.voice, *said.room)
        try:
            yield case, microphone
        finally:
            await microphone.close()


async def play(provider: str, language: str, answers: Sequence[Spoken], random: Random, figures: Figures) -> None:
    """Answers to as many questions, in one conversation and so in one room."""
    async with asked_about(provider, language, answers[0], len(answers)) as (case, microphone):
        client = case.client
        for number, said in enumerate(answers):
            await asyncio.sleep(1.5)
            before, bought = len(question(client)), case.tool_log.of("buy_table")
            await case.voice.say("Buy it", id=f"m{number}")
            await client.until(lambda client: "asking" in question(client)[before:], seconds=30)  # noqa: B023
            asked = len(question(client))
            await asyncio.sleep(random.uniform(0.1, 0.8))
            person = Person(case, microphone, said, random)
            await person.speak()
            await person.close()
            await asyncio.sleep(LONGEST_WAIT)
            states = question(client)[asked:]
            outcome = states[0] if states else "nothing"
            if case.tool_log.of("buy_table") > bought:
                outcome = "approved"
            figures.add(said, outcome, "missed" if said.more else "approved")
            for request in client.of("confirmation"):
                await case.runtime.decline(request["id"], token=request["token"])
            await asyncio.sleep(0.5)


def played(count: int, *, goes_on: bool, seed: int = 1) -> dict[str, Figures]:
    """A number of answers with each provider."""
    told = {}
    for provider in PROVIDERS:
        random, figures = Random(f"{provider}{goes_on}{seed}"), Figures()
        while figures.said < count:
            language = random.choice(("en", "en", *LANGUAGES))
            first = drawn(random, provider, language, goes_on=goes_on)
            more = [drawn(random, provider, language, goes_on=goes_on) for _ in range(min(5, count - figures.said) - 1)]
            answers = [first]
            for one in more:
                level = min(-12.0, max(-32.0, first.room[1] + random.choice((10.5, 14.0, 20.0))))
                answers.append(Spoken(**{**_fields(one), "room": first.room, "level": level}))
            run_virtually(play(provider, language, answers, random, figures))
        told[provider] = figures
    return told


def _fields(said: Spoken) -> dict[str, Any]:
    return {name: getattr(said, name) for name in Spoken.__dataclass_fields__}


@pytest.fixture(autouse=True)
def as_in_production(words_settle_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time nobody has to be quick."""
    monkeypatch.undo()


@pytest.mark.parametrize("count", [75, pytest.param(1_200, marks=pytest.mark.long)])
def test_nobody_who_goes_on_after_a_yes_has_approved(count: int, record_figures: RecordFigures) -> None:
    for provider, figures in played(count, goes_on=True).items():
        record_figures(f"{provider}, going on: {figures}")
        assert figures.said == count
        assert [wrong for wrong in figures.wrong if wrong.startswith("approved")] == []
        assert figures.outcomes["missed"] > count // 2, "most of it was heard as an answer that is none"


@pytest.mark.parametrize("count", [75, pytest.param(600, marks=pytest.mark.long)])
def test_a_plain_yes_in_the_same_noise_is_understood(count: int, record_figures: RecordFigures) -> None:
    for provider, figures in played(count, goes_on=False).items():
        record_figures(f"{provider}, plain: {figures}")
        assert figures.said == count
        assert figures.outcomes["approved"] >= 0.95 * count, figures.wrong


if __name__ == "__main__":
    amount = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for goes_on in (True, False):
        for provider, figures in played(amount, goes_on=goes_on).items():
            print(f"{provider}, {'going on' if goes_on else 'plain'}: {figures}")
            for wrong in figures.wrong[:20]:
                print("   ", wrong)
