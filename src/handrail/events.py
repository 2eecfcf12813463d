"""The events that `Session.events` yields: confirmations and connections wanted, late envelopes, intents,
messages, progress.

    async for event in session.events():
        match event:
            case ConfirmationWanted():
                show(event.preview, event.id, event.token)
            case LateEnvelope():
                tell_model(event.note)

`docs/events.md` describes each with its fields.
"""

from handrail.contract.events import (
    ClientMessage,
    ConfirmationRunning,
    ConfirmationWanted,
    ConnectionWanted,
    ImageMessage,
    IntentApplied,
    LateEnvelope,
    MessageSent,
    Progress,
    SessionEvent,
    TimeoutMessage,
    VoiceSessionStartMessage,
)

__all__ = [
    "ClientMessage",
    "ConfirmationRunning",
    "ConfirmationWanted",
    "ConnectionWanted",
    "ImageMessage",
    "IntentApplied",
    "LateEnvelope",
    "MessageSent",
    "Progress",
    "SessionEvent",
    "TimeoutMessage",
    "VoiceSessionStartMessage",
]
