"""Which model answers: the configured one, else an Ollama on this machine, else the demo model, else none. A pure decision.

`handrail.text_model` finds out what there is and opens what was chosen. A key that is found in the environment is offered and
never used unasked: it costs money and sends the conversation to somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handrail.contract.errors import install_command
from handrail.providers.catalogue import own_providers
from handrail.providers.ollama.probe import OllamaFound

DEMO = "demo"
NONE = "none"
"""What stands in the place of a model's name where no model answers."""


def _any_of(words: Sequence[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1]))


_HOSTED = [one for one in own_providers().values() if one.client is not None and one.client.suggested_model]
"""Those with a vendor that sells keys."""
_KEYS = _any_of([one.client.keys[0] for one in _HOSTED if one.client is not None])
_NAMES = [f'"{one.schemes[0]}:…"' for one in _HOSTED]

WAYS = (
    'Start Ollama with a model that can call tools, such as `ollama pull qwen3`; then write `model = "ollama:qwen3"` '
    "under [agent] in handrail.toml, or nothing at all, and start again.",
    'Name a file that you have: write `model = "local:model.gguf"` under [agent] in handrail.toml, then start again; it needs '
    'the extra "local".',
    f"Set {_KEYS}, and name the model: write `model = {_NAMES[0]}`, {_any_of(_NAMES[1:])} under [agent] in handrail.toml, "
    "then start again; or start with `--model`.",
)
"""How a language model is connected, as sentences for people."""
_HOW = (
    'Start Ollama with a model that can call tools, or set "model" in [agent] to "local:PATH.gguf", "ollama:…", '
    f"{_any_of(_NAMES)}; the demo model comes with {install_command('handrail[reference]')}."
)
"""The same in one line."""


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """A model that would be used if somebody said so."""

    model: str
    reason: str
    vendor: str
    """The host that the conversation would be sent to."""

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model, "reason": self.reason, "vendor": self.vendor}


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that answers, why it does, and what could answer instead."""

    model: str
    reason: str
    """Reads after "because": a clause without a full stop."""
    base_url: str = ""
    offers: tuple[ModelOffer, ...] = ()
    broken: str = ""
    """What was found and does not work, as a clause without a full stop; empty if there is nothing such."""

    @property
    def is_demo(self) -> bool:
        return self.model == DEMO

    @property
    def is_none(self) -> bool:
        """Nobody answers."""
        return self.model == NONE

    @property
    def sentence(self) -> str:
        """For people, at the start and in the console."""
        if self.is_none:
            return f"No model is connected{f' ({self.broken})' if self.broken else ''}. {_HOW}"
        shown = "the demo model" if self.is_demo else self.model
        return f"Answered by {shown}: {self.reason}."

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model, "reason": self.reason, "demo": self.is_demo, "broken": self.broken}


def choose(
    configured: str,
    *,
    base_url: str = "",
    named_by: str = '"model" in [agent]',
    ollama: OllamaFound | None = None,
    offers: Sequence[ModelOffer] = (),
    has_demo: bool = True,
) -> ModelChoice:
    """The decision. `configured` is never replaced by another model, whatever is wrong with it; `NONE` if there is nothing to
    answer at all."""
    others = tuple(offer for offer in offers if offer.model != configured)
    if configured:
        return ModelChoice(configured, f"{named_by} names it", base_url, others)
    if ollama is not None and ollama.model and ollama.usable:
        reason = f"Ollama answers at {ollama.address}, and this model of it can call tools"
        return ModelChoice(f"ollama:{ollama.model}", reason, ollama.address, others)
    broken = f"Ollama at {ollama.address} does not work: {ollama.fault}" if ollama is not None and ollama.fault else ""
    reason = f"no language model is connected{_about(ollama)}"
    return ModelChoice(DEMO if has_demo else NONE, reason, "", others, broken)


def _about(ollama: OllamaFound | None) -> str:
    """Why an Ollama that was found is not used."""
    if ollama is None:
        return ""
    if ollama.fault:
        return f" (Ollama at {ollama.address} does not work: {ollama.fault}; mend it or name a model, then start again)"
    if not ollama.model:
        return f" (Ollama answers at {ollama.address}, but has no model that can call tools; `ollama pull qwen3` brings one)"
    return f" (Ollama answers at {ollama.address}; to use it, run {install_command('handrail[ollama]')})"
