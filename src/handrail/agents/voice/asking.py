"""Spoken confirmation in a conversation: the preview is read, its end waited for, the answer heard, and carried out.

`spoken.Questions` decides; this tells it what happened and does what it says. A preview is read when nobody speaks, by the model
(whose transcript must then be the preview) or by the client's own voice, and counts as heard only if the client itself reports
that it was played to its end. Where speech began is taken from whoever noticed it first, the sound itself among them: a provider
may tell of an utterance long after it overlapped ours. The model is never asked what the person meant.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handrail.agents.voice.hearing import PAUSE_SECONDS, Heard
from handrail.agents.voice.items import Item
from handrail.agents.voice.port import Abilities
from handrail.agents.voice.spoken import (
    Approve,
    Ask,
    Decline,
    Expired,
    Missed,
    Questions,
    Read,
    Recogniser,
    Step,
    ToScreen,
    Verdict,
)
from handrail.agents.voice.spoken.questions import GUARD_SECONDS
from handrail.agents.voice.words import say_exactly, unheard_no_words, unheard_yes_words
from handrail.contract.errors import ErrorType, HandrailError
from handrail.contract.store import HoldState, StoreUnavailable

if TYPE_CHECKING:
    from handrail.agents.voice.talk import VoiceTalk

_LOG = logging.getLogger("handrail.agent")
_LOUD = 500
"""A peak above this is taken for a voice; what is taken for one by mistake only keeps an answer from counting."""
_MOST_SECONDS = 15
_TICK_SLACK = 0.05


class Asking:
    """The spoken questions of one conversation."""

    def __init__(self, talk: VoiceTalk, recogniser: Recogniser | None, language: str) -> None:
        self._talk = talk
        self._recogniser = recogniser
        self._questions = Questions(language=language, needs_local=recogniser is not None)
        self._next: Read | None = None
        """What is to be read at the next quiet moment."""
        self._reading: str | None = None
        """The question that the model, or the client's voice, was asked to read."""
        self._item: Item | None = None
        self._reader: tuple[bool, Abilities] | None = None
        """Whether the model reads, and to whom, as it was when the reading began."""
        self._misses: dict[str, int] = {}
        self._answering: dict[str, bool] = {}
        """Answered by voice, with yes or no, and not known yet what the runtime made of it."""
        self._loud_since: float | None = None
        self._loud_until = 0.0
        self._voice_before = False
        """There was another voice since the last words came."""
        self._sound = bytearray()
        self._sound_rate = 0
        self._quiet_since: float | None = None
        """Nothing of ours sounds any more, and the questions do not know it yet."""
        self._deciding = 0
        """Utterances that the local recogniser still listens to: nothing is read before it is known what they were."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """When the time of each question is over."""
        self._asking_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether what is heard may matter to a question."""
        return self._questions.open_id is not None

    def close(self) -> None:
        """The conversation is over: what is open stays open on the screen."""
        self._not_asking()
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
        self._do(self._questions.wanted(told, str(told["token"]), channel, _now(), seconds=left))

    def closed(self, confirmation_id: str, declined: bool) -> None:
        """It was answered, here or elsewhere: what came first counts, also where another answer was on its way."""
        self._taken(confirmation_id, declined)
        if confirmation_id == self._questions.open_id:
            self._not_asking()
        self._do(self._questions.closed(confirmation_id))

    def listener_changed(self) -> None:
        """Another client is on the line: a yes there counts only if the preview was heard there."""
        if self._questions.is_asking:
            self._not_asking()
        self._do(self._questions.listener_changed(_now()))

    def speech_started(self) -> None:
        self._do(self._questions.speech(_now(), _now()))

    def listen(self, pcm: bytes, rate: int) -> None:
        """The user's audio while a question is open: where a voice begins in it, and what a second pair of ears gets."""
        samples = array("h", pcm[: len(pcm) & ~1])
        if samples and (max(samples) > _LOUD or min(samples) < -_LOUD):
            now = _now()
            if self._loud_since is None or now - self._loud_until > PAUSE_SECONDS:
                # The words of the voice before have not come: the next ones may be its own.
                self._voice_before = self._voice_before or self._loud_since is not None
                self._loud_since = now
                self._sound.clear()
            self._loud_until = now
        if self._recogniser is not None and self._loud_since is not None:
            self._sound_rate = rate
            if len(self._sound) < 2 * rate * _MOST_SECONDS:
                self._sound += pcm

    def heard(self, heard: Heard) -> None:
        """The words of an utterance are complete."""
        is_voice_after = self._began_after(heard.ended_at)
        loud, is_only_voice, sound = (None, False, b"") if is_voice_after else self._take_voice()
        if not self.is_open:
            return
        starts = [start for start in (heard.started_at, loud) if start is not None]
        if not starts or heard.ended_at is None:
            return  # nobody knows whether it began before our own words had ended
        # Words that may be another utterance's, or not all, approve nothing; nor do any while the person goes on speaking.
        is_own = bool(heard.name) or not is_voice_after
        sure = heard.sure and is_own and (is_only_voice or heard.started_at is not None)
        confidence = None if sure and not self._talk.hearing.is_speaking else 0.0
        if self._recogniser is None:
            self._do(self._questions.heard(heard.text, min(starts), heard.ended_at, confidence))
            return
        self._deciding += 1
        work = self._heard_twice(heard.text, min(starts), heard.ended_at, confidence, sound, self._sound_rate)
        self._talk.keep(asyncio.get_running_loop().create_task(work))

    def _began_after(self, ended_at: float | None) -> bool:
        """Whether the voice that was heard last began when the utterance had ended."""
        return self._loud_since is not None and ended_at is not None and self._loud_since > ended_at

    def _take_voice(self) -> tuple[float | None, bool, bytes]:
        """The voice that words are of: where it began, whether it was the only one, its sound."""
        loud, self._loud_since = self._loud_since, None
        is_only, self._voice_before = not self._voice_before, False
        sound, self._sound = bytes(self._sound), bytearray()
        return loud, is_only, sound

    async def _heard_twice(
        self, text: str, started: float, ended: float, confidence: float | None, sound: bytes, rate: int
    ) -> None:
        local: Verdict | None = None
        try:
            assert self._recogniser is not None
            found = await self._recogniser.recognise(sound, rate) if sound else None
            local = found.verdict if found is not None else None
        except Exception as error:  # noqa: BLE001  # what it cannot hear is no yes
            _LOG.error("The local recogniser failed", exc_info=error)
        finally:
            self._deciding -= 1
        if not self._talk.is_over:
            self._do(self._questions.heard(text, started, ended, confidence, local=local))
            self.settled()

    def settled(self) -> None:
        """What was said is known: what waited for that happens."""
        if self._is_unsettled:
            return
        self._fall_quiet()
        self.consider()

    @property
    def _is_unsettled(self) -> bool:
        return self._deciding > 0 or self._talk.hearing.is_settling

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

    def opened(self, item: Item) -> None:
        """The model says something: the reading, if it was asked for one."""
        if item.purpose == "preview":
            self._item = item

    def item_over(self, item: Item) -> None:
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

    def _tick(self, id: str) -> None:
        self._stop_timer(id)
        self._do(self._questions.tick(_now()))
        self._misses.pop(id, None)

    def _stop_timer(self, id: str) -> None:
        timer = self._timers.pop(id, None)
        if timer is not None:
            timer.cancel()

    # ------------------------------------------------------------------------------------------- what is done

    def _do(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Read():
                    self._next = step
                    self._not_asking()
                case Ask(id):
                    # Told when an answer counts, so that nobody is invited to speak too soon.
                    timer = asyncio.get_running_loop().call_later(GUARD_SECONDS, self._tell, id, "asking")
                    self._not_asking()
                    self._asking_timer = timer
                case Missed(id, count):
                    self._not_asking()
                    self._misses[id] = count
                    self._tell(id, "missed")
                case ToScreen(id, reason):
                    self._drop(id)
                    self._tell(id, "screen", reason)
                case Expired(id):
                    self._drop(id)
                    self._tell(id, "expired")
                case Approve(id, token):
                    self._answer(id, token, approve=True)
                case Decline(id, token):
                    self._answer(id, token, approve=False)
        if steps:
            self.consider()

    def _not_asking(self) -> None:
        if self._asking_timer is not None:
            self._asking_timer.cancel()

    def _drop(self, id: str) -> None:
        self._not_asking()
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
            answer = await self._talk.runtime.approve(id, token=token)
        except HandrailError as error:
            _LOG.error("A spoken yes could not be carried out: %s", error)
            unheard = isinstance(error, StoreUnavailable)
            self._not_taken(id, "not_known" if unheard else "refused", unheard_yes_words() if unheard else "")
            return
        if id not in self._answering:
            return  # the late envelope was here before
        failure = answer.error
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
        return hold is not None and hold.state is HoldState.CONSUMED and not core.doubts.about(hold)

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


def _now() -> float:
    return asyncio.get_running_loop().time()
