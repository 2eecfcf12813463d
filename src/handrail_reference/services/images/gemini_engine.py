"""Images of Gemini's image models, on the google-genai SDK."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from handrail import trace_headers
from handrail.errors import ToolError, missing_extra
from handrail_reference.services.images.card import Size
from handrail_reference.services.images.image_engine import (
    Drawing,
    already_paid,
    as_png,
    failed_request,
    refused_prompt,
)

RATIOS: dict[Size, str] = {"square": "1:1", "portrait": "2:3", "landscape": "3:2"}
_REFUSED = (
    "SAFETY", "IMAGE_SAFETY", "PROHIBITED_CONTENT", "IMAGE_PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION",
    "IMAGE_RECITATION",
)  # fmt: skip
_USAGE = {
    "inputTokens": "prompt_token_count",
    "outputTokens": "candidates_token_count",
    "totalTokens": "total_token_count",
}


class GeminiEngine:
    """One request for each image, because a request gives one."""

    def __init__(self, model: str, *, api_key: str, base_url: str, seconds: float) -> None:
        try:
            from google import genai  # noqa: PLC0415 - an extra
            from google.genai import errors, types  # noqa: PLC0415
        except ImportError:
            raise missing_extra("Images of Gemini", "gemini") from None
        self._types: Any = types
        self._errors: Any = errors
        self._model = model
        self.name = f"gemini:{model}"
        options = types.HttpOptions(
            base_url=base_url or None,
            timeout=int(seconds * 1000),
            retry_options=types.HttpRetryOptions(attempts=1),
        )
        self._client = genai.Client(vertexai=False, api_key=api_key, http_options=options)

    async def draw(self, prompt: str, size: Size, count: int) -> Drawing:
        pictures: list[bytes] = []
        usage: Counter[str] = Counter()
        for _ in range(count):
            try:
                answer = await self._ask(prompt, size)
                # In a thread: a large picture is packed for a second or more.
                pictures.append(await asyncio.to_thread(as_png, self._picture(answer), self.name))
            except ToolError as error:
                raise (already_paid(error) if pictures else error) from None
            for name, field in _USAGE.items():
                value = getattr(answer.usage_metadata, field, None)
                usage[name] += value if isinstance(value, int) else 0
        return Drawing(pictures=tuple(pictures), usage={name: value for name, value in usage.items() if value})

    async def close(self) -> None:
        await self._client.aio.aclose()

    async def _ask(self, prompt: str, size: Size) -> Any:
        types = self._types
        config = types.GenerateContentConfig(
            response_modalities=["IMAGE"],
            image_config=types.ImageConfig(aspect_ratio=RATIOS[size]),
            http_options=types.HttpOptions(headers=trace_headers()),
        )
        try:
            return await self._client.aio.models.generate_content(model=self._model, contents=prompt, config=config)
        except self._errors.APIError as error:
            raise failed_request(error.code if isinstance(error.code, int) else None, error.status) from None
        except Exception:  # noqa: BLE001 - no connection, or an answer that is none: the SDK raises whatever its parts do
            raise failed_request(None) from None

    def _picture(self, answer: Any) -> bytes:
        blocked = getattr(answer.prompt_feedback, "block_reason", None)
        if blocked is not None:
            raise refused_prompt(getattr(blocked, "value", blocked))
        for candidate in answer.candidates or ():
            for part in (candidate.content.parts or ()) if candidate.content is not None else ():
                if part.inline_data is not None and part.inline_data.data:
                    return bytes(part.inline_data.data)
            reason = getattr(candidate.finish_reason, "value", candidate.finish_reason)
            if reason in _REFUSED:
                raise refused_prompt(reason)
        raise failed_request(200, "NO_IMAGE")
