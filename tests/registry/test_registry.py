"""The registry: what was built is what is loaded, what was touched since is refused, and a snapshot never changes."""

import asyncio
import json
import os
import shutil
import sys
import threading

import pytest
from tests.registry.conftest import Shelf

from handrail import Registry
from handrail.contract.errors import ArtifactError, HandlerChanged, NotLocked, RegistryError, UsageError
from handrail.registry.registry import environment_from
from handrail.schema.validator import JSONSCHEMA_RS


def run(snapshot, name="lookup_order", args=None):
    """What a handler gives back; the pipeline's part is tested where the pipeline is."""
    found = snapshot.tool(name).handler.execute(args or {}, None)
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def says(text):
    return f"async def execute(args, ctx):\n    return {text!r}\n"


# ------------------------------------------------------------------------------------------------- load, lock, snapshot


def test_a_snapshot_is_given_after_the_lock_and_not_before(shelf):
    shelf.new()
    registry = Registry.load(shelf.build())

    assert not registry.locked
    with pytest.raises(NotLocked, match=r"registry\.lock\(\)"):
        registry.snapshot()
    registry.lock()
    registry.lock()

    assert registry.locked
    assert registry.snapshot() is registry.snapshot()


def test_a_registry_says_what_it_was_built_from(shelf):
    shelf.new()
    registry = Registry.load(str(shelf.build()))

    document = json.loads(shelf.artifact.read_text())
    assert (registry.version, registry.git_commit) == (document["version"], "abcd1234")
    assert registry.build_timestamp == "2026-01-01T00:00:00Z"
    assert registry.environment == "development"
    assert len(registry) == 1


def test_tools_are_looked_up_by_mode_name_and_category(shelf):
    shelf.new("lookup_order")
    shelf.new("cancel_order", "action")  # text only
    shelf.new("count_words", "utility")
    shelf.build()
    registry = shelf.load()

    def offered(mode):
        return [schema["function"]["name"] for schema in registry.provider_schemas("openai-chat", mode)]

    assert offered(None) == ["cancel_order", "count_words", "lookup_order"]
    assert offered("text") == ["cancel_order", "count_words", "lookup_order"]
    assert offered("voice") == ["count_words", "lookup_order"]
    assert list(registry.summaries("voice")) == ["count_words", "lookup_order"]
    assert registry.summaries()["count_words"] == "Counts the words of a text and names the longest."
    assert registry.by_category("action") == ["cancel_order"]
    assert registry.by_category("none such") == []
    assert registry.documentation("lookup_order") == (shelf.tools / "lookup-order/guide.md").read_text()
    schema = json.loads((shelf.tools / "lookup-order/schema.json").read_text())
    metadata = registry.metadata("lookup_order")
    assert {key: metadata[key] for key in schema if key != "$schema"} == {
        key: value for key, value in schema.items() if key != "$schema"
    }


def test_a_name_that_no_tool_has_comes_with_the_nearest(shelf):
    shelf.new()
    shelf.build()
    registry = shelf.load()

    with pytest.raises(UsageError, match='did you mean "lookup_order"'):
        registry.documentation("lookup_oder")
    with pytest.raises(UsageError, match="no tool"):
        registry.metadata("x")
    assert registry.snapshot().get("x") is None
    assert "lookup_order" in registry.snapshot()


def test_the_seeds_names_of_providers_are_aliases(shelf):
    shelf.new()
    shelf.build()
    registry = shelf.load()

    assert registry.provider_schemas("openai") == registry.provider_schemas("openai-chat")


@pytest.mark.parametrize("name", ["", "claude", "openai-chat ", 'openai-chat"', "\udcff"])
def test_a_provider_that_was_not_built_for_is_named_with_those_that_were(shelf, name):
    shelf.new()
    shelf.build()

    with pytest.raises(RegistryError, match=r"built for .*openai-chat"):
        shelf.load().provider_schemas(name)


