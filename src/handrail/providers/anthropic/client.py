"""Anthropic's Messages on the anthropic SDK."""

from __future__ import annotations

import anthropic
import httpx2

from handrail.providers.anthropic import transport
from handrail.providers.sdk_endpoint import SdkEndpoint
from handrail.providers.streaming_model import ClientLimits, StreamingModel


def open_messages(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    client = anthropic.AsyncAnthropic(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0)
    wire = SdkEndpoint(anthropic, client, client.messages)
    return StreamingModel(name, transport, wire, limits, key_name="ANTHROPIC_API_KEY")
