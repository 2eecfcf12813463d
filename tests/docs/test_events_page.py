"""The page on events: its example runs, and its tables say of every event what the runtime really emits."""

from __future__ import annotations

import asyncio
import collections.abc
import dataclasses
import re
import sys
import time
import typing
from typing import Any, get_args, get_type_hints

import pytest
from tests.docs.pages import ROOT, blocks, run, shell, write_files
from tests.runtime.kit import Tools, confirmed

from handrail import Intent, Runtime, events
from handrail.events import ConfirmationWanted, LateEnvelope, SessionEvent
from handrail.identity.config import connection_configs
from handrail.identity.connections import Connections
from handrail.identity.vault import Vault, new_key
from handrail.runtime.capabilities import MESSAGES
from handrail.stores import MemoryStore
from handrail.testing.servers import OpenAIChatServer, Reply, call

PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
EVENTS: dict[str, Any] = {event.__name__: event for event in get_args(SessionEvent)}


def rows(name: str) -> list[list[str]]:
    """The rows of the first table below an event's heading."""
    section = PAGE.split(f"### `{name}`\n")[1]
    table = re.search(r"^\| field .*\n\|[- |]+\n((?:\|.*\n)+)", section, re.M)
    cells = [re.split(r"(?<!\\)\|", line.strip("|\n")) for line in table[1].splitlines()]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def test_every_event_is_on_the_page_under_its_wire_name_and_nothing_else_is():
    assert re.findall(r"^### `(\w+)`$", PAGE, re.M) == list(EVENTS)
    for name, event in EVENTS.items():
        assert PAGE.split(f"### `{name}`\n\n")[1].startswith(f"`type` is `{event.type}`. ")


@pytest.mark.parametrize("name", EVENTS)
def test_the_fields_and_their_types_are_the_documented_ones(name):
    hints = get_type_hints(EVENTS[name])
    told = {row[0].strip("`"): row[2].strip("`") for row in rows(name)}
    assert list(told) == [field.name for field in dataclasses.fields(EVENTS[name])]
    for field, hint in told.items():
        assert eval(hint, {**vars(typing), **vars(collections.abc), **vars(events), "Intent": Intent}) == hints[field]


EVERYTHING = """
async def execute(args, ctx):
    ctx.progress("half")
    try:
        await ctx.secrets.token("calendar")
    except ToolError:
        pass
    await ctx.messaging.send({"type": "image", "url": "/images/x.png"})
    intent = {"type": "SUPPRESS_AUDIO", "value": True}
    return {"ok": True, "data": {"done": True}, "intents": [intent]}
"""


async def test_a_session_emits_every_event_with_the_documented_wire_fields(tmp_path):
    """One held call, approved, of a tool that does everything that sessions tell of."""
    tools = Tools(tmp_path / "project")
    tools.write({"pay": (confirmed(capabilities=["secrets"]), EVERYTHING)})
    store = MemoryStore()
    table = {"issuer": "https://calendar.example", "client_id": "c"}
    configs = connection_configs({"calendar": table}, {})
    connections = Connections(configs, store.credentials, Vault([new_key()]), now=time.time)
    async with Runtime(tools.build(), store=store, connections=connections) as runtime:
        session = await runtime.open_session(user="ana")
        await session.call("pay", {"q": "a"}, call_id="c1")
        emitted: dict[str, Any] = {}
        async for event in session.events():
            emitted[type(event).__name__] = event
            if isinstance(event, ConfirmationWanted):
                await runtime.approve(event.id, token=event.token)
            if isinstance(event, LateEnvelope):
                break
        assert set(emitted) == set(EVENTS)
        for name, event in emitted.items():
            documented = {row[1] for row in rows(name)}
            if documented != {"its own fields"}:
                always = {field.strip("`") for field in documented if "(" not in field}
                sometimes = {field.split("`")[1] for field in documented if "(" in field}
                assert always <= set(event.data) <= always | sometimes
        late = emitted["LateEnvelope"]
        assert late.response.ok
        assert late.response.data == {"done": True}
        wanted = emitted["ConfirmationWanted"]
        assert wanted.token
        assert wanted.token not in repr(wanted)


def test_every_message_that_a_tool_may_send_is_on_the_page_and_typed():
    told = re.findall(r"^\| `(\w+)` \| `(\w+Message)` \| (.*) \|$", PAGE, re.M)
    assert {name: set(re.findall(r"`(\w+)`", fields)) for name, _, fields in told} == {
        name: set(fields) for name, fields in MESSAGES.items()
    }
    for name, typed, _ in told:
        hints = get_type_hints(getattr(events, typed))
        assert hints.pop("type").__args__ == (name,)
        assert set(hints) == set(MESSAGES[name])


def test_the_loop_of_the_page_on_programs_pays_and_tells_the_model(tmp_path):
    async def scene() -> None:
        pay = call("pay_invoice", invoice="I-7", amount=120)
        async with OpenAIChatServer([Reply(calls=[pay]), Reply("I asked."), Reply("It is paid.")]) as server:
            environment = {**server.environment, "OPENAI_BASE_URL": server.base_url}
            done = await asyncio.to_thread(run, [sys.executable, "-c", program], tmp_path, environment)
            assert done.stdout.splitlines() == ["I asked.", "Approved: Pay invoice I-7: 120 euro.", "It is paid."], (
                done.stderr
            )
            assert server.problems == []

    write_files("events.md", tmp_path)
    assert shell("handrail build", tmp_path).returncode == 0
    (program,) = [block.text for block in blocks(ROOT / "docs" / "in-your-program.md") if block.language == "python"]
    asyncio.run(scene())


def test_the_example_of_the_page_prints_what_the_page_shows(tmp_path):
    write_files("events.md", tmp_path)
    assert shell("handrail build", tmp_path).returncode == 0
    plain = [block for block in blocks(ROOT / "docs" / "events.md") if not block.file]
    (program,) = [block.text for block in plain if block.language == "python"]
    (shown,) = [block.text for block in plain if block.language == "text"]
    done = run([sys.executable, "-c", program], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(shown.rstrip().removesuffix("…"))
