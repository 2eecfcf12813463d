"""A text agent on a real SDK's client, against the local server of its provider, over tools that leave marks."""

import asyncio
from contextlib import asynccontextmanager

from tests.runtime.kit import FOUND, PAID, Tools, reading, writing

from handrail import Runtime
from handrail.agents import AgentPolicy, Conversation, TextAgent
from handrail.clients import ClientLimits, open_model
from handrail.standard_runtime import SystemClock
from handrail.testing.servers import (
    AnthropicServer,
    GeminiServer,
    OllamaServer,
    OpenAIChatServer,
    OpenAIResponsesServer,
    call,
)

SERVERS = {
    "openai": OpenAIChatServer,
    "openai without padding": lambda script: OpenAIChatServer(script, obfuscation=False),
    "openai-responses": OpenAIResponsesServer,
    "anthropic": AnthropicServer,
    "gemini": GeminiServer,
    "gemini without ids": lambda script: GeminiServer(script, ids=False),
    "ollama": OllamaServer,
    "ollama without ids": lambda script: OllamaServer(script, ids=False),
}
"""What stands before the colon in `[agent] model`, and who answers."""
PAY, LOOK = call("pay", q="rent"), call("look", q="rates")


def spec(kind):
    return f"{kind.partition(' ')[0]}:local-model"


def build(folder):
    """`pay` writes and is not idempotent; `look` reads."""
    tools = Tools(folder)
    tools.write({"pay": (writing(), PAID), "look": (reading(), FOUND)})
    return tools, tools.build()


class Hasty(SystemClock):
    """Nobody waits long between two attempts."""

    async def sleep(self, seconds):
        await asyncio.sleep(min(seconds, 0.02))


class AgentCase:
    def __init__(self, agent, session):
        self.agent, self.session = agent, session
        self.conversation = Conversation()
        self.events = []

    async def say(self, text, message_id=None):
        """One turn; what the user was told."""
        turn = self.agent.run(self.session, self.conversation, text, message_id=message_id)
        told = [event async for event in turn]
        self.events += told
        assert told[-1].type == "done"
        return told[-1].data["text"]


class Patience:
    """The limits of a client that waits long, but not for a server which is known not to continue: no test waits for a moment."""

    def __init__(self, server):
        self._server = server
        usual = ClientLimits()
        self.connect_seconds, self.retries, self.answer_bytes = usual.connect_seconds, usual.retries, usual.answer_bytes
        self.first_wait = 0.0

    @property
    def idle_seconds(self):
        return 0.3 if self._server.playing == "stall" else 60.0

    @property
    def total_seconds(self):
        return 0.3 if self._server.playing == "trickle" else 120.0


@asynccontextmanager
async def open_agent(registry, server, kind):
    """The agent, talking to this server."""
    limits = Patience(server)
    model = open_model(spec(kind), environment=server.environment, base_url=server.base_url, limits=limits)
    try:
        async with Runtime(registry, store="memory:", clock=Hasty()) as runtime:
            agent = TextAgent(runtime, model, policy=AgentPolicy(guide_tokens=0))
            yield AgentCase(agent, await runtime.open_session(user="u1"))
    finally:
        await model.close()
