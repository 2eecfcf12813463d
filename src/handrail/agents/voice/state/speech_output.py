"""What the user hears of us, and how much of it was heard: the model's sound and words, and the host's. Pure.

An item is what the model says in one go: it ends where the model calls, ends its turn, or is cut off. One item is open at a
time. A tool may ask for silence: then sound is not sent and words are not reported, and both are still written down.

An item that the client does not report in time is taken to be played, so that nothing waits for a client for ever. Whoever
must know that it was heard looks at `reported`. An item that lost sound on the way is `spoiled`: nobody has heard it to its end,
whatever the client says. Nor is sound played faster than it lasts: a report that comes sooner counts when that time has passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Literal

from handrail.agents.voice.host_port import Abilities, Sound
from handrail.agents.voice.state.events_and_effects import EffectQueue, TellClient, Timer, TimerKind
from handrail.agents.voice.state.session_port import SessionPort
from handrail.contract.live import AudioOut, LiveCounters, OutputTranscript

if TYPE_CHECKING:
    from handrail.agents.voice.state.voice_turns import VoiceTurn
    from handrail.contract.model import AssistantMessage

Purpose = Literal["answer", "preview", "farewell"]
SpeakKind = Literal["answer", "filler", "preview", "notice"]
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+")
_MAX_UNSPOKEN = 400
_MAX_CHARACTERS = 100_000
_MAX_UNCLAIMED = 50
_CLOSE_MS = 40
"""A client that has reported this little less than all has played it all: positions are rounded to its buffers."""
_MAX_KEPT = 50
FASTEST = 1.05
"""No client plays sound faster than this, by a clock of its own or to catch up."""
_FASTEST_SPEECH = 50
"""Characters a second; no voice is quicker."""


@dataclass(slots=True, eq=False)
class SpokenItem:
    """Something that the model says, or the host in its place."""

    number: int
    turn: VoiceTurn | None
    """None: nobody knows yet to which turn it belongs."""
    began: float
    purpose: Purpose = "answer"
    pieces: list[str] = field(default_factory=list)
    characters: int = 0
    """Of the pieces."""
    unspoken: str = ""
    """Words that wait for the end of their sentence before the client's voice gets them."""
    speaks: dict[str, str] = field(default_factory=dict)
    """What the client's voice was given and has not reported yet."""
    given: int = 0
    """How many pieces the client's voice was given."""
    sent_bytes: int = 0
    sent_ms: int = 0
    played_ms: int = 0
    played_from: float = -inf
    """The earliest moment in which all that was sent of it can have been played."""
    played_by_report: bool = False
    """The client has reported its end before that moment."""
    complete: bool = False
    """Nothing more will come."""
    over: bool = False
    """Played to its end, or taken to be, or cut off."""
    reported: bool = False
    """The client itself said that it was played to its end, and all of it had reached that client."""
    spoiled: bool = False
    """Some of it did not reach the client, or the client is another one than when it began."""
    cut: bool = False
    failed: bool = False
    """The client's voice broke off in it."""
    message: AssistantMessage | None = None
    """As it stands in the conversation."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def heard_text(self) -> str:
        """The words that the user has heard, as far as that is known from the sound that was played."""
        text = self.text
        if not self.sent_ms or self.played_ms >= self.sent_ms:
            return text if self.sent_ms or not self.speaks else _without_last(text, self.speaks)
        # Providers do not say which word is at which moment; as many words as time is close enough, and never cut in two.
        words = text[: len(text) * self.played_ms // self.sent_ms]
        if len(words) < len(text) and not text[len(words) : len(words) + 1].isspace():
            words = words.rpartition(" ")[0]
        return words.rstrip()


def _without_last(text: str, waiting: dict[str, str]) -> str:
    """What stands before the first sentence that the client's voice has not finished."""
    first = next(iter(waiting.values()))
    place = text.find(first)
    return text[:place].rstrip() if place >= 0 else text


