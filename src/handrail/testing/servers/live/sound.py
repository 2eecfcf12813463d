"""Sound for tests: tones and silence as PCM, and an ear that tells speech from silence by the audio alone, not by a clock."""

from __future__ import annotations

from array import array
from math import pi, sin
from typing import Literal

_LOUD = 500
_END_MS = 200
_CHARACTER_MS = 20


def speech(milliseconds: int, rate: int = 16_000, pitch: float = 220.0) -> bytes:
    """A tone that counts as speech."""
    samples = range(rate * milliseconds // 1000)
    return array("h", (int(9000 * sin(2 * pi * pitch * n / rate)) for n in samples)).tobytes()


def silence(milliseconds: int, rate: int = 16_000) -> bytes:
    return bytes(2 * (rate * milliseconds // 1000))


def spoken(text: str, rate: int = 24_000) -> list[bytes]:
    """A text as a tone of a length that follows from it, in pieces of 100 ms."""
    tone = speech(100, rate, pitch=440.0)
    whole = max(1, len(text) * _CHARACTER_MS // 100)
    return [tone] * whole


class SpeechDetector:
    """Hears when speech starts, and that it has ended when it was silent for a while."""

    def __init__(self) -> None:
        self.speaking = False
        self._silent_ms = 0.0
        self.heard_ms = 0.0

    def listen(self, pcm: bytes, rate: int) -> list[Literal["start", "end"]]:
        samples = array("h", pcm[: len(pcm) - len(pcm) % 2])
        if not samples:
            return []
        length = 1000 * len(samples) / rate
        self.heard_ms += length
        if max(samples) > _LOUD or min(samples) < -_LOUD:
            self._silent_ms = 0.0
            if self.speaking:
                return []
            self.speaking = True
            return ["start"]
        self._silent_ms += length
        if self.speaking and self._silent_ms >= _END_MS:
            self.speaking = False
            return ["end"]
        return []
