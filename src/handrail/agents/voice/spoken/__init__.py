"""Spoken confirmation: was the preview heard, and is what the person said a plain yes? Logic without a clock or I/O.

`questions.py` is the state machine that the voice agent feeds; `grammar.py` judges an utterance, `reading.py` whether a
model read the preview as it stands, and `recogniser.py` is the port of a second, local pair of ears.
"""

from handrail.agents.voice.spoken.grammar import Verdict, understood
from handrail.agents.voice.spoken.questions import (
    Approve,
    Ask,
    Decline,
    Expired,
    Missed,
    Questions,
    Read,
    Step,
    ToScreen,
    Why,
)
from handrail.agents.voice.spoken.reading import is_speakable, was_read
from handrail.agents.voice.spoken.recogniser import Heard, Recogniser

__all__ = [
    "Approve",
    "Ask",
    "Decline",
    "Expired",
    "Heard",
    "Missed",
    "Questions",
    "Read",
    "Recogniser",
    "Step",
    "ToScreen",
    "Verdict",
    "Why",
    "is_speakable",
    "understood",
    "was_read",
]