class Playback:
    """Which items are still to be heard. Calls `over` for each that is over, and `playing` when sound begins or ends."""

    def __init__(
        self, effects: EffectQueue, patience: float, over: Callable[[SpokenItem], None], playing: Callable[[bool], None]
    ) -> None:
        self._effects = effects
        self._patience = patience
        """How many seconds longer than the sound itself a client may take to report it."""
        self._over = over
        self._playing = playing
        self._items: dict[int, SpokenItem] = {}
        self._due: dict[int, SpokenItem] = {}
        """Those with a timer; an item may have left `_items` before its time is over."""
        self._ends_at = -inf
        """When the sound that was sent will have been played at its own pace."""
        self.is_playing = False
        self.playing_since = -inf
        self.began_at = -inf
        """When the latest item began."""

    def add(self, item: SpokenItem) -> None:
        self._items[item.number] = item
        self.began_at = item.began
        for number in list(self._items)[:-_MAX_KEPT]:
            del self._items[number]

    def of(self, purpose: Purpose) -> list[SpokenItem]:
        return [item for item in self._items.values() if item.purpose == purpose]

    @property
    def latest(self) -> SpokenItem | None:
        """The item that was given to the client last and that it may still be playing."""
        return next(
            (one for one in reversed(self._items.values()) if not one.over and (one.sent_ms or one.given)), None
        )

    def sent(self, milliseconds: float, item: SpokenItem, min_ms: float | None = None) -> None:
        """Sound of this length was given to the client, which cannot play it in less than `min_ms`."""
        now = self._effects.now
        # Sound queues up at the client: this piece begins when the one before it has ended.
        self._ends_at = max(now, self._ends_at) + milliseconds / 1000
        min_ms = milliseconds / FASTEST if min_ms is None else min_ms
        # A client that reports a preview as heard before it can have been played is not believed.
        item.played_from = max(now, item.played_from) + min_ms / 1000
        if not self.is_playing:
            self.is_playing, self.playing_since = True, now
            self._playing(True)

    def given(self, item: SpokenItem, id: str, text: str) -> None:
        """Words were given to the client's own voice. Nobody knows how long it takes; about fifteen characters a second."""
        item.speaks[id] = text
        item.given += 1
        self.sent(1000 * len(text) / 15, item, 1000 * len(text) / _FASTEST_SPEECH)

    def completed(self, item: SpokenItem) -> None:
        """No more of the item will come: it is over when it was played."""
        item.complete = True
        if item.over:
            return
        # A tool asked for silence, or the client can neither play nor speak: there is nothing to wait for.
        if not (item.sent_ms or item.given):
            self._end(item)
            return
        if self._is_played(item):
            self._heard_to_its_end(item)
            return
        self._due[item.number] = item
        due = max(self._effects.now, self._ends_at) + self._patience
        self._effects.timers[Timer(TimerKind.ITEM_PLAYED, item.number)] = due

    def elapsed(self, number: int) -> None:
        """The time of this item is over: it was reported before it can have been played, or never."""
        item = self._due.pop(number, None)
        if item is None:
            return
        if item.played_by_report:
            self._heard_to_its_end(item)
        else:
            self._end(item)

    def _heard_to_its_end(self, item: SpokenItem) -> None:
        """The client reports that it has played all that it will: believed when it can be true."""
        if self._effects.now < item.played_from:
            item.played_by_report = True
            self._due[item.number] = item
            self._effects.timers[Timer(TimerKind.ITEM_PLAYED, item.number)] = item.played_from
            return
        item.reported = self._is_heard(item)
        self._end(item)

    def played(self, number: int, ms: int, done: bool) -> None:
        """The client reports. Items before this one are over by it; whether they were heard, their own reports said."""
        item = self._items.get(number)
        if item is None or item.over or not item.sent_ms:
            return
        # A client may report out of order, or more than it was sent.
        item.played_ms = max(item.played_ms, min(ms, item.sent_ms))
        for earlier in [one for one in self._items.values() if one.number < number and one.sent_ms and not one.over]:
            if earlier.complete:
                earlier.reported = self._is_heard(earlier) and self._effects.now >= earlier.played_from
                self._end(earlier)
        if item.complete and self._is_played(item):
            self._heard_to_its_end(item)
        elif item.complete and done:
            self._end(item)

    def lost(self, number: int | None) -> None:
        """Some of this item, or of everything that is not over (None), did not reach the client."""
        for item in self._items.values():
            if not item.over and number in (None, item.number):
                item.spoiled = True

    def spoken(self, id: str, completed: bool) -> None:
        """The client's voice reports. What it could not finish was not heard to its end."""
        item = next((one for one in self._items.values() if id in one.speaks), None)
        if item is None or item.over:
            return
        del item.speaks[id]
        # One sentence that broke off is enough: the item as a whole was not heard.
        item.failed = item.failed or not completed
        if item.complete and not item.speaks:
            self._heard_to_its_end(item)

    def cut(self) -> list[SpokenItem]:
        """Throw away what is not played; the items that were cut by it."""
        lost = [item for item in self._items.values() if not item.over and (item.sent_ms or item.given)]
        # All of them, because the client throws its whole queue away.
        for item in lost:
            item.cut = True
            self._end(item)
        self._ends_at = -inf
        return lost

    def _is_played(self, item: SpokenItem) -> bool:
        if item.sent_ms:
            return item.played_ms >= item.sent_ms - _CLOSE_MS
        return not item.speaks

    def _is_heard(self, item: SpokenItem) -> bool:
        """What the client says is believed only of sound that was on its way to it without a loss."""
        return self._is_played(item) and not item.failed and not item.spoiled

    def _end(self, item: SpokenItem) -> None:
        self._effects.timers.pop(Timer(TimerKind.ITEM_PLAYED, item.number), None)
        self._due.pop(item.number, None)
        if item.over:
            return
        item.over = True
        if self.is_playing and self.latest is None:
            self.is_playing = False
            self._playing(False)
        self._over(item)


