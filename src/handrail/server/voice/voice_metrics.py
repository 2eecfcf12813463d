"""What an operator sees of voice in the metrics: how many conversations there are now, and what has happened in all of them.

Lines count as it happens; what a conversation that is on counts itself is added when somebody reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from handrail.observe.exposition import Exposition

if TYPE_CHECKING:
    from handrail.server.voice.conversation_host import ConversationHost

OUTCOMES = ("approved", "declined", "expired", "screen")
"""How the spoken side of a confirmation can end; `screen`: it is left to the screen."""
SLOW_CLIENT, NO_CLIENT, TO_MODEL, FROM_MODEL = "slow_client", "no_client", "to_model", "from_model"
DROPS = (SLOW_CLIENT, NO_CLIENT, TO_MODEL, FROM_MODEL)
"""Where frames of sound are lost: the client does not keep up, or is away; the provider does not; this server does not."""


class VoiceMetrics:
    """The numbers of one server's voice."""

    __slots__ = ("_outcomes", "begun", "drops", "misses", "reconnects")

    def __init__(self) -> None:
        self.begun = 0
        self.reconnects = 0
        self.misses = 0
        self.drops: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()

    def note(self, type: str, data: Mapping[str, Any]) -> None:
        """Something that a conversation told."""
        if type == "question":
            if data["state"] in OUTCOMES:
                self._outcomes[data["state"]] += 1
            self.misses += data["state"] == "missed"
        elif type == "link":
            self.reconnects += data["state"] == "up" and data["number"] > 1

    def to_json(self, hosts: Iterable[ConversationHost]) -> dict[str, Any]:
        open_lines = [host for host in hosts if host.voice is not None]
        drops = {way: self.drops[way] for way in DROPS}
        drops[FROM_MODEL] += sum(host.sound_dropped for host in open_lines)
        return {
            "conversations": len(open_lines),
            "waitingForClient": sum(host.client is None for host in open_lines),
            "begun": self.begun,
            "providerReconnects": self.reconnects,
            "droppedFrames": drops,
            "confirmations": {outcome: self._outcomes[outcome] for outcome in OUTCOMES},
            "missedAnswers": self.misses,
        }

    def to_prometheus(self, hosts: Iterable[ConversationHost]) -> str:
        facts, text = self.to_json(hosts), Exposition()
        for name, kind, meaning, value in (
            ("handrail_voice_conversations", "gauge", "Voice conversations that are on.", facts["conversations"]),
            (
                "handrail_voice_conversations_waiting",
                "gauge",
                "Those of them that wait for their client to come back.",
                facts["waitingForClient"],
            ),
            ("handrail_voice_conversations_total", "counter", "Voice conversations that were begun.", facts["begun"]),
            (
                "handrail_voice_provider_reconnects_total",
                "counter",
                "Connections to the voice model that took the place of another.",
                facts["providerReconnects"],
            ),
            (
                "handrail_voice_missed_answers_total",
                "counter",
                "Spoken answers to a confirmation that were neither yes nor no.",
                facts["missedAnswers"],
            ),
        ):
            text.family(name, kind, meaning)
            text.sample(name, value)
        text.family("handrail_voice_dropped_frames_total", "counter", "Frames of sound that were lost, by where.")
        for way, count in facts["droppedFrames"].items():
            text.sample("handrail_voice_dropped_frames_total", count, where=way)
        text.family("handrail_voice_confirmations_total", "counter", "Spoken confirmations, by how they ended.")
        for outcome, count in facts["confirmations"].items():
            text.sample("handrail_voice_confirmations_total", count, outcome=outcome)
        return text.render()
