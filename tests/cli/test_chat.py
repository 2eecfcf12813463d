"""`handrail chat`: plain lines when piped, JSON for programs, a terminal that asks, and Ctrl-C."""

import asyncio
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from datetime import date
from threading import Timer
from types import SimpleNamespace

import pytest

from handrail import Call, Registry, Runtime
from handrail.agents import TextAgent
from handrail.cli import terminal_input
from handrail.cli.chat_lines import Lines
from handrail.cli.chat_screen import PlainScreen
from handrail.cli.terminal_chat import TerminalChat
from handrail.runtime.confirmation import REPLACED_MARK
from handrail.testing import PlayedModel

LOOK = "What is order A-1001?"
BOOK = "book a meeting with ana@example.com tomorrow at 3 pm"
NOT_DECIDED = "Not decided, and not run: calendar_create_event, request conf_"
SEARCHES = """
async def execute(args, ctx):
    found = {"id": "doc:a", "title": "Orders", "score": 1.0, "snippet": "Order A-1001 has the status shipped."}
    return {"ok": True, "data": {"results": [found]}}
"""
BOOKS = """
async def execute(args, ctx):
    times = {"start": args["start_time"], "end": args["end_time"]}
    return {"ok": True, "data": {**times, "attendees": args["attendees"]}}
"""
SLOW = """
import asyncio


async def execute(args, ctx):
    ctx.progress("still looking")
    await asyncio.sleep(60)
    return {"ok": True, "data": {}}
"""


@pytest.fixture
def built(project, handrail):
    """A project with own tools of the names that the demo model knows: one that looks, and one that asks first."""
    text, texts = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    booking = {"title": text, "start_time": text, "end_time": text, "attendees": texts}
    _write_tool(project, "kb_search", "retrieval", {"query": text, "return_fields": texts}, SEARCHES)
    _write_tool(project, "calendar_create_event", "action", booking, BOOKS)
    assert handrail("build").code == 0
    return project


def _write_tool(project, name, category, properties, handler):
    folder = project / "tools" / name.replace("_", "-")
    folder.mkdir(parents=True)
    schema = {
        "toolId": name,
        "version": "1.0.0",
        "description": f"Is {name}.",
        "category": category,
        "sideEffects": "writes" if category == "action" else "read_only",
        "idempotent": category != "action",
        "requiresConfirmation": category == "action",
        "allowedModes": ["text"],
        "latencyBudgetMs": 500,
        "parameters": {"type": "object", "additionalProperties": False, "properties": properties},
    }
    (folder / "schema.json").write_text(json.dumps(schema), "utf-8")
    (folder / "guide.md").write_text(f"# {name}\n\nIs {name}.\n", "utf-8")
    (folder / "handler.py").write_text(handler, "utf-8")


def test_one_message_is_answered_and_the_command_ends(built, handrail):
    said = handrail("chat", LOOK)

    assert said.code == 0, said.err
    assert '… kb_search {"query": "What is order A-1001?"' in said.out
    assert "✓ kb_search" in said.out
    assert "the status shipped" in said.out


def test_piped_lines_are_messages(built, process):
    said = process("chat", cwd=built, stdin=f"hello\n\n{LOOK}\nthanks\n".encode())

    assert said.code == 0, said.err
    assert "I am the demo model" in said.out
    assert "the status shipped" in said.out
    assert "You are welcome." in said.out
    assert "you>" not in said.out


@pytest.mark.parametrize("line", [b"{oops", b' {"text": "hi"', b"{'text': 'hi'}"])
def test_a_broken_command_is_told_and_not_sent_to_the_model(built, process, line):
    said = process("chat", "--json", cwd=built, stdin=line + b"\n")

    events = [json.loads(line) for line in said.out.splitlines()]
    assert said.code == 1
    assert [event["type"] for event in events] == ["note"], events
    assert "nothing was sent" in events[0]["text"]


def test_events_are_lines_of_json_for_a_program(built, process):
    said = process("chat", "--json", cwd=built, stdin=f"{LOOK}\n".encode())

    events = [json.loads(line) for line in said.out.splitlines()]
    assert [event["type"] for event in events if event["type"] != "text"] == [
        "turn", "usage", "tool_started", "tool_finished", "usage", "done",
    ]  # fmt: skip
    assert events[-1]["text"] == "".join(event["text"] for event in events if event["type"] == "text")


