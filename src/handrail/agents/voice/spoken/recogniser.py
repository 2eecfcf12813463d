"""The port of a second pair of ears: a local recogniser that knows a plain yes and a plain no, and nothing else.

Where one is configured, a yes counts only if it hears one too, in the same stretch of audio. It can only narrow: what it
hears alone approves nothing, and what it does not know is a miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from handrail.agents.voice.spoken.answer_grammar import AnswerVerdict

__all__ = ["RecognisedAnswer", "Recogniser"]


@dataclass(frozen=True, slots=True)
class RecognisedAnswer:
    """What the recogniser made of an utterance."""

    verdict: AnswerVerdict
    text: str = ""


class Recogniser(Protocol):
    """Hears one utterance. Audio is PCM, 16 bit, little-endian, mono."""

    async def recognise(self, pcm: bytes, rate: int) -> RecognisedAnswer | None:
        """None: it could not be heard at all, because it is too short, too long, or no audio."""
        ...