def test_what_is_given_out_may_be_changed_without_changing_the_registry(shelf):
    shelf.new()
    shelf.build()
    registry = shelf.load()

    registry.provider_schemas("openai")[0].clear()
    registry.metadata("lookup_order")["parameters"].clear()
    registry.summaries().clear()

    assert registry.provider_schemas("openai")[0]["function"]["name"] == "lookup_order"
    assert registry.metadata("lookup_order")["parameters"]["type"] == "object"
    with pytest.raises(TypeError):
        registry.snapshot().tools["x"] = None


def test_a_registry_works_on_after_the_process_changed_its_folder(shelf, monkeypatch):
    shelf.new()
    shelf.build()
    monkeypatch.chdir(shelf.root)
    registry = Registry.load("tool_registry.json")
    registry.lock()
    monkeypatch.chdir("/")

    assert registry.provider_schemas("openai-chat")
    assert registry.reload().version == registry.version


# ---------------------------------------------------------------------------------------------- handlers since the build


@pytest.mark.parametrize("file", ["handler.py", "words.py"])
def test_a_handler_that_changed_is_refused_with_what_to_do_about_it(shelf, file):
    folder = shelf.new()
    (folder / "words.py").write_text("x = 1\n")
    shelf.build()
    (folder / file).write_text((folder / file).read_text() + "\n")

    with pytest.raises(HandlerChanged, match=rf'"lookup_order" \({file}\) changed.*`handrail build`'):
        Registry.load(shelf.artifact)
    with pytest.raises(HandlerChanged, match="refused in production"):
        Registry.load(shelf.artifact, environment="production")


def test_a_touched_handler_and_a_changed_guide_are_no_matter_to_a_registry(shelf):
    folder = shelf.new()
    shelf.build()
    os.utime(folder / "handler.py", (1, 1))
    (folder / "guide.md").write_text("Changed, and not built.\n")

    assert shelf.load().documentation("lookup_order").startswith("# lookup_order")


@pytest.mark.parametrize("environment", ["development", "production"])
def test_a_handler_that_went_is_an_error(shelf, environment):
    folder = shelf.new()
    shelf.build()
    (folder / "handler.py").unlink()

    with pytest.raises(ArtifactError, match="cannot be read at"):
        Registry.load(shelf.artifact, environment=environment)


def test_a_link_that_was_put_in_a_handler_s_place_is_refused_though_its_content_is_the_same(shelf):
    folder = shelf.new()
    shelf.build()
    real = shelf.root / "real.py"
    (folder / "handler.py").rename(real)
    (folder / "handler.py").symlink_to(real)
    with pytest.raises(ArtifactError, match=r"lookup-order/handler\.py"):
        Registry.load(shelf.artifact)

    (folder / "handler.py").unlink()
    real.rename(folder / "handler.py")
    assert len(Registry.load(shelf.artifact)) == 1
    folder.rename(shelf.root / "real")
    folder.symlink_to(shelf.root / "real")
    with pytest.raises(ArtifactError, match=r"lookup-order/handler\.py"):
        Registry.load(shelf.artifact)


def test_a_pipe_or_a_folder_in_a_handler_s_place_is_refused_at_once(shelf):
    folder = shelf.new()
    shelf.build()
    (folder / "handler.py").unlink()
    os.mkfifo(folder / "handler.py")
    failures = []

    def load():
        with pytest.raises(RegistryError) as caught:
            Registry.load(shelf.artifact)
        failures.append(caught)

    waiting = threading.Thread(target=load, daemon=True)
    waiting.start()
    waiting.join(10)
    assert failures, "loading waits on the pipe"

    (folder / "handler.py").unlink()
    (folder / "handler.py").mkdir()
    with pytest.raises(RegistryError):
        Registry.load(shelf.artifact)


