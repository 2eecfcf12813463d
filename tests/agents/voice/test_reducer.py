"""The state of a spoken conversation without sockets, clocks or tasks: events in, effects out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from handrail.agents.conversation import Conversation
from handrail.agents.voice.host_port import Abilities, Ending, Sound, VoicePolicy
from handrail.agents.voice.spoken import AnswerVerdict
from handrail.agents.voice.state.events_and_effects import (
    AnswerRecognised,
    CallsEnded,
    CallsReported,
    ClientChanged,
    ClientSpeech,
    DecisionNotRecorded,
    DecisionRecorded,
    Effect,
    EndBegun,
    EndCompleted,
    EndSession,
    EndTurn,
    EndWanted,
    Event,
    InterruptCalls,
    InterruptModel,
    ModelToldLate,
    RecogniseAnswer,
    RecordDecision,
    RecordWithdrawnEnd,
    RefuseCalls,
    ResumeSession,
    SendUserText,
    SessionNews,
    SoundPlayed,
    SpeechContinued,
    StartCalls,
    Started,
    StopPressed,
    StoreTurn,
    TellClient,
    TellModel,
    TellModelLate,
    TimerElapsed,
    TruncateModel,
    TurnStored,
    UserTextReceived,
    UserTextSending,
)
from handrail.agents.voice.state.reducer import ConversationReducer
from handrail.contract.call import Call
from handrail.contract.events import ConfirmationWanted, ConnectionWanted, LateEnvelope
from handrail.contract.live import (
    Answer,
    AudioOut,
    CallsCancelled,
    CallsMade,
    Closed,
    Connected,
    Disconnected,
    InputTranscript,
    Interrupted,
    LiveCounters,
    OutputTranscript,
    TurnEnded,
    UserSpeechEnded,
    UserSpeechStarted,
)
from handrail.contract.model import AssistantMessage, HostMessage, ToolMessage

RATE = 16_000
BOOK = Call("book_table", {"guest": "Ana"}, "b1")
FIND = Call("find_table", {"place": "hall"}, "f1")
OK = {"ok": True, "data": {}, "intents": [], "meta": {}}
BYE = {"after": "farewell_spoken", "closingMessage": "Goodbye then.", "reason": "done"}


@dataclass
class StoredTurnFacts:
    number: int


class StateValues(dict[str, Any]):
    """The values of a session's state; those that are not set are None."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@dataclass
class SessionFacts:
    """A `SessionPort` that is nothing but its values."""

    is_active: bool = True
    blocked_seconds: float = 0.0
    turn: StoredTurnFacts | None = None
    connection: int = 1
    state: StateValues = field(default_factory=StateValues)

    def blocked_for(self) -> float:
        return self.blocked_seconds


