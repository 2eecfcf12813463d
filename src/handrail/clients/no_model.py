"""What stands in the place of a model where a server runs without one: whoever asks it learns so."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from handrail.clients.model_choice import NONE
from handrail.contract.call import IdScope
from handrail.contract.model import ModelError, ModelEvent, ModelRequest

_SENTENCE = "No model is connected; whoever runs this service can connect one."


class NoModel:
    """It answers nothing. `how` is for those who can connect a model."""

    name = NONE
    provider = "openai-chat"
    id_scope: IdScope = "session"
    context_window: int | None = None

    def __init__(self, how: str) -> None:
        self._how = how

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        raise ModelError(_SENTENCE, detail=self._how, misconfigured=True)

    async def close(self) -> None:
        """There is nothing to close."""
