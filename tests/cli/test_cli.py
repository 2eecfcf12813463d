"""The command line: the way from nothing to a called tool, help for what was mistyped, and never a traceback."""

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from handrail import __version__
from handrail.cli import COMMANDS

EXAMPLES = {
    "retrieval": {"id": "A-1001"},
    "action": {"id": "A-1001", "status": "shipped"},
    "utility": {"text": "hold on to the handrail"},
}


# ------------------------------------------------------------------------------------------------- from nothing to a call


def test_the_way_of_the_readme_works_for_every_category(tmp_path, process):
    assert process("init", "demo", cwd=tmp_path).code == 0
    demo = tmp_path / "demo"
    for category in EXAMPLES:
        assert process("new", f"my_{category}", "--category", category, cwd=demo).code == 0
    built = process("build", "--strict", cwd=demo)
    assert (built.code, built.err) == (0, "")
    for category, args in EXAMPLES.items():
        answer = process("call", f"my_{category}", "--args", json.dumps(args), "--yes", cwd=demo)

        envelope = json.loads(answer.out)
        assert (answer.code, envelope["ok"]) == (0, True), answer
        assert envelope["meta"]["toolId"] == f"my_{category}"

    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=demo,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # those of this environment are no part of it
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "6 passed" in tested.stdout


def test_the_generated_test_of_an_action_changes_nothing(tmp_path, process):
    """Whatever the author's service is, running the test must not book, pay or delete anything there."""
    assert process("init", "demo", cwd=tmp_path).code == 0
    demo = tmp_path / "demo"
    assert process("new", "pay_out", "--category", "action", cwd=demo).code == 0
    handler = demo / "tools" / "pay-out" / "handler.py"
    paid = demo / "paid.txt"
    handler.write_text(
        f"from pathlib import Path\n\n\nasync def execute(args, ctx):\n    Path({str(paid)!r}).touch()\n"
        '    return {"ok": True, "data": {"id": args["id"], "status": args["status"]}}\n'
    )
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=demo,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert not paid.exists()


def test_decorated_tools_are_found_beside_their_artifact_without_a_python_path(tmp_path, process):
    (tmp_path / "handrail.toml").write_text('[tools]\nmodules = ["shop_of_a_test"]\n')
    (tmp_path / "shop_of_a_test.py").write_text(
        "from handrail import tool\n\n\n"
        '@tool(category="retrieval", side_effects="read_only", idempotent=True)\n'
        'async def stock(item: str) -> dict:\n    """Says how many of an item there are."""\n    return {"count": 3}\n'
    )
    built = process("build", cwd=tmp_path)
    assert built.code == 0, built.err
    program = f"from handrail import Registry; print(len(Registry.load({str(tmp_path / 'tool_registry.json')!r})))"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("1", 0), done.stderr


@pytest.mark.parametrize("words", [("chat", "hello"), ("call", "format_datetime", "--args", "{}")])
def test_a_first_try_in_an_empty_folder_leaves_nothing_behind(tmp_path, process, words):
    said = process(*words, cwd=tmp_path)
    assert "handrail init" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "list"),
        ("store", "migrate"),
        ("store", "check"),
        ("ledger", "show", "3f2a"),
        ("tools", "list"),
        ("users", "forget", "ana", "--yes"),
        ("kb", "search", "onboarding"),
        ("kb", "stats"),
        ("calendar", "list"),
    ],
    ids=" ".join,
)
def test_a_look_at_what_is_stored_makes_no_project(tmp_path, handrail, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    said = handrail(*words)
    assert said.code == 2
    assert "There is no project in this folder" in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "is_ours"), [("app.db", False), ("handrail.db", True), ("kb.db", True)])
def test_only_a_database_of_handrails_own_makes_a_folder_a_project(tmp_path, handrail, monkeypatch, name, is_ours):
    monkeypatch.chdir(tmp_path)
    sqlite3.connect(tmp_path / name).close()
    said = handrail("keys", "list")
    assert ("There is no project in this folder" in said.err) is not is_ours


