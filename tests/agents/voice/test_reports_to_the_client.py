"""What the user is told and spared while tools work: cues, progress, silence that a tool asked for, results that come late."""

import pytest
from tests.agents.voice.kit import Client, voice
from tests.clients.live.kit import PROVIDERS

from handrail.agents.voice.host_port import Abilities, VoicePolicy
from handrail.contract.model import AssistantMessage, HostMessage
from handrail.testing.servers.live import Ask, Say, Turn, call

both = pytest.mark.parametrize("provider", PROVIDERS)


@both
async def test_a_tool_that_is_slower_than_its_budget_gives_a_cue_at_once(provider: str) -> None:
    turns = [Turn([Ask(call("slow_table", place="door")), Say("There.")], hears="Look")]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.client.until("cue")
        assert case.client.of("cue") == [{"kind": "slow", "toolId": "slow_table"}]
        assert case.client.of("tool_finished") == []
        assert case.client.states[-1] == "working"
        case.tool_log.may_finish.set()
        await case.client.until("turn_done")
        assert case.client.of("speak") == []


@both
async def test_a_client_that_speaks_for_a_model_it_cannot_play_is_given_words(provider: str) -> None:
    turns = [Turn([Ask(call("slow_table", place="door")), Say("One is free. It is by the door.")], hears="Look")]
    abilities = Abilities(sound=False, speaks=True)
    async with voice(provider, turns, abilities=abilities, policy=VoicePolicy(filler=("One moment.",))) as case:
        case.tool_log.may_finish.clear()
        case.tool_log.says = "I look at the door."
        await case.speak()
        await case.client.until("speak", 2)
        case.tool_log.may_finish.set()
        await case.client.until("turn_done")
        spoken = [(data["kind"], data["text"]) for data in case.client.of("speak")]
        assert sorted(spoken[:2]) == [("filler", "I look at the door."), ("filler", "One moment.")]
        assert [text for kind, text in spoken if kind == "answer"] == ["One is free.", "It is by the door."]
        (progress,) = case.client.of("progress")
        assert (progress["toolId"], progress["text"]) == ("slow_table", "I look at the door.")
        assert case.client.sounds == []
        assert "One moment." not in case.client.answers[-1]


@both
async def test_suppressed_sound_is_not_sent_and_the_words_still_are(provider: str) -> None:
    turns = [
        Turn([Ask(call("hush", what="SUPPRESS_AUDIO", on=True)), Say("Quiet now.")], hears="Hush"),
        Turn([Ask(call("hush", what="SUPPRESS_AUDIO", on=False)), Say("Loud again.")], hears="Speak"),
    ]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")
        assert case.client.sounds == []
        assert case.client.words("model") == ["Quiet now."]
        await case.speak()
        await case.client.until("turn_done", 2)
        assert case.client.sounds


@both
async def test_a_suppressed_transcript_is_not_told_and_is_kept_in_the_conversation(provider: str) -> None:
    turns = [Turn([Ask(call("hush", what="SUPPRESS_TRANSCRIPT", on=True)), Say("Secret.")], hears="Hush")]
    async with voice(provider, turns) as case:
        await case.speak()
        await case.client.until("turn_done")
        assert case.client.words("model") == []
        assert case.client.sounds
        assert case.conversation.messages[-1] == AssistantMessage("Secret.")


@both
async def test_the_result_of_an_approval_on_the_screen_reaches_the_model_when_it_is_idle(provider: str) -> None:
    turns = [Turn([Ask(call("sell_table", guest="Ana")), Say("Please look at your screen.")], hears="Sell it")]
    async with voice(provider, turns) as case:
        case.server.on_note = lambda note: [Say("It is sold.")] if "has been carried out" in note else []
        await case.speak()
        await case.client.until("turn_done")
        request = case.client.of("confirmation")[0]
        answer = await case.runtime.approve(request["id"], token=request["token"])
        assert answer.ok
        await case.client.until(lambda client: "It is sold." in client.words("model"))
        await case.client.until("turn_done", 2)

        assert case.client.of("turn_done")[1]["text"] == "Please look at your screen.\n\nIt is sold."
        assert [one["outcome"] for one in case.client.of("confirmation_closed")] == ["carried_out"]
        (note,) = [one for one in case.conversation.messages if isinstance(one, HostMessage)]
        assert '"sell_table"' in note.text
        assert case.untaken == [] or all(event.type != "envelope" for event in case.untaken)
        assert case.server.complaints == []


@both
async def test_a_late_result_survives_a_lost_connection(provider: str) -> None:
    turns = [Turn([Ask(call("sell_table", guest="Ana")), Say("Please look at your screen.")], hears="Sell it")]
    async with voice(provider, turns) as case:
        case.server.on_note = lambda note: [Say("It is sold.")] if "has been carried out" in note else []
        await case.speak()
        await case.client.until("turn_done")
        request = case.client.of("confirmation")[0]
        case.server.cut_all()
        await case.client.until(lambda client: client.of("link")[-1]["state"] == "lost")
        await case.runtime.approve(request["id"], token=request["token"])
        await case.client.until(lambda client: client.of("link")[-1] == {"state": "up", "number": 2})
        await case.client.until(lambda client: "It is sold." in client.words("model"))
        assert case.tool_log.of("sell_table") == 1


@both
async def test_two_reading_calls_of_one_message_run_together(provider: str) -> None:
    calls = Ask(call("find_table", place="window"), call("find_table", place="corner"))
    async with voice(provider, [Turn([calls, Say("Two.")], hears="Look")]) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("find_table") == 2)
        case.tool_log.may_finish.set()
        await case.client.until("turn_done")
        assert len(case.client.of("tool_finished")) == 2
        latency = case.client.of("turn_done")[0]["latency"]
        assert latency["toolsMs"] is not None
        assert latency["modelMs"] is not None


@both
async def test_a_client_that_reports_nothing_does_not_hold_up_the_end(provider: str) -> None:
    policy = VoicePolicy(playback_seconds=0.05)
    turns = [Turn([Ask(call("leave")), Say("Bye.")], hears="Bye")]
    async with voice(provider, turns, policy=policy, client=Client(reports=False)) as case:
        await case.speak()
        await case.client.until("ended")
        assert case.client.of("ended")[0]["reason"] == "user_requested"


@both
async def test_what_happens_is_told_as_states(provider: str) -> None:
    turns = [Turn([Ask(call("find_table", place="door")), Say("One.")], hears="Look")]
    async with voice(provider, turns) as case:
        case.tool_log.may_finish.clear()
        await case.speak()
        await case.client.until(lambda client: "working" in client.states)
        case.tool_log.may_finish.set()
        await case.client.until("turn_done")
        await case.client.until(lambda client: client.states[-1] == "listening")
        states = [state for state in case.client.states if state != "reconnecting"]
        order = [states.index(state) for state in ("listening", "hearing", "working", "speaking")]
        assert order == sorted(order)
