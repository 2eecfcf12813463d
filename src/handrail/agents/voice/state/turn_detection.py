"""What the user says: voices in the sound, utterances that are made of them and of words, and the turns that they begin. Pure.

Providers differ. One reports when speech starts and ends, and its words come afterwards, sometimes after the answer. Another
reports words only, and that an input is committed when the model reacts to it. Either way an utterance gets its words and a turn.

Where utterances have names, words belong to the one that they name, and those of an unknown one to nobody. Where they have none,
words are credited by their order, and an utterance that may have got another one's words is not `sure`.

Nobody reports then that all words have come: neither the end of speech does, nor the model's first output. So such an utterance
is complete when the provider says that its words are, or when no more have come for a while. Words of another utterance before
that make it unsure. So do words that come late: long after its end, or after something of ours has begun, which they may answer.
The client's own detection changes nothing of that: it reports when somebody spoke, and knows nothing of the provider's words.

`VoiceActivity` finds voices by the microphone's level: what stands out from the noise that was heard before it. The noise is a
running mean over frames that are not loud, so it follows slow changes such as those of a gain control. It falls with the room at
once, and rises to a new sound only when that has lasted for `_RISE_SECONDS`, or at the very beginning for `_FIRST_SECONDS`. A
frame is loud when it is well above that noise. Audio that a client leaves out is silence. What is taken for a voice by mistake
only keeps an answer from counting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import hypot, inf, log10
from typing import Protocol

from handrail.agents.voice.state.events_and_effects import EffectQueue, Timer, TimerKind
from handrail.agents.voice.state.speech_output import SpeechOutput
from handrail.agents.voice.state.voice_turns import VoiceTurn, VoiceTurns
from handrail.contract.live import InputTranscript

_MAX_WORDS = 16_000
_MAX_NAMED = 50
_SETTLE_SECONDS = 1.0
"""How far apart words may be that belong together, where nobody reports that they are all."""
_SILENT_SECONDS = 3.0
"""Where only words show speech, the speaker has finished when none have come for this long."""
PAUSE_SECONDS = 1.5
"""Voices farther apart than this are two utterances. Words that come later after theirs are rare, and may be others'."""
SEPARATE_SECONDS = 1.5
"""Voices that are so far apart are two utterances."""
BREAK_SECONDS = 0.16
"""A shorter pause is the closure of a consonant, or a soft one in noise."""
_DIP_SECONDS = 0.06
_MIN_SECONDS = 0.06
"""What is loud for a shorter time is a click."""
_RISE_SECONDS = 3.0
_FIRST_SECONDS = 1.0
_MEAN_SECONDS = 0.5
_BLOCK_SECONDS = 0.25
_FRAME_SECONDS = 0.02
_LEVEL_RATE = 3_200
"""Samples a second: enough to tell the level of a voice."""
_FULL_SCALE = 32768.0**2


def _ratio(decibels: float) -> float:
    return float(10.0 ** (decibels / 10))


_MARGIN = _ratio(6.0)
_ECHO = _ratio(-12.0)
"""Beside our own sound, what is so much fainter than the utterance before is taken for our echo."""
_FAINTEST = _ratio(-50.0)
"""No voice is fainter than this, however quiet the room is."""
_QUIET_ROOM = _ratio(-60.0)
_SMALL = 1e-9


@dataclass(slots=True)
class VoiceSpan:
    """One utterance as it was heard. Moments are those in which its audio came."""

    since: float
    until: float
    seconds: float = 0.0
    """How long it was loud."""
    energy: float = 0.0
    resumed_at: float | None = None
    """When it continued after a break, the last time."""


