"""A connection: one attachment of a model stream to a session, and what that stream may do with the session."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Self

from handrail.contract.call import Call, IdScope
from handrail.contract.envelope import ToolResponse

if TYPE_CHECKING:
    from handrail.runtime.session import Session


class Connection(int):
    """The number of the attachment, and the session as its stream has it.

    A stream keeps the one that it began on, `connection = session.connection`, and does everything through it. Once the session
    is resumed, that one is replaced: its calls are refused, it begins no turn, and it neither ends turns, interrupts nor closes.
    A `Session` speaks for whichever connection is current.
    """

    session: Session

    def __new__(cls, number: int, session: Session) -> Self:
        made = super().__new__(cls, number)
        made.session = session
        return made

    @property
    def is_current(self) -> bool:
        """Whether nobody has resumed the session since, here or in another process."""
        return self.session.is_current(self)

    def call(
        self,
        name: str,
        args: Any = None,
        *,
        call_id: str | None = None,
        provider: str | None = None,
        id_scope: IdScope = "session",
        response_id: str | None = None,
    ) -> Coroutine[Any, Any, ToolResponse]:
        """One call of this stream's model; `CONFLICT` once the connection was replaced."""
        call = Call(name, args, call_id, provider, id_scope, response_id, self)
        return self.session.core.pipeline.call(self.session, call)

    async def call_many(self, calls: Sequence[Call]) -> list[ToolResponse]:
        """The calls of one model message of this stream."""
        return await self.session.call_many([call._replace(connection=self) for call in calls])

    async def begin_turn(self, input_id: str | None = None) -> int:
        """A user's input was committed on this stream: the turn's number. Once replaced: the number of the turn that there is."""
        return await self.session.begin_turn(input_id, connection=self)

    async def end_turn(self) -> None:
        """The model has finished answering. Nothing once replaced."""
        if self.is_current:
            await self.session.end_turn()

    async def interrupt(self, call_ids: Collection[str] | None = None) -> None:
        """The user interrupted. Nothing once replaced."""
        await self.session.interrupt(call_ids, connection=self)

    async def close(self) -> None:
        """The stream is over and the session with it. Nothing once replaced: the session goes on with the newer stream."""
        await self.session.close(connection=self)
