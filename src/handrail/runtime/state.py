"""The state controller: what a session is doing, changed only through checked transitions.

Handlers never touch it; they return intents, and the runtime applies them here. An unknown or impossible intent
changes nothing, and the verdict says why, so that it can be audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handrail.contract.definition import Mode
from handrail.contract.errors import StateError
from handrail.contract.fields import shown
from handrail.contract.frozen import FrozenDict, freeze
from handrail.contract.intents import Intent, IntentType

_INITIAL: Mapping[str, Any] = FrozenDict(
    mode="text",
    isActive=True,
    pendingEndVoiceSession=None,
    shouldSuppressAudio=False,
    shouldSuppressTranscript=False,
    pendingMessage=None,
    isModelGenerating=False,
    userAudioChunkCount=0,
    interruptionSent=False,
    audioChunkCounter=0,
    lastAudioFingerprint=None,
)
_FAR_FUTURE = 1e11
"""The year 5138, in seconds; a time in milliseconds is later than that, and so is not taken for seconds."""
_END_AFTER = ("current_turn", "farewell_spoken")
_COUNTERS = ("userAudioChunkCount", "audioChunkCounter")
_FLAGS = ("isActive", "shouldSuppressAudio", "shouldSuppressTranscript", "isModelGenerating", "interruptionSent")
_TEXTS = ("pendingMessage", "lastAudioFingerprint")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an intent was applied; if not, why, as a sentence for the audit."""

    applied: bool
    reason: str = ""


class StateController:
    """The state of one session."""

    __slots__ = ("_state", "is_active", "mode")

    def __init__(self, initial: Mapping[str, Any] | None = None) -> None:
        self._state = dict(_INITIAL)
        for key, value in (initial or {}).items():
            self._check(key, value)
            self._state[key] = freeze(value)
        if self._state["mode"] != "voice":
            self._state["pendingEndVoiceSession"] = None  # as `set` does when the voice part ends
        # Every call asks for these two, so they stand one step nearer.
        self.mode: Mode = self._state["mode"]
        self.is_active: bool = self._state["isActive"]

    def get(self, key: str) -> Any:
        if key not in self._state:
            raise StateError(f'There is no state "{key}"; known are {", ".join(_INITIAL)}.')
        return self._state[key]

    def set(self, key: str, value: Any) -> None:
        """Change one value; `StateError` if the value or the transition is impossible."""
        self._check(key, value)
        if key == "isActive" and value and not self._state["isActive"]:
            raise StateError("A session that has ended does not become active again; open a new one.")
        # Clearing something is still allowed, because what ends may have to be tidied after the end.
        if key != "isActive" and not self._state["isActive"] and value:
            raise StateError(f'"{key}" cannot change: the session has ended.')
        if key == "pendingEndVoiceSession" and value is not None and self._state["mode"] != "voice":
            raise StateError(f'"{key}" cannot be set in text mode: there is no voice session to end.')
        if key == "mode" and value == "text":
            # What belongs to the voice part ends with it.
            self._state.update(pendingEndVoiceSession=None, shouldSuppressAudio=False, shouldSuppressTranscript=False)
        # The only one that is more than a text, a number or a flag.
        self._state[key] = freeze(value) if key == "pendingEndVoiceSession" else value
        self.mode, self.is_active = self._state["mode"], self._state["isActive"]

    def apply_intent(self, intent: object) -> Verdict:
        """Apply one intent, an `Intent` or its wire form, or say why not. Never raises, whatever a handler returned."""
        if not isinstance(intent, (Intent, Mapping)):
            return Verdict(False, f"{shown(intent)} is not an intent.")
        try:
            # A handler gives whatever it likes; nothing that it gives may end the call, whose effect has happened.
            asked = intent if isinstance(intent, Intent) else Intent.from_dict(intent)
        except ValueError as error:
            return Verdict(False, str(error))
        try:
            kind = IntentType(asked.type)
        except ValueError:
            return Verdict(False, f"{shown(asked.type)} is not an intent that is known.")
        if not self._state["isActive"]:
            return Verdict(False, f"{kind} came after the session had ended.")
        try:
            return self._apply(kind, asked.fields)
        except StateError as error:
            return Verdict(False, str(error))

    def snapshot(self) -> Mapping[str, Any]:
        """A frozen copy, as handlers see it."""
        frozen: Mapping[str, Any] = freeze(self._state)
        return frozen

    def _apply(self, kind: IntentType, fields: Mapping[str, Any]) -> Verdict:
        match kind:
            case IntentType.END_VOICE_SESSION:
                return self._end_voice(fields)
            case IntentType.SUPPRESS_AUDIO:
                self.set("shouldSuppressAudio", fields.get("value", True))
            case IntentType.SUPPRESS_TRANSCRIPT:
                self.set("shouldSuppressTranscript", fields.get("value", True))
            case IntentType.SET_PENDING_MESSAGE:
                self.set("pendingMessage", fields.get("message", fields.get("value")))
            case IntentType.BLOCK_USER:
                until = fields.get("until")
                if isinstance(until, bool) or not isinstance(until, (int, float)) or not 0 <= until < _FAR_FUTURE:
                    return Verdict(False, 'BLOCK_USER needs "until", a time in seconds since 1970.')
        return Verdict(True)

    def _end_voice(self, fields: Mapping[str, Any]) -> Verdict:
        if self._state["mode"] != "voice":
            return Verdict(False, "END_VOICE_SESSION came in text mode.")
        after = fields.get("after", "current_turn")
        if after not in _END_AFTER:
            known = " and ".join(_END_AFTER)
            return Verdict(False, f"END_VOICE_SESSION cannot happen after {shown(after)}; known are {known}.")
        pending = {
            "after": after,
            "reason": fields.get("reason", "user_requested"),
            "closingMessage": fields.get("closingMessage"),
            "textResponse": fields.get("textResponse"),
        }
        self.set("pendingEndVoiceSession", pending)
        return Verdict(True)

    def _check(self, key: str, value: Any) -> None:
        if key not in _INITIAL:
            raise StateError(f'There is no state "{key}"; known are {", ".join(_INITIAL)}.')
        fits = True
        if key == "mode":
            fits = value in ("text", "voice")
        elif key in _FLAGS:
            fits = isinstance(value, bool)
        elif key in _COUNTERS:
            fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        elif key in _TEXTS:
            fits = value is None or isinstance(value, str)
        elif key == "pendingEndVoiceSession":
            fits = value is None or (isinstance(value, Mapping) and _is_ending(value))
        if not fits:
            raise StateError(f'"{key}" cannot be {shown(value)}.')


def _is_ending(value: Mapping[str, Any]) -> bool:
    texts = [text for key, text in value.items() if key != "after"]
    return value.get("after") in _END_AFTER and all(text is None or isinstance(text, str) for text in texts)
