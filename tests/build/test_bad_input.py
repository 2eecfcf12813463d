"""What a build meets in the wild: it names each trouble as a finding, in bounded time, and runs, writes or fetches nothing."""

import copy
import json
import os
import socket
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.authoring.source import MAX_FILE_BYTES, ToolSource
from handrail.build.findings import Catalogue
from handrail.build.rules import all_rules
from handrail.contract.errors import UsageError
from handrail.providers import provider_names


def said(workshop, **facts):
    """What the build has to say, each as (rule, file, place)."""
    return [(finding.rule, finding.file, finding.place) for finding in workshop.findings(**facts)]


# ------------------------------------------------------------------------------------------------------------- files


def test_a_huge_file_is_named_and_not_read(workshop):
    folder = workshop.new()
    with (folder / "schema.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse: a terabyte that takes no room

    assert said(workshop) == [("file-size", "lookup-order/schema.json", "")]


def test_a_missing_file_is_one_finding_and_not_an_avalanche(workshop):
    folder = workshop.new()
    for name in ("schema.json", "guide.md", "handler.py"):
        (folder / name).unlink()

    assert said(workshop) == [
        ("missing-file", "lookup-order/guide.md", ""),
        ("missing-file", "lookup-order/handler.py", ""),
        ("missing-file", "lookup-order/schema.json", ""),
    ]


def test_a_folder_that_is_a_link_is_not_entered(workshop, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    workshop.new().rename(elsewhere)
    (workshop.tools / "lookup-order").symlink_to(elsewhere)

    assert said(workshop) == [("link", "lookup-order/.", "")]


@pytest.mark.parametrize("target", ["nowhere", "../lookup-order", "/"])
def test_a_link_to_nothing_to_itself_or_to_the_root_is_only_named(workshop, target):
    workshop.new()
    (workshop.tools / "loop").symlink_to(target)

    assert said(workshop) == [("link", "loop/.", "")]


@pytest.mark.parametrize("name", ["schema.json", "guide.md", "handler.py", "words.py"])
def test_a_file_that_is_a_link_is_not_followed(workshop, tmp_path, name):
    folder = workshop.new()
    secret = tmp_path / "secret"
    secret.write_text("# do not read me")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)

    assert ("link", f"lookup-order/{name}", "") in said(workshop)
    assert "do not read me" not in str(workshop.findings())


@pytest.mark.parametrize("name", ["notes", "handler.py"])
def test_a_pipe_in_the_folder_does_not_make_the_build_wait(workshop, name):
    folder = workshop.new()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)

    assert ("extra-file", f"lookup-order/{name}", "") in said(workshop)


def test_a_socket_and_a_folder_are_extra(workshop):
    folder = workshop.new()
    (folder / "lib.py").mkdir()
    before = Path.cwd()
    os.chdir(folder)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("sock")
    finally:
        os.chdir(before)

    assert said(workshop) == [
        ("extra-file", "lookup-order/lib.py", ""),
        ("extra-file", "lookup-order/sock", ""),
    ]


@pytest.mark.parametrize(
    "name", ["with space.py", "dash-ed.py", "2nd.py", "new\nline.txt", "ünï.txt", "-rf", "😀", b"bad\xff.py"]
)
def test_a_file_with_a_name_that_no_import_can_say_is_extra(workshop, name):
    folder = workshop.new()
    shown = os.fsdecode(name)
    (folder / shown).write_text("x = 1\n")

    (finding,) = workshop.findings()

    assert (finding.rule, finding.file) == ("extra-file", f"lookup-order/{shown}")


@pytest.mark.parametrize("name", ["with space", "ünï", "2nd", b"bad\xff", "a" * 200, "new\nline", "-rf", "😀"])
def test_a_folder_with_a_name_that_no_tool_can_have_is_a_finding(workshop, name):
    workshop.new().rename(workshop.tools / os.fsdecode(name))

    assert [rule for rule, _, place in said(workshop) if place == "/toolId"] == ["folder-name"]


def test_what_editors_and_systems_leave_behind_is_no_matter(workshop):
    folder = workshop.new()
    (folder / "__pycache__").mkdir()
    for name in (".DS_Store", "Thumbs.db", "handler.pyc", "handler.py~", ".handler.py.swp", ".py"):
        (folder / name).write_bytes(b"\xff")
    (workshop.tools / "README.md").write_text("the tools of this project")
    (workshop.tools / ".cache").mkdir()

    assert workshop.findings() == []


