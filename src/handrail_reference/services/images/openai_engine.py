"""Images of OpenAI (`gpt-image-1`), on the openai SDK."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any

from handrail import trace_headers
from handrail.errors import missing_extra
from handrail_reference.services.images.card import Size
from handrail_reference.services.images.image_engine import Drawing, as_png, failed_request, refused_prompt

SIZES: dict[Size, str] = {"square": "1024x1024", "portrait": "1024x1536", "landscape": "1536x1024"}
_REFUSED = ("moderation_blocked", "content_policy_violation")
_USAGE = {"inputTokens": "input_tokens", "outputTokens": "output_tokens", "totalTokens": "total_tokens"}


class OpenAIEngine:
    """One request for each call; nothing is asked twice, because each answer costs."""

    def __init__(self, model: str, *, api_key: str, base_url: str, seconds: float) -> None:
        try:
            import openai  # noqa: PLC0415 - an extra
        except ImportError:
            raise missing_extra("Images of OpenAI", "openai") from None
        self._sdk: Any = openai
        self._model = model
        self.name = f"openai:{model}"
        self._client = openai.AsyncOpenAI(api_key=api_key, base_url=base_url or None, timeout=seconds, max_retries=0)

    async def draw(self, prompt: str, size: Size, count: int) -> Drawing:
        sdk = self._sdk
        try:
            answer = await self._client.images.generate(
                model=self._model,
                prompt=prompt,
                size=SIZES[size],
                n=count,
                output_format="png",
                extra_headers=trace_headers(),
            )
            found = [base64.b64decode(one.b64_json or "", validate=True) for one in answer.data or ()]
        except sdk.APIStatusError as error:
            code = error.code or error.type
            if code in _REFUSED:
                raise refused_prompt(code) from None
            raise failed_request(error.status_code, code, _seconds(error.response.headers)) from None
        except (sdk.APIError, binascii.Error, ValueError, AttributeError, TypeError):
            # No connection, or an answer that is none; the SDK's own text may quote the request.
            raise failed_request(None) from None
        if len(found) != count:
            raise failed_request(None)
        usage = {name: getattr(answer.usage, field, None) for name, field in _USAGE.items()}
        # In a thread: a large picture is packed for a second or more.
        pictures = await asyncio.to_thread(lambda: tuple(as_png(one, self.name) for one in found))
        return Drawing(
            pictures=pictures,
            usage={name: value for name, value in usage.items() if isinstance(value, int)},
        )

    async def close(self) -> None:
        await self._client.close()


def _seconds(headers: Any) -> float | None:
    try:
        return max(0.0, min(float(headers.get("retry-after", "")), 3600.0))
    except ValueError:
        return None
