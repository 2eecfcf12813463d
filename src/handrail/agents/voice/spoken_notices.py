"""What the host says in voice: to the model about what it should say, and to the user where no model says it."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def say_exactly(text: str) -> str:
    """Ask a model that speaks for these words."""
    return f"Note of the host: say the following to the person now, word for word and nothing else, and call no tool: {text}"


def farewell_withdrawn_notice() -> str:
    """What the model gets to know of an end that was taken back."""
    return (
        "Note of the host: the person spoke into the farewell, so the voice conversation continues and its end was taken back. "
        "If they want it to end after all, ask for the end again."
    )


def idle_notice() -> str:
    return (
        "I have not heard anything for a while, so I will end the call here. You can continue in writing at any time."
    )


def blocked_notice() -> str:
    return "This conversation is paused for now. Goodbye."


def lost_notice() -> str:
    return "The voice connection was lost. You can continue in writing, or start voice again."


def unheard_yes_notice() -> str:
    return (
        "Your yes was heard, but it is not known yet whether it could be recorded. If it was, the call is carried out, once, "
        "and its outcome is shown. Until then it can be declined on the screen."
    )


def unheard_no_notice() -> str:
    return "Your no was heard, but it is not known yet whether it could be recorded. Please decline it on the screen as well."


def is_said(wanted: str, said: str) -> bool:
    """Whether these words were said in this order, whatever stands between the words of a transcript."""
    needle, words = _words(wanted), _words(said)
    size = len(needle)
    return any(words[start : start + size] == needle for start in range(len(words) - size + 1))


def _words(text: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(text.casefold())]
