"""Which model answers in this process, and what an operator may choose instead. A change holds for new turns.

A turn keeps the model that it began with, so models that were replaced stay open until the server stops. Only one that holds
much memory is asked to free it (`unload`); if a running turn needs it once more, it loads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from handrail.clients.model_choice import WAYS, ModelChoice, ModelOffer
from handrail.contract.errors import UsageError
from handrail.contract.model import Model

Opener = Callable[[str], tuple[ModelChoice, Model]]
"""Opens a model by its name. It may block; `UsageError` in a sentence if the model cannot be used."""


class ModelSelection:
    """The current model. `use` gives it to the agents; without an `opener` it cannot be changed."""

    def __init__(
        self,
        choice: ModelChoice,
        model: Model | None = None,
        *,
        opener: Opener | None = None,
        use: Callable[[Model], None] | None = None,
    ) -> None:
        self.choice = choice
        self._first = choice
        self._opener = opener
        self._use = use
        self._opened: dict[str, tuple[ModelChoice, Model]] = {} if model is None else {choice.model: (choice, model)}
        self._changing = asyncio.Lock()

    @property
    def name(self) -> str:
        """The name of the model itself, without its scheme."""
        opened = self._opened.get(self.choice.model)
        return opened[1].name if opened is not None else self.choice.model

    def to_dict(self, *, offers: bool) -> dict[str, Any]:
        """What the console shows. `offers`: with the models that this reader may choose."""
        shown = {**self.choice.to_dict(), "sentence": self.choice.sentence}
        if self.choice.is_demo or self.choice.is_none:
            shown["ways"] = list(WAYS)
        if offers:
            others = [ModelOffer(name, "the server was started with it", "") for name in self._started_with()]
            others += self._first.offers
            shown["offers"] = [offer.to_dict() for offer in others if offer.model != self.choice.model]
        return shown

    async def select(self, name: str) -> None:
        """Let this model answer from the next turn on; `UsageError` if it was not offered or cannot be used."""
        if self._opener is None or self._use is None:
            raise UsageError("The program that runs this server has chosen its model; it cannot be changed here.")
        self._check_offered(name)
        async with self._changing:
            if name == self.choice.model:
                return
            if name not in self._opened:
                # Opening imports a vendor's SDK, which takes long.
                self._opened[name] = await asyncio.to_thread(self._opener, name)
            chosen, model = self._opened[name]
            if (load := getattr(model, "load", None)) is not None:
                await load()
            _, previous = self._opened[self.choice.model]
            self._use(model)
            self.choice = chosen
            if (unload := getattr(previous, "unload", None)) is not None:
                await unload()

    def _check_offered(self, name: str) -> None:
        """Any model of a provider whose key was offered may be named; nothing else of this machine can be reached."""
        known = [*self._started_with(), *(offer.model for offer in self._first.offers)]
        schemes = {offer.model.partition(":")[0] for offer in self._first.offers}
        if name in known or name.partition(":")[0] in schemes:
            return
        choice = f"choose {' or '.join(known)}" if known else "no model is"
        raise UsageError(f'The model "{name}" was not offered; {choice}.')

    def _started_with(self) -> list[str]:
        """The model that the server was started with, unless it was none."""
        return [] if self._first.is_none else [self._first.model]

    def to_json(self) -> dict[str, Any]:
        """Figures of the current model, where it has some."""
        figures = getattr(self._current(), "figures", None)
        return figures() if figures is not None else {}

    def to_prometheus(self) -> str:
        show = getattr(self._current(), "to_prometheus", None)
        return str(show()) if show is not None else ""

    def _current(self) -> Model | None:
        opened = self._opened.get(self.choice.model)
        return opened[1] if opened is not None else None

    async def close(self) -> None:
        """Close every model that was opened."""
        opened, self._opened = list(self._opened.values()), {}
        for _, model in opened:
            await model.close()
