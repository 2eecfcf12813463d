"""The spoken question, from the request to an answer: every step of its life, and everything that must not count."""

import math

import pytest

from handrail.agents.voice.spoken import (
    AcceptAnswers,
    AnswerMissed,
    AnswerVerdict,
    ApproveRequest,
    ConfirmationQuestions,
    DeclineRequest,
    MoveToScreen,
    QuestionExpired,
    ReadPreview,
    ScreenReason,
)

PREVIEW = "Book a table for 4 on Friday 20 November 2026, 19:30, in the name of Ann Lee."
ALOUD = PREVIEW + " Say yes or no."


def request(id: str = "c1", *, tool: str = "book_table", preview: str = PREVIEW) -> dict[str, object]:
    return {"id": id, "tool": tool, "args": {}, "preview": preview, "expires_at": 0}


def asked(**how: object) -> ConfirmationQuestions:
    """A question whose preview sounded from 1 to 9 and was heard to its end."""
    questions = ConfirmationQuestions(**how)  # type: ignore[arg-type]
    assert questions.wanted(request(), "t1", "any", 0.0) == [ReadPreview("c1", ALOUD)]
    assert questions.our_audio(True, 1.0) == []
    assert questions.our_audio(False, 9.0) == []
    assert questions.preview_spoken("c1", None, 9.0) == [AcceptAnswers("c1")]
    return questions


def read_again(questions: ConfirmationQuestions, began: float, ended: float, id: str = "c1") -> None:
    questions.our_audio(True, began)
    questions.our_audio(False, ended)
    assert questions.preview_spoken(id, None, ended) == [AcceptAnswers(id)]


def test_a_plain_yes_after_the_preview_approves_with_the_token() -> None:
    questions = asked()
    assert questions.is_asking
    assert questions.heard("Yes.", 9.5, 10.0, 0.9) == [ApproveRequest("c1", "t1")]
    assert questions.open_id is None
    assert not questions.is_asking


def test_a_yes_of_somebody_else_counts_only_after_the_preview_was_read_to_them() -> None:
    questions = asked()
    assert questions.listener_changed(10.0) == [ReadPreview("c1", ALOUD)]
    assert questions.heard("Yes.", 10.5, 11.0, None) == [], "the other one has heard nothing yet"
    read_again(questions, 12.0, 18.0)
    assert questions.heard("Yes.", 18.5, 19.0, None) == [ApproveRequest("c1", "t1")]


def test_a_question_whose_listeners_come_and_go_ends_on_the_screen() -> None:
    questions = asked()
    questions.listener_changed(10.0)
    read_again(questions, 11.0, 18.0)
    assert questions.listener_changed(19.0) == [MoveToScreen("c1", ScreenReason.NOT_HEARD)]
    assert questions.heard("Yes.", 19.5, 20.0, None) == []


def test_a_plain_no_declines() -> None:
    assert asked().heard("No, thanks.", 9.5, 10.0, None) == [DeclineRequest("c1", "t1")]


def test_a_second_yes_approves_nothing() -> None:
    questions = asked()
    questions.heard("Yes.", 9.5, 10.0, None)
    assert questions.heard("Yes.", 10.5, 11.0, None) == []


def test_a_yes_without_any_question_does_nothing() -> None:
    assert ConfirmationQuestions().heard("Yes.", 1.0, 2.0, None) == []


def test_a_yes_while_the_preview_is_read_is_not_even_a_miss() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0)
    questions.our_audio(True, 1.0)
    assert questions.heard("Yes.", 3.0, 4.0, None) == []
    questions.our_audio(False, 9.0)
    assert questions.preview_spoken("c1", None, 9.0) == [AcceptAnswers("c1")]
    assert questions.heard("Yes.", 3.0, 4.0, None) == [], "it was said too early, whenever it was transcribed"
    assert questions.heard("Yes.", 9.5, 10.0, None) == [ApproveRequest("c1", "t1")]


@pytest.mark.parametrize("started", [0.5, 5.0, 8.999, 9.0])
def test_speech_that_began_before_our_audio_ended_is_ignored(started: float) -> None:
    questions = asked()
    assert questions.heard("Yes.", started, 10.0, None) == []
    assert questions.heard("Maybe.", started, 10.0, None) == [], "not a miss either"
    assert questions.heard("Yes.", 10.5, 11.0, None) == [ApproveRequest("c1", "t1")]


