"""The host of a spoken conversation in a test: it hands over what the session reports, as the server does, and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from handrail.agents.voice.voice_session import VoiceSession


@asynccontextmanager
async def hosted(voice: VoiceSession) -> AsyncIterator[None]:
    """Approvals and late results reach `voice` while this is open."""

    async def hand_over() -> None:
        async for event in voice.session.events_queue.listen():
            voice.take(event)

    handing = asyncio.create_task(hand_over())
    try:
        yield
    finally:
        await voice.close()
        handing.cancel()
        await asyncio.gather(handing, return_exceptions=True)
