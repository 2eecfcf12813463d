"""What the server allows itself and its clients: sizes, rates, times. Made from the settings, checked once."""

from __future__ import annotations

from dataclasses import dataclass, fields

from handrail.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Every limit of the server. The names are those of `[server]` in the settings."""

    host: str = "127.0.0.1"
    port: int = 8484
    origins: tuple[str, ...] = ()
    """Pages of other origins that may use the API, such as `https://desk.example.com`."""
    hosts: tuple[str, ...] = ()
    """Names under which clients reach the server, beside those of the loopback."""
    public_url: str = ""
    """Where browsers reach the server; empty means the address that each request names."""
    max_body_bytes: int = 262_144
    max_header_bytes: int = 16_384
    requests_per_minute: int = 1_200
    """For each key; a minute's worth may come at once."""
    max_connections: int = 2_000
    max_streams: int = 200
    """Event streams that one key may have open."""
    max_sessions: int = 10_000
    """Sessions that are held in memory; idle ones make room and come back from the store."""
    stream_seconds: int = 3_600
    """After this time a stream ends, and its client connects again."""
    heartbeat_seconds: int = 15
    slow_seconds: int = 20
    """How long a request may take to arrive, and a client to take what was sent."""
    idle_seconds: int = 1_800
    """A session that nobody has used for so long leaves the memory."""
    shutdown_seconds: int = 20
    """How long running turns may continue after the server was asked to stop."""
    keep_days: int = 90
    """Conversations that nobody has continued with for so long are deleted."""
    max_conversations: int = 100_000
    """Conversations that are kept in all; beyond it no new ones are opened, and nobody's is deleted for another's."""
    max_conversations_per_key: int = 50_000
    max_conversations_per_user: int = 1_000
    """Beyond it a user's own oldest one makes room, one in which nothing was said first."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Options:
        return cls(**{item.name: getattr(settings, f"server_{item.name}") for item in fields(cls)})
