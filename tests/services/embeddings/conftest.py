"""MiniLM as `make models` brings it, and a tiny model whose wheel the tests can make themselves."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from handrail_reference.services.embeddings.catalog import MINILM, EmbeddingModel, ModelFile

MODELS = Path(__file__).parents[3] / "build" / "models"


@pytest.fixture(scope="session")
def models():
    """The folder with the real model; where it is missing the test is skipped, and on CI that is a failure."""
    if not (MODELS / MINILM.name).is_dir():
        message = "MiniLM is not in build/models; `make models` brings it."
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return MODELS


@pytest.fixture(scope="session")
def minilm(models):
    """The real model, loaded once."""
    from handrail_reference.services.embeddings import open_embedder

    return open_embedder("minilm", models=models)


CONTENT = {"config.json": b"{}", "model.safetensors": b"weights " * 1000}


def model_of(content):
    return EmbeddingModel(
        name="tiny",
        title="a model for tests",
        requirement="tiny-model==1.0",
        files=tuple(
            ModelFile(name=name, member=f"tiny/model/{name}", size=len(data), sha256=hashlib.sha256(data).hexdigest())
            for name, data in content.items()
        ),
    )


@pytest.fixture
def tiny():
    """A model of a few bytes."""
    return model_of(CONTENT)


@pytest.fixture
def make_wheel(tmp_path):
    """`make_wheel({"name in the archive": bytes})` writes a wheel; without arguments the right one."""

    def make(members=None, name="tiny_model-1.0-py3-none-any.whl"):
        wheel = tmp_path / "wheels" / name
        wheel.parent.mkdir(exist_ok=True)
        if members is None:
            members = {f"tiny/model/{name}": data for name, data in CONTENT.items()}
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return wheel

    return make
