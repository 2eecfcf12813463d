"""Random conversations against a second, slower opinion: whatever happens, nothing is approved that was not plainly approved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.voice.spoken import (
    AcceptAnswers,
    ApproveRequest,
    ConfirmationQuestions,
    DeclineRequest,
    MoveToScreen,
    QuestionExpired,
    QuestionStep,
    ReadPreview,
)

SECONDS = 60.0


@dataclass
class Witness:
    """Remembers everything with its time, and judges each approval from the whole story."""

    wanted: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, set[str]] = field(default_factory=dict)
    heard_at: dict[str, float] = field(default_factory=dict)
    """When the last reading of a question ended that `AcceptAnswers` was answered to."""
    sounds: list[tuple[float, float]] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    over: set[str] = field(default_factory=set)

    def take(self, steps: list[QuestionStep], at: float) -> None:
        for step in steps:
            match step:
                case ReadPreview(id=id):
                    assert id not in self.over, "a question that is over is not read"
                    assert self.open in ([], [id]), "one at a time"
                    self.open = [id]
                case AcceptAnswers(id=id):
                    assert self.open == [id]
                    self.heard_at[id] = at
                case ApproveRequest(id=id) | DeclineRequest(id=id) | MoveToScreen(id=id) | QuestionExpired(id=id):
                    assert id not in self.over, "a question ends once"
                    self.over.add(id)
                    self.open = [one for one in self.open if one != id]
                case _:
                    pass

    def judge(self, step: ApproveRequest, text: str, started: float, ended: float) -> None:
        assert text == "yes"
        assert self.open == [step.id], "the one open question"
        assert step.token in self.tokens[step.id]
        assert ended < self.wanted[step.id] + SECONDS, "before its time is over"
        assert step.id in self.heard_at, "whoever listens has heard the preview to its end"
        heard = self.heard_at[step.id]
        assert started >= heard + 0.3, "a moment after the preview was heard to its end"
        for began, stopped in self.sounds:
            assert stopped <= heard or began > ended, "nothing of ours between the preview and the end of the answer"


texts = st.sampled_from(["yes", "yes", "yes", "no", "yes but", "", "what", "yes?"])
pauses = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 20.0])
ids = st.sampled_from(["a", "b", "c"])
events = st.one_of(
    st.tuples(st.just("wanted"), ids, st.sampled_from(["any", "any", "any", "screen"])),
    st.tuples(st.just("read"), st.booleans()),
    st.tuples(st.just("read"), st.just(True)),
    st.tuples(st.just("misread"), st.just(None)),
    st.tuples(st.just("cut"), st.just(None)),
    st.tuples(st.just("sound"), pauses),
    st.tuples(st.just("begin"), st.just(None)),
    st.tuples(st.just("stop"), st.just(None)),
    st.tuples(st.just("heard"), texts, pauses, pauses),
    st.tuples(st.just("heard"), texts, st.just(0.1), st.just(0.1)),
    st.tuples(st.just("speech"), pauses),
    st.tuples(st.just("closed"), ids),
    st.tuples(st.just("listener_changed"), st.just(None)),
    st.tuples(st.just("tick"), pauses),
)


class Story:
    """Plays events to the questions and tells the witness the same."""

    def __init__(self) -> None:
        self.questions = ConfirmationQuestions()
        self.witness = Witness()
        self.now = 0.0
        self.sounding: float | None = None
        self.count = 0
        self.approvals = 0

    def play(self, event: tuple[Any, ...]) -> None:
        kind, *how = event
        getattr(self, f"_{kind}")(*how)
        open_id = self.questions.open_id
        assert self.witness.open == ([open_id] if open_id else [])
        self.now += 0.01

    def _told(self, steps: list[QuestionStep]) -> None:
        self.witness.take(steps, self.now)

    def _wanted(self, id: str, channel: str) -> None:
        self.count += 1
        token = f"token-{self.count}"
        self.witness.wanted.setdefault(id, self.now)
        self.witness.tokens.setdefault(id, set()).add(token)
        request = {"id": id, "tool": "t", "preview": f"Do {id} now.", "args": {}, "expires_at": 0}
        left = self.witness.wanted[id] + SECONDS - self.now
        if left > 0:  # the store tells nobody of a request that is over
            self._told(self.questions.wanted(request, token, channel, self.now, seconds=left))

    def _begin(self, _: None) -> None:
        if self.sounding is None:
            self.sounding = self.now
            self._told(self.questions.our_audio(True, self.now))

    def _stop(self, _: None) -> None:
        if self.sounding is not None:
            self.witness.sounds.append((self.sounding, self.now))
            self.sounding = None
            self._told(self.questions.our_audio(False, self.now))

    def _sound(self, seconds: float) -> None:
        self._begin(None)
        self.now += seconds
        self._stop(None)

    def _read(self, exact: bool) -> None:
        self._sound(3.0)
        asked = self.questions.open_id
        if asked is not None:
            said = None if exact else f"Do {asked} now. Say yes or no."
            self._told(self.questions.preview_spoken(asked, said, self.now))

    def _misread(self, _: None) -> None:
        self._sound(3.0)
        asked = self.questions.open_id
        if asked is not None:
            steps = self.questions.preview_spoken(asked, "Do something else.", self.now)
            assert not [step for step in steps if isinstance(step, AcceptAnswers)]
            self._told(steps)

    def _cut(self, _: None) -> None:
        self._sound(1.0)
        if self.questions.open_id is not None:
            self._told(self.questions.preview_cut(self.questions.open_id))

    def _heard(self, text: str, before: float, long: float) -> None:
        """An utterance that ended just now or, `before` seconds ago, and was only transcribed now."""
        ended = self.now - before
        started = ended - long
        story = self.witness
        if self.sounding is not None:
            story.sounds.append((self.sounding, self.now))
        steps = self.questions.heard(text, started, ended, 1.0)
        for step in steps:
            if isinstance(step, ApproveRequest):
                self.approvals += 1
                story.judge(step, text, started, ended)
        if self.sounding is not None:
            story.sounds.pop()
        self._told(steps)

    def _speech(self, before: float) -> None:
        self._told(self.questions.speech(self.now - before, self.now))

    def _closed(self, id: str) -> None:
        self.witness.open = [one for one in self.witness.open if one != id]
        if id in self.witness.wanted:
            self.witness.over.add(id)
        self._told(self.questions.closed(id))

    def _listener_changed(self, _: None) -> None:
        self.witness.heard_at.clear()  # whoever listens now has heard no preview
        self._told(self.questions.listener_changed(self.now))

    def _tick(self, seconds: float) -> None:
        self.now += seconds
        self._told(self.questions.tick(self.now))


@given(st.lists(events, max_size=40))
def test_nothing_is_approved_that_was_not_plainly_approved(story: list[tuple[Any, ...]]) -> None:
    told = Story()
    for event in story:
        told.play(event)


@given(st.lists(events, max_size=12))
def test_a_question_that_is_read_in_full_and_answered_at_once_is_approved(before: list[tuple[Any, ...]]) -> None:
    """The same conversations do reach approvals: a machine that never approves would pass the other test."""
    told = _read_after(before)
    told.now += 0.5
    told.play(("speech", 0.2))
    told.play(("heard", "yes", 0.1, 0.1))
    assert "last" in told.witness.over
    assert told.approvals >= 1


@given(st.lists(events, max_size=12), st.sampled_from([0.0, 0.5, 3.0]), st.booleans())
def test_the_yes_of_somebody_who_came_after_the_preview_counts_once_it_was_read_to_them_too(
    before: list[tuple[Any, ...]], later: float, noticed: bool
) -> None:
    told = _read_after(before)
    approved = told.approvals
    told.play(("listener_changed", None))
    told.now += 0.5 + later
    if noticed:
        told.play(("speech", 0.2))
    told.play(("heard", "yes", 0.1, 0.1))
    assert told.approvals == approved
    assert "last" not in told.witness.over
    told.play(("read", True))
    told.now += 0.5
    told.play(("heard", "yes", 0.1, 0.1))
    assert told.approvals == approved + 1


def _read_after(before: list[tuple[Any, ...]]) -> Story:
    """These events, and then a question that was read to its end."""
    told = Story()
    for event in before:
        told.play(event)
    told.play(("stop", None))
    told.now += 200.0  # whatever was open is over
    told.play(("tick", 0.0))
    request = {"id": "last", "tool": "u", "preview": "Do the last thing.", "args": {}, "expires_at": 0}
    told._told(told.questions.wanted(request, "t", "any", told.now))
    told.witness.wanted["last"], told.witness.tokens["last"] = told.now, {"t"}
    told.play(("read", True))
    return told
