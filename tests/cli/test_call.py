"""`handrail call`: the envelope on standard output, and nothing runs that a person has not approved."""

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest


def test_a_call_prints_the_envelope(built, handrail):
    said = handrail("call", "lookup_order", "--args", '{"id": "A-1001"}')

    envelope = json.loads(said.out)
    assert said.code == 0
    assert envelope["data"]["record"]["status"] == "shipped"
    assert envelope["intents"] == []
    assert {"toolId", "toolVersion", "registryVersion", "duration", "responseSchemaVersion"} <= set(envelope["meta"])


@pytest.mark.parametrize(
    ("args", "type"),
    [
        ("{id: 1}", "VALIDATION"),
        ("[1]", "VALIDATION"),
        ('{"id": 7}', "VALIDATION"),
        ('{"id": "A-1001", "made_up": 1}', "VALIDATION"),
        ("\udcff", "VALIDATION"),
        ('{"id": "none"}', "NOT_FOUND"),
        ("{}", "VALIDATION"),
    ],
)
def test_a_call_that_fails_ends_in_an_envelope_and_exit_code_one(built, handrail, args, type):
    said = handrail("call", "lookup_order", "--args", args)

    assert said.code == 1
    assert json.loads(said.out)["error"]["type"] == type
    assert "Traceback" not in said.err


def test_arguments_come_from_standard_input(built, process):
    said = process("call", "lookup_order", "--args", "-", cwd=built, stdin=b'{"id": "A-1002"}\n')

    assert json.loads(said.out)["data"]["record"]["id"] == "A-1002"


@pytest.mark.parametrize("stdin", [b"\xff\xfe", b"nonsense", b"[" * 100_000], ids=["no text", "no json", "huge"])
def test_nonsense_on_standard_input_is_refused_as_any_other(built, handrail, monkeypatch, stdin):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))

    said = handrail("call", "lookup_order", "--args", "-")

    assert said.code == 1
    assert json.loads(said.out)["error"]["type"] == "VALIDATION"


def test_a_user_that_is_no_text_is_wrong_usage(built, handrail):
    said = handrail("call", "lookup_order", "--args", '{"id": "A-1001"}', "--user", "\udcff")

    assert said.code == 2
    assert "--user must be text" in said.err


SPY = """
async def execute(args, ctx):
    with open({path!r}, "a") as file:
        file.write("ran\\n")
    return {{"ok": True, "data": {{"id": args["id"], "status": args["status"]}}}}
"""


@pytest.fixture
def runs(built, handrail):
    """Where the action notes each of its runs."""
    path = built / "runs.txt"
    (built / "tools/cancel-order/handler.py").write_text(SPY.format(path=str(path)))
    assert handrail("build").code == 0
    return path


ASKED = ("call", "cancel_order", "--args", '{"id": "A-1001", "status": "shipped"}')


def test_a_call_that_needs_an_approval_does_not_run_without_one(runs, handrail, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"yes\n")))  # no terminal: nobody is asked

    said = handrail(*ASKED)

    assert said.code == 1
    assert json.loads(said.out)["error"]["type"] == "CONFIRMATION_REQUIRED"
    assert not runs.exists()


def test_yes_approves_beforehand_and_runs_once(runs, handrail):
    said = handrail(*ASKED, "--yes")

    assert json.loads(said.out)["ok"] is True
    assert runs.read_text() == "ran\n"


