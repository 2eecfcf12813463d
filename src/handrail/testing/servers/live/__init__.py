"""Local servers that speak the protocols of the live providers on loopback and play a script, for tests without a key.

    async with GeminiLiveServer([Turn([Ask(call("find_table", guests=4)), Say("There is one by the window.")])]) as server:
        model = GeminiLive("any", api_key=server.api_key, base_url=server.base_url, tls=server.tls)

They need the extras of the providers (for `websockets`), and Gemini's, which speaks TLS, the package `trustme`.
"""

from handrail.testing.servers.live.gemini import GeminiLiveServer
from handrail.testing.servers.live.openai import OpenAIRealtimeServer
from handrail.testing.servers.live.script import Ask, Decide, Depart, Drop, Fault, Pause, Say, Send, Turn, Words
from handrail.testing.servers.live.sound import silence, speech
from handrail.testing.servers.script import ScriptedCall, call

__all__ = [
    "Ask",
    "Decide",
    "Depart",
    "Drop",
    "Fault",
    "GeminiLiveServer",
    "OpenAIRealtimeServer",
    "Pause",
    "Say",
    "ScriptedCall",
    "Send",
    "Turn",
    "Words",
    "call",
    "silence",
    "speech",
]
