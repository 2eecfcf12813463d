"""Spoken confirmation: was the preview heard, and is what the person said a plain yes? Logic without a clock or I/O.

`questions.py` holds the state of the open questions. `answer_grammar.py` judges an utterance, `preview_reading.py` judges
whether a model read the preview word for word, and `recogniser.py` is the port of a second, local recogniser.
"""

from handrail.agents.voice.spoken.answer_grammar import AnswerVerdict, understood
from handrail.agents.voice.spoken.preview_reading import is_speakable, was_read
from handrail.agents.voice.spoken.questions import (
    AcceptAnswers,
    AnswerMissed,
    ApproveRequest,
    ConfirmationQuestions,
    DeclineRequest,
    MoveToScreen,
    QuestionExpired,
    QuestionStep,
    ReadPreview,
    ScreenReason,
)
from handrail.agents.voice.spoken.recogniser import RecognisedAnswer, Recogniser

__all__ = [
    "AcceptAnswers",
    "AnswerMissed",
    "AnswerVerdict",
    "ApproveRequest",
    "ConfirmationQuestions",
    "DeclineRequest",
    "MoveToScreen",
    "QuestionExpired",
    "QuestionStep",
    "ReadPreview",
    "RecognisedAnswer",
    "Recogniser",
    "ScreenReason",
    "is_speakable",
    "understood",
    "was_read",
]