@pytest.mark.parametrize(
    ("before", "after", "ran"),
    [(b"", b"y\n", True), (b"", b"\n", False), (b"y\ny\n", b"\n", False), (b"y", b"\n", False)],
)
def test_a_person_at_a_terminal_is_asked_and_what_was_typed_before_is_no_answer(runs, built, before, after, ran):
    terminal, end = pty.openpty()
    try:
        os.write(terminal, before)
        with subprocess.Popen(
            [sys.executable, "-m", "handrail", *ASKED],
            cwd=built,
            stdin=end,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as command:
            watch = Timer(60, command.kill)  # a test that waits for what never comes must end
            watch.start()
            asked = b""
            while b"Run it? [y/N]" not in asked and (piece := command.stderr.read1()):
                asked += piece
            os.write(terminal, after)
            out, _ = command.communicate()
            watch.cancel()
    finally:
        os.close(end)
        os.close(terminal)

    assert b"Run it? [y/N]" in asked
    assert json.loads(out)["ok"] is ran
    assert runs.exists() is ran


def test_yes_approves_no_arguments_that_are_wrong(runs, handrail):
    said = handrail("call", "cancel_order", "--args", '{"id": "A-1001"}', "--yes")

    assert json.loads(said.out)["error"]["type"] == "VALIDATION"
    assert not runs.exists()


def test_a_tool_cannot_be_called_in_a_mode_that_it_does_not_allow(runs, handrail):
    said = handrail(*ASKED, "--mode", "voice", "--yes")

    assert json.loads(said.out)["error"]["type"] == "MODE_RESTRICTED"
    assert not runs.exists()


def test_what_a_handler_prints_does_not_mix_with_the_envelope(project, handrail):
    handrail("new", "count_words", "--category", "utility")
    handler = project / "tools/count-words/handler.py"
    handler.write_text(
        "print('at import')\n" + handler.read_text().replace("words = ", "print('in the call')\n    words = ")
    )
    assert handrail("build").code == 0

    said = handrail("call", "count_words", "--args", '{"text": "a b"}')

    assert json.loads(said.out)["data"]["words"] == 2
    assert "in the call" in said.err


def test_a_handler_that_raises_is_internal_and_its_text_stays_out_of_the_envelope(project, handrail):
    handrail("new", "count_words", "--category", "utility")
    (project / "tools/count-words/handler.py").write_text(
        "def execute(args, ctx):\n    raise ValueError('secret 42')\n"
    )
    assert handrail("build").code == 0

    said = handrail("call", "count_words", "--args", '{"text": "a"}')

    assert said.code == 1
    assert json.loads(said.out)["error"]["type"] == "INTERNAL"
    assert "secret 42" not in said.out


def test_a_handler_that_changed_since_the_build_is_not_run(built, handrail):
    path = built / "tools/lookup-order/handler.py"
    path.write_text(path.read_text() + "\n")

    said = handrail("call", "lookup_order", "--args", '{"id": "A-1001"}')

    assert said.code == 1
    assert "changed since the build" in said.err
    assert "handrail build" in said.err
    assert said.out == ""


def test_decorated_tools_are_called_from_anywhere_in_the_project(project, process):
    (project / "my_decorated_tools.py").write_text(
        "from handrail import tool\n\n@tool\ndef shout(text: str):\n    '''Shout.'''\n    return {'said': text.upper()}\n"
    )
    (project / "handrail.toml").write_text('[tools]\nmodules = ["my_decorated_tools"]\n')
    assert process("build", cwd=project).code == 0
    command = [
        shutil.which("handrail", path=str(Path(sys.executable).parent)),
        "call",
        "shout",
        "--args",
        '{"text": "hey"}',
    ]

    done = subprocess.run(command, cwd=project / "tests", capture_output=True, check=False)

    assert json.loads(done.stdout)["data"] == {"said": "HEY"}, done.stderr


def test_a_call_is_made_for_a_tenant(project, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_EMBEDDINGS", "none")
    monkeypatch.setenv("HANDRAIL_TOOLS_REFERENCE", "kb_get")
    (project / "a.jsonl").write_text('{"id": "doc:a", "text": "of acme", "tenant": "acme"}\n')
    assert handrail("kb", "import", "a.jsonl").code == 0
    assert handrail("build").code == 0
    words = ("call", "kb_get", "--args", '{"ids": ["doc:a"]}')
    assert json.loads(handrail(*words, "--tenant", "acme").out)["data"]["records"][0]["snippet"] == "of acme"
    assert json.loads(handrail(*words).out)["error"]["type"] == "NOT_FOUND"
    assert handrail(*words, "--tenant", "\udcff").code == 2
