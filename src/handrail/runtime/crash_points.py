"""Named moments at which tests end the process, to see what is left. Nothing happens there otherwise."""

from __future__ import annotations

from collections.abc import Callable


class CrashPoints:
    """Calls `hook`, if there is one, with the name of each moment that is reached."""

    __slots__ = ("hook",)

    def __init__(self, hook: Callable[[str], None] | None = None) -> None:
        self.hook = hook

    def __call__(self, point: str) -> None:
        if self.hook is not None:
            self.hook(point)
