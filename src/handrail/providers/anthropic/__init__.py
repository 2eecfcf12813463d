"""Anthropic's Messages API."""

from __future__ import annotations

from handrail.providers.provider import ModelClient, Provider

MESSAGES = Provider(
    name="anthropic",
    vendor="Anthropic",
    adapter="handrail.providers.anthropic.adapter",
    transport="handrail.providers.anthropic.transport",
    client=ModelClient(
        opener="handrail.providers.anthropic.client:open_messages",
        packages=("anthropic",),
        distribution="anthropic",
        versions=("2.8", None),
        extra="anthropic",
        keys=("ANTHROPIC_API_KEY",),
        address_variable="ANTHROPIC_BASE_URL",
        vendor_host="api.anthropic.com",
        suggested_model="claude-sonnet-4-5",
    ),
    request_limits="handrail.providers.anthropic.strict_limits:exceeded_together",
)
