"""What the user hears: the model's sound as it comes, or its words for the client's own voice, and the host's words.

One item is open at a time. Silence that a tool asked for is kept here: suppressed sound is not sent, suppressed words are not
told, and both are written down all the same.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Literal

from handrail.agents.voice.host_port import Sound
from handrail.agents.voice.playback import Playback, Purpose, SpokenItem
from handrail.contract.live import AudioOut, OutputTranscript

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

SpeakKind = Literal["answer", "filler", "preview", "notice"]
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+")
_MAX_UNSPOKEN = 400
_MAX_CHARACTERS = 100_000
_MAX_UNCLAIMED = 50


class SpeechOutput:
    """Our side of one conversation."""

    def __init__(self, talk: VoiceSession, playback: Playback) -> None:
        self._talk = talk
        self.playback = playback
        self.item: SpokenItem | None = None
        """What the model says at the moment."""
        self._unclaimed: list[SpokenItem] = []
        self._next_purpose: Purpose = "answer"
        self._spoken = 0
        self.muted = False
        """The user stopped this answer: what still comes of it is not for them."""
        self.frames = 0
        self._dropped = 0
        """Pieces of sound that were lost between the provider and us, as far as an item was charged with them."""

    # ------------------------------------------------------------------------------------------- from the model

    def sound(self, event: AudioOut) -> None:
        if self.muted:
            return
        item = self._open()
        self._charge(item)
        talk = self._talk
        turn = item.turn
        length = len(event.pcm) * 500 / event.rate
        if turn is not None:
            turn.sound_ms += round(length)
        if not talk.abilities.sound or talk.session.state.get("shouldSuppressAudio"):
            item.spoiled = item.spoiled or talk.abilities.sound
            return
        offset = item.sent_ms
        item.sent_bytes += len(event.pcm)
        item.sent_ms = item.sent_bytes * 500 // event.rate
        self.frames += 1
        self.playback.sent(length, item)
        talk.listener.play(Sound(item.number, offset, event.pcm, event.rate))

    def words(self, event: OutputTranscript) -> None:
        if self.muted or not event.text:
            return
        item = self._open()
        piece = event.text[: _MAX_CHARACTERS - item.characters]
        if not piece:
            return  # nobody listens to so much; what is told is what is kept
        item.pieces.append(piece)
        item.characters += len(piece)
        turn = item.turn
        self._talk.tell_transcript("model", item.number, turn.input_id if turn else None, piece, "", final=False)
        if not self._talk.is_voiced:
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
            turn = item.turn
            self._talk.tell_transcript("model", item.number, turn.input_id if turn else None, "", text, final=True)
        if item.sent_ms:
            self._talk.tell("audio_end", {"item": item.number, "ms": item.sent_ms})
        self.playback.completed(item)
        return item

    def _charge(self, item: SpokenItem) -> None:
        """Sound that was dropped before it came here was of the item that goes on after it, or ends."""
        dropped = self._talk.connection.counters.dropped_audio_out
        if dropped != self._dropped:
            self._dropped = dropped
            item.spoiled = True

    def unclaimed(self) -> list[SpokenItem]:
        """Items of no turn; they are given away here."""
        taken, self._unclaimed = [item for item in self._unclaimed if item.turn is None], []
        return taken

    def _open(self) -> SpokenItem:
        if self.item is not None:
            return self.item
        talk = self._talk
        item = self.item = SpokenItem(talk.next_item(), None, asyncio.get_running_loop().time())
        item.purpose, self._next_purpose = self._next_purpose, "answer"
        self.playback.add(item)
        talk.turns.output(item)
        if item.turn is None:
            self._unclaimed = [*self._unclaimed[-_MAX_UNCLAIMED:], item]
        talk.opened(item)
        return item

    # ------------------------------------------------------------------------------------------- from the host

    def expect(self, purpose: Purpose) -> None:
        """The model was asked to say something: what it says next is that."""
        self._next_purpose = purpose

    def say(self, text: str, kind: SpeakKind, purpose: Purpose = "answer") -> SpokenItem:
        """Words of the host, for the client's own voice, as an item of their own."""
        item = SpokenItem(self._talk.next_item(), self._talk.turns.current, asyncio.get_running_loop().time())
        item.purpose = purpose
        item.pieces.append(text)
        self.playback.add(item)
        self._speak(item, text, kind)
        self.playback.completed(item)
        return item

    def aside(self, text: str) -> None:
        """A filler: it is heard as all else is, and is no part of the answer."""
        if text.strip():
            self.say(text, "filler")

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
        talk = self._talk
        if talk.session.state.get("shouldSuppressAudio"):
            return
        self._spoken += 1
        name = f"s{self._spoken}"
        if talk.abilities.speaks:
            self.playback.given(item, name, text)
        talk.tell("speak", {"id": name, "item": item.number, "text": text, "kind": kind})

    # ------------------------------------------------------------------------------------------- cut off

    def cut(self) -> SpokenItem | None:
        """Stop at once: the client throws away what it has not played. The item that was being heard, if there was one."""
        last = self.playback.latest
        open_item = self.item
        heard = last or open_item
        if heard is None:
            return None
        self.playback.cut()
        if open_item is not None:
            open_item.cut = True
            open_item.unspoken = ""
        self._talk.tell("flush", {"item": heard.number})
        self._talk.end_item()
        return heard


def _kind(purpose: Purpose) -> SpeakKind:
    return "preview" if purpose == "preview" else "answer"