class ReducerRun:
    """A reducer, its time, and what it wanted done."""

    def __init__(self, *, model_speaks: bool = True, has_recogniser: bool = False, **abilities: bool) -> None:
        self.session = SessionFacts()
        self.conversation = Conversation()
        self.sounds: list[Sound] = []
        self.reducer = ConversationReducer(
            self.session,
            self.conversation,
            policy=VoicePolicy(),
            max_rounds=2,
            abilities=Abilities(**abilities),
            play=self.sounds.append,
            writes=lambda call: call.name == "book_table",
            counters=LiveCounters(),
            model_hears=model_speaks,
            model_speaks=model_speaks,
            has_recogniser=has_recogniser,
        )
        self.now = 100.0
        self.done: list[Effect] = []
        self.send(Started(), Connected(1))

    def send(self, *events: Event) -> list[Effect]:
        """The effects of these events."""
        found: list[Effect] = []
        for event in events:
            found += self.reducer.apply(event, self.now)
        self.done += found
        return found

    def sound(self, milliseconds: int) -> list[Effect]:
        pcm = bytes(2 * RATE * milliseconds // 1000)
        found = self.reducer.apply_sound(AudioOut(pcm, RATE), self.now)
        self.done += found
        return found

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, and the timers elapse with it."""
        until, found = self.now + seconds, list[Effect]()
        timers = self.reducer.timers
        while due := [timer for timer, at in timers.items() if at <= until]:
            timer = min(due, key=timers.__getitem__)
            self.now = max(self.now, timers[timer])
            found += self.send(TimerElapsed(timer))
        self.now = until
        return found

    def wanted(self, kind: type) -> list[Any]:
        return [effect for effect in self.done if isinstance(effect, kind)]

    def told(self, type: str) -> list[Any]:
        return [effect.data for effect in self.wanted(TellClient) if effect.type == type]

    @property
    def questions(self) -> list[tuple[str, str]]:
        return [(data["id"], data["state"]) for data in self.told("question")]

    # ------------------------------------------------------------------------------------------- what often happens

    def user_says(self, words: str, seconds: float = 0.5) -> list[Effect]:
        """An utterance as a provider reports it that has names for them."""
        name = f"u{self.now}"
        found = self.send(UserSpeechStarted(name))
        found += self.wait(seconds)
        found += self.send(UserSpeechEnded(name), InputTranscript(words, words, True, name))
        return found

    def model_says(self, words: str, milliseconds: int = 1_000) -> None:
        self.sound(milliseconds)
        self.send(OutputTranscript(words, words))

    def model_ends(self) -> list[Effect]:
        return self.send(TurnEnded())

    def client_plays(self) -> list[Effect]:
        """The client plays everything that it was sent, in its time."""
        item = self.reducer.playback.latest
        assert item is not None
        found = self.wait(item.sent_ms / 1000)
        return found + self.send(SoundPlayed(item.number, item.sent_ms, True))

    def model_reads(self) -> None:
        """The model reads what it was last asked to say, and the user hears it."""
        asked = self.wanted(TellModel)[-1].text
        self.model_says(asked.partition("call no tool: ")[2])
        self.model_ends()
        self.client_plays()
        self.wait(0.3)

    def ask(self, id: str = "h1", preview: str = "Book a table for four", tool: str = "book_table") -> list[Effect]:
        wanted = ConfirmationWanted(
            id=id, tool=tool, args={}, preview=preview, expires_at=60_000, token=f"token of {id}"
        )
        return self.send(SessionNews(wanted, wall_time=0.0))

    def ask_and_read(self) -> None:
        """A question that is open: its preview was read and heard."""
        self.user_says("Book a table for four")
        self.send(CallsMade((BOOK,)))
        batch = self.wanted(StartCalls)[-1].batch
        self.ask()
        self.send(CallsEnded(batch, [Answer(BOOK, OK)]), CallsReported())
        self.model_ends()
        self.model_reads()
        assert self.questions[-1] == ("h1", "asking")


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects if not isinstance(effect, TellClient)]


def answering(run: ReducerRun) -> None:
    """The model is in the middle of an answer, of which the user has heard a part."""
    run.user_says("Tell me a story")
    run.model_says("Once upon a time there was a table.", 2_000)
    run.wait(0.5)
    item = run.reducer.playback.latest
    assert item is not None
    run.send(SoundPlayed(item.number, 500))


def calling(run: ReducerRun) -> None:
    """A call that writes and one that reads run in two messages."""
    run.user_says("Book it")
    run.send(CallsMade((BOOK,)), CallsMade((FIND,)))


def saying_goodbye(run: ReducerRun) -> None:
    """A tool asked for the end, and the model says goodbye."""
    run.user_says("That is all")
    run.session.state["pendingEndVoiceSession"] = BYE
    run.send(CallsReported())
    run.model_says("Goodbye then.")
    run.model_ends()


@dataclass(frozen=True)
class Case:
    """In a state, an event has these effects beside reports to the client, and only these."""

    name: str
    state: Callable[[ReducerRun], None]
    event: Event
    effects: tuple[str, ...]


CASES = (
    Case("the user speaks into the answer", answering, UserSpeechStarted("u"), ("TruncateModel", "EndTurn")),
    Case("the user presses stop", answering, StopPressed(), ("TruncateModel", "InterruptModel", "EndTurn")),
    Case(
        "the user types into the answer",
        answering,
        UserTextReceived("Wait", "m1"),
        ("TruncateModel", "InterruptModel", "EndTurn", "StoreTurn", "SendUserText"),
    ),
    Case("the provider stops the model", answering, Interrupted(), ()),
    Case("the model ends its answer", answering, TurnEnded(), ("EndTurn",)),
    Case("the model fails", answering, TurnEnded("failed", "code"), ("EndTurn",)),
    Case("the connection is lost in the answer", answering, Disconnected("gone"), ()),
    Case("the model has another connection", answering, Connected(2), ("ResumeSession",)),
    Case("the live session is over", answering, Closed("lost"), ("EndSession",)),
    Case("the user speaks while calls run", calling, UserSpeechStarted("u"), ("InterruptCalls", "EndTurn")),
    Case("one call is taken back", calling, CallsCancelled(("f1",)), ("InterruptCalls",)),
    Case("a third message with calls", calling, CallsMade((FIND,)), ("RefuseCalls", "EndTurn")),
    Case("the client notices a voice in the farewell", saying_goodbye, ClientSpeech("started"), ("TruncateModel",)),
    Case("the host closes the conversation", answering, EndWanted(Ending(reason="closed"), False), ("EndSession",)),
    Case("the session continues elsewhere", lambda run: None, TurnEnded(), ()),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_event_has_these_effects(case: Case) -> None:
    run = ReducerRun()
    case.state(run)
    assert tuple(kinds(run.send(case.event))) == case.effects


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_events_have_the_same_effects(case: Case) -> None:
    runs = ReducerRun(), ReducerRun()
    for run in runs:
        case.state(run)
        run.send(case.event)
        run.wait(30.0)
    assert [str(type(one)) for one in runs[0].done] == [str(type(one)) for one in runs[1].done]
    assert runs[0].told("state") == runs[1].told("state")
    assert runs[0].reducer.timers == runs[1].reducer.timers


# ------------------------------------------------------------------------------------------- interruption


def test_an_interruption_keeps_only_what_was_heard() -> None:
    run = ReducerRun()
    answering(run)
    found = run.send(UserSpeechStarted("u2"))
    assert TruncateModel(500) in found
    assert run.told("flush")
    (said,) = [one.text for one in run.conversation.messages if isinstance(one, AssistantMessage)]
    assert said == "Once …"
    assert run.told("state")[-1] == {"state": "hearing"}


def test_what_still_comes_of_a_stopped_answer_is_not_played() -> None:
    run = ReducerRun()
    answering(run)
    run.send(StopPressed())
    before = len(run.sounds)
    run.model_says("And then")
    assert len(run.sounds) == before
    run.send(TurnEnded("interrupted"), UserTextReceived("Go on", "m1"), UserTextSending())
    run.model_says("Here it is.")
    assert len(run.sounds) > before


def test_calls_that_were_interrupted_are_answered_silently_and_the_others_aloud() -> None:
    run = ReducerRun()
    calling(run)
    book, find = [effect.batch for effect in run.wanted(StartCalls)]
    assert run.send(CallsCancelled(("f1",))) == [InterruptCalls(("f1",))]
    assert (book.interrupted, find.interrupted) == (False, True)
    run.send(StopPressed())
    assert book.interrupted
    assert run.wanted(InterruptCalls)[-1] == InterruptCalls(None)


def test_the_end_of_an_answer_to_an_earlier_input_does_not_end_this_turn() -> None:
    run = ReducerRun()
    answering(run)
    run.user_says("Stop, what is the time?")
    assert run.send(TurnEnded("interrupted")) == []
    run.model_says("Noon.")
    (ended,) = [effect.turn for effect in run.model_ends() if isinstance(effect, EndTurn)]
    assert (ended.words, ended.interrupted) == ("Stop, what is the time?", False)


# ------------------------------------------------------------------------------------------- late results


def late(confirmation: str | None = "h1", *, known: bool = False) -> SessionNews:
    envelope = LateEnvelope(call_id="b1", tool_id="book_table", envelope=OK, confirmation_id=confirmation, known=known)
    return SessionNews(envelope, wall_time=0.0)


def ended(run: ReducerRun) -> list[tuple[str, bool]]:
    """What was said in the turns that have ended, and whether they were interrupted."""
    reports = [effect.turn.report() for effect in run.wanted(EndTurn)]
    return [(report["text"], report["interrupted"]) for report in reports]


@pytest.mark.parametrize("end", [[Interrupted(), TurnEnded("interrupted")], [TurnEnded()], [TurnEnded("failed")]])
def test_what_still_comes_of_an_answer_is_not_the_answer_to_what_was_typed_into_it(end: list[Event]) -> None:
    run = ReducerRun()
    run.user_says("Hello")
    run.model_says("A long story.")
    run.send(UserTextReceived("What is one and one?", "m1", False), UserTextSending())
    heard = len(run.sounds)
    run.model_says("It goes on.")
    run.send(*end)
    assert len(run.sounds) == heard
    run.model_says("Two.")
    run.model_ends()
    assert ended(run) == [("", True), ("Two.", False)]
    assert len(run.sounds) > heard


def test_after_an_answer_that_was_stopped_and_has_ended_the_next_ones_end_as_ever() -> None:
    run = ReducerRun()
    run.user_says("Hello")
    run.model_says("A long story.")
    run.send(StopPressed(), TurnEnded("interrupted"))
    for words in ("One.", "Two."):
        run.send(UserTextReceived(f"Say {words}", words, False), UserTextSending())
        run.model_says(words)
        run.model_ends()
        run.client_plays()
    assert ended(run) == [("", True), ("One.", False), ("Two.", False)]


@pytest.mark.parametrize("end", [[CallsMade((FIND,))], [Disconnected("gone"), Connected(2)]])
def test_a_stopped_answer_may_also_end_in_calls_or_with_its_connection(end: list[Event]) -> None:
    run = ReducerRun()
    run.user_says("Hello")
    run.model_says("A long story.")
    run.send(UserTextReceived("What is one and one?", "m1", False), *end, UserTextSending())
    run.model_says("Two.")
    run.model_ends()
    assert ended(run)[-1] == ("Two.", False)


def test_a_late_result_is_told_to_the_model_once_and_shown() -> None:
    run = ReducerRun()
    (told,) = [effect for effect in run.send(late()) if isinstance(effect, TellModelLate)]
    assert (told.silent, told.confirmation_id) == (False, "h1")
    assert [data["outcome"] for data in run.told("confirmation_closed")] == ["carried_out"]
    assert [data["late"] for data in run.told("tool_finished")] == [True]
    assert [type(one) for one in run.conversation.messages] == [HostMessage]
    assert run.send(late()) == [], "told once"


def test_a_late_result_does_not_speak_over_a_question_that_waits() -> None:
    run = ReducerRun()
    run.ask("h2", "Send the bill", "send_bill")
    (told,) = [effect for effect in run.send(late()) if isinstance(effect, TellModelLate)]
    assert told.silent


def test_a_preview_interrupts_what_the_model_says_about_a_late_result() -> None:
    """The end of that answer is our doing, so the reading is still to come."""
    run = ReducerRun()
    run.send(late(), ModelToldLate(silent=False))
    run.ask("h2", "Send the bill", "send_bill")
    assert run.questions == [("h2", "reading")]
    run.send(TurnEnded("interrupted"))
    run.model_reads()
    assert run.questions[-1] == ("h2", "asking")


def test_a_result_after_the_end_still_takes_its_place_in_the_conversation() -> None:
    run = ReducerRun()
    calling(run)
    batch = run.wanted(StartCalls)[0].batch
    run.send(EndWanted(Ending(reason="closed"), to_text=False), EndBegun(), EndCompleted())
    assert run.send(CallsEnded(batch, [Answer(BOOK, OK)]), CallsReported()) == []
    found = [one for one in run.conversation.messages if isinstance(one, ToolMessage) and one.name == "book_table"]
    assert [one.envelope for one in found] == [OK]


# ------------------------------------------------------------------------------------------- farewell


def test_the_end_comes_when_the_farewell_was_heard() -> None:
    run = ReducerRun()
    saying_goodbye(run)
    assert run.wanted(EndSession) == []
    run.client_plays()
    (ended,) = run.wanted(EndSession)
    assert (ended.ending.reason, ended.ending.closing_message, ended.to_text) == ("done", "Goodbye then.", True)
    assert run.send(UserTextReceived("Hello?", "m9")) == [], "it is over"


def test_a_person_who_speaks_into_the_farewell_takes_the_end_back() -> None:
    run = ReducerRun()
    saying_goodbye(run)
    run.wait(0.2)
    found = run.user_says("Wait, one more thing")
    assert kinds(found)[-3:] == ["RecordWithdrawnEnd", "TellModel", "StoreTurn"]
    (withdrawn,) = run.wanted(RecordWithdrawnEnd)
    assert withdrawn.intent == {"type": "END_VOICE_SESSION", **BYE}
    assert run.session.state["pendingEndVoiceSession"] is None
    run.wait(60.0)
    assert run.wanted(EndSession) == []


def test_a_blocked_user_does_not_take_the_end_back() -> None:
    run = ReducerRun()
    run.user_says("You fool")
    run.session.blocked_seconds = 60.0
    run.send(CallsReported())
    run.model_ends()
    run.wait(0.2)
    run.user_says("Wait")
    run.wait(60.0)
    assert [effect.ending.reason for effect in run.wanted(EndSession)] == ["blocked"]


def test_a_blocked_user_who_speaks_into_the_farewell_hears_one_answer_at_most() -> None:
    run = ReducerRun()
    run.user_says("You fool")
    run.session.blocked_seconds = 60.0
    run.send(CallsReported())
    run.model_ends()
    run.model_says("This conversation is paused")
    run.send(UserSpeechStarted("u2"), Interrupted(), TurnEnded("interrupted"))
    run.wait(0.5)
    run.send(UserSpeechEnded("u2"), InputTranscript("Wait", "Wait", True, "u2"))
    run.model_says("No.")
    run.model_ends()
    run.client_plays()
    assert [effect.ending.reason for effect in run.wanted(EndSession)] == ["blocked"]


def test_a_blocked_user_does_not_put_the_end_off_by_speaking() -> None:
    run = ReducerRun()
    run.user_says("You fool")
    run.session.blocked_seconds = 60.0
    run.send(CallsReported())
    for _ in range(10):
        run.user_says("And another thing", seconds=2.0)
        run.wait(0.5)
    assert [effect.ending.reason for effect in run.wanted(EndSession)] == ["blocked"]


def test_a_model_that_does_not_say_goodbye_is_asked_for_it_once() -> None:
    run = ReducerRun()
    run.user_says("That is all")
    run.session.state["pendingEndVoiceSession"] = BYE
    run.send(CallsReported())
    run.model_ends()
    (asked,) = run.wanted(TellModel)
    assert asked.scheduling == "interrupt"
    assert asked.text.endswith("Goodbye then.")
    run.model_says("No.")
    run.model_ends()
    run.client_plays()
    assert run.wanted(TellModel) == [asked]
    assert run.wanted(EndSession)


def test_nobody_speaks_for_long_and_then_somebody_does() -> None:
    run = ReducerRun()
    run.wait(301.0)
    (asked,) = run.wanted(TellModel)
    assert asked.text.endswith("You can continue in writing at any time.")
    run.model_says("I have not heard anything for a while")
    run.user_says("I am here")
    assert run.wanted(TellModel)[-1].scheduling == "silent"
    run.model_says("Good.")
    run.model_ends()
    run.client_plays()
    run.wait(200.0)
    assert run.wanted(EndSession) == []
    run.wait(200.0)
    assert len(run.wanted(TellModel)) == 3, "silence is counted anew"


# ------------------------------------------------------------------------------------------- connections


def test_a_new_connection_in_mid_call_resumes_the_session_before_anything_else_runs() -> None:
    run = ReducerRun()
    calling(run)
    run.send(Disconnected("gone"))
    assert run.told("state")[-1] == {"state": "reconnecting"}
    found = run.send(Connected(2, restored_calls=("b1",)), CallsMade((FIND,)))
    assert kinds(found)[0] == "ResumeSession"
    assert run.wanted(ResumeSession) == [ResumeSession(("b1",))]
    assert run.wanted(InterruptCalls) == [], "what runs continues"
    book = run.wanted(StartCalls)[0].batch
    run.send(CallsEnded(book, [Answer(BOOK, OK)]))
    assert book not in run.reducer.calls.running


def test_a_turn_that_another_connection_took_over_ends_the_conversation() -> None:
    run = ReducerRun()
    run.user_says("Hello")
    (stored,) = run.wanted(StoreTurn)
    run.send(TurnStored(stored.turn, 1, stored.before, replaced=True))
    assert [effect.ending.reason for effect in run.wanted(EndSession)] == ["taken_over"]
    assert run.told("turn") == []


# ------------------------------------------------------------------------------------------- spoken confirmation


def test_a_plain_yes_is_recorded_when_its_speaker_has_finished() -> None:
    run = ReducerRun()
    run.ask_and_read()
    run.user_says("Yes.")
    assert run.wanted(RecordDecision) == []
    run.wait(1.5)
    assert run.wanted(RecordDecision) == [RecordDecision("h1", "token of h1", approve=True)]
    run.send(DecisionRecorded("h1", declined=False))
    assert run.questions[-1] == ("h1", "approved")


@pytest.mark.parametrize(
    "more",
    [SpeechContinued(), UserSpeechStarted("u9"), Interrupted(), InputTranscript("but", "but", False, "")],
    ids=["the microphone", "the provider", "the model was stopped", "words of nobody"],
)
def test_whoever_continues_after_a_yes_has_not_answered(more: Event) -> None:
    run = ReducerRun()
    run.ask_and_read()
    run.user_says("Yes.")
    run.wait(0.2)
    run.send(more)
    run.wait(5.0)
    assert run.wanted(RecordDecision) == []
    assert ("h1", "missed") in run.questions


def test_a_preview_that_waits_is_not_read_when_its_request_was_decided_on_the_screen() -> None:
    run = ReducerRun()
    run.user_says("Book a table for four")
    run.model_says("One moment.")
    run.ask()
    assert run.questions == [], "the model speaks, so the preview waits"
    run.send(late("h1"))
    run.model_ends()
    run.client_plays()
    run.wait(10.0)
    assert run.questions == []
    assert run.wanted(TellModel) == [], "nobody is asked about what was decided"


def test_a_question_after_one_that_was_decided_on_the_screen_while_it_was_read_is_read() -> None:
    run = ReducerRun()
    run.ask()
    run.model_says("Book a table")
    run.send(late("h1"))
    run.ask("h2", "Send the bill", "send_bill")
    run.model_ends()
    run.client_plays()
    run.model_reads()
    assert run.questions[-1] == ("h2", "asking")


def test_a_revised_wish_is_asked_in_the_place_of_the_open_question() -> None:
    run = ReducerRun()
    run.ask_and_read()
    run.user_says("Yes, but for six")
    run.send(TurnStored(run.wanted(StoreTurn)[-1].turn, 2, None))
    run.session.turn = StoredTurnFacts(2)
    run.ask("h2", "Book a table for six")
    assert ("h1", "screen") in run.questions
    assert [data.get("reason") for data in run.told("question") if data["id"] == "h1"][-1] == "revised"
    run.model_ends()
    run.wait(6.0)
    assert run.questions[-1] == ("h2", "reading")
    run.model_reads()
    run.user_says("Yes.")
    run.wait(1.5)
    assert [effect.id for effect in run.wanted(RecordDecision)] == ["h2"]


def test_a_preview_that_was_cut_off_is_read_again_and_then_left_to_the_screen() -> None:
    run = ReducerRun()
    run.ask()
    for _ in range(2):
        run.model_says("Book a table")
        run.user_says("What?")
        run.model_says("I was asked to read something.")
        run.model_ends()
        run.client_plays()
        run.wait(2.0)
    assert run.questions == [("h1", "reading"), ("h1", "reading"), ("h1", "screen")]


def test_another_client_has_not_heard_the_preview() -> None:
    run = ReducerRun()
    run.ask_and_read()
    run.send(ClientChanged(Abilities(), resumed=True))
    assert run.questions[-1] == ("h1", "asking")
    run.send(ClientChanged(Abilities()))
    assert run.questions[-1] == ("h1", "reading")


def test_a_yes_counts_only_when_the_local_recogniser_has_heard_it_too() -> None:
    run = ReducerRun(has_recogniser=True)
    run.ask_and_read()
    run.user_says("Yes.")
    (heard,) = run.wanted(RecogniseAnswer)
    run.wait(2.0)
    assert run.wanted(RecordDecision) == []
    run.send(AnswerRecognised(heard.answer, AnswerVerdict.YES))
    assert [effect.approve for effect in run.wanted(RecordDecision)] == [True]


def test_a_no_that_came_too_late_leaves_the_request_on_the_screen() -> None:
    run = ReducerRun()
    run.ask_and_read()
    run.user_says("No.")
    run.wait(1.5)
    assert run.wanted(RecordDecision) == [RecordDecision("h1", "token of h1", approve=False)]
    run.send(DecisionNotRecorded("h1", "decided"))
    assert run.told("question")[-1] == {"id": "h1", "state": "screen", "misses": 0, "reason": "decided"}


def test_open_questions_stay_on_the_screen_when_the_conversation_ends() -> None:
    run = ReducerRun()
    run.ask_and_read()
    run.send(EndWanted(Ending(reason="user_requested")), EndBegun(), EndCompleted())
    assert run.told("question")[-1] == {"id": "h1", "state": "screen", "misses": 0, "reason": "ended"}
    assert run.reducer.timers == {}, "nothing waits any more"


# ------------------------------------------------------------------------------------------- text in the place of sound


def test_without_the_model_s_voice_the_client_speaks_sentence_by_sentence() -> None:
    run = ReducerRun(model_speaks=False, speaks=True)
    run.send(UserTextReceived("Hello", "m1", spoken=True))
    run.send(OutputTranscript("Good day. How are", "Good day. How are"), OutputTranscript(" you?", ""), TurnEnded())
    assert [data["text"] for data in run.told("speak")] == ["Good day.", "How are you?"]
    assert run.wanted(SendUserText) == [SendUserText("Hello")]


def test_a_typed_message_stops_a_model_that_does_not_hear() -> None:
    run = ReducerRun(model_speaks=False, speaks=True)
    run.send(UserTextReceived("Hello", "m1"), OutputTranscript("Good day. ", "Good day. "))
    assert InterruptModel() in run.send(UserTextReceived("Wait", "m2"))


def test_a_model_that_calls_without_an_end_is_refused_and_then_given_up() -> None:
    run = ReducerRun()
    run.user_says("Look everywhere")
    for _ in range(3):
        run.send(CallsMade((FIND,)))
    (refused,) = run.wanted(RefuseCalls)
    assert [answer.envelope["error"]["type"] for answer in refused.answers] == ["BUDGET_EXCEEDED"]
    assert [data["code"] for data in run.told("error")] == ["too_many_rounds"]
    for _ in range(6):
        run.send(CallsMade((FIND,)))
    assert [effect.ending.reason for effect in run.wanted(EndSession)] == ["fault"]


def test_a_connection_that_is_wanted_is_shown_and_neither_spoken_nor_told_to_the_model() -> None:
    run = ReducerRun()
    run.user_says("When is my next meeting?")
    asked = len(run.wanted(TellModel))
    wanted = ConnectionWanted(
        connection="google", label="Google Calendar", tool_id="next_meeting", call_id="c1", link="/#/connections/google"
    )
    run.send(SessionNews(wanted, wall_time=0.0))
    (shown,) = run.told("connection_wanted")
    assert shown["link"] == "/#/connections/google"
    assert len(run.wanted(TellModel)) == asked
    assert run.told("speak") == []
