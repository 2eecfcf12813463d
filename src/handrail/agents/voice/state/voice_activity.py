"""VoiceSpan activity by the microphone's level: what stands out from the noise that was heard before it.

The noise is a running mean over frames that are not loud, so it follows slow changes such as those of a gain control. It falls
with the room at once, and rises to a new sound only when that has lasted for `_RISE_SECONDS`, or at the very beginning for
`_FIRST_SECONDS`. A frame is loud when it is well above that noise. Audio that a client leaves out is silence. What is taken for
a voice by mistake only keeps an answer from counting.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from math import inf, log10
from operator import mul

SEPARATE_SECONDS = 1.5
"""Voices that are so far apart are two utterances."""
BREAK_SECONDS = 0.16
"""A shorter pause is the closure of a consonant, or a soft one in noise."""
_DIP_SECONDS = 0.06
_MIN_SECONDS = 0.06
"""What is loud for a shorter time is a click."""
_RISE_SECONDS = 3.0
_FIRST_SECONDS = 1.0
_MEAN_SECONDS = 0.5
_BLOCK_SECONDS = 0.25
_FRAME_SECONDS = 0.02
_STRIDE = 5
"""Every fifth sample tells the level of a frame well enough."""
_FULL_SCALE = 32768.0**2


def _ratio(decibels: float) -> float:
    return float(10.0 ** (decibels / 10))


_MARGIN = _ratio(6.0)
_ECHO = _ratio(-12.0)
"""Beside our own sound, what is so much fainter than the utterance before is taken for our echo."""
_FAINTEST = _ratio(-50.0)
"""No voice is fainter than this, however quiet the room is."""
_QUIET_ROOM = _ratio(-60.0)
_SMALL = 1e-9


@dataclass(slots=True)
class VoiceSpan:
    """One utterance as it was heard. Moments are those in which its audio came."""

    since: float
    until: float
    seconds: float = 0.0
    """How long it was loud."""
    energy: float = 0.0
    resumed_at: float | None = None
    """When it went on after a break, the last time."""

    def add(self, power: float, seconds: float, now: float) -> None:
        self.until = now
        self.seconds += seconds
        self.energy += power * seconds


class VoiceActivity:
    """The user's voice in the audio of one conversation."""

    def __init__(self) -> None:
        self.voice: VoiceSpan | None = None
        """The utterance that was heard last, until it is taken."""
        self.is_active = False
        """Whether it is being heard, with no break since."""
        self._last_power = 0.0
        """Of the utterance that was heard last, its mean."""
        self.heard_at = -inf
        """When a voice was heard last."""
        self._noise = _QUIET_ROOM
        self._blocks: deque[tuple[float, float]] = deque(maxlen=round(_RISE_SECONDS / _BLOCK_SECONDS))
        """Mean and greatest power of each block of audio, the latest last."""
        self._energy, self._greatest, self._block_seconds = 0.0, 0.0, 0.0
        self._came_at = inf
        """When audio came last."""
        self._needed = round(_FIRST_SECONDS / _BLOCK_SECONDS)
        """Blocks that tell what is noise."""
        self._onset: VoiceSpan | None = None
        """What is loud now, and may be a click."""
        self._onset_gap = inf
        """How long there was no voice before it."""
        self._quiet = inf
        """Seconds of audio since the last loud frame."""
        self._without = inf
        """Seconds of audio since the last frame of a voice."""

    @property
    def noise_level(self) -> float:
        """In decibels of full scale."""
        return 10 * log10(self._noise)

    def take(self) -> VoiceSpan | None:
        """The utterance that was heard last, once: what is heard from now on is another one."""
        taken, self.voice = self.voice, None
        return taken

    def listen(self, pcm: bytes, rate: int, now: float, *, over_ours: bool = False, may_rise: bool = True) -> bool:
        """Whether a voice is heard in this audio.

        `over_ours`: we sound as well. `may_rise`: a sound that lasts may become noise.
        """
        samples = array("h", pcm[: len(pcm) & ~1])
        size = max(1, int(rate * _FRAME_SECONDS))
        length = len(samples) / rate
        if now - self._came_at - length > _BLOCK_SECONDS:
            # Left-out audio is a block that neither raises the noise (its mean is 0) nor lowers it (its peak is unknown).
            self._blocks.append((0.0, inf))
        self._came_at = now
        heard = False
        for place in range(0, len(samples), size):
            frame = samples[place : place + size]
            taken = frame[::_STRIDE]
            power = sum(map(mul, taken, taken)) / (len(taken) * _FULL_SCALE)
            seconds = len(frame) / rate
            threshold = max(self._noise * _MARGIN, _FAINTEST)
            if over_ours and now - self.heard_at < SEPARATE_SECONDS:
                threshold = max(threshold, self._last_power * _ECHO)
            if power >= threshold:
                heard = self._loud(power, seconds, now, length) or heard
            else:
                self._not_loud(power, seconds)
            self._learn(power, seconds, may_rise)
        return heard

    def _loud(self, power: float, seconds: float, now: float, length: float) -> bool:
        """A loud frame, in audio of this length; whether it is of a voice."""
        pause, self._quiet = self._quiet, 0.0
        voice, onset = self.voice, self._onset
        # Audio that a client left out is a pause as well.
        left_out = now - self.heard_at - length
        if self.is_active and voice is not None and left_out < BREAK_SECONDS:
            self._without = 0.0
            voice.add(power, seconds, now)
            self._note(voice)
            return True
        if onset is None or pause > _DIP_SECONDS:
            self._onset_gap = max(self._without, left_out)
            onset = self._onset = VoiceSpan(now, now)
        self._without += seconds
        onset.add(power, seconds, now)
        if onset.seconds + _SMALL < _MIN_SECONDS:
            return False
        self._onset, self.is_active, self._without = None, True, 0.0
        if voice is None or self._onset_gap > SEPARATE_SECONDS:
            voice = self.voice = onset
        else:
            voice.until = onset.until
            voice.seconds += onset.seconds
            voice.energy += onset.energy
            if self._onset_gap >= BREAK_SECONDS:
                voice.resumed_at = onset.since
        self._note(voice)
        return True

    def _note(self, voice: VoiceSpan) -> None:
        self.heard_at, self._last_power = voice.until, voice.energy / voice.seconds

    def _not_loud(self, power: float, seconds: float) -> None:
        self._quiet += seconds
        self._without += seconds
        if self._quiet >= BREAK_SECONDS:
            self.is_active = False
        self._noise += (power - self._noise) * min(1.0, seconds / _MEAN_SECONDS)

    def _learn(self, power: float, seconds: float, may_rise: bool) -> None:
        """Keep the noise between the quietest block and the loudest frame of what was heard lately."""
        self._energy += power * seconds
        self._greatest = max(self._greatest, power)
        self._block_seconds += seconds
        if self._block_seconds + _SMALL < _BLOCK_SECONDS:
            return
        self._blocks.append((self._energy / self._block_seconds, self._greatest))
        self._energy, self._greatest, self._block_seconds = 0.0, 0.0, 0.0
        blocks = self._blocks
        if len(blocks) > 1:
            self._noise = min(self._noise, max(blocks[-1][1], blocks[-2][1]))
        if may_rise and len(blocks) >= self._needed:
            self._noise = max(self._noise, min(mean for mean, _ in blocks))
        if len(blocks) == blocks.maxlen:
            self._needed = len(blocks)
        self._noise = max(self._noise, _SMALL)