@pytest.mark.parametrize(
    "path", ["../outside", "/etc", "lookup-order/../../outside", "..", ".", "", "a\\..\\b", "a\0b"]
)
def test_a_handler_s_folder_cannot_lead_out_of_the_tools(shelf, path):
    shelf.new()
    shelf.build()
    outside = shelf.root / "outside"
    shutil.copytree(shelf.tools / "lookup-order", outside)
    shelf.reseal(lambda document: document["tools"][0]["handler"].update(folder=path))

    with pytest.raises(ArtifactError):
        Registry.load(shelf.artifact)


@pytest.mark.parametrize("name", ["../outside.py", "/etc/passwd", ".hidden", "..", "a\\b", "a/b.py", "a\0b", ""])
def test_a_handler_s_file_cannot_lead_out_of_its_folder(shelf, name):
    shelf.new()
    shelf.build()
    (shelf.tools / "outside.py").write_text("")
    shelf.reseal(lambda document: document["tools"][0]["handler"].update(files={name: "0" * 64}))

    with pytest.raises(ArtifactError):
        Registry.load(shelf.artifact)


def test_the_bytes_that_run_are_those_that_were_verified(shelf):
    folder = shelf.new(handler=says("built"))
    shelf.build()
    snapshot = shelf.load().snapshot()
    (folder / "handler.py").write_text(says("swapped in after the check"))

    assert run(snapshot) == "built"


def test_a_handler_that_cannot_be_loaded_says_why(shelf):
    shelf.new("one", handler="import no_such_module_here\ndef execute(args, ctx): ...\n")
    shelf.new("two", handler="raise SystemExit(3)\ndef execute(args, ctx): ...\n")
    shelf.new("three", handler="def execute(args, ctx): ...\nexecute = None\n")
    shelf.build()
    snapshot = shelf.load().snapshot()

    with pytest.raises(RegistryError, match=r'"one" cannot be loaded: ModuleNotFoundError.*no_such_module_here'):
        _ = snapshot.tool("one").handler
    with pytest.raises(RegistryError, match=r'"two" cannot be loaded: SystemExit'):
        _ = snapshot.tool("two").handler
    with pytest.raises(RegistryError, match="no function `execute`"):
        _ = snapshot.tool("three").handler


def test_files_beside_the_handler_are_imported_relatively_and_tools_do_not_meet(shelf):
    handler = (
        "from .words import WORD\nfrom . import letters\n\ndef execute(args, ctx):\n    return WORD + letters.END\n"
    )
    for name in ("one", "two"):
        folder = shelf.new(name, handler=handler)
        (folder / "words.py").write_text(f"from .letters import END\nWORD = {name!r} + END\n")
        (folder / "letters.py").write_text("END = '!'\n")
    shelf.build()
    snapshot = shelf.load().snapshot()

    assert (run(snapshot, "one"), run(snapshot, "two")) == ("one!!", "two!!")
    assert "words" not in sys.modules
    assert "letters" not in sys.modules


def test_a_handler_is_run_as_its_author_wrote_it(shelf):
    handler = (
        "import dataclasses\n\n@dataclasses.dataclass\nclass Point:\n    x: int\n\n"
        "async def execute(args: dict, ctx):\n"
        "    return [execute.__annotations__['args'], Point.__annotations__['x'], __file__, Point(3).x]\n\n"
        "def preview(args, ctx):\n    return 'seen'\n\ndef reconcile(args, ctx):\n    return None\n"
    )
    folder = shelf.new(handler=handler)
    shelf.build()
    snapshot = shelf.load().snapshot()
    loaded = snapshot.tool("lookup_order").handler

    assert run(snapshot) == [dict, int, str(folder / "handler.py"), 3]
    assert (loaded.is_async, loaded.kind, loaded.preview({}, None)) == (True, "directory", "seen")
    assert loaded.reconcile is not None


# -------------------------------------------------------------------------------------------------------------- reload


