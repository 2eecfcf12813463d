"""A small catalogue, an embedder that knows a few meanings, MiniLM as `make models` brings it, and the MetaTool data."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from handrail.picking import pick as picking

ROOT = Path(__file__).parents[2]


def tool(tool_id, description="", **fields):
    return {"toolId": tool_id, "description": description, **fields}


@pytest.fixture(autouse=True)
def _no_kept_indexes():
    picking._indexes.clear()


@pytest.fixture
def catalogue():
    return [
        tool("get_weather", "Current weather and the forecast for a city.", tags=["climate"]),
        tool("convertCurrency", "Convert an amount of money between two currencies."),
        tool("search_flights", "Find flights between two airports on a date."),
        tool("translate_text", "Translate text from one language to another."),
        tool("playMusic", "Play songs and playlists on a speaker.", allowedModes=["voice"]),
        tool(
            "send_invoice",
            "Send a bill to a customer.",
            allowedModes=["text"],
            parameters={
                "type": "object",
                "properties": {"dueDate": {"type": "string", "description": "When the payment must arrive."}},
            },
        ),
    ]


class Concepts:
    """An embedder whose vectors say which of a few subjects a text is about."""

    SUBJECTS = (
        ("weather", "umbrella", "rain", "forecast"),
        ("money", "currency", "currencies", "euros"),
        ("flights", "airports", "holiday", "abroad"),
        ("language", "translate", "abroad"),
        ("songs", "playlists", "melody"),
        ("bill", "invoice", "customer"),
    )

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        rows = [[sum(word in text.lower() for word in words) for words in self.SUBJECTS] for text in texts]
        vectors = np.array(rows, dtype=np.float32) + 0.01
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def concepts():
    return Concepts()


@pytest.fixture(scope="session")
def minilm():
    """The real model, loaded once; where it is missing the test is skipped, and on CI that is a failure."""
    from handrail_reference.services.embeddings import open_embedder

    embedder = open_embedder("auto", models=ROOT / "build" / "models")
    if embedder is None:
        message = "MiniLM is not in build/models; `make models` brings it."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return embedder


@pytest.fixture(scope="session")
def metatool():
    path = ROOT / "tests" / "data" / "metatool_dev.json"
    return json.loads(path.read_text(encoding="utf-8"))
