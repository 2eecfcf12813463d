"""What Gemini Live takes from a client after the set-up, by generation of the model. Pure.

Until generation 2.5, `clientContent` may be sent at any time and is answered when its turn is complete; a history that is
seeded with it has to end with a turn of the user. From generation 3 on, `clientContent` only seeds the history, directly after
a set-up that announced it, and starts no answer; everything later, and whatever the model is to react to, is `realtimeInput`.
Sources: the vendor's reference of `HistoryConfig` and its notes on migrating to `gemini-3.1-flash-live-preview`; what LiveKit
and Pipecat found out about both generations (livekit/agents#5251, livekit/agents-js#1199, pipecat's Gemini Live service).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """A generation of models that takes the same messages."""

    name: str
    pattern: re.Pattern[str]
    takes_content_any_time: bool
    """Whether `clientContent` is taken after the conversation has begun. If not, there is also no way to tell the model
    something without making it speak."""


FAMILIES = (
    ModelFamily(
        name="Gemini 1 and 2",
        pattern=re.compile(r"gemini-(?:live-)?[12](?:\D|$)"),
        takes_content_any_time=True,
    ),
    ModelFamily(
        name="Gemini 3 and later",
        # A name without a number, such as "gemini-flash-live-latest", stands for a recent model.
        pattern=re.compile(r"gemini-"),
        takes_content_any_time=False,
    ),
)
_OTHER = FAMILIES[0]
"""A name that is none of the vendor's, as a local server has."""


def family_of(model: str) -> ModelFamily:
    """The family of a model, by its name; the first whose pattern fits."""
    # "models/…", and what Vertex calls "publishers/google/models/…" or puts below a project.
    name = model.rpartition("/")[2].lower()
    return next((family for family in FAMILIES if family.pattern.match(name)), _OTHER)
