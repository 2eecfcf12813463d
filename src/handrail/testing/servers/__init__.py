"""Local servers that speak the protocols of the text providers on loopback and play a script, for tests without a key.

    async with AnthropicServer([Reply(calls=[call("find_table", guests=4)]), Reply("There is one.")]) as server:
        model = open_model("anthropic:any", environment=server.environment, base_url=server.base_url)

They check what they are sent as the provider would, keep it in `requests`, and misbehave on demand (`Fault`). The servers of
the live providers are in `handrail.testing.servers.live`.
"""

from handrail.testing.servers.anthropic import AnthropicServer
from handrail.testing.servers.gemini import GeminiServer
from handrail.testing.servers.ollama import OllamaServer
from handrail.testing.servers.openai_chat import OpenAIChatServer
from handrail.testing.servers.openai_responses import OpenAIResponsesServer
from handrail.testing.servers.script import FAULTS, Fault, Reply, ScriptedCall, call
from handrail.testing.servers.server import ProviderServer, Received

__all__ = [
    "FAULTS",
    "AnthropicServer",
    "Fault",
    "GeminiServer",
    "OllamaServer",
    "OpenAIChatServer",
    "OpenAIResponsesServer",
    "ProviderServer",
    "Received",
    "Reply",
    "ScriptedCall",
    "call",
]
