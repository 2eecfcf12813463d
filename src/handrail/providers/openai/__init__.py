"""OpenAI: Chat Completions, Responses and Realtime."""

from __future__ import annotations

from dataclasses import replace

from handrail.providers.provider import ModelClient, Provider

_TEXT = ModelClient(
    opener="handrail.providers.openai.client:open_chat",
    schemes=("openai", "openai-chat"),
    packages=("openai",),
    distribution="openai",
    versions=("3.49", "4"),
    extra="openai",
    keys=("OPENAI_API_KEY",),
    address_variable="OPENAI_BASE_URL",
    vendor_host="api.openai.com",
    suggested_model="gpt-5-mini",
)
_MAX_TOOLS = 128

CHAT = Provider(
    name="openai-chat",
    vendor="OpenAI",
    aliases=("openai",),  # the name from before there was more than one format of this vendor
    adapter="handrail.providers.openai.chat.adapter",
    transport="handrail.providers.openai.chat.transport",
    client=_TEXT,
    max_tools=_MAX_TOOLS,
)
RESPONSES = Provider(
    name="openai-responses",
    vendor="OpenAI",
    adapter="handrail.providers.openai.responses.adapter",
    transport="handrail.providers.openai.responses.transport",
    client=replace(_TEXT, opener="handrail.providers.openai.client:open_responses", schemes=(), suggested_model=""),
    max_tools=_MAX_TOOLS,
)
REALTIME = Provider(
    name="openai-realtime",
    vendor="OpenAI Realtime",
    adapter="handrail.providers.openai.realtime.adapter",
    transport="handrail.providers.openai.realtime.transport",
    id_scope="connection",
    client=ModelClient(
        opener="handrail.providers.openai.realtime.client:OpenAIRealtime",
        is_live=True,
        packages=("openai", "websockets"),
        extra="openai",
        keys=("OPENAI_API_KEY",),
        url_schemes=("https", "wss", "http", "ws"),
    ),
    max_tools=_MAX_TOOLS,
)