def test_reload_puts_a_new_generation_beside_the_old(shelf):
    folder = shelf.new(handler=says("old"))
    (shelf.new("gone_soon") / "handler.py").write_text(says("still here"))
    shelf.build()
    registry = shelf.load()
    old = registry.snapshot()

    (folder / "handler.py").write_text(says("new"))
    shutil.rmtree(shelf.tools / "gone-soon")
    shelf.new("more")
    shelf.build()
    assert registry.snapshot() is old
    new = registry.reload()

    assert registry.snapshot() is new
    assert new.version != old.version
    assert registry.version == new.version
    assert (run(old), run(new)) == ("old", "new")
    assert run(old, "gone_soon") == "still here"
    assert sorted(old.tools) == ["gone_soon", "lookup_order"]
    assert sorted(new.tools) == ["lookup_order", "more"]
    assert [schema["function"]["name"] for schema in old.provider_schemas("openai")] == ["gone_soon", "lookup_order"]


def test_a_reload_that_fails_keeps_the_generation_that_works(shelf):
    folder = shelf.new(handler=says("old"))
    shelf.build()
    registry = shelf.load()
    old = registry.snapshot()
    (folder / "handler.py").write_text(says("changed, not built"))

    with pytest.raises(HandlerChanged):
        registry.reload()
    assert registry.snapshot() is old
    shelf.artifact.write_text("")
    with pytest.raises(ArtifactError):
        registry.reload()
    assert run(registry.snapshot()) == "old"


def test_production_has_no_reload(shelf):
    shelf.new()
    shelf.build()
    registry = shelf.load(environment="production")

    with pytest.raises(RegistryError, match="not reloaded in production"):
        registry.reload()


def test_the_environment_is_a_setting_with_two_values(shelf, monkeypatch):
    shelf.new()
    shelf.build()
    monkeypatch.setenv("HANDRAIL_ENV", "production")
    assert shelf.load().environment == "production"
    monkeypatch.setenv("HANDRAIL_ENV", "prod")
    with pytest.raises(RegistryError, match='"development" or "production"'):
        shelf.load()
    assert (environment_from(None), environment_from("")) == ("development", "development")


# ---------------------------------------------------------------------------------------------------------- validators


class CountingCompiler:
    """A compiler of one's own that notes what it was given."""

    name, version = "counting", "7"

    def __init__(self):
        self.compiled = []

    def compile(self, schema, trusted=False):
        self.compiled.append((schema, trusted))
        return JSONSCHEMA_RS.compile(schema, trusted=trusted)


def test_validators_are_compiled_at_first_use_or_all_at_load(shelf):
    shelf.new("one")
    shelf.new("two")
    shelf.build()
    lazy, eager = CountingCompiler(), CountingCompiler()

    snapshot = shelf.load(compiler=lazy).snapshot()
    assert lazy.compiled == []
    tool = snapshot.tool("one")
    assert tool.compiled_at is None
    assert tool.validator is tool.validator
    assert len(lazy.compiled) == 1
    assert tool.compiled_at is not None

    shelf.load(compiler=eager, validators="eager")
    assert len(eager.compiled) == 4  # parameters and output of both
    assert all(trusted for _, trusted in eager.compiled)


def test_a_compiler_of_one_s_own_is_named_with_its_version(shelf):
    shelf.new()
    shelf.build()

    assert shelf.load(compiler=CountingCompiler()).snapshot().tool("lookup_order").validator_name == ("counting", "7")
    assert shelf.load().snapshot().tool("lookup_order").validator_name[0] == "jsonschema-rs"


# ----------------------------------------------------------------------------------------------------- decorated tools

DECORATED = '''
from handrail import tool

@tool(version="1.0.0")
def shout(text: str, ctx=None):
    """Shout."""
    return {"said": text.upper() + "END"}

@tool(parameters={"type": "object", "additionalProperties": False})
class Quiet:
    """Be quiet."""

    async def run(self, params=None):
        return {"said": ""}
'''


