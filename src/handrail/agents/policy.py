"""What an agent may do, as data: how many rounds, how many tools at once, how much of a prompt guides and history may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """The limits of one agent. Tokens are characters / 4."""

    rounds: int = 6
    """How often the model is asked in one turn; the last time it must answer without calls."""
    late_rounds: int = 3
    """The same after a late envelope."""
    calls_per_round: int = 16
    """Calls of one model message beyond this are not made, and the model learns that."""
    max_tools: int = 40
    """Above this number of tools, those that fit the request are picked."""
    picked_tools: int = 12
    declaration_tokens: int = 8_000
    """What the declarations may cost that a live session begins with, where there are more tools than `max_tools`."""
    guide_tokens: int = 4_000
    """Guides stand in the prompt if they all fit into this; otherwise they are read through `get_tool_guide`."""
    history_tokens: int = 24_000
    """Older turns are left out of what the model is sent, whole turns at a time."""
    max_output_tokens: int | None = None
    context_window: int | None = None
    """Tokens that fit into one request of the model, where the table of windows is not right."""
    answer_chars: int = 200_000
    """So long the words of one turn may be; a model that continues is cut off there."""
    model_retries: int = 1
    """How often a round is asked again after an error that may pass, if nothing of it was shown yet."""
    time_zone: str = "UTC"
    """Where a conversation names none."""