def test_the_beginning_that_was_told_earlier_counts_for_an_utterance() -> None:
    questions = asked()
    questions.speech(8.0, 9.2)
    assert questions.heard("Yes.", 9.4, 10.0, None) == []
    assert questions.heard("Yes.", 10.5, 11.0, None) == [ApproveRequest("c1", "t1")]


def test_words_of_ours_after_the_preview_take_the_question_back_until_it_is_read_again() -> None:
    questions = asked()
    assert questions.our_audio(True, 10.0) == []  # the model: "Shall I also tell you the menu?"
    assert questions.heard("Yes.", 10.5, 11.0, None) == []
    assert questions.our_audio(False, 12.0) == [ReadPreview("c1", ALOUD)]
    assert questions.heard("Yes.", 12.5, 13.0, None) == [], "that was about the menu"
    read_again(questions, 14.0, 22.0)
    assert questions.heard("Yes.", 22.5, 23.0, None) == [ApproveRequest("c1", "t1")]


def test_a_yes_before_the_model_went_on_counts_however_late_its_transcript_is() -> None:
    questions = asked()
    questions.our_audio(True, 11.0)
    questions.our_audio(False, 12.0)
    assert questions.heard("Yes.", 9.5, 10.0, None) == [ApproveRequest("c1", "t1")]


def test_a_yes_that_our_audio_talks_into_does_not_count() -> None:
    questions = asked()
    questions.our_audio(True, 9.8)
    assert questions.heard("Yes.", 9.5, 10.0, None) == []


def test_the_second_time_that_we_talk_over_a_question_it_goes_to_the_screen() -> None:
    questions = asked()
    questions.our_audio(True, 10.0)
    questions.our_audio(False, 12.0)
    read_again(questions, 14.0, 22.0)
    questions.our_audio(True, 23.0)
    assert questions.our_audio(False, 24.0) == [MoveToScreen("c1", ScreenReason.NOT_HEARD)]


def test_audio_that_began_before_the_end_of_the_reading_was_told_spoils_it() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0)
    questions.our_audio(True, 1.0)
    questions.our_audio(False, 9.0)
    questions.our_audio(True, 9.3)
    questions.our_audio(False, 9.9)
    assert questions.preview_spoken("c1", None, 9.0) == [ReadPreview("c1", ALOUD)]
    assert questions.heard("Yes.", 10.0, 10.5, None) == []


@pytest.mark.parametrize("ends", [9.0, 9.4, 15.0])
def test_something_of_ours_right_behind_the_reading_spoils_it_however_short_it_is(ends: float) -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0)
    questions.our_audio(True, 1.0)
    assert questions.preview_spoken("c1", None, 9.0) == [ReadPreview("c1", ALOUD)]
    assert questions.our_audio(False, ends) == []
    assert questions.heard("Yes.", 15.5, 16.0, None) == []
    read_again(questions, 17.0, 25.0)
    assert questions.heard("Yes.", 25.5, 26.0, None) == [ApproveRequest("c1", "t1")]


@pytest.mark.parametrize("started", [9.001, 9.1, 9.299])
def test_what_begins_in_the_moment_after_the_preview_is_no_answer(started: float) -> None:
    questions = asked()
    assert questions.heard("Yes.", started, 10.0, None) == []
    assert questions.heard("Maybe.", started, 10.0, None) == [], "not a miss either"
    assert questions.heard("Yes.", 10.5, 11.0, None) == [ApproveRequest("c1", "t1")]


def test_a_miss_reads_the_preview_again_and_a_second_one_goes_to_the_screen() -> None:
    questions = asked()
    assert questions.heard("Yes, but at eight.", 9.5, 11.0, None) == [AnswerMissed("c1", 1), ReadPreview("c1", ALOUD)]
    assert questions.heard("Yes.", 11.5, 12.0, None) == [], "the preview has to be heard again first"
    read_again(questions, 12.0, 20.0)
    assert questions.heard("I guess.", 21.0, 22.0, None) == [
        AnswerMissed("c1", 2),
        MoveToScreen("c1", ScreenReason.NOT_UNDERSTOOD),
    ]
    assert questions.heard("Yes.", 23.0, 24.0, None) == []