def test_decorated_tools_are_found_again_in_their_module(shelf):
    (shelf.root / "decorated_for_registry.py").write_text(DECORATED)
    shelf.new()
    shelf.build("decorated_for_registry")
    snapshot = shelf.load().snapshot()

    shout, quiet = snapshot.tool("shout").handler, snapshot.tool("quiet").handler
    assert (shout.kind, shout.is_async) == ("function", False)
    assert shout.execute({"text": "hey"}, None) == {"said": "HEYEND"}
    assert (quiet.kind, quiet.is_async) == ("class", True)
    assert asyncio.run(quiet.component({}).run()) == {"said": ""}
    assert sorted(snapshot.tools) == ["lookup_order", "quiet", "shout"]


def test_a_module_that_changed_or_went_is_refused(shelf):
    module = shelf.root / "decorated_and_changed.py"
    module.write_text(DECORATED)
    shelf.build("decorated_and_changed")
    module.write_text(DECORATED + "\n")
    with pytest.raises(HandlerChanged, match="decorated_and_changed"):
        shelf.load()

    module.unlink()
    with pytest.raises(ArtifactError, match="decorated_and_changed"):
        shelf.load()
    del sys.modules["decorated_and_changed"]
    with pytest.raises(ArtifactError, match="on the Python path"):
        shelf.load()


def test_a_reloaded_module_runs_new_code_beside_the_old(shelf):
    module = shelf.root / "decorated_and_reloaded.py"
    module.write_text(DECORATED)
    shelf.build("decorated_and_reloaded")
    registry = shelf.load()
    old = registry.snapshot()
    module.write_text(DECORATED.replace("END", "NEW"))
    shelf.build("decorated_and_reloaded")
    new = registry.reload()

    assert new.tool("shout").handler.execute({"text": "x"}, None) == {"said": "XNEW"}
    assert old.tool("shout").handler.execute({"text": "x"}, None) == {"said": "XEND"}


def test_a_package_that_fails_on_the_way_to_a_module_is_told(shelf, monkeypatch):
    package = shelf.root / "package_that_breaks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tools_inside.py").write_text(DECORATED)
    shelf.build("package_that_breaks.tools_inside")
    assert shelf.load().snapshot().tool("shout").handler.execute({"text": "x"}, None) == {"said": "XEND"}
    (package / "__init__.py").write_text(
        "import sys\nif hasattr(sys, 'break_packages'): raise RuntimeError('broken')\n"
    )
    shelf.build("package_that_breaks.tools_inside")
    for name in [name for name in sys.modules if name.startswith("package_that_breaks")]:
        del sys.modules[name]
    monkeypatch.setattr(sys, "break_packages", True, raising=False)

    with pytest.raises(RegistryError, match="broken"):
        _ = shelf.load().snapshot().tool("shout").handler


