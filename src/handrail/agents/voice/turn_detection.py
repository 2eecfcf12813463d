"""What the user says: utterances, from the provider's or the client's detection of speech and the words that were made of it.

Providers differ. One tells when speech starts and ends, and its words come afterwards, sometimes after the answer. Another tells
words only, and that an input is committed when the model reacts to it. Either way an utterance gets its words, and a turn.

Where utterances have names, words belong to the one that they name, and those of an unknown one to nobody. Where they have none,
words are credited by their order, and an utterance that may have got another one's words is not `sure`.

Nor is it told then that all words have come: not by the end of speech, nor, where that is not told either, by the model's first
output, which shows that the input is committed. Nothing orders them. So such an utterance is complete when the provider says that
its words are, or when no more have come for a while. More that come in another utterance before that make it unsure, and so do
words that come late: long after its end, or when something of ours has begun since, to which they may be the answer. The client's
own detection changes nothing of that: it says when somebody spoke, and knows nothing of the provider's words.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from handrail.agents.voice.voice_turns import VoiceTurn
from handrail.contract.live import InputTranscript

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

_MAX_WORDS = 16_000
_MAX_NAMED = 50
_SETTLE_SECONDS = 1.0
"""How long words may be apart that belong together, where nobody tells that they are all."""
_SILENT_SECONDS = 3.0
"""Whoever is known to speak by words alone has finished when none have come for so long."""
PAUSE_SECONDS = 1.5
"""Voices that are so far apart are two utterances. Words that come later than that after theirs are rare, and may be others'."""


class UserUtterance:
    """One utterance."""

    __slots__ = (
        "closed",
        "ended_at",
        "final",
        "input_id",
        "item",
        "name",
        "started_at",
        "sure",
        "text",
        "turn",
        "words_at",
    )

    def __init__(self, item: int, input_id: str, started_at: float | None, sure: bool) -> None:
        self.item = item
        self.name = ""
        """The provider's, if it has names."""
        self.input_id = input_id
        self.sure = sure
        """Its words are its own, and all of them."""
        self.started_at = started_at
        """None: nobody noticed the beginning, only the words."""
        self.ended_at: float | None = None
        self.words_at: float | None = None
        self.text = ""
        self.closed = False
        """The provider said that the last piece was the last."""
        self.final = False
        self.turn: VoiceTurn | None = None


