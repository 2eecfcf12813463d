"""What `chat` and `serve` do before they begin: tools that changed are built, and one that cannot be trusted is refused."""

import json
import os

import httpx2 as httpx
import pytest
from tests.server.test_commands import serving

from handrail.build import compiler

TOML = '[tools]\nreference = ["rank_results"]\n'


@pytest.fixture
def judged(project, monkeypatch):
    """How often the tools were judged."""
    (project / "handrail.toml").write_text(TOML)
    times = []
    whole = compiler.build

    def counted(*args):
        times.append(1)
        return whole(*args)

    monkeypatch.setattr(compiler, "build", counted)
    return times


def chat(handrail):
    return handrail("chat", "hello", "--json")


def test_tools_that_did_not_change_are_not_judged_again(project, handrail, judged):
    assert handrail("new", "lookup_order").code == 0
    assert chat(handrail).code == 0
    assert len(judged) == 1
    artifact = (project / "tool_registry.json").read_bytes()
    assert chat(handrail).code == 0
    assert len(judged) == 1
    assert (project / "tool_registry.json").read_bytes() == artifact


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("handler.py", "ctx", "ctx"[::-1]), ("guide.md", "e", "E"), ("schema.json", '"1.0.0"', '"1.0.1"')],
)
def test_other_content_is_built_also_where_time_and_size_of_the_file_are_the_same(
    project, handrail, judged, name, old, new
):
    assert handrail("new", "lookup_order").code == 0
    assert chat(handrail).code == 0
    before = json.loads((project / "tool_registry.json").read_text())["version"]
    path = project / "tools" / "lookup-order" / name
    found, text = path.stat(), path.read_text()
    count = 1 if name == "guide.md" else -1
    path.write_text(text.replace(old, new, count))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert path.stat().st_size == found.st_size
    assert path.read_text() != text
    assert chat(handrail).code == 0
    assert len(judged) == 2
    assert json.loads((project / "tool_registry.json").read_text())["version"] != before


def test_an_artifact_that_was_edited_is_built_anew(project, handrail, judged):
    assert chat(handrail).code == 0
    path = project / "tool_registry.json"
    whole = json.loads(path.read_text())
    path.write_text(path.read_text().replace("rank", "RANK", 1))
    assert chat(handrail).code == 0
    assert len(judged) == 2
    assert json.loads(path.read_text())["tools"] == whole["tools"]


def test_tools_that_became_wrong_are_told_although_there_is_an_artifact(project, handrail, judged):
    assert handrail("new", "lookup_order").code == 0
    assert chat(handrail).code == 0
    schema = project / "tools" / "lookup-order" / "schema.json"
    schema.write_text(schema.read_text().replace("retrieval", "retrieving"))
    said = chat(handrail)
    assert said.code == 1
    assert "retrieving" in said.err


def test_in_production_a_changed_handler_refuses_its_tool_and_the_others_are_served(project, handrail, monkeypatch):
    for name in ("lookup_order", "count_words"):
        assert handrail("new", name).code == 0
    assert handrail("build").code == 0
    handler = project / "tools" / "count-words" / "handler.py"
    good = handler.read_text()
    handler.write_text(good + "\n# changed\n")
    monkeypatch.setenv("HANDRAIL_ENV", "production")
    with serving(project) as (told, process):
        headers = {"Authorization": f"Bearer {told['key']}"}
        listed = httpx.get(f"{told['url']}/api/tools", headers=headers).json()["tools"]
        assert [tool["id"] for tool in listed] == ["lookup_order"]
        assert told["tools"] == 1
        assert told["refused"] == ["count_words"]
        process.terminate()
        errors = process.stderr.read().decode()
    assert '"count_words" (handler.py) changed since the build; it is refused in production' in errors
    assert len(errors.splitlines()) == 1
    other = project / "tools" / "lookup-order" / "handler.py"
    other.write_text(other.read_text() + "\n# changed\n")
    said = handrail("serve", "--port", "0")
    assert said.code == 1, "with no tool left there is nothing to serve"
    assert "refused in production" in said.err


@pytest.mark.parametrize(
    ("tools", "embeddings", "expected"),
    [
        ("kb_search", "ollama", ["import", "serve"]),
        ("rank_results", "ollama", ["serve"]),
        ("kb_search", "none", ["serve"]),
    ],
)
def test_serve_imports_what_searches_by_meaning_need_before_it_takes_connections(
    project, handrail, monkeypatch, tools, embeddings, expected
):
    (project / "handrail.toml").write_text(
        f'[tools]\nreference = ["{tools}"]\n[services.kb]\nembeddings = "{embeddings}"\n'
    )
    done = []

    def make_server(app, limits, drain, *others, **options):
        class Server:
            async def serve(self, sockets):
                done.append("serve")
                await drain()
                raise SystemExit

        return Server()

    monkeypatch.setattr("handrail_reference.services.embeddings.import_module", lambda name: done.append("import"))
    monkeypatch.setattr("handrail.server.uvicorn_server.make_server", make_server)
    assert handrail("serve", "--port", "0").code == 1
    assert done == expected