@contextmanager
def an_ordinary_user():
    """Somebody whom permissions bind: root reads everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_cannot_be_read_is_a_finding(workshop):
    all_rules()  # imported by whoever can read them
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        there = type(workshop)(Path(place))
        folder = there.new()
        (there.new("no_entry") / "guide.md").parent.chmod(0)
        (folder / "guide.md").chmod(0)
        with an_ordinary_user():
            found = said(there)
        (there.tools / "no-entry").chmod(0o700)

    assert found == [
        ("unreadable-file", "lookup-order/guide.md", ""),
        ("unreadable-file", "no-entry/.", ""),
    ]


def test_a_tools_directory_that_is_not_there_is_wrong_usage(workshop):
    workshop.tools.rmdir()

    with pytest.raises(UsageError, match="no tools directory"):
        workshop.build()
    workshop.tools.write_text("a file")
    with pytest.raises(UsageError, match="no tools directory"):
        workshop.build()


def test_no_tools_at_all_is_an_empty_registry(workshop):
    result = workshop.build()

    assert (result.findings, result.entries) == ((), ())
    assert result.version.startswith("1.0.")


# -------------------------------------------------------------------------------------------------------- schema.json


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "json-syntax"),
        (b"null", "field-value"),
        (b"42", "field-value"),
        (b'"text"', "field-value"),
        (b"{", "json-syntax"),
        (b"{'toolId': 1}", "json-syntax"),
        (b'{"toolId": "a", "toolId": "b"}', "json-syntax"),
        (b'{"latencyBudgetMs": NaN}', "json-syntax"),
        (b'{"latencyBudgetMs": 1e999}', "json-syntax"),
        (b'{"latencyBudgetMs": 9007199254740993}', "json-syntax"),
        (b"[" * 100_000, "json-syntax"),
        (b'{"a":' * 100_000, "json-syntax"),
        (b'{"parameters":' + b'{"not":' * 200 + b"{}" + b"}" * 201, "json-syntax"),
        ("\ufeff{}".encode(), "json-syntax"),
        (b'{"a": "\\ud800"}', "json-syntax"),
        (b"\x00\x01", "json-syntax"),
        ('{"a": 1}'.encode("utf-16"), "utf8"),
        (b'{"a": "\xff"}', "utf8"),
        (b" " * MAX_FILE_BYTES, "json-syntax"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else value,
)
def test_a_schema_file_that_is_no_good_json_is_a_finding(workshop, content, rule):
    (workshop.new() / "schema.json").write_bytes(content)

    assert {found for found, _, _ in said(workshop)} == {rule}


def test_a_remote_reference_is_refused_and_nothing_is_fetched(workshop, monkeypatch):
    contacted = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: contacted.append(address))
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        listener.settimeout(0.2)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.json"
        workshop.change(workshop.new(), lambda schema: schema["parameters"]["properties"].update(x={"$ref": address}))
        assert said(workshop) == [("json-schema", "lookup-order/schema.json", "/parameters/properties/x/$ref")]
        with pytest.raises(TimeoutError):
            listener.accept()

    assert contacted == []


@pytest.mark.parametrize("reference", ["file:///etc/passwd", "other.json", "#/$defs/none", "#nowhere", "urn:x:y", "//"])
def test_a_reference_that_leads_nowhere_is_a_finding(workshop, reference):
    workshop.change(workshop.new(), lambda schema: schema["parameters"]["properties"].update(x={"$ref": reference}))

    assert [rule for rule, _, _ in said(workshop)] == ["json-schema"]


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", "(", "[z-a]", "(?:a{1,1000}){1,1000}", "(?<!x)y"])
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_a_finding(workshop, pattern):
    schema = {"type": "string", "pattern": pattern}
    workshop.change(workshop.new(), lambda document: document["parameters"]["properties"].update(x=schema))

    assert [rule for rule, _, _ in said(workshop)] == ["json-schema"]


def test_a_pattern_that_blows_up_elsewhere_is_bounded_here(workshop):
    folder = workshop.new()
    schema = {"type": "string", "pattern": "^(a+)+$", "default": "a" * 5000 + "!"}
    workshop.change(folder, lambda document: document["parameters"]["properties"].update(x=schema))

    assert [rule for rule, _, _ in said(workshop)] == ["default-value"]


def test_the_same_tool_twice_is_told_of_both(workshop):
    folder = workshop.new("look_up")
    other = workshop.tools / "look_up"
    other.mkdir()
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())

    assert said(workshop) == [
        ("duplicate-tool", "look-up/schema.json", "/toolId"),
        ("duplicate-tool", "look_up/schema.json", "/toolId"),
    ]


def test_two_tools_without_an_id_are_not_the_same_tool(workshop):
    for name in ("one", "two", "None"):
        workshop.change(workshop.new(name), lambda schema: schema.pop("toolId") if schema["toolId"] != "None" else 0)

    assert {rule for rule, _, _ in said(workshop)} == {"required-field"}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-2, 2)
    | st.sampled_from(["", "x", "$ref", "object", "id"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "items", "enum", "default", "$ref", "when", "x", "id", "required"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
BASE = {
    "toolId": "a_tool",
    "version": "1.0.0",
    "description": "A tool.",
    "category": "action",
    "sideEffects": "writes",
    "idempotent": False,
    "requiresConfirmation": False,
    "allowedModes": ["text", "voice"],
    "latencyBudgetMs": 9000,
    "parameters": {
        "type": "object",
        "additionalProperties": False,
        "required": ["id"],
        "properties": {"id": {"enum": ["a", "b"]}, "n": {"type": "integer", "default": 3, "minimum": 1}},
    },
    "outputSchema": {"type": "object"},
    "preview": "Do {id|short}.",
    "dedupeFields": ["id"],
    "clamp": {"voice": {"n": 2, "id": ["a"]}},
    "confirmation": {"when": "true", "channel": "any"},
    "rateLimit": {"calls": 1, "windowMs": 1, "scope": "user"},
    "waivers": {"voice-latency": "x"},
}
GUIDE = '# A tool\n\nDoes it.\n\n## Examples\n```json\n{"id": "a"}\n```\nResponse:\n```json\n{"ok": true, "data": {}}\n```\n'


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


@given(
    st.sampled_from([path for path in places(BASE) if path]), ANYTHING, st.sampled_from(["x", "guide", "parameters"])
)
def test_no_content_of_schema_json_gets_more_than_findings(path, value, extra):
    schema = copy.deepcopy(BASE)
    holder = schema
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    schema.setdefault(extra, value)
    source = ToolSource(
        kind="directory",
        folder="a-tool",
        files={
            "schema.json": json.dumps(schema).encode(),
            "guide.md": GUIDE.encode(),
            "handler.py": b"def execute(args, ctx): ...",
        },
    )
    catalogue = Catalogue((source,), {}, 1500, provider_names())

    found = [finding for rule in all_rules() for finding in rule.findings(source, catalogue)]

    assert all(finding.message and finding.fix and finding.file.startswith("a-tool/") for finding in found)
    json.dumps([finding.to_dict() for finding in found])


@pytest.mark.parametrize(
    "properties", [[], ["id"], 5, "id", None, True, {"id": 5}, {"id": []}, {"id": {"enum": 5}}], ids=str
)
def test_properties_that_are_none_silence_the_rules_that_need_them(workshop, properties):
    folder = workshop.new()
    workshop.change(folder, lambda schema: schema["parameters"].update(properties=properties))
    workshop.edit(folder, clamp={"voice": {"id": ["a"]}}, dedupeFields=["id"], preview="{id}", latencyBudgetMs=9000)

    found = {rule for rule, _, _ in said(workshop)}

    assert {"json-schema", "voice-latency"} <= found
    assert found <= {"json-schema", "voice-latency", "clamp"}


@given(st.binary(max_size=60), st.sampled_from(["schema.json", "guide.md", "handler.py", "words.py"]))
def test_no_bytes_in_any_file_get_more_than_findings(data, name):
    files = {
        "schema.json": json.dumps(BASE).encode(),
        "guide.md": GUIDE.encode(),
        "handler.py": b"def execute(args, ctx): ...",
        name: data,
    }
    source = ToolSource(kind="directory", folder="a-tool", files=files)

    for rule in all_rules():
        list(rule.findings(source, Catalogue((source,), {}, 1500, provider_names())))


# --------------------------------------------------------------------------------------------------------- handler.py


@pytest.mark.parametrize(
    "code",
    [
        b"def execute(args, ctx:\n",
        b"\x00",
        b"def execute(args, ctx): ...\n\x00",
        b"if True:\nexecute = 1",
        b"\tx\n  y",
        b"(" * 5000,
        b"-" * 100_000 + b"1",
        b"x = " + b"1+" * 60_000 + b"1",
        b"# coding: klingon\n",
        b"await x\n",
        b"nonlocal x\n",
        b"def f(a, a): ...\n",
        "def execute(a, ｂ‽): ...".encode(),
    ],
    ids=lambda code: repr(code[:20]),
)
def test_a_handler_that_is_no_python_is_a_finding(workshop, code):
    (workshop.new() / "handler.py").write_bytes(code)

    found = workshop.findings()

    assert [(finding.rule, finding.file) for finding in found] == [("handler-syntax", "lookup-order/handler.py")]
    assert "is not Python" in found[0].message


def test_an_empty_handler_lacks_execute(workshop):
    (workshop.new() / "handler.py").write_bytes(b"")

    assert said(workshop) == [("handler-execute", "lookup-order/handler.py", "")]


# ------------------------------------------------------------------------------------------------------------ modules


@pytest.fixture
def module(workshop, request):
    """Writes a module of the project under a name that no other test uses; the name."""
    names = []

    def write(code):
        name = f"bad_input_{len(names)}_{abs(hash(request.node.nodeid))}"
        names.append(name)
        (workshop.root / f"{name}.py").write_bytes(code.encode() if isinstance(code, str) else code)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("code", "line", "says"),
    [
        ("x = 1\nraise ValueError('no\\nway')\n", "line 2", "cannot be imported: no."),
        ("import sys\nsys.exit(3)\n", "line 2", "cannot be imported: 3."),
        ("raise SystemExit\n", "line 1", "cannot be imported: SystemExit."),
        ("raise Exception()\n", "line 1", "cannot be imported: Exception."),
        ("import no_such_module_at_all\n", "line 1", "No module named 'no_such_module_at_all'"),
        ("def f(:\n", "line 1", "invalid syntax"),
        (b"\x00", "", "null bytes"),
        (b"x = '\xff'\n", "line 1", "cannot be imported"),
        ("def f(): f()\nf()\n", "line 1", "maximum recursion depth"),
    ],
    ids=str,
)
def test_a_module_that_cannot_be_imported_is_one_finding(workshop, module, code, line, says):
    name = module(code)
    workshop.new()

    (finding,) = workshop.findings(modules=(name,))

    assert (finding.rule, finding.severity, finding.file) == ("module-import", "error", f"{name}.py")
    assert says in finding.message
    if line:
        assert finding.place == line


@pytest.mark.parametrize("name", ["no.such.module", "..", ".relative", "with space", "sys", "tools", "a\x00b"])
def test_a_name_that_is_no_python_file_is_one_finding(workshop, name):
    workshop.new()  # `tools` is a folder that Python would take for a package

    (finding,) = workshop.findings(modules=(name,))

    assert finding.rule == "module-import"
    assert "take it out of [tools] modules" in finding.fix


def test_a_wrong_definition_in_a_module_is_told_with_its_line(workshop, module):
    name = module(
        "from handrail import tool\n\n@tool(category='search', latency_budget_ms=0)\n"
        "def look(x: int):\n    '''Look.'''\n"
    )

    found = workshop.findings(modules=(name,))

    assert [(finding.rule, finding.place) for finding in found] == [
        ("field-value", "line 3"),
        ("field-value", "line 3"),
    ]
    assert "Tool 'look': \"category\" must be" in found[0].message


@pytest.mark.parametrize(
    ("code", "rule", "says"),
    [
        ("x = 1\n", "empty-module", "has no tool"),
        ("from handrail import ToolError\n", "empty-module", "has no tool"),
        ("@tool(parameters=CLOSED)\nclass Look:\n    'Look.'\n", "class-run", "the class has no `async def run`"),
        ("@tool(parameters=CLOSED)\nclass Look:\n    'Look.'\n    def run(self): ...\n", "class-run", "async def run"),
    ],
    ids=("nothing", "imports only", "no run", "plain run"),
)
def test_a_module_whose_tools_cannot_be_called_is_one_finding(workshop, module, code, rule, says):
    closed = "{'type': 'object', 'properties': {}, 'additionalProperties': False}"
    name = module(f"from handrail import tool\nCLOSED = {closed}\n{code}")
    workshop.new()

    (finding,) = workshop.findings(modules=(name,))

    assert finding.rule == rule
    assert says in finding.message


def test_a_broken_module_does_not_hide_what_is_wrong_elsewhere(workshop, module):
    broken = module("1/0\n")
    good = module("from handrail import tool\n\n@tool\ndef look(x: int):\n    '''Look.'''\n")
    workshop.edit(workshop.new(), version="1")

    assert {rule for rule, _, _ in said(workshop, modules=(broken, good, broken))} == {"module-import", "field-value"}


def test_a_module_that_failed_once_is_tried_again(workshop, module):
    name = module("1/0\n")
    assert [rule for rule, _, _ in said(workshop, modules=(name,))] == ["module-import"]
    (workshop.root / f"{name}.py").write_text(
        "from handrail import tool\n\n@tool\ndef look(x: int):\n    '''Look.'''\n"
    )

    result = workshop.build(modules=(name,))

    assert [entry["toolId"] for entry in result.entries] == ["look"]
