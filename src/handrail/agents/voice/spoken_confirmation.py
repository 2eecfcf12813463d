"""Spoken confirmation in a conversation: the preview is read, its end waited for, the answer heard, and carried out.

`spoken.Questions` decides; this tells it what happened and does what it says. A preview is read when nobody speaks, by the model
(whose transcript must then be the preview) or by the client's own voice, and counts as heard only if the client itself reports
that it was played to its end. Where speech began is taken from whoever noticed it first, the sound itself among them: a provider
may tell of an utterance long after it overlapped ours. The model is never asked what the person meant.

An answer is judged when its speaker has finished: nobody, be it the microphone's level, the client or the provider, has noticed
more speech for `FINISHED_SECONDS`. Whoever goes on has not answered, also if the words of what follows have not come yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from handrail.agents.voice.host_phrases import say_exactly, unheard_no_words, unheard_yes_words
from handrail.agents.voice.host_port import Abilities
from handrail.agents.voice.playback import SpokenItem
from handrail.agents.voice.spoken import (
    AcceptAnswers,
    AnswerMissed,
    AnswerVerdict,
    ApproveRequest,
    DeclineRequest,
    MoveToScreen,
    QuestionExpired,
    Questions,
    QuestionStep,
    ReadPreview,
    Recogniser,
)
from handrail.agents.voice.spoken.questions import GUARD_SECONDS
from handrail.agents.voice.turn_detection import UserUtterance
from handrail.agents.voice.voice_activity import VoiceActivity, VoiceSpan
from handrail.contract.errors import ErrorType, HandrailError
from handrail.contract.store import HoldState, StoreUnavailable

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

_LOG = logging.getLogger("handrail.agent")
FINISHED_SECONDS = 1.2
"""So long nothing more may be said after an answer."""
_NOTICE_SECONDS = 0.15
"""A voice is noticed so long after it began."""
_TAIL_SECONDS = 0.25
"""The end of a word may sound after a quick transcriber has told the word."""
_REACTION_SECONDS = 0.7
"""A provider that stops the model for an utterance does so within this time."""
_MAX_WAIT_SECONDS = 5.0
"""For an end of speech that somebody else has to tell."""
_MAX_SOUND_SECONDS = 15
_LEAD_SECONDS = 0.2
_TICK_SLACK = 0.05


@dataclass(slots=True)
class PendingAnswer:
    """What was said to a question, until it is known whether its speaker has finished."""

    heard: UserUtterance
    text: str
    started: float
    ended: float
    confidence: float | None
    covers_until: float
    """Sound until then may be of these words."""
    spoke_until: float
    """The last sign of speech."""
    voice_counts_until: float
    """A voice after that is another utterance, which a provider may tell of later than the level does."""
    is_recognised: bool = True
    """The local recogniser, if there is one, has heard it."""
    local: AnswerVerdict | None = None


class SpokenConfirmation:
    """The spoken questions of one conversation."""

    def __init__(self, talk: VoiceSession, recogniser: Recogniser | None, language: str) -> None:
        self._talk = talk
        self._recogniser = recogniser
        self._questions = Questions(language=language, needs_local=recogniser is not None)
        self._next: ReadPreview | None = None
        """What is to be read at the next quiet moment."""
        self._reading: str | None = None
        """The question that the model, or the client's voice, was asked to read."""
        self._item: SpokenItem | None = None
        self._reader: tuple[bool, Abilities] | None = None
        """Whether the model reads, and to whom, as it was when the reading began."""
        self._misses: dict[str, int] = {}
        self._answering: dict[str, bool] = {}
        """Answered by voice, with yes or no, and not known yet what the runtime made of it."""
        self._activity = VoiceActivity()
        self._voice: VoiceSpan | None = None
        """The voice that is being heard, or was and has no words yet."""
        self._voice_before = False
        """There was another voice since the last words came, or since the question was opened."""
        self._open_since = inf
        self._started_at = self._stopped_at = -inf
        """When speech began, and when the model was stopped for it, by the client's or the provider's last word."""
        self._speaks_on_until = -inf
        """Whoever went on after an answer is not talked over: nothing is read before then, unless they have finished."""
        self._unjudged: PendingAnswer | None = None
        self._unjudged_timer: asyncio.TimerHandle | None = None
        self._sound = bytearray()
        self._sound_rate = 0
        self._quiet_since: float | None = None
        """Nothing of ours sounds any more, and the questions do not know it yet."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """When the time of each question is over."""
        self._asking_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether what is heard may matter to a question."""
        return self._questions.open_id is not None

    def waits_for(self, confirmation_id: str) -> bool:
        """Whether another question is read when this one is over, or is being read."""
        return any(each != confirmation_id for each in self._questions.ids)

    @property
    def voice_heard_at(self) -> float:
        """When the microphone's level last was that of a voice."""
        return self._activity.heard_at

    def close(self) -> None:
        """The conversation is over: what is open stays open on the screen."""
        self._not_asking()
        self._forget_answer()
        for timer in self._timers.values():
            timer.cancel()
        for each in self._questions.ids:
            self._tell(each, "screen", "ended")

    # ------------------------------------------------------------------------------------------- what happens

    def wanted(self, told: Mapping[str, Any]) -> None:
        """The session asks for a person's word."""
        talk = self._talk
        can_be_heard = talk.is_voiced or talk.abilities.speaks
        left = float(told["expires_at"]) / 1000 - talk.runtime.clock.time()
        channel = str(told["channel"]) if can_be_heard else "screen"
        asked = str(told["id"])
        self._stop_timer(asked)
        loop = asyncio.get_running_loop()
        self._timers[asked] = loop.call_later(max(0.0, left) + _TICK_SLACK, self._tick, asked)
        was_open = self.is_open
        turn = talk.session.turn.number if talk.session.turn is not None else 0
        steps = self._questions.wanted(
            told, str(told["token"]), channel, _now(), seconds=left, turn=turn, spoke_at=self._spoke_at()
        )
        if not was_open:
            self._open_since, self._voice_before = _now(), False
        self._do(steps)

    def _spoke_at(self) -> float:
        """When the person was last heard, as far as nobody has judged it yet."""
        voice, answer = self._voice, self._unjudged
        return max(
            self._started_at,
            voice.until if voice is not None else -inf,
            answer.spoke_until if answer is not None else -inf,
        )

    def closed(self, confirmation_id: str, declined: bool) -> None:
        """It was answered, here or elsewhere: what came first counts, also where another answer was on its way."""
        self._taken(confirmation_id, declined)
        if confirmation_id == self._questions.open_id:
            self._not_asking()
            self._forget_answer()
        self._do(self._questions.closed(confirmation_id))

    def listener_changed(self) -> None:
        """Another client is on the line: a yes there counts only if the preview was heard there."""
        if self._questions.is_asking:
            self._not_asking()
        self._do(self._questions.listener_changed(_now()))

    def speech_started(self, at: float) -> None:
        """The client or the provider noticed that the person began to speak."""
        self._do(self._questions.speech(at, _now()))
        self._started_at = max(self._started_at, at)
        if self._unjudged is not None and at > self._unjudged.ended:
            self._went_on(self._unjudged)

    def model_stopped(self) -> None:
        """The provider has stopped the model, because it heard the person."""
        self._stopped_at = _now()
        if self._unjudged is not None:
            self._went_on(self._unjudged)

    def more_words(self, heard: UserUtterance | None) -> None:
        """Words came, of this utterance or of one that nobody knows: not all were there, unless they are of an earlier one."""
        answer = self._unjudged
        if answer is None or (heard is answer.heard and heard.name):
            return
        if heard is None or heard.ended_at is None or heard.ended_at >= answer.started:
            self._went_on(answer)

    def typed(self) -> None:
        """The person goes on in writing."""
        if self._unjudged is not None:
            self._went_on(self._unjudged)

    def _went_on(self, answer: PendingAnswer) -> None:
        """More was said than these words: they are no answer."""
        self._forget_answer()
        self._speaks_on_until = _now() + _MAX_WAIT_SECONDS
        self._do(self._questions.heard(answer.text, answer.started, answer.ended, answer.confidence, went_on=True))
        self.settled()

    def listen(self, pcm: bytes, rate: int) -> None:
        """The user's audio: where a voice is in it, and what a second pair of ears gets while a question is open."""
        now, answer, is_open = _now(), self._unjudged, self.is_open
        over_ours = self._talk.playback.is_playing
        is_voice = self._activity.listen(pcm, rate, now, over_ours=over_ours, may_rise=answer is None)
        if is_voice and answer is not None and answer.covers_until < now <= answer.voice_counts_until:
            self._went_on(answer)
        voice = self._activity.voice
        is_new = voice is not self._voice and voice is not None
        if is_new:
            # The words of the voice before have not come: the next ones may be its own.
            self._voice_before |= is_open and self._voice is not None and self._voice.until > self._open_since
            self._voice = voice
        if self._recogniser is None or not is_open:
            return
        if voice is None or is_new:
            del self._sound[: -2 * int(rate * _LEAD_SECONDS)]
        self._sound_rate = rate
        if len(self._sound) < 2 * rate * _MAX_SOUND_SECONDS:
            self._sound += pcm

    def heard(self, heard: UserUtterance) -> None:
        """The words of an utterance are complete."""
        ended = heard.ended_at
        is_voice_after = self._voice is not None and ended is not None and self._voice.since > ended
        voice, is_only_voice, sound = (None, False, b"") if is_voice_after else self._take_voice()
        if not self.is_open:
            return
        # A voice that went on behind these words has none of its own yet: the next ones may be its.
        self._voice_before |= voice is not None and _went_beyond(voice, heard)
        starts = [start for start in (heard.started_at, voice.since if voice else None) if start is not None]
        if not starts or ended is None:
            return  # nobody knows whether it began before our own words had ended
        # Words that may be another utterance's, or not all, approve nothing.
        is_own = bool(heard.name) or not is_voice_after
        sure = heard.sure and is_own and (is_only_voice or heard.started_at is not None)
        started, words_at = min(starts), heard.words_at or ended
        is_sounding = voice is not None and self._activity.is_active
        answer = PendingAnswer(
            heard=heard,
            text=heard.text,
            started=started,
            ended=ended,
            confidence=None if sure else 0.0,
            covers_until=ended if heard.name or not is_sounding else words_at + _TAIL_SECONDS,
            spoke_until=max(ended, words_at, voice.until if voice else -inf),
            voice_counts_until=voice.until + FINISHED_SECONDS + _NOTICE_SECONDS if voice else inf,
        )
        if not self._questions.is_answer(started, ended):
            self._do(self._questions.heard(answer.text, started, ended, answer.confidence))
            return
        if self._unjudged is not None:
            self._went_on(self._unjudged)
            return
        if is_voice_after or self._talk.hearing.is_speaking or self._is_more(heard, voice, started, ended):
            self._went_on(answer)
            return
        self._unjudged = answer
        if self._recogniser is not None:
            answer.is_recognised = False
            work = self._recognise(answer, sound, self._sound_rate)
            self._talk.keep(asyncio.get_running_loop().create_task(work))
        self._judge_later(answer)

    def _is_more(self, heard: UserUtterance, voice: VoiceSpan | None, started: float, ended: float) -> bool:
        """Whether somebody noticed more speech than these words are of, until now."""
        if self._started_at > ended or self._stopped_at > min(ended, started + _REACTION_SECONDS):
            return True
        if voice is None:
            return False
        if voice.resumed_at is not None or _went_beyond(voice, heard):
            return True
        return not heard.name and voice.seconds > _longest(heard.text)

    def _take_voice(self) -> tuple[VoiceSpan | None, bool, bytes]:
        """The voice that words are of, whether it was the only one, and its sound."""
        self._activity.take()
        voice, self._voice = self._voice, None
        is_only, self._voice_before = not self._voice_before, False
        sound, self._sound = bytes(self._sound) if voice is not None else b"", bytearray()
        return voice, is_only, sound

    async def _recognise(self, answer: PendingAnswer, sound: bytes, rate: int) -> None:
        try:
            assert self._recogniser is not None
            found = await self._recogniser.recognise(sound, rate) if sound else None
            answer.local = found.verdict if found is not None else None
        except Exception as error:  # noqa: BLE001  # what it cannot hear is no yes
            _LOG.error("The local recogniser failed", exc_info=error)
        answer.is_recognised = True
        if answer is self._unjudged and self._unjudged_timer is None:
            self._judge(answer)

    def _judge_later(self, answer: PendingAnswer) -> None:
        due = answer.spoke_until + FINISHED_SECONDS + _NOTICE_SECONDS
        self._unjudged_timer = asyncio.get_running_loop().call_at(due, self._judge, answer)

    def _judge(self, answer: PendingAnswer) -> None:
        """Nothing more was said for long enough."""
        self._unjudged_timer = None
        if answer is not self._unjudged or not answer.is_recognised:
            return  # it is judged when it is
        self._unjudged = None
        steps = self._questions.heard(answer.text, answer.started, answer.ended, answer.confidence, local=answer.local)
        self._do(steps)
        self.settled()

    def _forget_answer(self) -> None:
        self._unjudged = None
        if self._unjudged_timer is not None:
            self._unjudged_timer.cancel()
            self._unjudged_timer = None

    def settled(self) -> None:
        """What was said is known: what waited for that happens."""
        if self._is_unsettled:
            return
        self._fall_quiet()
        self.consider()

    @property
    def _is_unsettled(self) -> bool:
        return self._unjudged is not None or self._talk.hearing.is_settling

    def our_audio(self, playing: bool) -> None:
        """While it is not known what the person said, it is not known either whether the preview has to be read again."""
        if playing:
            self._quiet_since = None
            self._do(self._questions.our_audio(True, _now()))
            return
        self._quiet_since = _now()
        if not self._is_unsettled:
            self._fall_quiet()

    def _fall_quiet(self) -> None:
        since, self._quiet_since = self._quiet_since, None
        if since is not None:
            self._do(self._questions.our_audio(False, since))

    def opened(self, item: SpokenItem) -> None:
        """The model says something: the reading, if it was asked for one."""
        if item.purpose == "preview":
            self._item = item

    def item_over(self, item: SpokenItem) -> None:
        if item is not self._item or self._reading is None:
            return
        self._fall_quiet()
        asked, self._reading, self._item = self._reading, None, None
        # Whoever took over in the middle has not heard it; nor has anybody whose sound was lost on the way.
        is_another = self._reader is None or self._reader[1] != self._talk.abilities
        if item.cut or not item.reported or is_another or getattr(item, "spoiled", False):
            self._do(self._questions.preview_cut(asked))
        else:
            said = item.text if self._reader is not None and self._reader[0] else None
            self._do(self._questions.preview_spoken(asked, said, _now()))

    def consider(self) -> None:
        """Something happened after which it may be quiet: read what waits to be read."""
        talk = self._talk
        if talk.is_over or talk.is_generating or talk.calls.awaited or talk.playback.latest is not None:
            return
        if self._is_unsettled or talk.hearing.is_speaking or talk.farewell.leave is not None:
            return
        if self._speaks_on():
            return
        if self._reading is not None and self._item is None:
            lost, self._reading = self._reading, None  # the model was asked, and has ended without reading
            self._do(self._questions.preview_cut(lost))
            return
        if self._next is None or self._reading is not None:
            return
        read, self._next = self._next, None
        self._reading, self._item = read.id, None
        self._reader = talk.is_voiced, talk.abilities
        self._tell(read.id, "reading")
        if talk.is_voiced:
            talk.ask_model(say_exactly(read.text), "preview")
            return
        item = self._item = talk.speaking.say(read.text, "preview", "preview")
        item.message = talk.record.say(read.text)
        if item.over:
            self.item_over(item)

    def _speaks_on(self) -> bool:
        """Whether somebody who went on after an answer may still be speaking; it is looked at again when they have finished."""
        now = _now()
        quiet_at = min(self._speaks_on_until, self._activity.heard_at + FINISHED_SECONDS)
        if now >= quiet_at:
            self._speaks_on_until = -inf
            return False
        if self._unjudged_timer is None:
            self._unjudged_timer = asyncio.get_running_loop().call_at(quiet_at, self._look_again)
        return True

    def _look_again(self) -> None:
        self._unjudged_timer = None
        self.consider()

    def _tick(self, id: str) -> None:
        self._stop_timer(id)
        self._do(self._questions.tick(_now()))
        self._misses.pop(id, None)

    def _stop_timer(self, id: str) -> None:
        timer = self._timers.pop(id, None)
        if timer is not None:
            timer.cancel()

    # ------------------------------------------------------------------------------------------- what is done

    def _do(self, steps: Sequence[QuestionStep]) -> None:
        for step in steps:
            match step:
                case ReadPreview():
                    self._next = step
                    self._not_asking()
                case AcceptAnswers(id):
                    # Told when an answer counts, so that nobody is invited to speak too soon.
                    timer = asyncio.get_running_loop().call_later(GUARD_SECONDS, self._tell, id, "asking")
                    self._not_asking()
                    self._asking_timer = timer
                case AnswerMissed(id, count):
                    self._not_asking()
                    self._misses[id] = count
                    self._tell(id, "missed")
                case MoveToScreen(id, reason):
                    self._drop(id)
                    self._tell(id, "screen", reason)
                case QuestionExpired(id):
                    self._drop(id)
                    self._tell(id, "expired")
                case ApproveRequest(id, token):
                    self._answer(id, token, approve=True)
                case DeclineRequest(id, token):
                    self._answer(id, token, approve=False)
        if steps:
            self.consider()

    def _not_asking(self) -> None:
        if self._asking_timer is not None:
            self._asking_timer.cancel()

    def _drop(self, id: str) -> None:
        self._not_asking()
        self._forget_answer()
        if self._next is not None and self._next.id == id:
            self._next = None
        if self._reading == id:
            self._reading = self._item = None

    def _answer(self, id: str, token: str, *, approve: bool) -> None:
        self._drop(id)
        self._answering[id] = approve
        work = self._approve(id, token) if approve else self._decline(id, token)
        self._talk.keep(asyncio.get_running_loop().create_task(work))

    async def _approve(self, id: str, token: str) -> None:
        """The envelope comes as every late one does, by way of the session. A refusal leaves the request on the screen."""
        try:
            answer = await self._talk.runtime.approve(id, token=token, via="voice")
        except HandrailError as error:
            _LOG.error("A spoken yes could not be carried out: %s", error)
            unheard = isinstance(error, StoreUnavailable)
            self._not_taken(id, "not_known" if unheard else "refused", unheard_yes_words() if unheard else "")
            return
        if id not in self._answering:
            return  # the late envelope was here before
        failure = answer.error
        if failure is not None and failure.type is ErrorType.CONFIRMATION_REQUIRED:
            self._answering.pop(id, None)  # it is asked anew, with what has changed
            return
        taken = failure is None or await self._was_taken(id)
        if failure is None or taken:
            self._taken(id, declined=False)
            return
        _LOG.info("A spoken approval was not carried out: %s", failure.message)
        if taken is None:
            self._not_taken(id, "not_known", unheard_yes_words())
        elif failure.type is ErrorType.STORE_UNAVAILABLE:
            self._not_taken(id, "not_started", failure.message)
        else:
            self._not_taken(id, "refused")

    async def _decline(self, id: str, token: str) -> None:
        """A no is told when it was taken: until then the request may be open, and somebody else may have approved it."""
        try:
            answer = await self._talk.runtime.decline(id, token=token)
        except HandrailError as error:
            _LOG.error("A spoken no could not be carried out: %s", error)
            self._not_taken(id, "not_known", unheard_no_words())
            return
        if answer.error is not None and answer.error.type is ErrorType.DECLINED:
            self._taken(id, declined=True)
        else:
            await self._too_late(id)

    async def _too_late(self, id: str) -> None:
        """There was nothing more to decline: somebody had approved it, or nobody could any more."""
        try:
            hold = await self._talk.session.core.store.hold_by_id(id)
        except StoreUnavailable:
            self._not_taken(id, "not_known", unheard_no_words())
            return
        if hold is None or hold.state is HoldState.EXPIRED:
            self._not_taken(id, "", state="expired")
        else:
            self._not_taken(id, "replaced" if hold.state is HoldState.SUPERSEDED else "decided")

    async def _was_taken(self, id: str) -> bool | None:
        """Whether the runtime took an approval whose answer is an error: then it is used up, and the call itself has failed,
        unless its claim was not heard. None: nobody knows, or it may still be taken."""
        core = self._talk.session.core
        try:
            hold = await core.store.hold_by_id(id)
        except StoreUnavailable:
            return None
        if hold is not None and hold.state is HoldState.APPROVED:
            return None
        return (
            hold is not None and hold.state is HoldState.CONSUMED and hold.ledger_key not in core.own_claims.unconfirmed
        )

    def _not_taken(self, id: str, reason: str, message: str = "", *, state: str = "screen") -> None:
        """The request stays on the screen, unless its outcome was told meanwhile; `message` says more about it."""
        if self._answering.pop(id, None) is None or self._talk.is_over:
            return
        self._tell(id, state, reason)
        if message:
            self._talk.tell("error", {"code": reason, "message": message})

    def _taken(self, id: str, declined: bool) -> None:
        """The answer was taken; of an approval that means that the call has ended: whether well, its envelope tells."""
        approve = self._answering.pop(id, None)
        if approve is None:
            return
        if declined:
            self._tell(id, "declined")
        elif approve:
            self._tell(id, "approved")
        else:
            self._tell(id, "screen", "decided")

    def _tell(self, id: str, state: str, reason: str = "") -> None:
        """`reason`: why it is for the screen."""
        told = {"id": id, "state": state, "misses": self._misses.get(id, 0)}
        self._talk.tell("question", {**told, "reason": reason} if reason else told)


def _went_beyond(voice: VoiceSpan, heard: UserUtterance) -> bool:
    """Whether the voice was heard after all that these words can be of."""
    if heard.name:
        return heard.ended_at is not None and voice.until > heard.ended_at
    words_at = heard.words_at or heard.ended_at
    if words_at is None:
        return False
    return voice.until > words_at + _TAIL_SECONDS or (voice.resumed_at is not None and voice.resumed_at > words_at)


def _longest(text: str) -> float:
    """Seconds that nobody needs to say this, however slowly."""
    return 0.4 + 0.1 * sum(map(str.isalnum, text))


def _now() -> float:
    return asyncio.get_running_loop().time()
