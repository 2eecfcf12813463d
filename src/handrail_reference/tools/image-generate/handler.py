"""Makes images of a prompt with whatever engine the host has; the result says which one that was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """The images, each with the engine that made it."""
    pictures = await ctx.images.generate(args["prompt"], size=args["size"], count=args["count"])
    keep_for = getattr(ctx.images, "keep_for", None)  # a host's own engine need not know whose they are
    if keep_for is not None:
        await keep_for(ctx.user, ctx.tenant, [picture.id for picture in pictures])
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
