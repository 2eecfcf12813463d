"""What commands that talk to a model share: the flag that names one, and the lines about others that could answer."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator

from handrail.clients.model_choice import ModelChoice
from handrail.contract.errors import ConfigError
from handrail.contract.model import Model, ModelError


def add_model_flag(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="NAME",
        help='which model answers, such as "ollama:qwen3", "openai:gpt-5-mini" or "demo" (default: that of [agent])',
    )


def offer_lines(choice: ModelChoice) -> Iterator[str]:
    """One line for each key that was found and is not used by the model that answers. Nothing was sent with it."""
    used = choice.model.partition(":")[0]
    for offer in choice.offers:
        if offer.model.partition(":")[0] != used:
            yield f"{offer.reason}: `--model {offer.model}` uses it, which sends the conversation to {offer.vendor}."


async def load_model(model: Model) -> tuple[str, ...]:
    """Load a model that has to be, and say what it costs; `ConfigError` if that fails. Others have nothing to load or say."""
    load = getattr(model, "load", None)
    if load is None:
        return ()
    try:
        await load()
    except ModelError as error:
        raise ConfigError(error.detail) from None
    return (str(model.summary),) if hasattr(model, "summary") else ()
