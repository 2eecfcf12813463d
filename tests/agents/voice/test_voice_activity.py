"""What is a voice by the microphone's level: in silence, in noise of many kinds, at the beginning, and under a gain control."""

from collections.abc import Iterator

import pytest
from tests.agents.voice.virtual import FRAME, frame

from handrail.agents.voice.state.voice_activity import VoiceActivity

RATE = 16_000


class Room:
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
    room = Room(kind, level)
    room.hear(2.0)
    assert room.hear(5.0) == 0
    assert room.hear(0.5, max(-40.0, level + 10.5)) >= 10
    voice = room.activity.voice
    assert voice is not None
    assert 6.9 < voice.since < 7.2
    room.hear(2.0)
    assert voice.until < 7.6
    assert voice.resumed_at is None


def test_the_first_thing_that_is_heard_may_be_a_voice() -> None:
    room = Room("zeros")
    assert room.hear(0.4, -20.0) >= 10
    assert room.hear(1.0) == 0


def test_a_client_that_sends_nothing_but_speech_is_heard_speaking_each_time() -> None:
    room = Room("zeros")
    for _ in range(20):
        room.hear(1.8, sent=False)
        assert room.hear(0.6, -25.0) >= 20


def test_noise_that_begins_in_a_conversation_is_noise_after_a_while() -> None:
    room = Room("white", -60.0)
    room.hear(5.0)
    room.level = -31.0
    assert room.hear(3.0) > 100
    room.hear(0.5)
    assert room.hear(3.0) == 0
    assert room.hear(0.4, -20.0) >= 10


def test_noise_that_stops_leaves_a_quiet_room_in_which_a_soft_voice_is_heard() -> None:
    room = Room("white", -31.0)
    room.hear(3.0)
    room.kind = "zeros"
    room.hear(1.0)
    assert room.hear(0.4, -40.0) >= 10


def test_noise_that_a_gain_control_raises_slowly_is_no_voice() -> None:
    room = Room("white", -60.0)
    room.hear(2.0)
    heard = 0
    for step in range(50):  # five decibels a second
        room.level = -60.0 + step * 0.5
        heard += room.hear(0.1)
    assert heard == 0


def test_a_voice_that_never_pauses_does_not_become_noise_while_an_answer_waits() -> None:
    room = Room("zeros")
    room.hear(2.0)
    assert room.hear(8.0, -20.0, may_rise=False) > 380


@pytest.mark.parametrize("pause", [0.2, 0.5, 1.1])
def test_a_pause_is_a_break_and_what_follows_is_the_same_utterance(pause: float) -> None:
    room = Room("babble", -40.0)
    room.hear(3.0)
    room.hear(0.4, -25.0)
    room.hear(pause)
    began = room.now
    room.hear(0.4, -25.0)
    voice = room.activity.voice
    assert voice is not None
    assert voice.resumed_at is not None
    assert began <= voice.resumed_at <= began + 0.1
    assert voice.since < began


@pytest.mark.parametrize("pause", [0.2, 0.5, 1.1])
def test_audio_that_a_client_leaves_out_is_a_break(pause: float) -> None:
    room = Room("zeros")
    room.hear(0.4, -25.0)
    room.hear(pause, sent=False)
    room.hear(0.4, -25.0)
    voice = room.activity.voice
    assert voice is not None
    assert voice.resumed_at is not None


def test_a_click_is_no_voice() -> None:
    room = Room("white", -60.0)
    room.hear(2.0)
    for _ in range(10):
        assert room.hear(0.04, -15.0) == 0
        assert room.hear(0.3) == 0
    assert room.activity.voice is None


def test_an_echo_beside_our_own_sound_is_not_the_voice_that_was_heard_before_it() -> None:
    room = Room("white", -60.0)
    room.hear(2.0)
    room.hear(0.4, -20.0)
    room.hear(0.3)
    assert room.hear(0.4, -38.0, over_ours=True) == 0
    assert room.hear(0.4, -25.0, over_ours=True) >= 10
