"""What commands that talk to a model share: the flag that names one, and the lines about others that could answer."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator

from handrail.clients.model_choice import ModelChoice


def add_model_flag(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="NAME",
        help='which model answers, such as "ollama:qwen3", "openai:gpt-5-mini" or "demo" (default: that of [agent])',
    )


def offer_lines(choice: ModelChoice) -> Iterator[str]:
    """One line for each key that was found. Nothing was sent with it."""
    for offer in choice.offers:
        yield f"{offer.reason}: `--model {offer.model}` uses it, which sends the conversation to {offer.vendor}."