@pytest.mark.parametrize("word", ["tail", "verify"])
def test_a_look_at_an_audit_log_makes_none(tmp_path, handrail, monkeypatch, word):
    """It needs no project, only the log: that may have been copied from elsewhere."""
    monkeypatch.chdir(tmp_path)
    said = handrail("audit", word)
    assert said.code == 2
    assert 'There is no audit log in "audit"' in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("words", "told"), [(("ledger", "list"), "No writing call"), (("tools", "list"), "is on")])
def test_a_look_at_a_project_makes_no_store(built, handrail, words, told):
    said = handrail(*words)
    assert said.code == 0
    assert told in said.out
    assert not (built / "handrail.db").exists()
    assert not (built / "audit").exists()


def test_a_project_in_a_folder_with_a_space_and_umlauts_works(tmp_path, handrail, process, monkeypatch):
    folder = tmp_path / "mein schönes Projekt"
    made = handrail("init", str(folder))
    assert made.code == 0
    assert f"cd '{folder}'" in made.out
    monkeypatch.chdir(folder)
    assert handrail("new", "lookup_order").code == 0
    assert handrail("build").code == 0
    assert process("call", "lookup_order", "--args", '{"id": "A-1001"}', cwd=folder).code == 0


def test_the_editor_finds_the_schema_that_init_and_new_point_to(built):
    for path in built.glob("tools/*/schema.json"):
        pointed = json.loads(path.read_text())["$schema"]
        schema = json.loads((path.parent / pointed).read_text())
        assert schema["properties"]["toolId"]


def test_a_project_inside_of_another_is_made_and_named(tmp_path, handrail, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert handrail("init", "demo").err == ""
    monkeypatch.chdir(tmp_path / "demo")
    said = handrail("init", "demo")
    assert said.code == 0
    assert said.err == (
        'handrail init: "demo" is inside of another project, "demo"; commands in it see only the new one.\n'
    )


def test_init_overwrites_nothing(tmp_path, handrail, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".gitignore").write_text("mine\n")
    said = handrail("init", "--json")
    assert said.code == 0
    assert ".gitignore" not in json.loads(said.out)["written"]
    assert (tmp_path / ".gitignore").read_text() == "mine\n"

    again = handrail("init")
    assert again.code == 2
    assert "project already" in again.err
    (tmp_path / "file").write_text("x")
    assert "not a folder" in handrail("init", "file").err


@pytest.mark.parametrize(
    "name",
    ["2nd", "with space", "ünï", "", "a" * 65, "_hidden", "../escape", "new\n", "x/y", "approve", "get-tool-guide"],
)
def test_new_refuses_a_name_that_no_tool_can_have_and_writes_nothing(project, handrail, name):
    before = sorted(project.rglob("*"))

    said = handrail("new", name)

    assert said.code == 2
    assert name in said.err
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["lookup-order", "lookup_order", "x", "a" * 64, "end_", "two__words", "Class", "import"]
)
@pytest.mark.parametrize("category", ["retrieval", "action", "utility"])
def test_a_new_tool_of_any_name_builds_without_a_word(project, handrail, name, category):
    assert handrail("new", name, "--category", category).code == 0

    said = handrail("build", "--strict", "--json")

    assert json.loads(said.out)["findings"] == []
    assert json.loads(said.out)["tools"] == [name.replace("-", "_")]


def test_new_refuses_a_tool_that_is_there_and_a_category_that_is_not(project, handrail):
    assert handrail("new", "lookup_order").code == 0
    for name in ("lookup_order", "lookup-order"):
        said = handrail("new", name)
        assert said.code == 2
        assert "already" in said.err
    assert '"retrieval", "action" or "utility"' in handrail("new", "other", "--category", "search").err
    assert json.loads(handrail("new", "third", "--json").out)["tool"] == "third"


