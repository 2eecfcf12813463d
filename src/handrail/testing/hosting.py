"""The host of a spoken conversation in a test: it hands the talk what its session tells, as the server does, and closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from handrail.agents.voice.live_session import VoiceSession


@asynccontextmanager
async def hosted(talk: VoiceSession) -> AsyncIterator[None]:
    """Approvals and late results reach `talk` while this is open."""

    async def hand_over() -> None:
        async for event in talk.session.events_queue.listen():
            talk.take(event)

    handing = asyncio.create_task(hand_over())
    try:
        yield
    finally:
        await talk.close()
        handing.cancel()
        await asyncio.gather(handing, return_exceptions=True)
