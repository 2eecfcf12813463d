"""Crashes on purpose: end a call, or the process, at a named point of a writing call's way.

Pass a `CrashAt` as `crash=` to a runtime. `Crashed` is no `Exception`, so that no handler and no gate swallows it.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "before_hold",
    "after_hold",
    "before_approve",
    "after_approve",
    "before_claim",
    "between_claims",
    "after_claim",
    "before_handler",
    "after_handler",
    "before_finish",
    "after_finish",
    "before_intents",
    "before_delivery",
)
"""In the order in which a held call passes them; `between_claims` only if the store did not answer the first claim."""


class Crashed(BaseException):
    """The process would be gone now."""


class CrashAt:
    """Crashes when a point is passed for the `nth` time; by exception, or really (`kill=True`, SIGKILL to this process)."""

    def __init__(self, point: str, *, nth: int = 1, kill: bool = False) -> None:
        if point not in POINTS:
            raise ValueError(f'"{point}" is not a crash point; known are {", ".join(POINTS)}.')
        self.point = point
        self.left = nth
        self.kill = kill
        self.passed: list[str] = []

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        if point != self.point:
            return
        self.left -= 1
        if self.left == 0:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Crashed(point)
