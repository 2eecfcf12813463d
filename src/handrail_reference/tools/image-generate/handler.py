"""Makes images of a prompt with whatever engine the host has; the result says which one that was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The images, each with the engine that made it."""
    pictures = await ctx.images.generate(args["prompt"], size=args["size"], count=args["count"])
    images = [
        {
            "id": picture.id,
            "url": picture.url,
            "width": picture.width,
            "height": picture.height,
            "engine": picture.engine,
            # A host's own engine need not say either.
            "placeholder": getattr(picture, "is_placeholder", False),
            **({"usage": dict(usage)} if (usage := getattr(picture, "usage", None)) else {}),
        }
        for picture in pictures
    ]
    return {"ok": True, "data": {"images": images}}
