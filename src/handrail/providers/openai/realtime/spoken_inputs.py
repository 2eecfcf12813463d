"""What the user says, by the provider's own name for each utterance: begun, ended, and its words, each reported once.

Words come after the end of their utterance, sometimes long after it and after the next one has begun, so all events carry the
name. An event that came before under its name is a duplicate; words without a name are nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from handrail.contract.live import InputTranscript, LiveCounters
from handrail.providers.event_stream import text_in
from handrail.providers.live_history import SpeechText

_MAX_OPEN = 50
_MAX_KNOWN = 600


class SpokenInputs:
    """The utterances of one connection."""

    def __init__(self, counters: LiveCounters) -> None:
        self._counters = counters
        self._open: dict[str, SpeechText] = {}
        self._known: dict[tuple[str, str], None] = {}
        """What was reported: an utterance's name, and what of it."""

    def is_new(self, item: str, what: str) -> bool:
        """Whether this was not reported of the utterance before. Without a name, utterances cannot be distinguished."""
        if not item:
            return True
        if (item, what) in self._known:
            self._counters.duplicate_events += 1
            return False
        self._known[item, what] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return True

    def piece(self, event: dict[str, Any]) -> InputTranscript | None:
        piece, item = event.get("delta"), text_in(event.get("item_id"))
        if not isinstance(piece, str) or not item:
            self._counters.malformed_events += 1
            return None
        if (item, "words") in self._known:
            self._counters.duplicate_events += 1
            return None
        return InputTranscript(piece, self._speech(item).grow(piece), item=item)

    def all(self, event: dict[str, Any]) -> InputTranscript | None:
        transcript, item = event.get("transcript"), text_in(event.get("item_id"))
        if not isinstance(transcript, str) or not item:
            self._counters.malformed_events += 1
            return None
        if not self.is_new(item, "words"):
            return None
        before = self._speech(item).whole
        del self._open[item]
        piece = transcript[len(before) :] if transcript.startswith(before) else transcript
        return InputTranscript(piece, transcript, True, item)

    def unfinished(self) -> Iterator[SpeechText]:
        """Words of utterances whose last ones have not come."""
        yield from self._open.values()

    def _speech(self, item: str) -> SpeechText:
        if item not in self._open and len(self._open) >= _MAX_OPEN:
            self._open.pop(next(iter(self._open)))
        return self._open.setdefault(item, SpeechText())