def test_a_tools_directory_elsewhere_is_written_to_and_tested(project, handrail):
    demo, tmp_path, shared = project, project.parent, project.parent / "shared tools"
    (demo / "handrail.toml").write_text(f'[tools]\ndirectory = "{shared}"\n')

    assert handrail("new", "lookup_order").code == 0

    schema = json.loads((shared / "lookup-order/schema.json").read_text())
    assert (shared / "lookup-order" / schema["$schema"]).is_file()
    assert 'parent.parent / "../shared tools"' in (demo / "tests/test_lookup_order.py").read_text()
    assert handrail("build").code == 0
    assert (tmp_path / "tool_registry.json").is_file()
    assert handrail("call", "lookup_order", "--args", '{"id": "A-1001"}').code == 0


# ---------------------------------------------------------------------------------------------------------------- words


def test_help_lists_every_command_and_each_has_examples(handrail):
    said = handrail()
    assert said == handrail("--help") == handrail("help")
    assert said.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in said.out
        told = handrail(name, "--help")
        assert told.code == 0
        assert "examples:" in told.out
    assert handrail("--version").out == f"handrail {__version__}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("biuld",), '"build"'),
        (("build", "--chek"), '"--check"'),
        (("call", "x", "--arg", "{}"), '"--args"'),
        (("list", "--categroy", "action"), '"--category"'),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(handrail, words, hint):
    said = handrail(*words)

    assert said.code == 2
    assert f"did you mean {hint}" in said.err
    assert "--help" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("xyzzy",),
        ("--frobnicate",),
        ("",),
        ("call",),
        ("show",),
        ("diff", "one"),
        ("list", "--mode", "sms"),
        ("new", "a", "b"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(handrail, words):
    said = handrail(*words)

    assert said.code == 2
    assert said.err.startswith("handrail")
    assert said.out == ""


def test_a_mistyped_tool_is_answered_with_the_nearest(built, handrail):
    shown = handrail("show", "lookup_oder")
    assert shown.code == 2
    assert 'did you mean "lookup_order"' in shown.err

    called = handrail("call", "lookup_oder")
    assert called.code == 1
    assert json.loads(called.out)["error"]["type"] == "NOT_FOUND"
    assert "lookup_order" in called.out


# ---------------------------------------------------------------------------------------------------------------- build


def test_build_tells_of_problems_and_of_success(project, handrail):
    assert "no tool" not in handrail("build").err
    handrail("new", "lookup_order")
    said = handrail("build")
    assert said.code == 0
    assert "Built 1 tool into tool_registry.json, version 1.0." in said.out
    (project / "tools/lookup-order/guide.md").unlink()

    said = handrail("build")

    assert said.code == 1
    assert "error [missing-file] lookup-order/guide.md" in said.err
    assert "1 problem; nothing was written." in said.err


def test_the_json_of_a_build_is_json_whatever_a_module_prints(project, handrail):
    (project / "chatty_module.py").write_text(
        "print('hello from the import')\nfrom handrail import tool\n\n@tool\ndef look(x: int):\n    '''Look.'''\n"
    )
    (project / "handrail.toml").write_text('[tools]\nmodules = ["chatty_module"]\n')

    said = handrail("build", "--json")

    assert json.loads(said.out)["tools"] == ["look"]
    assert "hello from the import" in said.err


def test_findings_about_odd_names_can_be_printed(project, handrail, process):
    for name in (b"bad\xff", b"new\nline", "ünï".encode()):
        Path(os.fsdecode(os.fsencode(project / "tools") + b"/" + name)).mkdir()

    told = handrail("build", "--json")
    assert told.code == 1
    assert len(json.loads(told.out)["findings"]) == 9
    told = process("build", cwd=project)
    assert told.code == 1
    assert "Traceback" not in told.err


def test_a_build_from_below_finds_its_project(built, handrail, monkeypatch):
    monkeypatch.chdir(built / "tools" / "lookup-order")

    assert handrail("build", "--check").code == 0
    assert handrail("list").code == 0


def test_a_target_that_cannot_be_written_fails_and_says_so(built, handrail):
    (built / "blocked").mkdir()
    (built / "blocked" / "tool_registry.json").mkdir()
    said = handrail("build", "-o", "blocked/tool_registry.json/")
    assert said.code == 0  # a directory that exists is where the artifact goes
    said = handrail("build", "-o", "handrail.toml/x.json")
    assert said.code == 1
    assert "cannot be written" in said.err


def test_a_tools_directory_that_is_not_there_is_wrong_usage(project, handrail):
    said = handrail("build", "nowhere")

    assert said.code == 2
    assert '"nowhere"' in said.err


def test_watching_rebuilds_until_it_is_ended(built):
    running = subprocess.Popen(
        [sys.executable, "-m", "handrail", "build", "--watch"],
        cwd=built,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    guard = threading.Timer(60, running.kill)  # a line that never comes must not hold the tests up
    guard.start()
    try:
        lines = (line for line in running.stdout if not line.startswith("building: "))  # it says so where it is slow
        assert "Built 3 tools" in next(lines)
        assert "Watching" in next(lines)
        (built / "tools/lookup-order/guide.md").write_text("# Only a heading\n")
        assert "guide-summary" in next(lines)
        assert any("Watching" in line for line in lines)
        (built / "tools/lookup-order").rename(built / "put away")  # at once: half of a folder would be built too
        assert "Built 2 tools" in next(lines)
    finally:
        guard.cancel()
        running.terminate()
        running.stdout.close()
        running.wait(60)


# ------------------------------------------------------------------------------------------------ list, show, diff, doctor


def test_list_shows_tools_by_mode_and_category(built, handrail):
    assert [line.split()[0] for line in handrail("list").out.splitlines()] == [
        "cancel_order",
        "count_words",
        "lookup_order",
    ]
    told = json.loads(handrail("list", "--mode", "voice", "--json").out)
    assert [tool["toolId"] for tool in told["tools"]] == ["count_words", "lookup_order"]
    assert told["version"].startswith("1.0.")
    assert "cancel_order" in handrail("list", "--category", "action").out
    assert handrail("list", "--category", "action", "--mode", "voice").out == "No tool fits.\n"


def test_show_tells_everything_about_one_tool(built, handrail):
    text = handrail("show", "lookup_order").out
    assert "lookup_order 1.0.0: Looks a record up" in text
    assert "id (string, required): The record's id" in text
    assert handrail("show", "lookup_order", "--guide").out.startswith("# lookup_order")
    assert json.loads(handrail("show", "lookup_order", "--json").out)["parameters"]["type"] == "object"
    offered = json.loads(handrail("show", "lookup_order", "--provider", "openai").out)
    assert offered["function"]["name"] == "lookup_order"
    said = handrail("show", "lookup_order", "--provider", "nobody")
    assert said.code == 1
    assert "openai-chat" in said.err


def test_show_takes_every_argument_that_a_schema_may_hold(project, handrail):
    handrail("new", "lookup_order")
    path = project / "tools/lookup-order/schema.json"
    schema = json.loads(path.read_text())
    schema["parameters"]["properties"] |= {
        "anything": True,
        "flag": {"type": ["boolean", "null"], "default": False},
        "pick": {"enum": [1, "two", None]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    }
    path.write_text(json.dumps(schema))
    assert handrail("build").code == 0

    said = handrail("show", "lookup_order")

    assert said.code == 0, said.err
    for words in ("anything (any, optional)", "default False", "one of 1, two, None", "either (any"):
        assert words in said.out


def test_diff_tells_what_breaks_and_what_widens(built, handrail):
    shutil.copy("tool_registry.json", "old.json")
    path = built / "tools/lookup-order/schema.json"
    schema = json.loads(path.read_text())
    schema["allowedModes"] = ["text"]
    path.write_text(json.dumps(schema))
    shutil.rmtree(built / "tools/count-words")
    handrail("new", "more_tools")
    assert handrail("build").code == 0

    text = handrail("diff", "old.json", "tool_registry.json")
    told = handrail("diff", "old.json", "tool_registry.json", "--json")

    assert text.code == told.code == 0
    for name in ("lookup_order", "count_words", "more_tools"):
        assert name in text.out
        assert name in told.out
    assert json.loads(told.out)
    assert "lookup_order" not in handrail("diff", "old.json", "old.json").out


def test_diff_of_something_that_is_no_artifact_is_told(built, handrail):
    for words in (("nothing.json", "tool_registry.json"), ("tool_registry.json", "handrail.toml"), (".", ".")):
        said = handrail("diff", *words)
        assert said.code == 1
        assert said.err.startswith("handrail diff: ")


def test_doctor_is_content_with_a_built_project(built, handrail):
    said = handrail("doctor")

    assert said.code == 0, said.out
    assert "FAIL" not in said.out
    checks = json.loads(handrail("doctor", "--json").out)
    assert all(check["ok"] for check in checks)
    assert {"python", "settings", "tools", "artifact", "handlers"} <= {check["name"] for check in checks}


@pytest.mark.parametrize(
    ("harm", "check"),
    [
        (lambda root: (root / "tool_registry.json").unlink(), "artifact"),
        (lambda root: (root / "tools/lookup-order/guide.md").unlink(), "tools"),
        (lambda root: (root / "handrail.toml").write_text("[tools]\ndirectroy = 'x'\n"), "settings"),
        (lambda root: (root / "handrail.toml").write_text("[tools\n"), "settings"),
        (lambda root: shutil.rmtree(root / "tools"), "tools"),
        (lambda root: (root / ".handrail/tool.schema.json").write_bytes(b"\xff"), "editor"),
        (lambda root: (root / "handrail.db").write_text("no database " * 200), "store"),
        (lambda root: (root / "audit").write_text("no folder"), "audit"),
        (lambda root: (root / "handrail.toml").write_text('[store]\nurl = "sqlite:///none/handrail.db"\n'), "store"),
    ],
)
def test_doctor_names_what_is_wrong(built, handrail, harm, check):
    harm(built)

    said = handrail("doctor", "--json")

    assert said.code == 1
    assert [found["name"] for found in json.loads(said.out) if not found["ok"]] == [check]


def test_doctor_is_content_with_a_folder_that_serve_and_chat_can_be_started_in(tmp_path, monkeypatch, handrail):
    monkeypatch.chdir(tmp_path)

    said = handrail("doctor")

    assert said.code == 0, said.out
    assert "reference tools" in said.out
    assert list(tmp_path.iterdir()) == [], "looking leaves nothing behind"


@pytest.mark.parametrize("toml", ['[voice]\nlanguage = "de-AT"\n', "[agent]\nrounds = 4\n", ""])
def test_doctor_is_content_with_settings_that_name_no_tools(tmp_path, monkeypatch, handrail, toml):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handrail.toml").write_text(toml)

    said = handrail("doctor")

    assert said.code == 0, said.out
    assert "19 reference tools checked" in said.out


def test_without_tools_those_of_handrail_are_listed_shown_and_called(tmp_path, process):
    time = {"value": "2026-03-29T09:30:00Z", "time_zone": "Europe/Zagreb"}
    called = process("call", "format_datetime", "--args", json.dumps(time), cwd=tmp_path)
    assert (called.code, json.loads(called.out)["ok"]) == (0, True), called

    listed = process("list", cwd=tmp_path)
    assert listed.code == 0, listed
    assert "kb_search" in listed.out
    assert process("show", "kb_search", cwd=tmp_path).code == 0


def test_a_project_with_tools_that_were_not_built_is_told_to_build(project, handrail):
    assert handrail("new", "lookup_order").code == 0
    said = handrail("list")

    assert said.code == 1
    assert "handrail build" in said.err


def doctored(handrail, name):
    found = json.loads(handrail("doctor", "--json").out)
    return next((check["ok"], check["message"]) for check in found if check["name"] == name)


def test_doctor_names_a_time_zone_that_is_none(built, handrail, monkeypatch):
    assert doctored(handrail, "time zone")[0]
    monkeypatch.setenv("HANDRAIL_AGENT_TIME_ZONE", "Mars/X")

    ok, message = doctored(handrail, "time zone")

    assert not ok
    assert '"Mars/X"' in message


def test_doctor_names_both_zones_where_conversations_go_by_another_than_a_service(built, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_SERVICES_CALENDAR_TIME_ZONE", "Asia/Kathmandu")
    assert doctored(handrail, "time zone") == (True, "Asia/Kathmandu")
    monkeypatch.setenv("HANDRAIL_AGENT_TIME_ZONE", "Europe/Zagreb")

    ok, message = doctored(handrail, "time zone")

    assert ok
    assert message.startswith('Europe/Zagreb for conversations, but [services.calendar] has "Asia/Kathmandu"')


@pytest.mark.parametrize(
    ("section", "model", "check"), [("AGENT", "openai:x", "model"), ("VOICE", "openai-realtime:x", "voice")]
)
def test_doctor_looks_whether_somebody_listens_on_this_machine(built, handrail, monkeypatch, section, model, check):
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv(f"HANDRAIL_{section}_MODEL", model)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv(f"HANDRAIL_{section}_BASE_URL", address.replace("//", "//me:hunter2@"))
        assert doctored(handrail, check) == (True, f'"{model}" has what it needs, and somebody listens at {address}')

    ok, message = doctored(handrail, check)

    assert not ok
    assert message.startswith(f"nobody listens at {address}; ")
    monkeypatch.setenv(f"HANDRAIL_{section}_BASE_URL", "https://example.com/v1")
    assert doctored(handrail, check) == (True, f'"{model}" has what it needs; whether it answers was not tried')


def test_doctor_names_an_environment_that_does_not_exist(built, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_ENV", "prod")

    said = handrail("doctor", "--json")

    assert said.code == 1
    assert "environment" in [found["name"] for found in json.loads(said.out) if not found["ok"]]


def test_audit_show_says_when_nothing_fits(built, handrail):
    assert handrail("call", "lookup_order", "--args", '{"id": "A-1001"}').code == 0
    everything = handrail("audit", "show")
    assert (everything.code, everything.err) == (0, "")
    assert "lookup_order" in everything.out

    said = handrail("audit", "show", "--session", "zzz", "--event", "refusal")

    assert (said.code, said.out) == (1, "")
    assert said.err == 'No event of the audit log fits --session "zzz" and --event "refusal".\n'


# --------------------------------------------------------------------------------------------------------- user mistakes


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[tools\n", "not TOML"),
        ("tools = 3\n", "must be a table"),
        ("[tool]\n", 'did you mean "tools"'),
        ("[tools]\ndirectroy = 'x'\n", 'did you mean "directory"'),
        ("[tools]\ndirectory = 7\n", "must be text"),
        ("[tools]\nmodules = 'x'\n", "a list of texts"),
        ("[registry]\nvalidators = 'soon'\n", '"eager" or "lazy"'),
        ("[policy]\nno_such_policy = 1\n", "no_such_policy"),
        ("x = " + "[" * 5000 + "\n", "not TOML"),
    ],
)
@pytest.mark.parametrize("command", ["build", "list", "new"])
def test_a_wrong_setting_is_wrong_usage_in_one_sentence(project, handrail, command, toml, says):
    (project / "handrail.toml").write_text(toml)

    said = handrail(command, *(["x"] if command == "new" else []))

    assert said.code == 2
    assert says in said.err
    assert len(said.err.splitlines()) == 1


def test_settings_that_are_no_text_are_told(project, handrail):
    (project / "handrail.toml").write_bytes(b"\xff\xfe")

    said = handrail("build")

    assert said.code == 2
    assert said.err == "handrail build: handrail.toml is not UTF-8 text.\n"


@pytest.mark.parametrize("command", [("list",), ("show", "x"), ("call", "x"), ("diff", "a", "b")])
def test_a_command_that_needs_an_artifact_says_how_to_get_one(project, handrail, command):
    said = handrail(*command)

    assert said.code == 1
    assert "handrail build" in said.err
    assert "Traceback" not in said.err


def test_an_environment_that_is_none_is_told(built, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_ENV", "prod")
    said = handrail("list")

    assert said.code != 0
    assert '"development" or "production"' in said.err


def test_a_reader_that_goes_away_is_no_accident(built):
    for command in (("list", "--json"), ("--help",), ("build", "--help")):
        reader, writer = os.pipe()
        os.close(reader)
        words = [sys.executable, "-m", "handrail", *command]
        done = subprocess.run(words, cwd=built, stdout=writer, stderr=subprocess.PIPE, check=False)
        os.close(writer)
        assert done.stderr == b""


def test_a_terminal_that_knows_only_ascii_gets_every_answer(built, handrail, process):
    path = built / "tools/lookup-order/guide.md"
    path.write_text(path.read_text().replace("Looks", "Löoks 😀"))
    assert handrail("build").code == 0

    said = process("list", cwd=built, PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert said.code == 0
    assert "L\\xf6oks" in said.out


def test_nothing_in_a_file_steers_the_terminal(project, handrail):
    assert handrail("new", "lookup_order").code == 0
    schema = project / "tools" / "lookup-order" / "schema.json"
    fields = json.loads(schema.read_text())
    schema.write_text(json.dumps({**fields, "descr\x1b[2J\u202e\nption": "x"}, ensure_ascii=True))
    said = handrail("build")
    assert said.code == 1
    assert "descr\\u{1b}[2J\\u{202e}\\u{a}ption" in said.err
    assert not set(said.out + said.err) & {"\x1b", "\u202e"}
    schema.write_text(json.dumps({**fields, "description": "Looks up\x9b2J\u3164 an order."}, ensure_ascii=True))
    assert handrail("build").code == 0
    for words in (("list",), ("show", "lookup_order"), ("list", "--json"), ("show", "lookup_order", "--json")):
        assert not set(handrail(*words).out) & {"\x9b", "\u3164"}, words


def test_a_tool_that_was_written_and_not_built_is_said_to_be_unbuilt(built, handrail):
    assert handrail("new", "find_order").code == 0
    sentence = 'The tool "find_order" is not built yet; run `handrail build`.'

    shown = handrail("show", "find_order")
    assert (shown.code, shown.err) == (2, f"handrail show: {sentence}\n")
    called = handrail("call", "find_order")
    assert called.code == 1
    assert called.err.endswith(f"{sentence}\n")

    assert handrail("call", "find_nothing").err == ""
    assert 'There is no tool "find_nothing"' in handrail("show", "find_nothing").err


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("show", "format_datetime")])
def test_a_folder_without_a_project_is_named_before_what_comes_with_handrail(tmp_path, monkeypatch, handrail, words):
    monkeypatch.chdir(tmp_path)
    said = handrail(*words)
    assert said.code == 0
    assert said.err.startswith(f"handrail {words[0]}: there is no project in this folder")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('confirmation_when = "mode =="', '"confirmation_when" in [policy.tools.cancel_order]'),
        ('confirmation_when = "args.amount > 1"', 'asks for "args.amount", which there is not'),
        ("requires_confirmation = false", "allows more than the tool's author does"),
    ],
)
def test_a_policy_that_would_stop_the_start_stops_the_build(built, handrail, lines, sentence):
    before = (built / "tool_registry.json").read_bytes()
    with (built / "handrail.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[policy.tools.cancel_order]\n{lines}\n")
    for words in (("build",), ("build", "--check")):
        said = handrail(*words)
        assert said.code == 2
        assert sentence in said.err
    assert (built / "tool_registry.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("call", "count_words", "--args", "@args.json"), "--args takes JSON and no file"),
        (("init", ""), "The folder's name is empty"),
        (("mcp", "add", "time", "http://127.0.0.1:9/mcp"), "`handrail mcp add time --url ADDRESS`"),
        (("mcp", "add", "time", "--", "https://example.org/mcp"), "`handrail mcp add time --url ADDRESS`"),
        (("mcp", "add", "time", "--take", "--", "x"), "handrail mcp add: unrecognized arguments: --take"),
    ],
)
def test_a_slip_on_the_command_line_is_a_sentence(built, handrail, words, sentence):
    said = handrail(*words)
    assert said.code == 2
    assert sentence in said.err
    assert "usage:" not in said.err


def test_a_byte_order_mark_before_the_settings_is_no_mistake(built, handrail):
    file = built / "handrail.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    said = handrail("list")
    assert (said.code, said.err) == (0, "")
