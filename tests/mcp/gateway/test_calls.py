"""Calls of tools of MCP servers: through the pipeline, once, against their pins."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.mcp.gateway.conftest import LOOK, NOTE, Scripted, free, governed

from handrail.authoring.mcp.imported import definition_of, effects_of
from handrail.authoring.mcp.server_config import upstream_config
from handrail.observe.tracing import Tracing
from handrail.standard_runtime import SystemClock


async def test_a_call_goes_through_the_pipeline_and_its_output_is_marked_as_external(
    tmp_path: Path, scripted: Scripted
) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        answer = await box.call("box_look", {"text": "x"})
        assert answer["ok"]
        assert answer["data"] == {"content": [{"type": "text", "text": "done"}]}
        assert answer["meta"]["external"] is True
        refused = await box.call("box_note", {"text": 5})
        assert refused["error"]["type"] == "VALIDATION"
        assert scripted.calls() == []


async def test_a_tool_of_which_nobody_has_said_what_it_does_writes_and_asks(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": {"command": scripted.command}}) as box:
        for name in ("box_note", "box_look"):
            answer = await box.call(name, {"text": "x"})
            assert answer["error"]["type"] == "CONFIRMATION_REQUIRED"
        assert scripted.effects == []


async def test_an_approved_call_runs_once(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": {"command": scripted.command}}) as box:
        held = await box.call("box_note", {"text": "x"})
        request = held["error"]["confirmation_request"]
        events = box.session.events()
        token = (await anext(event async for event in events if event.type == "confirmation")).token
        done = await box.runtime.approve(request["id"], token=token)
        again = await box.runtime.approve(request["id"], token=token)
        assert done.ok
        assert again.ok
        assert len(scripted.calls()) == 1


async def test_a_writing_call_carries_its_key_and_a_duplicate_does_not_reach_the_server(
    tmp_path: Path, scripted: Scripted
) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        first = await box.call("box_note", {"text": "x"}, call_id="one")
        second = await box.call("box_note", {"text": "x"}, call_id="one")
        assert first["ok"]
        assert second["meta"]["replayed"] is True
        (made,) = scripted.calls()
        assert made["meta"]["handrail/idempotencyKey"]
        assert "traceparent" not in made["meta"]


async def test_a_traced_call_hands_its_trace_to_the_server(tmp_path: Path, scripted: Scripted) -> None:
    tracing = Tracing(TracerProvider())
    async with governed(tmp_path, {"box": free(scripted)}, tracing=tracing) as box:
        assert (await box.call("box_note", {"text": "x"}))["ok"]
        assert box.session.turn is not None
        trace = box.session.turn.span.get_span_context().trace_id  # type: ignore[attr-defined]
        (made,) = scripted.calls()
        assert made["meta"]["traceparent"].startswith(f"00-{trace:032x}-")


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Write a note. And another."},
        {"annotations": {"readOnlyHint": True}},
        {"inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "to": {"type": "string"}}}},
        {"outputSchema": {"type": "object"}},
        {"title": "Notes"},
    ],
)
async def test_a_tool_that_changed_since_it_was_pinned_is_refused(
    tmp_path: Path, scripted: Scripted, change: dict[str, Any]
) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        scripted.says(tools=[{**NOTE, **change}, LOOK])
        answer = await box.call("box_note", {"text": "x"})
        assert answer["error"]["type"] == "CONFLICT"
        assert "handrail mcp update box" in answer["error"]["message"]
        assert answer["error"]["partialSideEffects"] is False
        assert (await box.call("box_look", {"text": "x"}))["ok"], "its other tools are as they were"
        assert scripted.calls() == []


async def test_a_change_during_a_connection_is_noticed_at_the_next_call(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        scripted.says(call="change", next=[{**NOTE, "description": "Something else."}, LOOK])
        assert (await box.call("box_note", {"text": "x"}))["ok"]
        answer = await box.call("box_note", {"text": "y"})
        assert answer["error"]["type"] == "CONFLICT"
        assert len(scripted.calls()) == 1


class LaterClock(SystemClock):
    later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


async def test_a_change_that_the_server_keeps_to_itself_is_noticed_within_a_minute(
    tmp_path: Path, scripted: Scripted
) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        clock = LaterClock()
        box.gateway.upstream("box")._clock = clock
        assert (await box.call("box_note", {"text": "x"}))["ok"]
        scripted.says(tools=[{**NOTE, "description": "Something else."}, LOOK])
        clock.later = 61.0
        answer = await box.call("box_note", {"text": "y"})
        assert answer["error"]["type"] == "CONFLICT"
        assert len(scripted.calls()) == 1
        assert box.gateway.upstream("box").starts == 1


async def test_a_write_whose_server_died_is_unknown_and_not_made_again(
    tmp_path: Path, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        scripted.says(call="die after effect")
        lost = await box.call("box_note", {"text": "x"}, call_id="one")
        assert lost["error"]["partialSideEffects"] is True
        scripted.says()
        again = await box.call("box_note", {"text": "x"}, call_id="two")
        assert again["error"]["type"] == "CONFLICT"
        assert len(scripted.calls()) == 1
    (told,) = (one for one in caplog.records if "is not known" in one.getMessage())
    assert told.exc_info is None, "one sentence"


async def test_a_read_whose_server_died_is_made_again_by_the_runtime(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        scripted.says(call="die after effect")
        lost = await box.call("box_look", {"text": "x"})
        assert lost["error"]["type"] == "TRANSIENT"
        assert lost["error"]["retryable"] is True
        scripted.says()
        await asyncio.sleep(0.7)  # the pause before a restart
        assert (await box.call("box_look", {"text": "x"}))["ok"]


async def test_a_server_that_hangs_ends_its_own_call_and_no_other(tmp_path: Path, scripts: Any) -> None:
    slow, quick = scripts("slow"), scripts("quick")
    servers = {"slow": free(slow, call_seconds=1), "quick": free(quick)}
    async with governed(tmp_path, servers) as box:
        slow.says(call="hang")
        hanging = asyncio.create_task(box.session.call("slow_note", {"text": "x"}))
        for at in range(3):
            assert (await box.call("quick_note", {"text": str(at)}))["ok"]
        assert not hanging.done()
        ended = (await hanging).to_dict()
        assert ended["error"]["partialSideEffects"] is True


async def test_a_server_sees_no_variable_that_it_was_not_given(tmp_path: Path, scripted: Scripted) -> None:
    environment = {"SECRET": "s", "WANTED": "w", "OTHER": "o", "PATH": os.environ["PATH"]}
    server = free(scripted, env={"SEEN": "WANTED"})
    async with governed(tmp_path, {"box": server}, environment=environment) as box:
        scripted.says(call="environment")
        answer = await box.call("box_look", {})
        seen = answer["data"]["content"][0]["text"]
        assert '"SEEN": "w"' in seen
        assert "SECRET" not in seen
        assert '"PATH"' not in seen


async def test_a_server_is_started_by_its_first_call_and_gone_at_the_end(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        server = box.gateway.upstream("box")
        assert server.state == "stopped"
        scripted.says(call="children")
        await box.call("box_look", {})
        pid = server.pid
        while not (children := [line for line in scripted.effects if line.startswith("child")]):
            await asyncio.sleep(0.01)
        child = int(children[0].split()[1])
        assert pid is not None
    for gone in (pid, child):
        for _ in range(100):
            if not Path(f"/proc/{gone}").exists() or "Z" in Path(f"/proc/{gone}/stat").read_text().split()[2]:
                break
            await asyncio.sleep(0.02)
        else:
            pytest.fail(f"{gone} is still there")


async def test_an_idle_server_is_stopped_and_started_again(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": free(scripted, idle_seconds=0.2)}) as box:
        assert (await box.call("box_look", {"text": "1"}))["ok"]
        server = box.gateway.upstream("box")
        for _ in range(200):
            if server.state == "stopped":
                break
            await asyncio.sleep(0.02)
        assert server.state == "stopped"
        assert (await box.call("box_look", {"text": "2"}))["ok"]
        assert server.starts == 2


async def test_a_server_that_cannot_start_is_not_tried_at_every_call(tmp_path: Path, scripted: Scripted) -> None:
    async with governed(tmp_path, {"box": free(scripted)}) as box:
        scripted.says(start="exit")
        server = box.gateway.upstream("box")
        first = await box.call("box_look", {"text": "1"})
        assert first["error"]["type"] == "TRANSIENT"
        second = await box.call("box_look", {"text": "2"})
        assert second["error"]["retryAfter"] > 0
        assert server.starts <= 2
        assert server.state == "failed"


def effects(hints: dict[str, Any] | None, **policy: Any) -> tuple[str, bool, bool]:
    table = {"command": ["x"], "tools": {"t": {key: value for key, value in policy.items() if key != "way"}}}
    config = upstream_config("s", {**table, "annotations": policy.get("way", "tighten")})
    made = effects_of(config, {"name": "t", "inputSchema": {"type": "object"}, "annotations": hints})
    return made.side_effects, made.idempotent, made.confirm


def test_annotations_tighten_and_loosen_nothing() -> None:
    assert effects({"readOnlyHint": True}) == ("writes", False, True)
    assert effects({"readOnlyHint": True, "idempotentHint": True}) == ("writes", False, True)
    assert effects({"readOnlyHint": False}, side_effects="read_only")[0] == "writes"
    assert effects({"destructiveHint": True}, side_effects="none")[0] == "writes"
    assert effects({"destructiveHint": True}, confirm=False) == ("writes", False, True)
    assert effects({"destructiveHint": False}, confirm=False) == ("writes", False, False)
    assert effects({"idempotentHint": False}, idempotent=True) == ("writes", False, True)
    assert effects({"openWorldHint": True}, side_effects="none")[0] == "read_only"
    assert effects({"destructiveHint": True}, confirm=False, way="ignore") == ("writes", False, False)
    assert effects({"readOnlyHint": True}, way="trust") == ("read_only", True, False)
    assert effects({"readOnlyHint": True, "destructiveHint": True}, way="trust") == ("writes", False, True)
    assert effects({"idempotentHint": True}, way="trust") == ("writes", False, True)
    assert effects(None, way="trust") == ("writes", False, True)


def test_a_long_description_is_cut_and_stands_in_the_guide() -> None:
    config = upstream_config("s", {"command": ["x"]})
    made = definition_of(config, {"name": "t", "description": "word " * 800, "inputSchema": {"type": "object"}})
    assert len(made.description) <= 1024
    assert made.description.endswith("…")
