"""The end of a conversation, whatever brought it about: once, in order, and told last."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from handrail.agents.voice.host_phrases import is_said
from handrail.agents.voice.host_port import Ending
from handrail.contract.errors import HandrailError

if TYPE_CHECKING:
    from handrail.agents.voice.live_session import VoiceSession

_LOG = logging.getLogger("handrail.agent")
_STEPS_SECONDS = 5.0
"""So long what must happen in its order may still happen: turns to be stored, answers to be told."""


class End:
    """Ends one conversation."""

    def __init__(self, talk: VoiceSession) -> None:
        self._talk = talk
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        return self._task is not None

    def begin(self, ending: Ending, *, to_text: bool) -> None:
        """The first who asks decides how it ends."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(ending, to_text))

    async def _run(self, ending: Ending, to_text: bool) -> None:
        talk = self._talk
        try:
            await self._leave(ending, to_text)
        except Exception as error:  # noqa: BLE001  # it ends, whatever happens
            _LOG.error("The end of a voice conversation was not clean", exc_info=error)
        finally:
            talk.record.conversation.lock.release()
            if to_text:
                talk.tell("ended", ending.to_dict())
            if not talk.ending.done():
                talk.ending.set_result(ending)

    async def _leave(self, ending: Ending, to_text: bool) -> None:
        talk = self._talk
        talk.speaking.cut()
        talk.end_item()
        if talk.calls.interrupt():
            await talk.session.interrupt()
        turn = talk.turns.current
        if turn is not None and not turn.done:
            talk.turns.finish(interrupted=True)
        try:
            async with asyncio.timeout(_STEPS_SECONDS):
                await talk.order.empty()
        except TimeoutError:
            _LOG.warning("A voice conversation ended before all of it was stored")
        talk.calls.unacknowledged.left()
        await talk.let_go()
        talk.session.voice_open = False
        if not to_text:
            return
        self._hand_over(ending)
        if talk.session.is_active and not talk.session.is_taken_over:
            try:
                await talk.session.set_mode("text")
            except HandrailError as error:
                _LOG.warning("The session could not be stored in text mode: %s", error)

    def _hand_over(self, ending: Ending) -> None:
        """The text chat shows, and its model knows, what was said at the end."""
        record = self._talk.record
        said = " ".join(message.text for message in record.conversation.current_turn() if hasattr(message, "text"))
        if ending.closing_message and not is_said(ending.closing_message, said):
            record.say(ending.closing_message)
        if ending.text_response:
            record.say(ending.text_response)