HELPED = """
from handrail import tool
{imports}

@tool
def greet(name: str) -> dict:
    \"\"\"Greet somebody.\"\"\"
    return {{"said": {call}}}
"""
WAYS = {
    "a module beside it": ("greeter_{n}", "import words_{n}", "words_{n}.hello(name)", "words_{n}.py"),
    "a name of it": ("greeter_{n}", "from words_{n} import hello", "hello(name)", "words_{n}.py"),
    "a module of its package": ("pack_{n}.greeter", "from .words import hello", "hello(name)", "pack_{n}/words.py"),
    "a submodule by its name": ("pack_{n}.greeter", "from . import words", "words.hello(name)", "pack_{n}/words.py"),
    "another package": ("greeter_{n}", "import pack_{n}.words as w", "w.hello(name)", "pack_{n}/words.py"),
    "its own package": ("pack_{n}.greeter", "from pack_{n} import hello", "hello(name)", "pack_{n}/__init__.py"),
    "a helper's helper": ("greeter_{n}", "import between_{n} as b", "b.words_{n}.hello(name)", "words_{n}.py"),
    "an import within a function": ("greeter_{n}", "", "__import__('sys') and late()(name)", "words_{n}.py"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_helper_of_a_decorated_tool_is_refused_and_not_run(shelf, way):
    n = list(WAYS).index(way)
    module, imports, call, helper = (text.format(n=n) for text in WAYS[way])
    source = HELPED.format(imports=imports, call=call)
    if way == "an import within a function":
        source += f"\ndef late():\n    from words_{n} import hello\n    return hello\n"
    (shelf.root / f"pack_{n}").mkdir()
    (shelf.root / f"pack_{n}" / "__init__.py").write_text("")
    (shelf.root / f"between_{n}.py").write_text(f"import words_{n}\n")
    (shelf.root / helper).write_text("def hello(name):\n    return 'hello ' + name\n")
    (shelf.root / f"{module.replace('.', '/')}.py").write_text(source)
    shelf.build(module)
    assert shelf.load().snapshot().tool("greet").handler.execute({"name": "Ana"}, None) == {"said": "hello Ana"}
    marker = shelf.root / "was_run"
    (shelf.root / helper).write_text(f"open({str(marker)!r}, 'w').close()\ndef hello(name):\n    return 'evil'\n")
    for name in [name for name in sys.modules if name.partition(".")[0].endswith(f"_{n}")]:
        del sys.modules[name]

    with pytest.raises(HandlerChanged, match="changed since the build; it is refused in production"):
        shelf.load(environment="production")
    assert not marker.exists()


def test_a_helper_that_was_built_anew_runs_anew_after_a_reload(shelf):
    helper = shelf.root / "words_to_reload.py"
    helper.write_text("def hello(name):\n    return 'hello ' + name\n")
    (shelf.root / "greeter_to_reload.py").write_text(
        HELPED.format(imports="import words_to_reload", call="words_to_reload.hello(name)")
    )
    shelf.build("greeter_to_reload")
    registry = shelf.load()
    old = registry.snapshot().tool("greet").handler
    assert old.execute({"name": "Ana"}, None) == {"said": "hello Ana"}
    helper.write_text("def hello(name):\n    return 'goodbye ' + name\n")
    shelf.build("greeter_to_reload")
    new = registry.reload().tool("greet").handler
    assert new.execute({"name": "Ana"}, None) == {"said": "goodbye Ana"}
    assert old.execute({"name": "Ana"}, None) == {"said": "hello Ana"}


def test_what_is_installed_is_not_a_part_of_a_tool(shelf):
    (shelf.root / "greeter_of_json.py").write_text(
        HELPED.format(imports="import json, orjson", call="json.dumps(name)")
    )
    shelf.build("greeter_of_json")
    (entry,) = json.loads(shelf.artifact.read_text())["tools"]
    assert list(entry["handler"]["files"]) == ["greeter_of_json"]


@pytest.mark.parametrize("environment", ["development", "production"])
@pytest.mark.parametrize("root", ["../", "../elsewhere/tools", "tools/../../elsewhere/tools", "/etc"])
def test_an_artifact_cannot_lead_to_tools_outside_its_folder(shelf, environment, root):
    project = Shelf(shelf.root / "project")
    project.new()
    project.build()
    shutil.copytree(project.tools, shelf.root / "elsewhere" / "tools")
    project.reseal(lambda document: document.update(toolsRoot=root))
    with pytest.raises(ArtifactError, match="lies outside its own folder"):
        project.load(environment=environment)


def test_tools_outside_the_artifact_s_folder_are_found_where_the_operator_says(shelf):
    project = Shelf(shelf.root / "project")
    project.new()
    project.build()
    elsewhere = shutil.copytree(project.tools, shelf.root / "elsewhere" / "tools")
    project.reseal(lambda document: document.update(toolsRoot="../elsewhere/tools"))
    assert len(project.load(tools_root=elsewhere)) == 1
    with pytest.raises(ArtifactError, match="lies outside"):
        project.load(tools_root=project.tools)


def test_a_mode_that_there_is_not_is_a_sentence(shelf):
    shelf.new()
    shelf.build()
    snapshot = shelf.load().snapshot()
    for ask in (lambda: snapshot.provider_schemas("openai-chat", "txt"), lambda: snapshot.summaries("txt")):
        with pytest.raises(UsageError, match=r'There is no mode "txt"; there are "text" and "voice"\.'):
            ask()
