"""Which embedder is opened, and what a person is told when it cannot be."""

import ast
import subprocess
import sys
import tracemalloc

import pytest

from handrail.contract.errors import ConfigError
from handrail_reference.services import embeddings
from handrail_reference.services.embeddings import Embedder, open_embedder
from handrail_reference.services.embeddings.catalog import MINILM
from handrail_reference.services.embeddings.installed import open_pinned


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
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None if name == "threadpoolctl" else object())
    with pytest.raises(ConfigError, match=r'needs the extra "embeddings"; run `pip install "handrail\[embeddings\]"`'):
        open_embedder("minilm", models=models)
    assert open_embedder("auto", models=models) is None


@pytest.mark.parametrize("kind", ["auto", "minilm"])
@pytest.mark.parametrize("damaged", ["model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["flipped", "header", "short", "empty", "missing", "folder"])
def test_a_damaged_file_is_one_sentence_that_says_how_to_mend_it(copy, kind, damaged, damage):
    path = copy / "minilm" / damaged
    data = bytearray(path.read_bytes())
    path.unlink()
    places = {"flipped": len(data) // 2, "header": 40}
    if damage in places:
        data[places[damage]] ^= 1
        path.write_bytes(data)
    elif damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(data[:-1] if damage == "short" else b"")
    with pytest.raises(ConfigError, match=r"`handrail models install minilm`") as raised:
        open_embedder(kind, models=copy)
    assert "\n" not in str(raised.value)
    assert str(raised.value).count(". ") == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"\0\0\0\0", b"\0\0\0\1"), (b"[30522,384]", b"[99999,384]"), (b'"F32"', b'"F33"'), (b"{", b"[")],
    ids=["header of 16 MB and more", "shape", "type", "no JSON"],
)
def test_weights_that_say_something_else_of_themselves_are_damaged_ones(copy, old, new):
    path = copy / "minilm" / "model.safetensors"
    data = path.read_bytes()
    assert old in data[:20_000]
    path.unlink()
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(ConfigError, match=r"is damaged: .*`handrail models install minilm`"):
        open_embedder("minilm", models=copy)


def test_a_file_that_claims_to_go_on_for_long_is_given_no_memory_for_that(models):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="over"), open_pinned(MINILM, models / "minilm", "config.json") as file:
            file.read(1 << 28)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 24


def test_a_mistake_of_ours_is_not_told_as_damage(models):
    with pytest.raises(ZeroDivisionError), open_pinned(MINILM, models / "minilm", "config.json"):
        raise ZeroDivisionError


def test_loading_takes_hardly_more_memory_than_the_weights(models):
    tracemalloc.start()
    try:
        open_embedder("minilm", models=models)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MINILM.size < most < 1.15 * MINILM.size


def loaded_by(code):
    """Which heavy packages a new process has imported after this code."""
    script = (
        "import sys; from pathlib import Path; import handrail_reference.services.embeddings as embeddings;"
        f"import handrail_reference.commands.models, handrail.cli.serve_command; {code};"
        "print([name for name in ('numpy', 'threadpoolctl', 'tokenizers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout)


def test_the_package_is_light_until_an_embedder_is_opened(models):
    assert loaded_by("pass") == []
    opened = f"embeddings.open_embedder('minilm', models=Path({str(models)!r})).embed(['hello'])"
    assert loaded_by(opened) == ["numpy", "threadpoolctl"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("auto", ["numpy", "threadpoolctl"]), ("minilm", ["numpy", "threadpoolctl"]), ("ollama", ["numpy"]), ("none", [])],
)
def test_packages_can_be_imported_before_an_event_loop_runs(models, kind, expected):
    assert loaded_by(f"embeddings.import_packages({kind!r}, models=Path({str(models)!r}))") == expected


def test_packages_are_not_imported_for_a_model_that_is_not_there(tmp_path):
    assert loaded_by(f"embeddings.import_packages('auto', models=Path({str(tmp_path)!r}))") == []


def test_packages_that_cannot_be_imported_are_told_to_whoever_opens_the_model(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "handrail_reference.services.embeddings.minilm", None)
    embeddings.import_packages("minilm", models=models)
    with pytest.raises(ImportError):
        open_embedder("minilm", models=models)
