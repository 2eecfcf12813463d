"""Gemini: `generateContent` over HTTP, and Gemini Live."""

from __future__ import annotations

from handrail.providers.provider import ModelClient, Provider

_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
_MAX_TOOLS = 512

HTTP = Provider(
    name="gemini",
    vendor="Gemini",
    aliases=("geminiNative",),  # the name from before there was more than one format of this vendor
    adapter="handrail.providers.gemini.http.adapter",
    transport="handrail.providers.gemini.http.transport",
    client=ModelClient(
        opener="handrail.providers.gemini.http.client:open_generate",
        packages=("google.genai",),
        distribution="google-genai",
        versions=("3.1", "4"),
        extra="gemini",
        keys=_KEYS,
        address_variable="GOOGLE_GEMINI_BASE_URL",
        vendor_host="generativelanguage.googleapis.com",
        suggested_model="gemini-2.5-flash",
    ),
    max_tools=_MAX_TOOLS,
)
LIVE = Provider(
    name="gemini-live",
    vendor="Gemini Live",
    adapter="handrail.providers.gemini.live.adapter",
    transport="handrail.providers.gemini.live.transport",
    id_scope="session",
    client=ModelClient(
        opener="handrail.providers.gemini.live.client:GeminiLive",
        is_live=True,
        packages=("google.genai",),
        extra="gemini",
        keys=_KEYS,
        url_schemes=("https", "wss"),  # its SDK knows no other
    ),
    max_tools=_MAX_TOOLS,
)
