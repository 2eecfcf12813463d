"""A reference tool that a person approves aloud: the calendar, where its host allows it in voice."""

from pathlib import Path

import pytest
from tests.agents.voice.kit import obedient, voice

from handrail import Registry, Runtime
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.contract.errors import ConfigError
from handrail.registry.host_policy import HostPolicy, ToolPolicy
from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail_reference.services.calendar.opening import open_calendar

IN_VOICE = {"modes": ["text", "voice"], "reason": "Our receptionist books by telephone."}
EVENT = {
    "title": "Plans",
    "start_time": "2027-03-02T09:00:00+01:00",
    "end_time": "2027-03-02T10:00:00+01:00",
    "attendees": ["ana@example.com"],
    "include_zoom_link": False,
}


def registry(folder: Path, **settings: object) -> Registry:
    names = ("calendar_create_event", "end_voice_session")
    plan = BuildPlan(tools=folder, artifact=folder / "tool_registry.json", project=folder, reference=names)
    result = build(plan)
    assert not result.errors
    write(result, stamp_for(result, {}))
    policy = ToolPolicy.from_dict("calendar_create_event", settings)
    made = Registry.load(folder / "tool_registry.json", host=HostPolicy(tools={policy.tool: policy}, roles=frozenset()))
    made.lock()
    return made


@pytest.mark.parametrize("provider", ["openai-realtime", pytest.param("gemini-live", marks=pytest.mark.long)])
async def test_an_event_is_booked_by_a_spoken_yes_and_not_before(provider: str, tmp_path: Path) -> None:
    calendar = open_calendar(tmp_path)
    runtime = Runtime(registry(tmp_path, **IN_VOICE), store="memory:", capabilities={"calendar": calendar})
    turns = [
        Turn([Ask(call("calendar_create_event", **EVENT)), Say("I need your word for that.")], "Book it."),
        Turn([Say("Fine.")], "Yes."),
    ]
    async with voice(provider, turns, runtime=runtime) as case:
        case.server.on_note = obedient
        await case.speak()
        await case.client.until(lambda client: "asking" in [one["state"] for one in client.of("question")])
        assert [one for one in case.client.of("tool_finished") if one["ok"]] == []
        await case.speak()
        await case.client.until(lambda client: any(card.get("late") for card in client.of("tool_finished")))
        (booked,) = [one for one in case.client.of("tool_finished") if one.get("late")]
        assert (booked["ok"], booked["toolId"]) == (True, "calendar_create_event")
        assert [one["state"] for one in case.client.of("question")] == ["reading", "asking", "approved"]
        assert case.server.complaints == []
    await calendar.close()


def test_a_host_that_gives_no_reason_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reason"):
        registry(tmp_path, modes=["text", "voice"])
