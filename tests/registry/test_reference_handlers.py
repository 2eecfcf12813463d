"""Reference tools in a loaded registry: found in the installed package, verified by hash, run like any other."""

import shutil

import pytest

from handrail import Runtime
from handrail.authoring import reference
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import write
from handrail.contract.errors import ArtifactError, HandlerChanged

from .conftest import STAMP


def build_with(shelf, *names):
    result = build(BuildPlan(tools=shelf.tools, artifact=shelf.artifact, project=shelf.root, reference=names))
    assert not result.errors, result.errors
    return write(result, STAMP)


@pytest.fixture
def package(monkeypatch, tmp_path):
    """The package's tools, in a place where a test may change them."""
    root = tmp_path / "installed" / "tools"
    shutil.copytree(reference.collection_root("reference"), root)
    monkeypatch.setattr(reference, "tools_folder", lambda name: root)
    return root


async def test_a_reference_tool_is_called_like_any_other(shelf):
    shelf.new("lookup_order")
    build_with(shelf, "format_datetime")
    async with Runtime(shelf.load(environment="production"), store="memory:") as runtime:
        session = await runtime.open_session()
        await session.begin_turn()
        arguments = {"value": "2026-03-29T09:30:00Z", "time_zone": "Europe/Zagreb"}
        response = await session.call("format_datetime", arguments)
        assert response.ok, response.error
        assert (await session.call("lookup_order", {"id": "A-1001"})).ok


def test_the_artifact_loads_wherever_the_package_lies(shelf, package, monkeypatch):
    build_with(shelf, "rank_results")
    moved = package.parent / "moved"
    package.rename(moved)
    with pytest.raises(ArtifactError, match=r'"rank-results/handler\.py"'):
        shelf.load()
    monkeypatch.setattr(reference, "tools_folder", lambda name: moved)
    assert shelf.load().documentation("rank_results")


@pytest.mark.parametrize("environment", ["development", "production"])
def test_a_reference_tool_that_changed_is_refused(shelf, package, environment):
    build_with(shelf, "rank_results")
    handler = package / "rank-results" / "handler.py"
    handler.write_text(handler.read_text() + "\n# another version\n")
    with pytest.raises(
        HandlerChanged, match=r'reference tool "rank_results" \(handler\.py\) of this Handrail is another'
    ):
        shelf.load(environment=environment)


def test_a_link_in_place_of_a_handler_is_not_followed(shelf, package):
    build_with(shelf, "rank_results")
    handler = package / "rank-results" / "handler.py"
    handler.rename(package / "handler.py")
    handler.symlink_to(package / "handler.py")
    with pytest.raises(ArtifactError, match="cannot be read"):
        shelf.load()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"origin": "elsewhere"}, 'is from "elsewhere", which is not installed here'),
        ({"origin": None}, 'is from "None"'),
        ({"folder": "../../etc"}, "leads out of its folder"),
        ({"origin": "project"}, "cannot be read"),
    ],
    ids=["unknown origin", "no origin", "a path", "claimed by the project"],
)
def test_an_entry_that_no_build_writes_is_refused(shelf, change, words):
    build_with(shelf, "rank_results")
    shelf.reseal(lambda document: document["tools"][0]["handler"].update(change))
    with pytest.raises(ArtifactError, match=words):
        shelf.load()


def test_a_project_cannot_put_its_own_handler_in_the_place_of_a_reference_tools(shelf):
    build_with(shelf, "rank_results")
    own = shelf.tools / "rank-results"
    own.mkdir()
    (own / "handler.py").write_text("raise SystemExit('this must never run')")
    code = shelf.load().snapshot().tool("rank_results")
    assert code.handler.execute.__module__.startswith("handrail_tool_rank_results_")
