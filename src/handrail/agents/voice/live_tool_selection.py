"""The tools that a live session offers its model, and how they change while it lasts.

Where some tools are left out and the provider can change them, the offer follows the conversation: what was said picks others,
and what `find_tools` has found is declared before the model learns of it, so that it can be called by name in the next breath.
Tools that were built again are declared anew with every provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from handrail.agents.conversation import Conversation
from handrail.agents.prompts import Prompt
from handrail.agents.tool_selection import found_tools
from handrail.contract.live import Answer, LiveConnection
from handrail.contract.offer import FIND_TOOL

Choose = Callable[[str, Sequence[str]], Awaitable[Prompt]]
"""The prompt for what was said, by one who may keep the tools that are declared now."""


class LiveToolSelection:
    """`first` is the prompt that the session began with; `can_follow` says whether the provider changes tools in a session."""

    def __init__(
        self,
        choose: Choose,
        conversation: Conversation,
        connection: LiveConnection,
        first: Prompt,
        *,
        can_follow: bool,
    ) -> None:
        self._choose = choose
        self._conversation = conversation
        self._connection = connection
        self._prompt = first
        self._can_follow = can_follow
        self._lock = asyncio.Lock()

    @property
    def follows(self) -> bool:
        """Whether what is said may bring other tools; where it cannot, an offer costs a conversation nothing."""
        return self._can_follow and self._prompt.left_out > 0

    @property
    def through_call(self) -> bool:
        """Whether the model calls what is not declared by `call_tool`."""
        return self._prompt.through_call

    async def choose_for(self, words: str) -> None:
        """Declare the tools that these words need, if one of them is not declared yet; `LiveError` if the session is over."""
        async with self._lock:
            prompt = await self._choose(words, self._prompt.tools)
            if not set(prompt.tools) <= set(self._prompt.tools):
                await self._declare(prompt)

    async def found(self, answers: Sequence[Answer]) -> None:
        """Declare the tools that were found, if any were looked for."""
        names = [name for answer in answers if answer.call.name == FIND_TOOL for name in found_tools(answer.envelope)]
        if names:
            self._conversation.keep_on_offer(names)
            await self.choose_for("")

    async def renew(self) -> None:
        """Declare the tools as they are now: the session has been pinned to newer ones."""
        async with self._lock:
            await self._declare(await self._choose("", self._prompt.tools))

    async def _declare(self, prompt: Prompt) -> None:
        self._prompt = prompt
        await self._connection.change_tools(prompt.text, prompt.declarations)
