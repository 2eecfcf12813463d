"""Shows an image to the user: one that this host has made, by its id, or one on the web, by its address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from handrail import ErrorType, ToolError


async def execute(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Send the client message `image`."""
    caption = args.get("caption") or None
    image_id = args.get("image_id")
    shown = _on_the_web(args["image_url"]) if image_id is None else await _kept(image_id, ctx)
    await ctx.messaging.send({"type": "image", "imageId": image_id, "caption": caption, **shown})
    return {"ok": True, "data": {"sent": True, "url": shown["url"], "image_id": image_id, "caption": caption}}


def _on_the_web(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        plain = bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        plain = False
    if not plain:
        # "https://bank.example@evil.example/" looks like an address of the bank.
        raise ToolError(
            ErrorType.VALIDATION,
            "The address of an image names a host, and neither a user nor a password.",
            details=[{"pointer": "/image_url"}],
        )
    return {"url": url}


async def _kept(image_id: str, ctx: Any) -> dict[str, Any]:
    picture = await ctx.images.find(image_id) if ctx.capabilities.get("images") else None
    if picture is None:
        raise ToolError(
            ErrorType.NOT_FOUND,
            "There is no image of this id.",
            details=[{"pointer": "/image_id"}],
            suggestion="Use an id from image_generate as it was given, or send an image_url.",
        )
    return {"url": picture.url, "width": picture.width, "height": picture.height, "engine": picture.engine}