class SpeechOutput:
    """Our side of one conversation. `play` takes sound at once: no frame waits for an event to be handled."""

    def __init__(
        self,
        effects: EffectQueue,
        playback: Playback,
        session: SessionPort,
        counters: LiveCounters,
        play: Callable[[Sound], None],
        opened: Callable[[SpokenItem], None],
        *,
        abilities: Abilities,
        has_model_voice: bool,
    ) -> None:
        self._effects = effects
        self.playback = playback
        self._session = session
        self._counters = counters
        self._play = play
        self._opened = opened
        self._has_model_voice = has_model_voice
        self.adapt(abilities)
        self.item: SpokenItem | None = None
        """What the model says at the moment."""
        self.unclaimed: list[SpokenItem] = []
        """Items of which nobody knew yet to which turn they belong when they began."""
        self._next_purpose: Purpose = "answer"
        self.items = 0
        """Items of both sides have numbers of one row; this is the last."""
        self._spoken = 0
        self.muted = False
        """The user stopped this answer: what still comes of it is not for them."""
        self.frames = 0
        self._dropped = 0
        """Pieces of sound that were lost between the provider and us, as far as an item was charged with them."""

    def adapt(self, abilities: Abilities) -> None:
        """A client listens that can do this."""
        self.abilities = abilities
        self.is_voiced = self._has_model_voice and abilities.sound
        """The model's own voice is heard; otherwise its words go to the client's voice."""

    # ------------------------------------------------------------------------------------------- from the model

    def sound(self, event: AudioOut) -> None:
        if self.muted:
            return
        item = self.item or self._open()
        if self._dropped != self._counters.dropped_audio_out:
            self._spoil(item)
        turn = item.turn
        # Two bytes a sample, so half of a thousand for each byte.
        length = len(event.pcm) * 500 / event.rate
        if turn is not None:
            turn.sound_ms += round(length)
        if not self.abilities.sound or self._session.state.get("shouldSuppressAudio"):
            # A preview of which a part was suppressed has not been heard.
            item.spoiled = item.spoiled or self.abilities.sound
            return
        offset = item.sent_ms
        item.sent_bytes += len(event.pcm)
        item.sent_ms = item.sent_bytes * 500 // event.rate
        self.frames += 1
        self.playback.sent(length, item)
        self._play(Sound(item.number, offset, event.pcm, event.rate))

    def words(self, event: OutputTranscript) -> None:
        if self.muted or not event.text:
            return
        item = self.item or self._open()
        piece = event.text[: _MAX_CHARACTERS - item.characters]
        if not piece:
            return  # nobody listens to so much; what is reported is what is kept
        item.pieces.append(piece)
        item.characters += len(piece)
        input_id = item.turn.input_id if item.turn is not None else None
        self.report_words("model", item.number, input_id, piece, "", final=False)
        if not self.is_voiced:
            item.unspoken += piece
            self._speak_sentences(item)

    def end_item(self) -> SpokenItem | None:
        """The model called, ended its turn, or was cut off: the item is complete."""
        item, self.item = self.item, None
        if item is None:
            return None
        if self._dropped != self._counters.dropped_audio_out:
            self._spoil(item)
        if item.unspoken.strip():
            self._speak(item, item.unspoken.strip(), _kind(item.purpose))
        item.unspoken = ""
        text = item.text
        item.pieces = [text]
        if text:
            input_id = item.turn.input_id if item.turn is not None else None
            self.report_words("model", item.number, input_id, "", text, final=True)
        if item.sent_ms:
            self._effects.append(TellClient("audio_end", {"item": item.number, "ms": item.sent_ms}))
        self.playback.completed(item)
        return item

    def _spoil(self, item: SpokenItem) -> None:
        """Sound that was dropped before it came here was of the item that continues after it, or ends."""
        self._dropped = self._counters.dropped_audio_out
        item.spoiled = True

    def _open(self) -> SpokenItem:
        self.items += 1
        item = self.item = SpokenItem(self.items, None, self._effects.now, self._next_purpose)
        self._next_purpose = "answer"
        self.playback.add(item)
        self._opened(item)
        if item.turn is None:
            self.unclaimed = [*self.unclaimed[-_MAX_UNCLAIMED:], item]
        return item

    def report_words(
        self, who: Literal["user", "model"], item: int, input_id: str | None, piece: str, whole: str, *, final: bool
    ) -> None:
        """Report words of either side to the client, unless a tool asked for no transcript."""
        if self._session.state.get("shouldSuppressTranscript"):
            return
        named = {"who": who, "item": item, "inputId": input_id}
        told = {"whole": whole} if final else {}  # not with every piece: together they would grow with its square
        self._effects.append(TellClient("transcript", {**named, "text": piece, **told, "final": final}))

    # ------------------------------------------------------------------------------------------- from the host

    def expect(self, purpose: Purpose) -> None:
        """The model was asked to say something: what it says next is that."""
        self._next_purpose = purpose

    def say(self, text: str, kind: SpeakKind, turn: VoiceTurn | None, purpose: Purpose = "answer") -> SpokenItem:
        """Words of the host, for the client's own voice, as an item of their own."""
        self.items += 1
        item = SpokenItem(self.items, turn, self._effects.now, purpose)
        item.pieces.append(text)
        self.playback.add(item)
        self._speak(item, text, kind)
        self.playback.completed(item)
        return item

    def _speak_sentences(self, item: SpokenItem) -> None:
        # By sentences: a voice that gets single words speaks them without melody, and one that waits for the end begins late.
        *whole, rest = _SENTENCE.split(item.unspoken)
        if not whole and len(rest) > _MAX_UNSPOKEN:
            head, _, rest = rest.rpartition(" ")
            whole = [head or rest]
            rest = rest if head else ""
        item.unspoken = rest
        if whole:
            self._speak(item, " ".join(part.strip() for part in whole), _kind(item.purpose))

    def _speak(self, item: SpokenItem, text: str, kind: SpeakKind) -> None:
        if self._session.state.get("shouldSuppressAudio"):
            return
        self._spoken += 1
        name = f"s{self._spoken}"
        if self.abilities.speaks:
            self.playback.given(item, name, text)
        self._effects.append(TellClient("speak", {"id": name, "item": item.number, "text": text, "kind": kind}))

    # ------------------------------------------------------------------------------------------- cut off

    def cut(self) -> SpokenItem | None:
        """Stop at once: the client throws away what it has not played. The item that was being heard, if there was one.

        Whoever calls this ends the open item then.
        """
        heard = self.playback.latest or self.item
        if heard is None:
            return None
        self.playback.cut()
        if self.item is not None:
            self.item.cut = True
            self.item.unspoken = ""
        self._effects.append(TellClient("flush", {"item": heard.number}))
        return heard


def _kind(purpose: Purpose) -> SpeakKind:
    return "preview" if purpose == "preview" else "answer"
