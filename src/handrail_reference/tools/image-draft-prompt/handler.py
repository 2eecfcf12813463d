"""Turns an idea into complete prompts for an image. No model, no chance: the same idea gives the same prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail import ErrorType, ToolError

# Each prompt takes one line: how near, how it is made, in which light and mood. Lines differ in all of them, so that the
# user has something to choose from.
_WAYS = (
    (
        "wide view with the surroundings",
        "watercolour on rough paper",
        "soft light of early morning",
        "calm, much empty space",
    ),
    (
        "close-up of the most telling detail",
        "photograph with a shallow depth of field",
        "warm light from one side",
        "intimate",
    ),
    (
        "seen from low above the ground",
        "flat poster art in four colours",
        "hard light and long shadows",
        "bold, strong shapes",
    ),
    (
        "seen from above, everything in its place",
        "fine ink drawing with a single wash",
        "even light",
        "curious, many details",
    ),
)


async def execute(args: Mapping[str, Any], ctx: object) -> dict[str, Any]:
    """`count` prompts for one idea."""
    idea, style = _one_line(args["idea"]), _one_line(args.get("style") or "")
    if not idea:
        raise ToolError(
            ErrorType.VALIDATION, "The idea is blank; say what the image is about.", details=[{"pointer": "/idea"}]
        )
    subject = idea.rstrip(" .,;:") or idea
    prompts = [
        f"{subject}. {view[:1].upper()}{view[1:]}; {style or made}; {light}; {mood}."
        for view, made, light, mood in _WAYS[: args["count"]]
    ]
    return {"ok": True, "data": {"prompts": prompts}}


def _one_line(text: str) -> str:
    return " ".join(text.split())
