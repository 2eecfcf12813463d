"""What is a voice by the microphone's level: in silence, in noise of many kinds, at the beginning, and under a gain control."""

from collections.abc import Iterator

import pytest
from tests.agents.voice.virtual import FRAME, frame

from handrail.agents.voice.state.turn_detection import VoiceActivity

RATE = 16_000


class AudioFeed:
    """Frames of 20 ms, one after the other."""

    def __init__(self, kind: str = "white", level: float = -60.0) -> None:
        self.activity = VoiceActivity()
        self.kind, self.level = kind, level
        self.now = 0.0
        self._count = 0

    def hear(self, seconds: float, speech: float | None = None, *, sent: bool = True, **how: bool) -> int:
        """Frames in which a voice was heard."""
        heard = 0
        for _ in range(round(seconds / FRAME)):
            self._count += 1
            self.now += FRAME
            if sent:
                pcm = frame(self.kind, self.level, speech, self._count % 75, RATE)
                heard += self.activity.listen(pcm, RATE, self.now, **how)
        return heard


def rooms() -> Iterator[tuple[str, float]]:
    yield "zeros", -96.0
    for kind in ("white", "hum", "babble"):
        for level in (-70.0, -50.0, -40.0, -31.0, -25.0):
            yield kind, level


@pytest.mark.parametrize(("kind", "level"), list(rooms()))
def test_speech_ten_decibels_above_the_noise_is_a_voice_and_the_noise_is_none(kind: str, level: float) -> None:
    feed = AudioFeed(kind, level)
    feed.hear(2.0)
    assert feed.hear(5.0) == 0
    assert feed.hear(0.5, max(-40.0, level + 10.5)) >= 10
    voice = feed.activity.voice
    assert voice is not None
    assert 6.9 < voice.since < 7.2
    feed.hear(2.0)
    assert voice.until < 7.6
    assert voice.resumed_at is None


def test_the_first_thing_that_is_heard_may_be_a_voice() -> None:
    feed = AudioFeed("zeros")
    assert feed.hear(0.4, -20.0) >= 10
    assert feed.hear(1.0) == 0


def test_a_client_that_sends_nothing_but_speech_is_heard_speaking_each_time() -> None:
    feed = AudioFeed("zeros")
    for _ in range(20):
        feed.hear(1.8, sent=False)
        assert feed.hear(0.6, -25.0) >= 20


def test_noise_that_begins_in_a_conversation_is_noise_after_a_while() -> None:
    feed = AudioFeed("white", -60.0)
    feed.hear(5.0)
    feed.level = -31.0
    assert feed.hear(3.0) > 100
    feed.hear(0.5)
    assert feed.hear(3.0) == 0
    assert feed.hear(0.4, -20.0) >= 10


def test_noise_that_stops_leaves_a_quiet_room_in_which_a_soft_voice_is_heard() -> None:
    feed = AudioFeed("white", -31.0)
    feed.hear(3.0)
    feed.kind = "zeros"
    feed.hear(1.0)
    assert feed.hear(0.4, -40.0) >= 10


def test_noise_that_a_gain_control_raises_slowly_is_no_voice() -> None:
    feed = AudioFeed("white", -60.0)
    feed.hear(2.0)
    heard = 0
    for step in range(50):  # five decibels a second
        feed.level = -60.0 + step * 0.5
        heard += feed.hear(0.1)
    assert heard == 0


def test_a_voice_that_never_pauses_does_not_become_noise_while_an_answer_waits() -> None:
    feed = AudioFeed("zeros")
    feed.hear(2.0)
    assert feed.hear(8.0, -20.0, may_rise=False) > 380


@pytest.mark.parametrize("pause", [0.2, 0.5, 1.1])
def test_a_pause_is_a_break_and_what_follows_is_the_same_utterance(pause: float) -> None:
    feed = AudioFeed("babble", -40.0)
    feed.hear(3.0)
    feed.hear(0.4, -25.0)
    feed.hear(pause)
    began = feed.now
    feed.hear(0.4, -25.0)
    voice = feed.activity.voice
    assert voice is not None
    assert voice.resumed_at is not None
    assert began <= voice.resumed_at <= began + 0.1
    assert voice.since < began


@pytest.mark.parametrize("pause", [0.2, 0.5, 1.1])
def test_audio_that_a_client_leaves_out_is_a_break(pause: float) -> None:
    feed = AudioFeed("zeros")
    feed.hear(0.4, -25.0)
    feed.hear(pause, sent=False)
    feed.hear(0.4, -25.0)
    voice = feed.activity.voice
    assert voice is not None
    assert voice.resumed_at is not None


def test_a_click_is_no_voice() -> None:
    feed = AudioFeed("white", -60.0)
    feed.hear(2.0)
    for _ in range(10):
        assert feed.hear(0.04, -15.0) == 0
        assert feed.hear(0.3) == 0
    assert feed.activity.voice is None


def test_an_echo_beside_our_own_sound_is_not_the_voice_that_was_heard_before_it() -> None:
    feed = AudioFeed("white", -60.0)
    feed.hear(2.0)
    feed.hear(0.4, -20.0)
    feed.hear(0.3)
    assert feed.hear(0.4, -38.0, over_ours=True) == 0
    assert feed.hear(0.4, -25.0, over_ours=True) >= 10
