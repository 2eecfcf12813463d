"""Which embedder is opened, and what a person is told when it cannot be."""

import subprocess
import sys

import pytest

from handrail.contract.errors import ConfigError
from handrail.services import embeddings
from handrail.services.embeddings import Embedder, open_embedder


@pytest.fixture
def copy(models, tmp_path):
    """The real model, by links, in a folder where a test may put a damaged file in place of one."""
    (tmp_path / "minilm").mkdir()
    for file in (models / "minilm").iterdir():
        (tmp_path / "minilm" / file.name).symlink_to(file.absolute())
    return tmp_path


def test_nothing_is_opened_where_nothing_is_wanted_or_installed(tmp_path):
    assert open_embedder("none", models=tmp_path) is None
    assert open_embedder("auto", models=tmp_path / "no such folder") is None


def test_auto_takes_minilm_where_it_is_installed(models):
    embedder: Embedder | None = open_embedder("auto", models=models)
    assert embedder is not None
    assert (embedder.name, embedder.dimensions) == ("minilm-53aa5117", 384)


def test_a_missing_model_is_named_with_the_command_that_brings_it(tmp_path):
    with pytest.raises(ConfigError, match=r"not installed in .*; run `handrail models install minilm`\.$"):
        open_embedder("minilm", models=tmp_path)


def test_an_unknown_kind_is_named(tmp_path):
    with pytest.raises(ConfigError, match='"word2vec" is no kind of embeddings; choose auto, none, minilm, ollama'):
        open_embedder("word2vec", models=tmp_path)


def test_missing_packages_are_named_with_the_extra(models, monkeypatch):
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None if name == "tokenizers" else object())
    with pytest.raises(ConfigError, match=r"need tokenizers; install with `pip install 'handrail\[embeddings\]'`"):
        open_embedder("minilm", models=models)
    assert open_embedder("auto", models=models) is None


@pytest.mark.parametrize("kind", ["auto", "minilm"])
@pytest.mark.parametrize("damaged", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "missing", "folder"])
def test_a_damaged_file_is_one_sentence_that_says_how_to_mend_it(copy, kind, damaged, damage):
    path = copy / "minilm" / damaged
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flipped":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(data[:-1] if damage == "short" else b"")
    with pytest.raises(ConfigError, match=r"`handrail models install minilm`") as raised:
        open_embedder(kind, models=copy)
    assert "\n" not in str(raised.value)
    assert str(raised.value).count(". ") == 0


def test_the_package_is_light_until_an_embedder_is_opened():
    script = (
        "import sys; import handrail.services.embeddings, handrail.cli.models_command;"
        "print([name for name in ('numpy', 'tokenizers', 'threadpoolctl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
