"""What draws: the port, the placeholder that needs nothing, and how a service's answers and refusals become ours.

A service is paid for each image, so nothing here asks twice by itself. What it wrote about a refusal is not passed on: the model
gets a sentence of ours with the service's code.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from typing import Protocol

from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from handrail.errors import ErrorType, ToolError
from handrail_reference.services.images.card import ENGINE, Size, draw_card
from handrail_reference.services.images.lettering import Lettering

PLACEHOLDER = "placeholder"
MAX_PIXELS = 40_000_000
MAX_BYTES = 64 * 1024 * 1024
_GATEWAY = (502, 504)
"""Whoever stands before the service answered: the service itself may still draw."""
_NOTHING = "; nothing was drawn"
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Images as PNG, and what they cost by the service's own account."""

    pictures: tuple[bytes, ...]
    usage: Mapping[str, int] = field(default_factory=dict)
    """Such as `inputTokens`, `outputTokens`, `totalTokens`; empty: it said nothing, or nothing was paid."""


class ImageEngine(Protocol):
    """Draws. `name` stands in every result."""

    @property
    def name(self) -> str: ...
    async def draw(self, prompt: str, size: Size, count: int) -> Drawing: ...
    async def close(self) -> None: ...


class PlaceholderEngine:
    """Cards with the words of the prompt: no image model has drawn them, and they say so."""

    name = ENGINE

    def __init__(self, lettering: Lettering, pool: ThreadPoolExecutor) -> None:
        self._lettering = lettering
        self._pool = pool

    async def draw(self, prompt: str, size: Size, count: int) -> Drawing:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._cards, prompt, size, count)

    async def close(self) -> None:
        return None

    def _cards(self, prompt: str, size: Size, count: int) -> Drawing:
        numbers = range(1, count + 1)
        return Drawing(pictures=tuple(draw_card(prompt, size, one, count, self._lettering) for one in numbers))


def as_png(picture: bytes, engine: str) -> bytes:
    """What a service sent, as a PNG that says what drew it; refused if it is no image, or one that would fill the memory."""
    try:
        if len(picture) > MAX_BYTES:
            raise ValueError
        with Image.open(BytesIO(picture), formats=("PNG", "JPEG", "WEBP")) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise ValueError
            drawn = opened.convert("RGBA" if opened.mode in ("RGBA", "LA", "PA") else "RGB")
    except (UnidentifiedImageError, ValueError, OSError, SyntaxError, Image.DecompressionBombError):
        raise ToolError(
            ErrorType.PERMANENT,
            "The image service sent something that is no image; it may have been paid for.",
            partial_side_effects=True,
        ) from None
    facts = PngInfo()
    facts.add_text("Software", f"Handrail {engine}")
    out = BytesIO()
    drawn.save(out, "PNG", pnginfo=facts)
    return out.getvalue()


def refused_prompt(code: object) -> ToolError:
    """The service does not draw this, for reasons of safety."""
    return ToolError(
        ErrorType.PERMANENT,
        f"The image service refused this prompt for safety reasons{_named(code)}{_NOTHING}.",
        suggestion="Tell the user, and draw something else; do not try to get around the refusal.",
    )


def already_paid(error: ToolError) -> ToolError:
    """A failure after something was drawn."""
    failure = error.message.removesuffix(".").removesuffix(_NOTHING)
    message = f"{failure}; an image was drawn and paid for before that, and is lost."
    return ToolError(error.type, message, partial_side_effects=True, suggestion=error.suggestion)


def failed_request(status: int | None, code: object = None, retry_after: float | None = None) -> ToolError:
    """What a service's error means. Where it failed or did not answer, it may have drawn, and been paid."""
    if status is None or status >= 500:
        failed = "did not answer" if status is None or status in _GATEWAY else f"has failed (status {status})"
        return ToolError(
            ErrorType.TRANSIENT,
            f"The image service {failed}; an image may have been drawn and paid for.",
            partial_side_effects=True,
        )
    if status in (401, 403):
        return ToolError(
            ErrorType.AUTH, "The image service does not accept this host's key; the operator has to mend it."
        )
    if status == 429:
        message = f"The image service takes no more requests now{_named(code)}."
        return ToolError(ErrorType.RATE_LIMIT, message, retryable=True, retry_after=retry_after)
    return ToolError(ErrorType.PERMANENT, f"The image service does not take this request{_named(code)}{_NOTHING}.")


def _named(code: object) -> str:
    return f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""
