"""Artifacts that were cut, edited, sealed anew, or come from a newer Handrail are refused with a sentence."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import Registry
from handrail.build.compiler import BuildPlan, BuildStamp, build
from handrail.build.scaffold import new_tool
from handrail.build.writer import write
from handrail.contract.errors import ArtifactError
from handrail.registry.artifact import FORMAT, read_artifact


def test_an_artifact_that_is_not_there_or_no_file_is_told(shelf):
    with pytest.raises(ArtifactError, match=r"no artifact .*handrail build"):
        Registry.load(shelf.artifact)
    shelf.artifact.mkdir()
    with pytest.raises(ArtifactError, match="cannot be read"):
        Registry.load(shelf.artifact)
    with pytest.raises(ArtifactError, match="cannot be read"):
        Registry.load(Path(__file__) / "below a file.json")


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b"\xff", b'{"format": "1"}', b"{" * 5000, b'{"format": 1}']
)
def test_a_file_that_is_no_artifact_is_told(shelf, content):
    shelf.artifact.write_bytes(content)

    with pytest.raises(ArtifactError, match="handrail build"):
        Registry.load(shelf.artifact)


def test_an_artifact_cut_off_anywhere_is_refused(shelf):
    shelf.new("one")
    shelf.new("two", "action")
    whole = shelf.build().read_bytes()

    for length in [*range(0, len(whole), 97), len(whole) - 2, len(whole) - 1]:
        shelf.artifact.write_bytes(whole[:length])
        with pytest.raises(ArtifactError):
            read_artifact(shelf.artifact)
    shelf.artifact.write_bytes(whole)
    assert len(read_artifact(shelf.artifact).entries) == 2


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """An artifact that was built once, for tests that spoil copies of it."""
    root = tmp_path_factory.mktemp("sealed")
    new_tool(root, root / "tools", "lookup_order", "retrieval")
    result = build(BuildPlan(tools=root / "tools", artifact=root / "r.json", project=root))
    return write(result, BuildStamp(git_commit=None, timestamp="2026")).read_bytes(), root / "edited.json"


@given(st.data())
def test_an_artifact_with_any_byte_edited_is_refused(sealed, data):
    whole, path = sealed
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])

    with pytest.raises(ArtifactError):
        read_artifact(path)


@settings(max_examples=50)
@given(st.data())
def test_an_artifact_with_anything_added_or_taken_out_is_refused(sealed, data):
    whole, path = sealed
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 50)))
    put = data.draw(st.binary(max_size=20).filter(lambda put: put != whole[start:end]))
    path.write_bytes(whole[:start] + put + whole[end:])

    with pytest.raises(ArtifactError):
        read_artifact(path)


def test_an_edit_that_is_good_json_is_told_as_an_edit(shelf):
    shelf.new()
    text = shelf.build().read_text()
    shelf.artifact.write_text(text.replace('"latencyBudgetMs":500', '"latencyBudgetMs":900'))

    with pytest.raises(ArtifactError, match="changed after it was built"):
        Registry.load(shelf.artifact)


def test_an_artifact_of_a_newer_format_asks_for_a_newer_handrail(shelf):
    shelf.new()
    shelf.build()
    document = json.loads(shelf.artifact.read_text())
    shelf.artifact.write_text(json.dumps({**document, "format": FORMAT + 1}))

    with pytest.raises(ArtifactError, match=f"has format {FORMAT + 1}.*newer.*upgrade"):
        Registry.load(shelf.artifact)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["tools"][0].pop("handler"),
        lambda document: document["tools"][0].pop("toolId"),
        lambda document: document["tools"][0]["handler"].pop("files"),
        lambda document: document["tools"][0]["handler"].update(files=["handler.py"]),
        lambda document: document["tools"].append(None),
        lambda document: document["tools"][0].update(handler="handler.py"),
        lambda document: document.pop("toolsRoot"),
        lambda document: document.pop("version"),
        lambda document: document.update(providerSchemas=None),
        lambda document: document["providerSchemas"].pop("file"),
    ],
    ids=range(10),
)
def test_a_sealed_artifact_that_lacks_something_is_an_artifact_error(shelf, change):
    shelf.new()
    shelf.build()
    shelf.reseal(change)

    with pytest.raises(ArtifactError, match="handrail build"):
        Registry.load(shelf.artifact)


def test_provider_schemas_that_went_or_were_edited_are_refused_when_asked_for(shelf):
    shelf.new()
    shelf.build()
    registry = shelf.load()
    (providers,) = shelf.root.glob("*.jsonl")
    whole = providers.read_bytes()

    providers.write_bytes(whole.replace(b"lookup_order", b"lookup_ordeR"))
    with pytest.raises(ArtifactError, match="changed after they were built"):
        registry.provider_schemas("openai-chat")
    providers.unlink()
    with pytest.raises(ArtifactError, match=r"cannot be read.*handrail build"):
        registry.provider_schemas("openai-chat")
    providers.write_bytes(whole)
    assert registry.provider_schemas("openai-chat")


def test_a_provider_file_is_looked_for_beside_the_artifact_only(shelf):
    shelf.new()
    shelf.build()
    (providers,) = shelf.root.glob("*.jsonl")
    outside = shelf.root.parent / f"outside-{shelf.root.name}.jsonl"
    shutil.copy(providers, outside)
    shelf.reseal(lambda document: document["providerSchemas"].update(file=f"../{outside.name}"))

    with pytest.raises(ArtifactError, match="cannot be read"):
        shelf.load().provider_schemas("openai-chat")
