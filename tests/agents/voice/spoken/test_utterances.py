"""The kept list against the whole state machine: nothing negative approves in any shape, nearly every plain approval does."""

from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from tests.agents.voice.spoken.approvals import approvals, is_held_back
from tests.agents.voice.spoken.negatives import negatives

from handrail.agents.voice.spoken import (
    AnswerMissed,
    AnswerVerdict,
    ApproveRequest,
    ConfirmationQuestions,
    MoveToScreen,
    QuestionStep,
    understood,
)

PREVIEW = "Book a table for 4 on Friday 20 November 2026, 19:30, in the name of Ann Lee."
REQUEST = {"id": "c1", "tool": "book_table", "args": {}, "preview": PREVIEW, "expires_at": 0}
NEGATIVES = negatives()


def reading() -> ConfirmationQuestions:
    questions = ConfirmationQuestions()
    questions.wanted(REQUEST, "secret", "any", 0.0)
    questions.our_audio(True, 1.0)
    return questions


def asking() -> ConfirmationQuestions:
    questions = reading()
    questions.our_audio(False, 9.0)
    questions.preview_spoken("c1", None, 9.0)
    return questions


def at_the_right_moment(text: str) -> list[QuestionStep]:
    return asking().heard(text, 9.5, 11.0, 1.0, local=AnswerVerdict.YES)


def before_the_preview_ended(text: str) -> list[QuestionStep]:
    return reading().heard(text, 4.0, 5.0, 1.0)


def overlapping_the_end_of_the_preview(text: str) -> list[QuestionStep]:
    return asking().heard(text, 8.7, 11.0, 1.0)


def announced_by_speech_during_the_preview(text: str) -> list[QuestionStep]:
    questions = asking()
    questions.speech(8.0, 9.1)
    return questions.heard(text, 9.3, 11.0, 1.0)


def while_the_model_says_something_else(text: str) -> list[QuestionStep]:
    questions = asking()
    questions.our_audio(True, 10.0)
    return questions.heard(text, 10.5, 11.5, 1.0)


def after_the_model_said_something_else(text: str) -> list[QuestionStep]:
    questions = asking()
    questions.our_audio(True, 10.0)
    steps = questions.our_audio(False, 12.0)
    return steps + questions.heard(text, 12.5, 13.5, 1.0)


def when_the_preview_was_cut(text: str) -> list[QuestionStep]:
    questions = reading()
    questions.our_audio(False, 3.0)
    steps = questions.preview_cut("c1")
    return steps + questions.heard(text, 3.5, 4.5, 1.0)


def when_the_model_read_something_else(text: str) -> list[QuestionStep]:
    questions = reading()
    questions.our_audio(False, 9.0)
    steps = questions.preview_spoken("c1", PREVIEW.replace("4", "2"), 9.0)
    return steps + questions.heard(text, 9.5, 10.5, 1.0)


def when_the_model_read_nothing(text: str) -> list[QuestionStep]:
    questions = reading()
    questions.our_audio(False, 9.0)
    steps = questions.preview_spoken("c1", "", 9.0)
    return steps + questions.heard(text, 9.5, 10.5, 1.0)


def after_a_miss_before_it_was_read_again(text: str) -> list[QuestionStep]:
    questions = asking()
    steps = questions.heard("which one", 9.5, 10.0, 1.0)
    return steps + questions.heard(text, 10.5, 11.5, 1.0)


def after_the_time_is_over(text: str) -> list[QuestionStep]:
    return asking().heard(text, 59.0, 60.0, 1.0)


def after_a_miss(text: str) -> list[QuestionStep]:
    questions = asking()
    questions.heard("which one", 9.5, 10.0, 1.0)
    questions.our_audio(True, 11.0)
    questions.our_audio(False, 19.0)
    questions.preview_spoken("c1", None, 19.0)
    return questions.heard(text, 19.5, 21.0, 1.0, local=AnswerVerdict.YES)


NOT_THE_MOMENT = (
    before_the_preview_ended,
    overlapping_the_end_of_the_preview,
    announced_by_speech_during_the_preview,
    while_the_model_says_something_else,
    after_the_model_said_something_else,
    when_the_preview_was_cut,
    when_the_model_read_nothing,
    after_a_miss_before_it_was_read_again,
    after_the_time_is_over,
)
THE_MOMENT = (at_the_right_moment, after_a_miss)


def approved(shape: Callable[[str], list[QuestionStep]], texts: Iterable[str]) -> list[str]:
    return [text for text in texts if any(isinstance(step, ApproveRequest) for step in shape(text))]


def test_the_list_is_as_long_and_as_varied_as_promised() -> None:
    counted = Counter(kind for kind, _ in NEGATIVES)
    assert len({text for _, text in NEGATIVES}) == len(NEGATIVES) >= 3000
    assert len(counted) >= 20
    assert min(counted.values()) >= 100
    assert len(approvals()) >= 400
    assert negatives() == NEGATIVES, "the same list every time"


@pytest.mark.parametrize("shape", [*THE_MOMENT, *NOT_THE_MOMENT])
def test_no_negative_utterance_approves(shape: Callable[[str], list[QuestionStep]]) -> None:
    assert approved(shape, (text for _, text in NEGATIVES)) == []


@pytest.mark.parametrize("shape", [*NOT_THE_MOMENT, when_the_model_read_something_else])
def test_not_even_a_plain_yes_approves_at_the_wrong_moment(shape: Callable[[str], list[QuestionStep]]) -> None:
    assert approved(shape, approvals()) == []


@pytest.mark.parametrize("shape", THE_MOMENT)
@pytest.mark.parametrize("held_back", [False, True])
def test_plain_approvals_are_understood(shape: Callable[[str], list[QuestionStep]], held_back: bool) -> None:
    texts = [text for text in approvals() if is_held_back(text) is held_back]
    understood_ones = approved(shape, texts)
    missed = sorted(set(texts) - set(understood_ones))
    # The texts that tuning must not see are not shown by a failure either.
    assert len(understood_ones) / len(texts) >= 0.95, f"{len(missed)} of {len(texts)}" + (
        "" if held_back else f": {missed}"
    )


def test_a_negative_that_is_no_plain_no_is_a_miss_and_two_go_to_the_screen() -> None:
    unclear = [text for _, text in NEGATIVES if text.strip() and understood(text) is AnswerVerdict.MISS]
    assert len(unclear) > 3000
    for text in unclear:
        assert at_the_right_moment(text)[0] == AnswerMissed("c1", 1), text
        assert isinstance(after_a_miss(text)[-1], MoveToScreen), text
