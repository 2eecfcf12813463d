"""What the voice server allows its clients: how many conversations, how long it waits, how much may come at once."""

from __future__ import annotations

from dataclasses import dataclass

from handrail.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceOptions:
    """The names are those of `[voice]` in the settings, where they are there."""

    max_conversations: int = 500
    max_conversations_per_key: int = 200
    grace_seconds: float = 30.0
    """So long a conversation waits for its client to come back."""
    burst_seconds: float = 10.0
    """So much audio may come at once; beyond it, twice as fast as it was spoken."""
    backlog_seconds: float = 30.0
    """So much of our voice waits for a client that does not keep up; then the oldest is dropped."""
    hello_seconds: float = 5.0
    heartbeat_seconds: float = 15.0
    """How often a client is asked for a sign of life; one that gives none for twice as long is closed."""
    slow_seconds: float = 20.0
    """How long a client may take nothing of what was sent."""
    text_seconds: float = 15.0
    """How long a turn in text that still runs may take to end before voice begins; then it is cancelled."""
    messages_per_second: float = 50.0
    message_burst: float = 200.0

    @classmethod
    def from_settings(cls, settings: Settings) -> VoiceOptions:
        return cls(
            max_conversations=settings.voice_max_conversations,
            max_conversations_per_key=settings.voice_max_conversations_per_key,
            grace_seconds=float(settings.voice_grace_seconds),
            burst_seconds=float(settings.voice_burst_seconds),
            backlog_seconds=float(settings.voice_backlog_seconds),
            heartbeat_seconds=float(settings.server_heartbeat_seconds),
            slow_seconds=float(settings.server_slow_seconds),
        )