def test_a_yes_after_one_miss_approves() -> None:
    questions = asked()
    questions.heard("What?", 9.5, 10.0, None)
    read_again(questions, 11.0, 19.0)
    assert questions.heard("Yes.", 19.5, 20.0, None) == [ApproveRequest("c1", "t1")]


def test_silence_is_not_a_miss() -> None:
    questions = asked()
    assert questions.heard(" ", 9.5, 10.0, None) == []
    assert questions.heard("Yes.", 10.5, 11.0, None) == [ApproveRequest("c1", "t1")]


@pytest.mark.parametrize("confidence", [0.0, 0.59, -1.0, math.nan])
def test_a_yes_that_was_hardly_understood_is_a_miss(confidence: float) -> None:
    assert asked().heard("Yes.", 9.5, 10.0, confidence)[0] == AnswerMissed("c1", 1)


def test_a_no_that_was_hardly_understood_declines_all_the_same() -> None:
    assert asked().heard("No.", 9.5, 10.0, 0.1) == [DeclineRequest("c1", "t1")]


@pytest.mark.parametrize("local", [AnswerVerdict.NO, AnswerVerdict.MISS])
def test_a_local_recogniser_can_turn_a_yes_into_a_miss(local: AnswerVerdict) -> None:
    assert asked().heard("Yes.", 9.5, 10.0, None, local=local)[0] == AnswerMissed("c1", 1)


@pytest.mark.parametrize("text", ["No.", "Maybe.", "Yes, but later."])
def test_a_local_recogniser_can_turn_nothing_into_a_yes(text: str) -> None:
    steps = asked(needs_local=True).heard(text, 9.5, 10.0, None, local=AnswerVerdict.YES)
    assert not [step for step in steps if isinstance(step, ApproveRequest)]


def test_where_a_local_recogniser_is_needed_its_silence_is_a_miss() -> None:
    assert asked(needs_local=True).heard("Yes.", 9.5, 10.0, None)[0] == AnswerMissed("c1", 1)
    assert asked(needs_local=True).heard("Yes.", 9.5, 10.0, None, local=AnswerVerdict.YES) == [
        ApproveRequest("c1", "t1")
    ]


def test_a_cut_preview_is_read_once_more_and_then_goes_to_the_screen() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0)
    assert questions.preview_cut("c1") == [ReadPreview("c1", ALOUD)]
    assert questions.heard("Yes.", 5.0, 6.0, None) == []
    assert questions.preview_cut("c1") == [MoveToScreen("c1", ScreenReason.NOT_HEARD)]


def test_a_model_that_reads_something_else_has_not_read_it() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0)
    wrong = ALOUD.replace("for 4", "for 14")
    assert questions.preview_spoken("c1", wrong, 9.0) == [ReadPreview("c1", ALOUD)]
    assert questions.heard("Yes.", 9.5, 10.0, None) == []
    assert questions.preview_spoken("c1", ALOUD, 19.0) == [AcceptAnswers("c1")]
    assert questions.heard("Yes.", 19.5, 20.0, None) == [ApproveRequest("c1", "t1")]


def test_a_reading_of_another_question_or_one_that_nobody_wanted_is_ignored() -> None:
    questions = ConfirmationQuestions()
    assert questions.preview_spoken("c1", None, 1.0) == []
    questions.wanted(request(), "t1", "any", 2.0)
    assert questions.preview_spoken("c2", None, 9.0) == []
    assert questions.preview_cut("c2") == []
    assert questions.heard("Yes.", 9.5, 10.0, None) == []


@pytest.mark.parametrize("channel", ["screen", "", "Any", "voice"])
def test_only_the_channel_any_is_asked_aloud(channel: str) -> None:
    assert ConfirmationQuestions().wanted(request(), "t1", channel, 0.0) == [
        MoveToScreen("c1", ScreenReason.SCREEN_ONLY)
    ]


def test_a_language_without_a_grammar_is_asked_on_the_screen() -> None:
    assert ConfirmationQuestions(language="fi").wanted(request(), "t1", "any", 0.0) == [
        MoveToScreen("c1", ScreenReason.NO_GRAMMAR)
    ]


