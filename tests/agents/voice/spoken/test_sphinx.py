"""The local recogniser on synthetic speech. It is a second opinion, so the figure that must hold is: no no is heard as a yes."""

import sys
from collections import Counter

import pytest
from tests.agents.voice.spoken import synthetic
from tests.agents.voice.spoken.synthetic import RATE, recogniser, said
from tests.conftest import RecordFigures

from handrail.agents.voice.spoken import AnswerVerdict
from handrail.agents.voice.spoken.sphinx_recogniser import SphinxRecogniser, resampled, verdict_of
from handrail.contract.errors import ConfigError
from handrail.testing.servers.live import silence, speech

PLAIN = ("yes", "yeah", "yep", "yes please", "yes yes")
YES = (*PLAIN, "yup", "yes go ahead", "yes I confirm", "yes that's right", "yes thank you", "okay yes", "yes do it")
NO = ("no", "nope", "no thanks", "no thank you", "cancel", "don't do it", "no no", "please don't", "never mind", "stop")
OTHER = (
    *("maybe", "I guess", "what", "hello", "chess", "guess", "yesterday", "years", "not yet", "yes but later", "okay"),
    *("tomorrow at eight", "the table by the window", "say that again", "who is this", "say yes or no", "he said yes"),
)
VOICES = ("en-us", "en-gb", "en-gb-scotland", "en-us+f2", "en-us+m3", "en-gb+f4", "en-gb-x-rp+m7")

synthetic.wanted()


async def counted(texts: tuple[str, ...], voices: tuple[str, ...]) -> Counter[AnswerVerdict]:
    found: Counter[AnswerVerdict] = Counter()
    for voice in voices:
        for text in texts:
            heard = await recogniser().recognise(said(text, voice), RATE)
            assert heard is not None
            found[heard.verdict] += 1
    return found


async def test_a_plain_yes_is_heard_and_no_no_is_heard_as_one() -> None:
    assert (await counted(PLAIN, VOICES[:2]))[AnswerVerdict.YES] == len(PLAIN) * 2
    found = await counted(NO, VOICES[:2])
    assert found[AnswerVerdict.YES] == 0
    assert found[AnswerVerdict.NO] >= len(NO)


@pytest.mark.long
async def test_how_well_it_hears(record_figures: RecordFigures) -> None:
    yes, no, other = [await counted(texts, VOICES) for texts in (YES, NO, OTHER)]
    record_figures(f"yes: {dict(yes)}, no: {dict(no)}, other: {dict(other)}")
    assert no[AnswerVerdict.YES] == 0
    assert yes[AnswerVerdict.YES] / yes.total() >= 0.75
    assert other[AnswerVerdict.YES] / other.total() <= 0.4


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
async def test_the_rate_of_the_sound_does_not_matter(rate: int) -> None:
    at_16k = resampled(said("yes", "en-us"), RATE)
    if rate == 16_000:
        pcm = at_16k.tobytes()
    else:  # the nearest sample will do for a test
        pcm = b"".join(
            at_16k[min(place * 16_000 // rate, len(at_16k) - 1)].to_bytes(2, "little", signed=True)
            for place in range(len(at_16k) * rate // 16_000)
        )
    heard = await recogniser().recognise(pcm, rate)
    assert heard is not None
    assert heard.verdict is AnswerVerdict.YES


@pytest.mark.parametrize(
    ("pcm", "rate"),
    [
        (b"", 16_000),
        (b"\0", 16_000),
        (silence(20, 16_000), 16_000),
        (silence(7_000, 16_000), 16_000),
        (b"\0" * 9_999, 16_000),
        (silence(500, 16_000), 0),
        (silence(500, 16_000), -1),
        (silence(500, 16_000), 1_000_000),
    ],
)
async def test_what_is_no_utterance_is_not_heard(pcm: bytes, rate: int) -> None:
    assert await recogniser().recognise(pcm, rate) is None


async def test_silence_and_a_tone_are_no_yes() -> None:
    for pcm in (silence(800, 16_000), speech(800, 16_000)):
        heard = await recogniser().recognise(pcm, 16_000)
        assert heard is not None
        assert heard.verdict is not AnswerVerdict.YES


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("yes", AnswerVerdict.YES),
        ("okay yes(2) please", AnswerVerdict.YES),
        ("no thanks", AnswerVerdict.NO),
        ("", AnswerVerdict.MISS),
        ("yes no", AnswerVerdict.MISS),
        ("guess", AnswerVerdict.MISS),
        ("yes but", AnswerVerdict.MISS),
        ("absolutely not", AnswerVerdict.MISS),
    ],
)
def test_words_of_both_sides_or_of_neither_are_a_miss(text: str, verdict: AnswerVerdict) -> None:
    assert verdict_of(text) is verdict


def test_without_pocketsphinx_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketsphinx", None)
    with pytest.raises(ConfigError, match=r"handrail\[speech\]"):
        SphinxRecogniser()
