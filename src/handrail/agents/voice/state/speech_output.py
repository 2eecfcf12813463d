"""What the user hears: the model's sound as it comes, its words for the client's own voice, and the host's words.

One item is open at a time. A tool may ask for silence: then sound is not sent and words are not reported, and both are still
written down.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, Protocol

from handrail.agents.voice.host_port import Abilities, Sound
from handrail.agents.voice.state.events_and_effects import EffectQueue
from handrail.agents.voice.state.playback import Playback, Purpose, SpokenItem
from handrail.agents.voice.state.session_port import SessionPort
from handrail.agents.voice.state.voice_turns import VoiceTurn
from handrail.contract.live import AudioOut, LiveCounters, OutputTranscript

SpeakKind = Literal["answer", "filler", "preview", "notice"]
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+")
_MAX_UNSPOKEN = 400
_MAX_CHARACTERS = 100_000
_MAX_UNCLAIMED = 50


class ItemObserver(Protocol):
    """Learns of our items: when one begins, and when no more of it will come."""

    def item_opened(self, item: SpokenItem) -> None: ...

    def item_complete(self, item: SpokenItem) -> None: ...


class SpeechOutput:
    """Our side of one conversation. `play` takes sound at once: no frame waits for an event to be handled."""

    def __init__(
        self,
        effects: EffectQueue,
        playback: Playback,
        session: SessionPort,
        counters: LiveCounters,
        play: Callable[[Sound], None],
        observer: ItemObserver,
        *,
        abilities: Abilities,
        has_model_voice: bool,
    ) -> None:
        self._effects = effects
        self._playback = playback
        self._session = session
        self._counters = counters
        self._play = play
        self._observer = observer
        self.abilities = abilities
        self._has_model_voice = has_model_voice
        self.item: SpokenItem | None = None
        """What the model says at the moment."""
        self._unclaimed: list[SpokenItem] = []
        self._next_purpose: Purpose = "answer"
        self._numbered = 0
        self._spoken = 0
        self.muted = False
        """The user stopped this answer: what still comes of it is not for them."""
        self.frames = 0
        self._dropped = 0
        """Pieces of sound that were lost between the provider and us, as far as an item was charged with them."""

    @property
    def is_voiced(self) -> bool:
        """The model's own voice is heard; otherwise its words go to the client's voice."""
        return self._has_model_voice and self.abilities.sound

    def next_item(self) -> int:
        """Items of both sides have numbers of one row."""
        self._numbered += 1
        return self._numbered

    # ------------------------------------------------------------------------------------------- from the model

    def sound(self, event: AudioOut) -> None:
        if self.muted:
            return
        item = self.item or self._open()
        self._charge(item)
        turn = item.turn
        length = len(event.pcm) * 500 / event.rate
        if turn is not None:
            turn.sound_ms += round(length)
        if not self.abilities.sound or self._session.get("shouldSuppressAudio"):
            # A preview of which a part was suppressed has not been heard.
            item.spoiled = item.spoiled or self.abilities.sound
            return
        offset = item.sent_ms
        item.sent_bytes += len(event.pcm)
        item.sent_ms = item.sent_bytes * 500 // event.rate
        self.frames += 1
        self._playback.sent(length, item)
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
        self._report_words(item, piece, "", final=False)
        if not self.is_voiced:
            item.unspoken += piece
            self._speak_sentences(item)

    def end_item(self) -> SpokenItem | None:
        """The model called, ended its turn, or was cut off: the item is complete."""
        item, self.item = self.item, None
        if item is None:
            return None
        self._charge(item)
        if item.unspoken.strip():
            self._speak(item, item.unspoken.strip(), _kind(item.purpose))
        item.unspoken = ""
        text = item.text
        item.pieces = [text]
        if text:
            self._report_words(item, "", text, final=True)
        if item.sent_ms:
            self._effects.tell("audio_end", {"item": item.number, "ms": item.sent_ms})
        self._playback.completed(item)
        return item

    def _charge(self, item: SpokenItem) -> None:
        """Sound that was dropped before it came here was of the item that continues after it, or ends."""
        dropped = self._counters.dropped_audio_out
        if dropped != self._dropped:
            self._dropped = dropped
            item.spoiled = True

    def unclaimed(self) -> list[SpokenItem]:
        """Items of no turn; they are given away here."""
        taken, self._unclaimed = [item for item in self._unclaimed if item.turn is None], []
        return taken

    def _open(self) -> SpokenItem:
        item = self.item = SpokenItem(self.next_item(), None, self._effects.now)
        item.purpose, self._next_purpose = self._next_purpose, "answer"
        self._playback.add(item)
        self._observer.item_opened(item)
        if item.turn is None:
            self._unclaimed = [*self._unclaimed[-_MAX_UNCLAIMED:], item]
        return item

    def _report_words(self, item: SpokenItem, piece: str, whole: str, *, final: bool) -> None:
        input_id = item.turn.input_id if item.turn else None
        report_transcript(self._effects, self._session, "model", item.number, input_id, piece, whole, final=final)

    # ------------------------------------------------------------------------------------------- from the host

    def expect(self, purpose: Purpose) -> None:
        """The model was asked to say something: what it says next is that."""
        self._next_purpose = purpose

    def say(self, text: str, kind: SpeakKind, turn: VoiceTurn | None, purpose: Purpose = "answer") -> SpokenItem:
        """Words of the host, for the client's own voice, as an item of their own."""
        item = SpokenItem(self.next_item(), turn, self._effects.now)
        item.purpose = purpose
        item.pieces.append(text)
        self._playback.add(item)
        self._speak(item, text, kind)
        self._playback.completed(item)
        return item

    def _speak_sentences(self, item: SpokenItem) -> None:
        *whole, rest = _SENTENCE.split(item.unspoken)
        if not whole and len(rest) > _MAX_UNSPOKEN:
            head, _, rest = rest.rpartition(" ")
            whole = [head or rest]
            rest = rest if head else ""
        item.unspoken = rest
        if whole:
            self._speak(item, " ".join(part.strip() for part in whole), _kind(item.purpose))

    def _speak(self, item: SpokenItem, text: str, kind: SpeakKind) -> None:
        if self._session.get("shouldSuppressAudio"):
            return
        self._spoken += 1
        name = f"s{self._spoken}"
        if self.abilities.speaks:
            self._playback.given(item, name, text)
        self._effects.tell("speak", {"id": name, "item": item.number, "text": text, "kind": kind})

    # ------------------------------------------------------------------------------------------- cut off

    def cut(self) -> SpokenItem | None:
        """Stop at once: the client throws away what it has not played. The item that was being heard, if there was one."""
        last = self._playback.latest
        open_item = self.item
        heard = last or open_item
        if heard is None:
            return None
        self._playback.cut()
        if open_item is not None:
            open_item.cut = True
            open_item.unspoken = ""
        self._effects.tell("flush", {"item": heard.number})
        ended = self.end_item()
        if ended is not None:
            self._observer.item_complete(ended)
        return heard


def report_transcript(
    effects: EffectQueue,
    session: SessionPort,
    who: Literal["user", "model"],
    item: int,
    input_id: str | None,
    piece: str,
    whole: str,
    *,
    final: bool,
) -> None:
    """Report words to the client, unless a tool asked for no transcript."""
    if session.get("shouldSuppressTranscript"):
        return
    named = {"who": who, "item": item, "inputId": input_id}
    told = {"whole": whole} if final else {}  # not with every piece: together they would grow with its square
    effects.tell("transcript", {**named, "text": piece, **told, "final": final})


def _kind(purpose: Purpose) -> SpeakKind:
    return "preview" if purpose == "preview" else "answer"