def test_a_session_in_german_is_asked_and_answered_in_german() -> None:
    questions = ConfirmationQuestions(language="de-AT")
    assert questions.wanted(request(), "t1", "any", 0.0) == [ReadPreview("c1", PREVIEW + " Sagen Sie ja oder nein.")]
    questions.preview_spoken("c1", None, 9.0)
    assert questions.heard("Ja, bitte.", 9.5, 10.0, None) == [ApproveRequest("c1", "t1")]


@pytest.mark.parametrize("preview", ["", "  \n", "x" * 501, "Send to \\u{202e}moc.elpmaxe", "Delete *", "Pay ₹5"])
def test_what_cannot_be_said_aloud_goes_to_the_screen(preview: str) -> None:
    assert ConfirmationQuestions().wanted(request(preview=preview), "t1", "any", 0.0) == [
        MoveToScreen("c1", ScreenReason.NOT_SPEAKABLE)
    ]


def test_others_wait_for_the_open_question() -> None:
    questions = asked()
    assert questions.wanted(request("c2", tool="send_mail"), "t2", "any", 9.1) == []
    assert questions.heard("Yes.", 9.5, 10.0, None) == [ApproveRequest("c1", "t1"), ReadPreview("c2", ALOUD)]
    assert questions.heard("Yes.", 10.5, 11.0, None) == []
    read_again(questions, 12.0, 20.0, "c2")
    assert questions.heard("Yes.", 20.5, 21.0, None) == [ApproveRequest("c2", "t2")]


def test_a_revised_call_takes_the_place_of_the_question_that_was_missed() -> None:
    questions = asked()
    questions.heard("Yes, but at eight.", 9.5, 11.0, None)
    steps = questions.wanted(request("c2", preview="Book it at 20:00."), "t2", "any", 12.0)
    assert steps == [MoveToScreen("c1", ScreenReason.REVISED), ReadPreview("c2", "Book it at 20:00. Say yes or no.")]


def test_a_request_told_again_is_approved_with_its_fresh_token() -> None:
    questions = asked()
    assert questions.wanted(request(), "t9", "any", 9.2) == []
    assert questions.heard("Yes.", 9.5, 10.0, None) == [ApproveRequest("c1", "t9")]
    assert questions.wanted(request(), "t10", "any", 10.5) == [], "it was answered"


def test_a_question_that_went_to_the_screen_stays_there_when_it_is_told_again() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0)
    questions.preview_cut("c1")
    questions.preview_cut("c1")
    assert questions.wanted(request(), "t2", "any", 5.0) == []
    assert questions.open_id is None


def test_a_question_that_was_answered_elsewhere_makes_room_for_the_next() -> None:
    questions = asked()
    questions.wanted(request("c2"), "t2", "any", 9.1)
    questions.wanted(request("c3"), "t3", "any", 9.2)
    assert questions.closed("c2") == []
    assert questions.closed("c1") == [ReadPreview("c3", ALOUD)]
    assert questions.heard("Yes.", 9.5, 10.0, None) == []
    assert questions.closed("nobody") == []


def test_after_sixty_seconds_a_question_is_over() -> None:
    questions = asked()
    assert questions.tick(59.9) == []
    assert questions.tick(60.0) == [QuestionExpired("c1")]
    assert questions.heard("Yes.", 60.5, 61.0, None) == []


def test_a_yes_that_ends_after_the_time_is_over_expires_the_question() -> None:
    assert asked().heard("Yes.", 59.8, 60.1, None) == [QuestionExpired("c1")]


def test_a_preview_that_ends_after_the_time_is_over_asks_nothing() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request(), "t1", "any", 0.0, seconds=5.0)
    assert questions.preview_spoken("c1", None, 9.0) == [QuestionExpired("c1")]


def test_questions_that_waited_too_long_expire_together_with_the_open_one() -> None:
    questions = asked()
    questions.wanted(request("c2"), "t2", "any", 9.1)
    questions.wanted(request("c3"), "t3", "any", 30.0)
    steps = questions.tick(70.0)
    assert steps == [QuestionExpired("c2"), QuestionExpired("c1"), ReadPreview("c3", ALOUD)]


