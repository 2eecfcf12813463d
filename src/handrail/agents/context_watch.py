"""Watches how much of its model's context window a session uses, by the provider's own count where it gives one.

Beyond nine tenths of the window there is an alarm: one line in the log for each session, a warning in the metrics and the
console, and less room for old tool results from then on. What the user said is never left out because of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from handrail.contract.model import Usage

_LOG = logging.getLogger("handrail.agent")
ALARM_SHARE = 0.9
_ROOM_SHARE = 0.75
"""After an alarm, results are left out until so much is used: otherwise every round would be the next alarm."""


class ContextWatch:
    """One per conversation. `window` gives None where the model's is not known; then only the peak is counted. It is asked each
    time, because a server may say only with its answers how much room a model has."""

    __slots__ = ("_is_alarmed", "_ratio", "_session_id", "_tell", "_window")

    def __init__(self, session_id: str, window: Callable[[], int | None], metrics: object) -> None:
        self._window = window
        self._session_id = session_id
        self._tell: Callable[[tuple[str, int, int | None]], None] | None = getattr(metrics, "session_context", None)
        self._is_alarmed = False
        self._ratio = 1.0
        """The provider's tokens for one of ours: sound, and scripts other than Latin, cost more than characters / 4."""

    @property
    def window(self) -> int | None:
        return self._window()

    @property
    def is_alarmed(self) -> bool:
        return self._is_alarmed

    def room(self, fixed: int) -> int | None:
        """How many of our tokens the history may have beside the `fixed` ones of the prompt; None: as many as it wants."""
        window = self.window
        if window is None:
            return None
        share = _ROOM_SHARE if self._is_alarmed else ALARM_SHARE
        return max(0, int(window * share / self._ratio) - fixed)

    def used(self, estimate: int, usage: Usage | None = None) -> dict[str, Any] | None:
        """A request was answered. What is to be reported of it, if it used so much that there is an alarm."""
        counted = usage.input_tokens if usage is not None else 0
        tokens = counted + (usage.output_tokens if usage is not None else 0) if counted else estimate
        if counted and estimate:
            # Never below 1: a count that leaves something out would make room that is not there.
            self._ratio = max(1.0, counted / estimate)
        window = self.window
        if self._tell is not None:
            self._tell((self._session_id, tokens, window))
        if window is None or tokens <= ALARM_SHARE * window:
            return None
        if not self._is_alarmed:
            self._is_alarmed = True
            _LOG.warning(
                "Session %s uses %d of the %d tokens of its model's context window; the oldest tool results are left out",
                self._session_id,
                tokens,
                window,
            )
        return {"usedTokens": tokens, "windowTokens": window}
