"""OpenAI's two text APIs, Chat Completions and Responses, on the openai SDK. Servers that speak Chat Completions work as well."""

from __future__ import annotations

import httpx2
import openai

from handrail.providers.openai.chat import transport as chat
from handrail.providers.openai.responses import transport as responses
from handrail.providers.sdk_endpoint import SdkEndpoint
from handrail.providers.streaming_model import ClientLimits, StreamingModel


def open_chat(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    client = _client(api_key, base_url, limits)
    wire = SdkEndpoint(openai, client, client.chat.completions)
    return StreamingModel(name, chat, wire, limits, key_name="OPENAI_API_KEY")


def open_responses(name: str, *, api_key: str, base_url: str | None, limits: ClientLimits) -> StreamingModel:
    client = _client(api_key, base_url, limits)
    wire = SdkEndpoint(openai, client, client.responses)
    return StreamingModel(name, responses, wire, limits, key_name="OPENAI_API_KEY")


def _client(api_key: str, base_url: str | None, limits: ClientLimits) -> openai.AsyncOpenAI:
    timeout = httpx2.Timeout(limits.idle_seconds, connect=limits.connect_seconds)
    return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0)