@pytest.mark.parametrize(("start", "end"), [(11.0, 10.0), (math.nan, 10.0), (9.5, math.nan), (9.5, math.inf)])
def test_an_utterance_with_impossible_times_is_ignored(start: float, end: float) -> None:
    assert asked().heard("Yes.", start, end, None) == []


def test_a_revised_call_takes_the_place_of_a_question_whose_answer_is_not_judged_yet() -> None:
    questions = asked()
    steps = questions.wanted(request("c2", preview="Book it for 6."), "t2", "any", 12.0, turn=2)
    assert steps == [MoveToScreen("c1", ScreenReason.REVISED), ReadPreview("c2", "Book it for 6. Say yes or no.")]
    assert questions.heard("Yes.", 9.5, 10.0, None) == [], "the answer was to the old question"


def test_a_call_that_the_model_made_of_words_that_have_not_come_yet_is_a_revised_one() -> None:
    questions = asked()
    steps = questions.wanted(request("c2", preview="Book it for 6."), "t2", "any", 12.0, spoke_at=10.5)
    assert steps == [MoveToScreen("c1", ScreenReason.REVISED), ReadPreview("c2", "Book it for 6. Say yes or no.")]


def test_a_second_call_of_the_same_tool_in_the_same_turn_waits() -> None:
    questions = ConfirmationQuestions()
    questions.wanted(request("c1"), "t1", "any", 0.0, turn=1)
    assert questions.wanted(request("c2"), "t2", "any", 0.1, turn=1) == []
    assert questions.ids == ["c1", "c2"]


def test_a_revised_call_takes_the_place_of_a_question_that_waits() -> None:
    questions = asked()
    questions.wanted(request("c2", tool="send_mail"), "t2", "any", 9.1, turn=0)
    questions.wanted(request("c3", tool="cancel"), "t3", "any", 9.2, turn=0)
    assert questions.wanted(request("c4", tool="send_mail"), "t4", "any", 12.0, turn=1) == [
        MoveToScreen("c2", ScreenReason.REVISED)
    ]
    assert questions.ids == ["c1", "c4", "c3"]


def test_whoever_went_on_after_a_yes_or_a_no_has_not_answered() -> None:
    for said in ("Yes.", "No."):
        questions = asked()
        assert questions.heard(said, 9.5, 10.0, None, went_on=True) == [AnswerMissed("c1", 1), ReadPreview("c1", ALOUD)]


def test_a_question_that_a_newer_request_has_replaced_goes_to_the_screen() -> None:
    questions = asked()
    assert questions.wanted({**request(), "replacedBy": "c2"}, "t2", "any", 9.2) == [
        MoveToScreen("c1", ScreenReason.REVISED)
    ]
    assert questions.heard("Yes.", 9.5, 10.0, None) == []
    steps = questions.wanted({**request("c3"), "replacedBy": "c4"}, "t3", "any", 11.0)
    assert steps == [MoveToScreen("c3", ScreenReason.REVISED)]


def test_a_yes_approves_what_was_heard_and_new_facts_are_asked_about_anew() -> None:
    questions = asked()
    changed = request(preview="Book it. It clashes.")
    assert questions.wanted(changed, "t2", "any", 9.2) == []
    assert questions.heard("Yes.", 9.5, 10.0, None) == [ApproveRequest("c1", "t1")], "the token of what was heard"
    assert questions.wanted(changed, "t3", "any", 11.0) == [ReadPreview("c1", "Book it. It clashes. Say yes or no.")]
    read_again(questions, 12.0, 14.0)
    assert questions.heard("Yes.", 14.5, 15.0, None) == [ApproveRequest("c1", "t3")]
    assert questions.wanted(changed, "t4", "any", 16.0) == [], "nothing has changed since"


def test_a_question_that_waits_is_asked_with_the_facts_that_it_was_told_last() -> None:
    questions = asked()
    questions.wanted(request("c2", tool="send_mail", preview="Send it."), "t2", "any", 9.1)
    questions.wanted(request("c2", tool="send_mail", preview="Send it to all."), "t3", "any", 9.2)
    steps = questions.heard("Yes.", 9.5, 10.0, None)
    assert steps == [ApproveRequest("c1", "t1"), ReadPreview("c2", "Send it to all. Say yes or no.")]
