"""One customer's conversation: the model's turns, and what happens beside them, as events for the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from handrail import Session
from handrail.agents import AgentEvent, Conversation, TextAgent
from handrail.events import ConfirmationRunning, ConfirmationWanted, LateEnvelope

SHOWN = ("text", "tool_started", "tool_finished", "tool_refused", "confirmation_closed", "error", "done")


class Chat:
    """Pages listen by `events`; each gets everything from the beginning, so a page that reloads misses nothing."""

    def __init__(self, agent: TextAgent, session: Session) -> None:
        self._agent = agent
        self._session = session
        self._conversation = Conversation()
        self._told: list[tuple[str, Mapping[str, Any]]] = []
        self._news = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    async def say(self, text: str, message_id: str) -> None:
        """One turn. The same message sent again is answered with the same answer."""
        await self._tell("said", {"text": text})
        async for event in self._agent.run(self._session, self._conversation, text, message_id=message_id):
            await self._show(event)

    async def events(self) -> AsyncIterator[tuple[str, Mapping[str, Any]]]:
        seen = 0
        while True:
            while seen < len(self._told):
                yield self._told[seen]
                seen += 1
            async with self._news:
                while seen == len(self._told):
                    await self._news.wait()

    async def close(self) -> None:
        self._listening.cancel()
        await self._session.close()

    async def _listen(self) -> None:
        async for event in self._session.events():
            if isinstance(
                event, LateEnvelope
            ):  # an approved call has run: the model is told, and says so to the customer
                async for answer in self._agent.late(self._session, self._conversation, event):
                    await self._show(answer)
            elif isinstance(event, ConfirmationWanted | ConfirmationRunning):
                await self._tell(event.type, event.data)

    async def _show(self, event: AgentEvent) -> None:
        if event.type in SHOWN:
            await self._tell(event.type, event.data)

    async def _tell(self, type: str, data: Mapping[str, Any]) -> None:
        async with self._news:
            self._told.append((type, data))
            self._news.notify_all()