def test_what_needs_a_person_is_left_when_there_is_none(built, process):
    said = process("chat", BOOK, cwd=built)

    assert "? calendar_create_event waits for your approval" in said.out
    assert "It waits for a person" in said.out
    assert said.out.count("start_time: ") == 1, "the preview is shown once"
    assert "Done." not in said.out
    assert NOT_DECIDED in said.out.splitlines()[-1]
    assert "`--yes`" in said.out.splitlines()[-1]


def test_an_input_that_ends_names_what_nobody_decided_once(built, process):
    said = process("chat", cwd=built, stdin=f"{BOOK}\ny\nthanks\n".encode())

    named = [line for line in said.out.splitlines() if NOT_DECIDED in line]
    assert len(named) == 1
    assert re.search(r"request conf_[0-9a-f]+\. It ends", named[0])
    assert said.out.rstrip().endswith(named[0])
    assert said.out.count("It waits for a person") == 1


def test_a_program_is_told_of_what_it_did_not_decide_and_of_nothing_else(built, process):
    said = process("chat", "--json", cwd=built, stdin=f"{BOOK}\n".encode())
    events = [json.loads(line) for line in said.out.splitlines()]
    asked = next(event for event in events if event["type"] == "confirmation")
    assert events[-1]["type"] == "note"
    assert NOT_DECIDED in events[-1]["text"]
    assert asked["id"] in events[-1]["text"]

    decided = process("chat", "--json", "--yes", BOOK, cwd=built)
    assert NOT_DECIDED not in decided.out


def test_a_preview_has_the_clock_of_the_person(tmp_path, process):
    day = f"{date.today().year + 1}-01-13"
    book = f'book a meeting called "Review" with ana@example.com on {day} from 14:00 to 15:00'
    said = process("chat", "--json", book, cwd=tmp_path, HANDRAIL_AGENT_TIME_ZONE="Asia/Tokyo")

    asked = [event for event in map(json.loads, said.out.splitlines()) if event["type"] == "confirmation"]
    assert "14:00 (UTC+0900) to " in asked[0]["preview"]
    assert "It takes 1 h." in asked[0]["preview"]


def test_a_yes_beforehand_approves(built, process):
    said = process("chat", "--yes", BOOK, cwd=built)

    assert said.code == 0, said.err
    assert "✓ calendar_create_event" in said.out
    assert "Done." in said.out


def test_the_next_piped_line_is_never_taken_for_an_approval(built, process):
    said = process("chat", cwd=built, stdin=f"{BOOK}\ny\nyes\n".encode())

    assert "✓ calendar_create_event" not in said.out
    assert "I cannot decide that for you" in said.out


@pytest.mark.parametrize("text", [None, 3, "", "  ", ["a"]], ids=repr)
def test_a_command_whose_text_is_none_says_nothing(built, process, text):
    said = process("chat", "--json", cwd=built, stdin=json.dumps({"text": text}).encode() + b"\n")

    events = [json.loads(line) for line in said.out.splitlines()]
    assert [event["type"] for event in events] == ["note"]
    assert "text that is not blank" in events[0]["text"]


