"""The tools of a live session that follow the conversation, where its provider can change them.

There is one only where some tools are left out. What was said picks others, and what `find_tools` has found is declared before
the model learns of it, so that it can be called by its name in the next breath.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from handrail.agents.conversation import Conversation
from handrail.agents.offering import found_tools
from handrail.agents.prompts import Prompt
from handrail.contract.live import Answer, LiveConnection
from handrail.contract.offer import FIND_TOOL

Choose = Callable[[str, Sequence[str]], Awaitable[Prompt]]
"""The prompt for what was said, by one who may keep the tools that are declared now."""


class FollowingOffer:
    """`first` is the prompt that the session began with."""

    def __init__(self, choose: Choose, conversation: Conversation, connection: LiveConnection, first: Prompt) -> None:
        self._choose = choose
        self._conversation = conversation
        self._connection = connection
        self._tools = first.tools
        self._lock = asyncio.Lock()

    async def follow(self, words: str) -> None:
        """Declare the tools that these words need, if one of them is not declared yet; `LiveError` if the session is over."""
        async with self._lock:
            prompt = await self._choose(words, self._tools)
            if not set(prompt.tools) <= set(self._tools):
                self._tools = prompt.tools
                await self._connection.change_tools(prompt.text, prompt.declarations)

    async def found(self, answers: Sequence[Answer]) -> None:
        """Declare the tools that were found, if any were looked for."""
        names = [name for answer in answers if answer.call.name == FIND_TOOL for name in found_tools(answer.envelope)]
        if names:
            self._conversation.keep_on_offer(names)
            await self.follow("")
