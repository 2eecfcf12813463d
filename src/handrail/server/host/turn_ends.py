"""The ends of turns, written down before anybody hears of them: what a client has read to be done is done at every server, and
after every crash. While the store is away an end waits, and is tried again until it is stored or another process has the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from handrail.contract.conversations import ConversationStore, Moved, StoredTurn
from handrail.contract.errors import HandrailError
from handrail.contract.store import StoreUnavailable
from handrail.server.host.hosted_session import HostedSession

AGAIN_SECONDS = 0.5
_LONG = 60
_log = logging.getLogger("handrail.server")


class TurnEnds:
    """The ends of the turns of one process."""

    def __init__(
        self, conversations: ConversationStore, owner: Callable[[], str], is_here: Callable[[HostedSession], bool]
    ) -> None:
        """`is_here`: whether the process still has the session."""
        self._conversations = conversations
        self._owner = owner
        self._is_here = is_here
        self._unstored: dict[tuple[str, str], tuple[HostedSession, StoredTurn | None]] = {}
        """While the store says that they run, nobody else continues."""

    async def store(self, hosted: HostedSession, turn: StoredTurn | None) -> None:
        """Until it is stored; without a turn what the model remembers. `Moved` if another process has the session, and with it
        the turn."""
        name = _name(hosted, turn)
        try:
            while not await self._is_settled(hosted, turn):
                if name not in self._unstored:
                    _log.error("A turn could not be stored: the store is away. It is tried again until it is stored.")
                self._unstored[name] = hosted, turn
                await asyncio.sleep(AGAIN_SECONDS)
        except asyncio.CancelledError:
            self.leave(hosted, turn)
            raise
        except BaseException:
            self._unstored.pop(name, None)
            raise
        self._unstored.pop(name, None)

    def leave(self, hosted: HostedSession, turn: StoredTurn | None) -> None:
        """Nobody waits for this one any more: `store_left` has it, unless the session is no longer here."""
        name = _name(hosted, turn)
        if self._is_here(hosted):
            self._unstored[name] = hosted, turn
        else:
            self._unstored.pop(name, None)

    async def store_left(self) -> None:
        """Those that nobody waits for any more, once: the process is about to end."""
        for hosted, turn in list(self._unstored.values()):  # whoever waits for one may still store it
            try:
                await self.store_once(hosted, turn)
            except HandrailError as error:
                _log.error("A turn could not be stored: %s", error)
        self._unstored.clear()

    async def store_once(self, hosted: HostedSession, turn: StoredTurn | None) -> None:
        if not self._is_here(hosted):
            raise Moved(f"The session {hosted.id} has moved since.")
        conversation = hosted.conversation
        # A long conversation takes a while to write down; the others must not wait for it.
        long = len(conversation.messages) > _LONG
        document = await asyncio.to_thread(conversation.to_dict) if long else conversation.to_dict()
        await self._conversations.finish(hosted.id, turn, document, owner=self._owner())

    async def _is_settled(self, hosted: HostedSession, turn: StoredTurn | None) -> bool:
        try:
            await self.store_once(hosted, turn)
        except StoreUnavailable:
            return False
        except Moved:
            raise
        except HandrailError as error:  # such as a value that no store takes
            _log.error("A turn could not be stored: %s", error)
        return True


def _name(hosted: HostedSession, turn: StoredTurn | None) -> tuple[str, str]:
    return hosted.id, turn.message_id if turn is not None else ""