class TurnDetection:
    """The user's side of one conversation."""

    def __init__(self, talk: VoiceSession) -> None:
        self._talk = talk
        self._now: UserUtterance | None = None
        """What is being said, or was and is not committed."""
        self._last: UserUtterance | None = None
        """What was committed last; its words may still come."""
        self._named: dict[str, UserUtterance] = {}
        self._starts_are_told = False
        """Somebody tells when speech starts: the provider, or the client."""
        self._provider_tells = False
        """The provider itself tells when speech starts and ends."""
        self.is_speaking = False
        self._client_ended: float | None = None
        self._settling: UserUtterance | None = None
        """What was committed, and may get more words."""
        self._timer: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        """Where only words tell that somebody speaks, that none have come for a while."""
        self._told = ""
        """The words that were told as all of it when it was committed."""

    @property
    def is_settling(self) -> bool:
        """Whether something was said of which it is not known yet what it was."""
        return self._settling is not None

    @property
    def is_uncommitted(self) -> bool:
        """Whether something is being said, or was, that has no turn yet."""
        return self._now is not None

    def started(self, ago_seconds: float = 0.0) -> None:
        """The user begins to speak, or began so long ago."""
        self._starts_are_told = True
        self.is_speaking = True
        self._client_ended = None
        at = asyncio.get_running_loop().time() - ago_seconds
        if self._now is None:
            self._now = self._new(at)
        self._talk.asking.speech_started(at)
        self._talk.farewell.spoken_into()

    def begins(self, name: str) -> None:
        """The provider tells of an utterance, and its name; one that somebody else noticed and that has none yet is it."""
        self._provider_tells = True
        if not name:
            return
        if self._now is None or self._now.name:
            self._now = self._new(asyncio.get_running_loop().time())
        self._name(self._now, name)

    def client_ended(self) -> None:
        """The client's own detection says that the user stopped; words follow, or the provider hears it too."""
        self.is_speaking = False
        self._client_ended = asyncio.get_running_loop().time()

    def lost(self) -> None:
        """The provider's ears are gone, and with them what was said into them and not committed; the next ones hear anew."""
        self.is_speaking = False
        self._break_off()
        self._named.clear()
        if self._now is not None:
            self._now.name = ""
            if not self._now.text:
                self._now = None

    @property
    def is_committed(self) -> bool:
        """Whether nothing was said that the last commit does not cover, its late words included."""
        return self._now is None and self._last is not None and not self._last.final

    def committed(self, name: str = "") -> None:
        """The provider takes the user's speech to be complete: a turn begins with it."""
        self.is_speaking = False
        self._break_off()
        heard = self._ended(name)
        self._now, self._last = None, heard
        now = asyncio.get_running_loop().time()
        # Where only words tell of speech, the last of them ended it; the commit comes with the answer.
        heard.ended_at = now if self._provider_tells else heard.words_at or now
        self._talk.farewell.person_spoke(heard.started_at)
        heard.turn = self._talk.turns.begin(heard.input_id, heard.text, spoke_until=self._take_end(now))
        if heard.text and not heard.name:
            self._told = heard.text
            self._tell(heard, "", final=True)
            self._settle(heard)

    def words(self, event: InputTranscript) -> None:
        owner = self._named.get(event.item) if event.item or self._named else self._owner()
        if any(map(str.isalnum, event.text)):
            self._talk.asking.more_words(owner)
        if owner is None or (event.item and owner.final):
            return  # nobody knows when that was said, or it was told before
        heard = owner
        now = asyncio.get_running_loop().time()
        if self._may_be_of_another(heard, event.text, now):
            heard.sure = False
        heard.words_at = now
        if heard.turn is None and not heard.text:
            self._talk.user_speaks()
        if not heard.final:
            whole = event.whole if event.final and heard.name else heard.text + event.text
            heard.text = whole[:_MAX_WORDS]
        self._tell(heard, event.text, event.final)
        if heard.turn is not None and heard.text.strip():
            self._talk.turns.heard(heard.turn, heard.text)
        heard.closed = event.final
        if self._settling is not None and heard is not self._settling:
            self._settling.sure = False
        if heard.final:
            return
        if not heard.name:
            if heard.turn is not None:
                self._settle(heard)
        elif event.final:
            heard.final = True
            self._talk.understood(heard)

    def said(self, text: str, input_id: str, *, spoken: bool) -> VoiceTurn:
        """Words that the client recognised, or the user typed: complete at once."""
        self._break_off()
        now = asyncio.get_running_loop().time()
        heard = self._now if spoken and self._now is not None else self._new()
        self._now, self._last = None, heard
        self.is_speaking = False
        heard.input_id, heard.text, heard.final = input_id, text, True
        ended = self._take_end(now) if spoken else None
        heard.ended_at = ended or now
        self._talk.farewell.person_spoke(heard.started_at or now)
        heard.turn = self._talk.turns.begin(input_id, text, spoke_until=ended)
        self._tell(heard, text, final=True)
        if spoken:
            self._talk.understood(heard)
        else:
            self._talk.asking.typed()
        return heard.turn

    def _ended(self, name: str) -> UserUtterance:
        """The utterance that is complete now."""
        named = self._named.get(name)
        if named is not None and named.turn is None:
            return named
        heard = self._now if self._now is not None and not (name and self._now.name) else self._new()
        if name:
            self._name(heard, name)
        return heard

    def _name(self, heard: UserUtterance, name: str) -> None:
        heard.name, heard.sure = name, True
        self._named[name] = heard
        if len(self._named) > _MAX_NAMED:
            del self._named[next(iter(self._named))]

    def _owner(self) -> UserUtterance:
        """The utterance that words without a name belong to."""
        last = self._last
        if self._now is None and last is not None and last.turn is not None:
            if self._provider_tells and not last.final:
                return last
            # Where it does not tell, words during the answer are late ones of what it answers.
            if not self._provider_tells and not last.turn.done and last.turn is self._talk.turns.current:
                return last
        if self._now is None:
            # Words alone: they were begun before they came, and when, the sound itself may tell.
            self._now = self._new(None)
        if not self._starts_are_told:
            self.is_speaking = True
            self._fall_silent_later()
        return self._now

    def _fall_silent_later(self) -> None:
        """Words may be late ones of an input that was answered: nobody tells that their speaker has finished."""
        if self._silence is not None:
            self._silence.cancel()
        self._silence = asyncio.get_running_loop().call_later(_SILENT_SECONDS, self._fall_silent)

    def _fall_silent(self) -> None:
        if not self._starts_are_told and not self._talk.is_over:
            self.is_speaking = False
            self._talk.settle()

    def _may_be_of_another(self, heard: UserUtterance, text: str, now: float) -> bool:
        """Whether words that nobody names come too late for an utterance that has ended."""
        if heard.name or heard.ended_at is None or not any(map(str.isalnum, text)):
            return False
        is_long_ago = not heard.text and now - heard.ended_at > PAUSE_SECONDS
        return is_long_ago or self._talk.playback.began_at >= heard.ended_at

    def _settle(self, heard: UserUtterance) -> None:
        """Wait for more words, if there may be more."""
        self._settling = heard
        if self._timer is not None:
            self._timer.cancel()
        if heard.closed:
            self._settled()
        else:
            self._timer = asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self._settled)

    def _break_off(self) -> None:
        """Something else happens before it is known whether those were all words."""
        if self._settling is not None:
            self._settling.sure = False
            self._settled()

    def _settled(self) -> None:
        heard, self._settling = self._settling, None
        if self._timer is not None:
            self._timer.cancel()
        if heard is None or self._talk.is_over:
            return
        heard.final = True
        if heard.text != self._told:
            self._tell(heard, "", final=True)
        self._talk.understood(heard)
        self._talk.asking.settled()

    def _take_end(self, now: float) -> float:
        ended, self._client_ended = self._client_ended, None
        return ended if ended is not None else now

    def _new(self, started_at: float | None = None) -> UserUtterance:
        sure = self._last is None or self._last.final
        return UserUtterance(self._talk.next_item(), self._talk.turns.next_input_id(), started_at, sure)

    def _tell(self, heard: UserUtterance, piece: str, final: bool) -> None:
        self._talk.tell_transcript("user", heard.item, heard.input_id, piece, heard.text, final)