def test_a_program_approves_by_the_id_and_never_sees_the_token(built):
    with subprocess.Popen(
        [sys.executable, "-m", "handrail", "chat", "--json"],
        cwd=built,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as chat:
        watch = Timer(60, chat.kill)  # a test that waits for what never comes must end
        watch.start()
        _write(chat, {"text": BOOK})
        asked = _until(chat, "confirmation")
        assert "token" not in asked
        _until(chat, "done")
        _write(chat, {"approve": "conf_of_somebody_else"})
        assert "with the id of an open request" in _until(chat, "note")["text"]
        _write(chat, {"approve": asked["id"]})
        assert _until(chat, "confirmation_closed")["outcome"] == "carried_out"
        assert _until(chat, "done")["text"].startswith("Done.")
        chat.stdin.close()
        assert chat.wait(timeout=30) in (0, 1)
        watch.cancel()


def _write(chat, value):
    chat.stdin.write(json.dumps(value) + "\n")
    chat.stdin.flush()


def _until(chat, type):
    for line in chat.stdout:
        event = json.loads(line)
        if event["type"] == type:
            return event
    raise AssertionError(f"no {type}")


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, folder, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover  # another process
            os.chdir(folder)
            os.execv(sys.executable, [sys.executable, "-m", "handrail", "chat", *words])
        self.seen = ""
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if not self.ended:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def until(self, words, seconds=60):
        deadline = time.monotonic() + seconds
        while words not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {words!r} in {self.seen!r}"
            try:
                raw = os.read(self.fd, 65536)
            except OSError:
                raw = b""
            assert raw, f"ended without {words!r}: {self.seen!r}"
            self.seen += raw.decode("utf-8", "replace")
        before, self.seen = self.seen.split(words, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def paste(self, text):
        """As a terminal does: as fast as the program takes it, reading what is shown meanwhile."""
        rest = text.encode()
        deadline = time.monotonic() + 60
        os.set_blocking(self.fd, False)
        while rest:
            assert time.monotonic() < deadline, f"{len(rest)} bytes were not taken"
            can_read, can_write, _ = select.select([self.fd], [self.fd], [], 1)
            if can_read:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
            if can_write:
                with suppress(BlockingIOError):
                    rest = rest[os.write(self.fd, rest[:4096]) :]
        os.set_blocking(self.fd, True)

    def end(self):
        """The exit code, once it has ended by itself."""
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        self.ended = True
        return os.waitstatus_to_exitcode(status)


def test_a_terminal_asks_the_person_and_runs_what_was_approved(built):
    with Terminal(built) as here:
        here.until("you> ")
        here.type(f"{BOOK}\n")
        assert here.until("Run it? [y/N] ").count("start_time: ") == 1, "the preview is shown once"
        here.type("n\n")
        here.until("You declined that")
        here.until("you> ")
        here.type("book a meeting with ana@example.com tomorrow at 4 pm\n")
        here.until("Run it? [y/N] ")
        here.type("y\n")
        here.until("Done.")
        here.until("you> ")
        here.type("\x04")
        assert here.end() == 0


@pytest.mark.parametrize(
    ("words", "warned"), [((), False), (("--log-level", "warning"), True)], ids=["as it is", "asked for"]
)
def test_a_warning_for_operators_stands_in_a_conversation_only_where_it_was_asked_for(built, words, warned):
    handler = built / "tools" / "kb-search" / "handler.py"
    handler.write_text(f"import time\n{SEARCHES.replace('found =', 'time.sleep(0.6); found =')}", "utf-8")
    with Terminal(built, *words) as here:
        here.until("you> ")
        here.type(f"{LOOK}\n")
        assert ("its budget is 500 ms" in here.until("you> ")) is warned


@pytest.mark.parametrize("pasted", [f"{BOOK}\ny\n", f"{BOOK}\ny\nyes\ny", f"{BOOK}\n\n\ny\n"])
def test_what_was_pasted_before_the_question_does_not_answer_it(built, pasted):
    with Terminal(built) as here:
        here.until("you> ")
        here.type(pasted)
        before = here.until("Run it? [y/N] ")
        assert "(What was typed before this question is dropped.)" in before
        here.type("\n")
        here.until("You declined that")
        here.until("you> ")


def test_a_paste_longer_than_the_buffer_of_the_terminal_answers_nothing(built):
    with Terminal(built) as here:
        here.until("you> ")
        here.paste(f"{BOOK}\n" + "y\n" * 50_000)
        here.until("Run it? [y/N] ")
        here.type("\n")
        here.until("You declined that")


def test_a_yes_with_more_behind_it_is_asked_again(built):
    with Terminal(built) as here:
        here.until("you> ")
        here.type(f"{BOOK}\n")
        here.until("Run it? [y/N] ")
        here.type("y\ny\n")
        here.until("so it does not count")
        here.until("Run it? [y/N] ")
        here.type("n\n")
        here.until("You declined that")


async def test_input_that_does_not_end_is_no_answer(monkeypatch):
    monkeypatch.setattr(terminal_input, "PATIENCE_SECONDS", 0.2)
    source, end = pty.openpty()
    try:
        assert not await terminal_input.drop_until_quiet(end, lambda: 1)
        assert termios.tcgetattr(end)[3] & termios.ICANON, "the terminal is as it was"
    finally:
        os.close(source)
        os.close(end)


PRICED = """

def preview(args, ctx):
    from pathlib import Path
    return Path("price").read_text()
"""


@pytest.fixture
def priced(built):
    """The meeting has a price, which stands in a file."""
    handler = built / "tools" / "calendar-create-event" / "handler.py"
    handler.write_text(handler.read_text("utf-8") + PRICED, "utf-8")
    (built / "price").write_text("It costs 5.")
    return built


def test_a_terminal_asks_again_when_the_price_has_changed_before_the_answer(priced):
    with Terminal(priced) as here:
        here.until("you> ")
        here.type(f"{BOOK}\n")
        here.until("It costs 5.")
        here.until("Run it? [y/N] ")
        (priced / "price").write_text("It costs 500.")
        here.type("y\n")
        here.until("Nothing was run")
        here.until("It costs 500.")
        here.until("Run it? [y/N] ")
        here.type("y\n")
        here.until("Done.")
        here.until("you> ")
        here.type("hello\n")
        assert "Run it?" not in here.until("you> "), "it is over"


def test_a_yes_beforehand_is_for_whatever_it_costs(priced, process):
    said = process("chat", "--yes", BOOK, cwd=priced)
    assert "Done." in said.out


def test_a_program_approves_a_changed_price_only_by_the_number_of_its_showing(priced):
    with subprocess.Popen(
        [sys.executable, "-m", "handrail", "chat", "--json"],
        cwd=priced,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as chat:
        watch = Timer(60, chat.kill)
        watch.start()
        _write(chat, {"text": BOOK})
        asked = _until(chat, "confirmation")
        assert (asked["showing"], asked["replacedBy"]) == (1, None)
        _until(chat, "done")
        (priced / "price").write_text("It costs 500.")
        for _ in range(2):  # both before anything could be read
            _write(chat, {"approve": asked["id"]})
        anew = _until(chat, "confirmation")
        assert (anew["id"], anew["showing"]) == (asked["id"], 2)
        assert "It costs 500." in anew["preview"]
        assert '"showing": 2' in _until(chat, "note")["text"]
        _write(chat, {"approve": asked["id"], "showing": 2})
        assert _until(chat, "confirmation_closed")["outcome"] == "carried_out"
        chat.stdin.close()
        assert chat.wait(timeout=30) in (0, 1)
        watch.cancel()


def test_a_program_approves_a_request_that_a_newer_one_has_replaced_only_once_it_was_told(built):
    with subprocess.Popen(
        [sys.executable, "-m", "handrail", "chat", "--json"],
        cwd=built,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as chat:
        watch = Timer(60, chat.kill)
        watch.start()
        asked = []
        for text in (BOOK, BOOK.replace("3 pm", "4 pm")):
            _write(chat, {"text": text})
            asked.append(_until(chat, "confirmation"))
            _until(chat, "done")
        old, new = asked
        assert (old["replacedBy"], new["replacedBy"]) == (None, None)
        _write(chat, {"approve": old["id"]})
        told = _until(chat, "confirmation")
        assert (told["id"], told["replacedBy"], told["showing"]) == (old["id"], new["id"], 2)
        _write(chat, {"approve": old["id"], "showing": 2})
        closed = _until(chat, "confirmation_closed")
        assert (closed["id"], closed["outcome"]) == (old["id"], "carried_out")
        chat.stdin.close()
        assert chat.wait(timeout=30) in (0, 1)
        watch.cancel()


async def test_a_terminal_marks_a_request_that_a_newer_one_has_replaced(built, monkeypatch):
    booking = {"title": "Review", "start_time": "15:00", "end_time": "16:00", "attendees": []}
    later = {**booking, "start_time": "16:00", "end_time": "17:00"}
    answers = [["I have asked for that."], ["Not then."], ["Nor then."]]
    model = PlayedModel([[Call("calendar_create_event", later)], *answers])
    keyboard, terminal = pty.openpty()
    out = io.StringIO()
    registry = Registry.load(built / "tool_registry.json")
    with os.fdopen(terminal, "rb", buffering=0) as stdin, os.fdopen(keyboard, "wb", buffering=0) as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        async with Runtime(registry, store="memory:") as runtime:
            session = await runtime.open_session()
            await session.begin_turn("cut off by Ctrl-C before its request was shown")
            assert (await session.call("calendar_create_event", booking, call_id="c1")).error is not None
            talk = TerminalChat(runtime, TextAgent(runtime, model), session, PlainScreen(out), Lines())
            running = asyncio.create_task(talk.run())

            async def typed(text, questions):
                async with asyncio.timeout(60):
                    while out.getvalue().count("Run it? [y/N] ") + out.getvalue().count("you> ") < questions:
                        assert not running.done(), out.getvalue()
                        await asyncio.sleep(0.01)
                keys.write(text)

            await typed(b"at 4 rather\n", 1)
            await typed(b"\n", 2)
            await typed(b"\n", 3)
            await typed(b"\x04", 4)
            async with asyncio.timeout(60):
                await running
    asked = out.getvalue().split("Run it? [y/N] ")
    old, new = (next(text for text in asked if f"start_time: {at}" in text) for at in ("15:00", "16:00"))
    assert (REPLACED_MARK in old, REPLACED_MARK in new) == (True, False)


def test_ctrl_c_cancels_the_turn_and_then_leaves(built):
    (built / "tools" / "kb-search" / "handler.py").write_text(SLOW, "utf-8")
    with Terminal(built) as here:
        here.until("you> ")
        here.type(f"{LOOK}\n")
        here.until("still looking")
        here.type("\x03")
        here.until("(cancelled)")
        here.until("you> ")
        here.type("hello\n")
        here.until("I am the demo model")
        here.until("you> ")
        here.type("\x03")
        assert here.end() in (0, 1)


async def test_ctrl_c_once_more_while_a_turn_ends_leaves_after_it_also_when_more_lines_wait():
    out = io.StringIO()
    agent = SimpleNamespace(policy=SimpleNamespace(time_zone="UTC"))
    talk = TerminalChat(None, agent, None, PlainScreen(out), Lines(["one", "two"]))

    async def turn() -> bool:
        try:
            await asyncio.sleep(60)
        finally:
            await ending.wait()
        return True

    ending = asyncio.Event()
    talk._turn = asyncio.ensure_future(turn())
    await asyncio.sleep(0)
    talk._interrupted()
    await asyncio.sleep(0)
    assert not talk._leaving.is_set()
    talk._interrupted()
    assert "leaving when the call that runs has ended" in out.getvalue()
    assert not talk._turn.done(), "the second Ctrl-C does not break the end of the turn"
    ending.set()
    await asyncio.wait([talk._turn])
    assert await talk._next("you> ") is None


def test_text_of_others_cannot_steer_the_terminal(built, handrail):
    from handrail.cli.chat_screen import safe

    assert safe("a\x1b[31mred\x07\u202eevil\u2066\nb\tc") == "a\ufffd[31mred\ufffd\ufffdevil\ufffd\nb\tc"
    said = handrail("chat", "what is order \x1b]0;title\x07 A-1001")
    assert "\x1b" not in said.out
    assert "\x07" not in said.out


def test_tools_that_do_not_build_are_named(built, handrail):
    (built / "tools" / "kb-search" / "schema.json").write_text("{", "utf-8")
    said = handrail("chat", "hello")
    assert said.code == 1
    assert "kb-search/schema.json" in said.err
    assert "Traceback" not in said.err


def test_tools_are_built_before_they_are_used(built, handrail):
    (built / "tool_registry.json").unlink()
    assert handrail("chat", "hello").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--user", "\udcff", "hi"), "--user must be text"),
        (("--user", " ", "hi"), "--user must be text"),
        (("x" * 40_000,), "at most 32,000 characters"),
        ((" ",), "The message is blank"),
    ],
    ids=["user", "blank user", "huge", "blank"],
)
def test_what_cannot_be_said_is_a_sentence(built, handrail, words, message):
    said = handrail("chat", *words)
    assert said.code in (1, 2)
    assert message in said.out + said.err
    assert "Traceback" not in said.err


def test_who_asks_is_told_what_can_be_done(built, handrail):
    said = handrail("chat", "--user", "u1", "who are you?")
    assert said.code == 0
    assert "What I can do without one" in said.out


def test_a_folder_without_tools_talks_about_handrail(tmp_path, monkeypatch, handrail):
    monkeypatch.chdir(tmp_path)
    said = handrail("chat", "What is Handrail?")

    assert said.code == 0, said.err
    assert "Handrail is a tool runtime for agents that **speak and type**." in said.out
    assert "Sources:" in said.out


def test_what_a_call_and_a_preview_show_hides_nothing_on_a_terminal():
    out = io.StringIO()
    screen = PlainScreen(out)
    screen.note("Pay eve\u3164\u2800\ufe0f\u00a0now\x1b[2J\nReally?")
    started = {"callId": "c", "toolId": "pay", "args": {"to": "b\u034fob\u202e"}}
    screen.show(SimpleNamespace(type="tool_started", data=started))

    assert out.getvalue().split("\n")[:3] == [
        "Pay eve\\u{3164}\\u{2800}\\u{fe0f}\\u{a0}now\\u{1b}[2J",
        "Really?",
        '  … pay {"to": "b\\u{34f}ob\\u{202e}"}',
    ]


def test_a_connection_that_is_wanted_is_a_command_on_a_terminal():
    out = io.StringIO()
    data = {"connection": "google", "label": "Google\x1b[2J", "toolId": "next_meeting", "link": "/#/connections/google"}
    PlainScreen(out).show(SimpleNamespace(type="connection_wanted", data=data))
    line = "  » Connect Google\\u{1b}[2J first: run `handrail connect google` with the same --user, then ask again.\n"
    assert out.getvalue() == line