class VoiceActivity:
    """The user's voice in the audio of one conversation."""

    def __init__(self) -> None:
        self.voice: VoiceSpan | None = None
        """The utterance that was heard last; set to None when it is taken: what is heard from then on is another one."""
        self.is_active = False
        """Whether it is being heard, with no break since."""
        self._last_power = 0.0
        """Of the utterance that was heard last, its mean."""
        self.heard_at = -inf
        """When a voice was heard last."""
        self._noise = _QUIET_ROOM
        self._blocks: deque[tuple[float, float]] = deque(maxlen=round(_RISE_SECONDS / _BLOCK_SECONDS))
        """Mean and greatest power of each block of audio, the latest last."""
        self._energy, self._greatest, self._block_seconds = 0.0, 0.0, 0.0
        self._came_at = inf
        """When audio came last."""
        self._needed = round(_FIRST_SECONDS / _BLOCK_SECONDS)
        """Blocks that tell what is noise."""
        self._onset: VoiceSpan | None = None
        """What is loud now, and may be a click."""
        self._onset_gap = inf
        """How long there was no voice before it."""
        self._quiet = inf
        """Seconds of audio since the last loud frame."""
        self._without = inf
        """Seconds of audio since the last frame of a voice."""

    @property
    def noise_level(self) -> float:
        """In decibels of full scale."""
        return 10 * log10(self._noise)

    def listen(self, pcm: bytes, rate: int, now: float, *, over_ours: bool = False, may_rise: bool = True) -> bool:
        """Whether a voice is heard in this audio.

        `over_ours`: we sound as well. `may_rise`: a sound that lasts may become noise.
        """
        samples = memoryview(pcm[: len(pcm) & ~1]).cast("h")
        size, stride = max(1, int(rate * _FRAME_SECONDS)), max(1, rate // _LEVEL_RATE)
        length = len(samples) / rate
        if now - self._came_at - length > _BLOCK_SECONDS:
            # Left-out audio is a block that neither raises the noise (its mean is 0) nor lowers it (its peak is unknown).
            self._blocks.append((0.0, inf))
        self._came_at = now
        heard = False
        for place in range(0, len(samples), size):
            taken = samples[place : place + size : stride]
            level = hypot(*taken)  # half the time of a sum of products, and this is done for every frame of everybody
            power = level * level / (len(taken) * _FULL_SCALE)
            seconds = min(size, len(samples) - place) / rate
            threshold = max(self._noise * _MARGIN, _FAINTEST)
            if over_ours and now - self.heard_at < SEPARATE_SECONDS:
                threshold = max(threshold, self._last_power * _ECHO)
            if power >= threshold:
                heard = self._loud(power, seconds, now, length) or heard
            else:
                self._quiet += seconds
                self._without += seconds
                if self._quiet >= BREAK_SECONDS:
                    self.is_active = False
                self._noise += (power - self._noise) * min(1.0, seconds / _MEAN_SECONDS)
            # The noise stays between the quietest block and the loudest frame of what was heard lately.
            self._energy += power * seconds
            self._greatest = max(self._greatest, power)
            self._block_seconds += seconds
            if self._block_seconds + _SMALL < _BLOCK_SECONDS:
                continue
            blocks = self._blocks
            blocks.append((self._energy / self._block_seconds, self._greatest))
            self._energy, self._greatest, self._block_seconds = 0.0, 0.0, 0.0
            if len(blocks) > 1:
                self._noise = min(self._noise, max(blocks[-1][1], blocks[-2][1]))
            if may_rise and len(blocks) >= self._needed:
                self._noise = max(self._noise, min(mean for mean, _ in blocks))
            if len(blocks) == blocks.maxlen:
                self._needed = len(blocks)
            self._noise = max(self._noise, _SMALL)
        return heard

    def _loud(self, power: float, seconds: float, now: float, length: float) -> bool:
        """A loud frame, in audio of this length; whether it is of a voice."""
        pause, self._quiet = self._quiet, 0.0
        voice, onset = self.voice, self._onset
        # Audio that a client left out is a pause as well.
        left_out = now - self.heard_at - length
        if self.is_active and voice is not None and left_out < BREAK_SECONDS:
            loud = VoiceSpan(now, now, seconds, power * seconds)
        else:
            if onset is None or pause > _DIP_SECONDS:
                self._onset_gap = max(self._without, left_out)
                onset = self._onset = VoiceSpan(now, now)
            self._without += seconds
            onset.until = now
            onset.seconds += seconds
            onset.energy += power * seconds
            if onset.seconds + _SMALL < _MIN_SECONDS:
                return False
            self._onset, self.is_active, loud = None, True, onset
            if voice is None or self._onset_gap > SEPARATE_SECONDS:
                voice = self.voice = VoiceSpan(onset.since, onset.until)
            elif self._onset_gap >= BREAK_SECONDS:
                voice.resumed_at = onset.since
        self._without = 0.0
        voice.until = loud.until
        voice.seconds += loud.seconds
        voice.energy += loud.energy
        self.heard_at, self._last_power = voice.until, voice.energy / voice.seconds
        return True


@dataclass(slots=True, eq=False)
class UserUtterance:
    """One utterance."""

    item: int
    input_id: str
    started_at: float | None
    """None: nobody noticed the beginning, only the words."""
    sure: bool
    """Its words are its own, and all of them."""
    name: str = ""
    """The provider's, if it has names."""
    ended_at: float | None = None
    words_at: float | None = None
    text: str = ""
    closed: bool = False
    """The provider said that the last piece was the last."""
    final: bool = False
    turn: VoiceTurn | None = None
    typed: bool = False


class SpeechObserver(Protocol):
    """Learns what the user says, in the order in which it becomes known."""

    def first_words_came(self) -> None:
        """The first words of an utterance that is not committed."""
        ...

    def utterance_committed(self, utterance: UserUtterance, spoke_until: float | None) -> VoiceTurn:
        """It begins a turn."""
        ...

    def utterance_complete(self, utterance: UserUtterance) -> None:
        """All of its words are known."""
        ...

    def words_settled(self) -> None:
        """What was said is known, so what waited for that may happen."""
        ...

    def voice_fell_silent(self) -> None: ...


class TurnDetection:
    """The user's side of one conversation."""

    def __init__(self, effects: EffectQueue, turns: VoiceTurns, speech: SpeechOutput, observer: SpeechObserver) -> None:
        self._effects = effects
        self._turns = turns
        self._speech = speech
        self._observer = observer
        self._now: UserUtterance | None = None
        """What is being said, or was and is not committed."""
        self._last: UserUtterance | None = None
        """What was committed last; its words may still come."""
        self.words_came: Callable[[UserUtterance | None], None] | None = None
        """Learns whose words come, before they are credited; None: nobody knows whose."""
        self._named: dict[str, UserUtterance] = {}
        self._starts_are_reported = False
        """Somebody reports when speech starts: the provider, or the client."""
        self._provider_reports = False
        """The provider itself reports when speech starts and ends."""
        self.is_speaking = False
        self.began_at: float | None = None
        """When speech began, by the last report of it."""
        self._client_ended: float | None = None
        self.settling: UserUtterance | None = None
        """What was committed, and may get more words: it is not known yet what was said."""
        self._reported = ""
        """The words that were reported as all of it when it was committed."""

    @property
    def is_uncommitted(self) -> bool:
        """Whether something is being said, or was, that has no turn yet."""
        return self._now is not None

    @property
    def is_committed(self) -> bool:
        """Whether nothing was said that the last commit does not cover, its late words included."""
        return self._now is None and self._last is not None and not self._last.final

    @property
    def awaited(self) -> UserUtterance | None:
        """What was committed last, if it has a name and its words have not come."""
        last = self._last
        return last if last is not None and last.name and not last.final else None

    def started(self, ago_seconds: float = 0.0, name: str = "", *, by_provider: bool = False) -> float:
        """The user begins to speak, or began some time ago; the moment of it.

        The provider may have a name for the utterance: one that somebody else noticed and that has none yet is it.
        """
        at = self.began_at = self._effects.now - ago_seconds
        self._provider_reports = self._provider_reports or by_provider
        self._starts_are_reported = self.is_speaking = True
        self._client_ended = None
        if self._now is None or (name and self._now.name):
            self._now = self._new(at)
        if name:
            self._name(self._now, name)
        return at

    def client_ended(self) -> None:
        """The client's own detection says that the user stopped; words follow, or the provider hears it too."""
        self.is_speaking = False
        self._client_ended = self._effects.now

    def lost(self) -> None:
        """The connection is gone, and with it what was said into it and not committed; the next one hears anew."""
        self.is_speaking = False
        if self.settling is not None:
            self._break_off(self.settling)
        # The next connection may use the same names for other utterances.
        self._named.clear()
        if self._now is not None:
            self._now.name = ""
            if not self._now.text:
                self._now = None

    def committed(self, name: str = "") -> None:
        """The provider takes the user's speech to be complete: a turn begins with it."""
        self.is_speaking = False
        if self.settling is not None:
            self._break_off(self.settling)
        now, heard = self._effects.now, self._named.get(name)
        if heard is None or heard.turn is not None:
            heard = self._now if self._now is not None and not (name and self._now.name) else self._new()
            if name:
                self._name(heard, name)
        self._now, self._last = None, heard
        # Where only words show speech, the last of them ended it; the commit comes with the answer.
        heard.ended_at = now if self._provider_reports else heard.words_at or now
        spoke_until, self._client_ended = now if self._client_ended is None else self._client_ended, None
        heard.turn = self._observer.utterance_committed(heard, spoke_until)
        if heard.text and not heard.name:
            self._reported = heard.text
            self._speech.report_words("user", heard.item, heard.input_id, "", heard.text, final=True)
            self._settle(heard)

    def words(self, event: InputTranscript) -> None:
        owner = self._named.get(event.item) if event.item or self._named else self._owner()
        has_letters = any(map(str.isalnum, event.text))
        if self.words_came is not None and has_letters:
            self.words_came(owner)
        if owner is None or (event.item and owner.final):
            return  # nobody knows when that was said, or it was reported before
        heard = owner
        now = self._effects.now
        if not heard.name and heard.ended_at is not None and has_letters:
            # Words that nobody names, and that come too late for an utterance that has ended, may be of another.
            is_long_ago = not heard.text and now - heard.ended_at > PAUSE_SECONDS
            if is_long_ago or self._speech.playback.began_at >= heard.ended_at:
                heard.sure = False
        heard.words_at = now
        if heard.turn is None and not heard.text:
            self._observer.first_words_came()
        if not heard.final:
            whole = event.whole if event.final and heard.name else heard.text + event.text
            heard.text = whole[:_MAX_WORDS]
        self._speech.report_words("user", heard.item, heard.input_id, event.text, heard.text, final=event.final)
        if heard.turn is not None and heard.text.strip():
            self._turns.heard(heard.turn, heard.text)
        heard.closed = event.final
        if self.settling is not None and heard is not self.settling:
            self.settling.sure = False
        if heard.final:
            return
        if not heard.name:
            if heard.turn is not None:
                self._settle(heard)
        elif event.final:
            heard.final = True
            self._observer.utterance_complete(heard)

    def said(self, text: str, input_id: str, *, spoken: bool) -> None:
        """Words that the client recognised, or the user typed: complete at once."""
        if self.settling is not None:
            self._break_off(self.settling)
        now = self._effects.now
        heard = self._now if spoken and self._now is not None else self._new()
        self._now, self._last = None, heard
        self.is_speaking = False
        heard.input_id, heard.text, heard.final = input_id, text, True
        heard.typed = not spoken
        spoke_until = None
        if spoken:
            spoke_until, self._client_ended = now if self._client_ended is None else self._client_ended, None
        heard.ended_at = spoke_until or now
        heard.turn = self._observer.utterance_committed(heard, spoke_until)
        self._speech.report_words("user", heard.item, input_id, text, text, final=True)
        self._observer.utterance_complete(heard)

    def settle_elapsed(self) -> None:
        """No more words have come for a while."""
        self._settled()

    def silence_elapsed(self) -> None:
        """No words have come for so long that their speaker has finished, where only words show that somebody speaks."""
        if not self._starts_are_reported:
            self.is_speaking = False
            self._observer.voice_fell_silent()

    def _name(self, heard: UserUtterance, name: str) -> None:
        heard.name, heard.sure = name, True
        self._named[name] = heard
        if len(self._named) > _MAX_NAMED:
            del self._named[next(iter(self._named))]

    def _owner(self) -> UserUtterance:
        """The utterance that words without a name belong to."""
        last = self._last
        if self._now is None and last is not None and last.turn is not None:
            if self._provider_reports and not last.final:
                return last
            # Where it does not report speech, words during the answer are late ones of what it answers.
            if not self._provider_reports and not last.turn.done and last.turn is self._turns.current:
                return last
        if self._now is None:
            # Words alone: they were begun before they came, and when, the sound itself may show.
            self._now = self._new(None)
        if not self._starts_are_reported:
            self.is_speaking = True
            # These may be late words of an input that was answered: nobody reports that their speaker has finished.
            self._effects.timers[Timer(TimerKind.WORDS_STOPPED)] = self._effects.now + _SILENT_SECONDS
        return self._now

    def _settle(self, heard: UserUtterance) -> None:
        """Wait for more words, if there may be more."""
        self.settling = heard
        self._effects.timers.pop(Timer(TimerKind.WORDS_SETTLED), None)
        if heard.closed:
            self._settled()
        else:
            self._effects.timers[Timer(TimerKind.WORDS_SETTLED)] = self._effects.now + _SETTLE_SECONDS

    def _break_off(self, heard: UserUtterance) -> None:
        """Something else happens before it is known whether those were all words."""
        heard.sure = False
        self._settled()

    def _settled(self) -> None:
        heard, self.settling = self.settling, None
        self._effects.timers.pop(Timer(TimerKind.WORDS_SETTLED), None)
        if heard is None:
            return
        heard.final = True
        if heard.text != self._reported:
            self._speech.report_words("user", heard.item, heard.input_id, "", heard.text, final=True)
        self._observer.utterance_complete(heard)
        self._observer.words_settled()

    def _new(self, started_at: float | None = None) -> UserUtterance:
        self._speech.items += 1
        is_sure = self._last is None or self._last.final
        return UserUtterance(self._speech.items, self._turns.next_input_id(), started_at, is_sure)
