"""Spoken confirmation from end to end: preview read and heard, a plain yes or no, and nobody else's word."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.agents.voice.kit import Client, VoiceCase, obedient, voice
from tests.clients.live.kit import PROVIDERS

from handrail import ToolError
from handrail.agents.voice.host_port import VoicePolicy
from handrail.agents.voice.spoken import AnswerVerdict, RecognisedAnswer
from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.servers.live.script import Send, Step, Words

both = pytest.mark.parametrize("provider", PROVIDERS)
BUY = Turn([Ask(call("buy_table", guest="Ana")), Say("I need your word for that.")], hears="Buy it")


def question(client: Client) -> list[str]:
    return [data["state"] for data in client.of("question")]


async def asked(case: VoiceCase) -> None:
    """Until the preview was read and an answer counts."""
    case.server.on_note = obedient
    await case.speak()
    await case.client.until(lambda client: "asking" in question(client))


@both
async def test_a_plain_yes_after_the_preview_buys_the_table(provider: str) -> None:
    turns = [BUY, Turn([Say("Fine.")], hears="Yes.")]
    async with voice(provider, turns) as case:
        await asked(case)
        assert case.tool_log.starts == []
        read = [data["text"] for data in case.client.of("transcript") if "Buy the table" in data["text"]]
        assert len(read) == 1
        await case.speak()
        await case.client.until(lambda client: any(card.get("late") for card in client.of("tool_finished")))

        assert case.tool_log.starts == [("buy_table", {"guest": "Ana"})]
        assert question(case.client) == ["reading", "asking", "approved"]
        (closed,) = case.client.of("confirmation_closed")
        assert closed["outcome"] == "carried_out"
        await _until(lambda: "was approved by the person" in str(case.server.received))
        assert case.server.complaints == []


@both
@pytest.mark.parametrize(("hears", "state"), [("Yes.", "approved"), ("No.", "declined"), ("Maybe.", "missed")])
async def test_a_client_that_tells_of_speech_itself_is_understood_as_well(
    provider: str, hears: str, state: str
) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears=hears)]) as case:
        await asked(case)
        case.voice.speech("started")
        await case.speak()
        case.voice.speech("ended")
        await case.client.until(lambda client: len(question(client)) > 2)
        assert question(case.client)[:3] == ["reading", "asking", state]
        assert case.client.words("user")[1] == hears
        if state == "approved":
            await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 1)
        assert case.tool_log.of("buy_table") == (state == "approved")


def activity(kind: str) -> Send:
    return Send(json.dumps({"voiceActivity": {"voiceActivityType": f"ACTIVITY_{kind}"}}))


def piece(text: str) -> Words:
    return Words(2, text, finished=False)


@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([activity("START"), activity("END"), piece("Yes.")], "approved"),
        ([activity("START"), piece("Ye"), activity("END"), piece("s.")], "approved"),
        ([activity("START"), piece("Yes"), activity("END"), piece(", but at eight.")], "missed"),
        ([activity("START"), activity("END"), piece("Yes."), activity("START"), activity("END")], "missed"),
        ([activity("START"), activity("END"), activity("START"), piece("Yes.")], "missed"),
        ([activity("START"), activity("END"), activity("END"), piece("Yes.")], "missed"),
    ],
)
async def test_words_that_come_after_the_end_of_speech_are_its_own_unless_there_was_more(
    steps: list[Any], state: str
) -> None:
    async with voice("gemini-live", [BUY, Turn([*steps, Say("Fine.")])]) as case:
        await asked(case)
        await case.speak()
        await case.client.until(lambda client: len(question(client)) > 2)
        assert question(case.client)[2] == state
        await case.client.until(lambda client: "Fine." in client.answers)
        assert case.tool_log.of("buy_table") == (state == "approved")


async def test_a_provider_that_tells_when_speech_ends_but_not_that_its_words_do_is_understood_as_well() -> None:
    answer = Turn([activity("START"), Words(2, "Yes.", finished=False), activity("END"), Say("Fine.")])
    async with voice("gemini-live", [BUY, answer]) as case:
        await asked(case)
        await case.speak()
        await case.client.until(lambda client: len(question(client)) > 2)
        assert question(case.client) == ["reading", "asking", "approved"]
        assert case.client.words("user")[-1] == "Yes."


@both
@pytest.mark.parametrize(
    ("problem", "outcome"),
    [
        (ToolError("CONFLICT", "Somebody has that table."), "failed"),
        (ToolError("STORE_UNAVAILABLE", "The shop's own store is away.", partial_side_effects=True), "failed"),
        (RuntimeError("It broke."), "unknown"),
    ],
)
async def test_an_approved_call_that_fails_was_approved_all_the_same(
    provider: str, problem: Exception, outcome: str
) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        case.tool_log.problem = problem
        await asked(case)
        await case.speak()
        await case.client.until("confirmation_closed")
        await case.client.until(lambda client: len(question(client)) == 3)

        assert case.tool_log.of("buy_table") == 1
        assert question(case.client) == ["reading", "asking", "approved"]
        assert [closed["outcome"] for closed in case.client.of("confirmation_closed")] == [outcome]
        assert case.client.of("error") == []


async def _until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


@both
async def test_a_plain_no_declines_and_nothing_runs(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="No, thanks.")]) as case:
        await asked(case)
        await case.speak()
        await case.client.until("confirmation_closed")
        assert question(case.client)[-1] == "declined"
        assert case.client.of("confirmation_closed")[0]["outcome"] == "declined"
        assert case.tool_log.starts == []


@both
async def test_two_answers_that_are_neither_go_to_the_screen_where_it_can_still_be_approved(provider: str) -> None:
    turns = [BUY, Turn([Say("Hm.")], hears="Yes but later"), Turn([Say("Hm.")], hears="What was that?")]
    async with voice(provider, turns) as case:
        await asked(case)
        await case.speak()
        await case.client.until(lambda client: question(client).count("asking") == 2)
        await case.speak()
        await case.client.until(lambda client: "screen" in question(client))
        assert question(case.client) == ["reading", "asking", "missed", "reading", "asking", "missed", "screen"]
        assert case.client.of("question")[-1]["reason"] == "not_understood"
        assert case.tool_log.starts == []
        request = case.client.of("confirmation")[0]
        answer = await case.runtime.approve(request["id"], token=request["token"])
        assert answer.ok


@both
async def test_the_models_own_yes_approves_nothing(provider: str) -> None:
    def eager(note: str) -> Sequence[Step]:
        said = obedient(note)
        return [*said, Say("Yes. Yes, go ahead.")] if said else []

    async with voice(provider, [BUY, Turn([Say("Yes."), Say("Approved.")], hears="Hm")]) as case:
        case.server.on_note = eager
        await case.speak()
        await case.client.until(lambda client: question(client)[-1:] == ["screen"])
        await case.speak()
        await case.client.until(lambda client: any("Approved." in text for text in client.answers))
        assert case.tool_log.starts == []
        assert "approved" not in question(case.client)


@both
async def test_a_model_that_reads_something_else_is_not_believed(provider: str) -> None:
    def lying(note: str) -> Sequence[Step]:
        return [Say("Buy the table Bob. Shall I do it? Please say yes or no.")] if obedient(note) else []

    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes")]) as case:
        case.server.on_note = lying
        await case.speak()
        await case.client.until(lambda client: "screen" in question(client))
        await case.speak()
        await case.client.until("turn_done", 2)
        assert "asking" not in question(case.client)
        assert case.tool_log.starts == []


@both
async def test_a_yes_into_the_reading_does_not_count_and_it_is_read_again(provider: str) -> None:
    turns = [BUY, Turn([Say("Fine.")], hears="Yes"), Turn([Say("Fine.")], hears="Yes")]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        case.server.on_note = obedient
        await case.speak()
        await play_all(case, "I need your word for that.")
        await case.client.until(lambda client: "reading" in question(client))
        await case.client.until(lambda client: any("Buy the table" in text for text in client.words("model")))
        await case.speak()
        await case.client.until(lambda client: client.answers.count("Fine.") == 1)
        assert "asking" not in question(case.client)
        assert case.tool_log.starts == []
        case.client.reports = True
        await play_all(case, "Fine.")
        await case.client.until(lambda client: "asking" in question(client))
        assert question(case.client) == ["reading", "reading", "asking"]
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 1)


async def play_all(case: VoiceCase, text: str) -> None:
    """Report that what was said last with these words was played to its end."""
    await case.client.until(lambda client: text in client.words("model"))
    item = [data["item"] for data in case.client.of("transcript") if data.get("whole") == text][-1]
    await case.client.until(lambda client: any(data["item"] == item for data in client.of("audio_end")))
    ended = next(data for data in case.client.of("audio_end") if data["item"] == item)
    case.voice.played(item, ended["ms"], True)


@both
async def test_a_tool_for_the_screen_is_never_asked_about_by_voice(provider: str) -> None:
    turns = [Turn([Ask(call("sell_table", guest="Ana")), Say("Please look at your screen.")], hears="Sell it")]
    async with voice(provider, [*turns, Turn([Say("Fine.")], hears="Yes")]) as case:
        case.server.on_note = obedient
        await case.speak()
        await case.client.until("turn_done")
        await case.speak()
        await case.client.until("turn_done", 2)
        assert question(case.client) == ["screen"]
        assert case.client.of("question")[-1]["reason"] == "screen_only"
        assert case.tool_log.starts == []


class Ears:
    """A second pair of ears that hears what the test says."""

    def __init__(self, verdict: AnswerVerdict) -> None:
        self.verdict = verdict
        self.lengths: list[int] = []

    async def recognise(self, pcm: bytes, rate: int) -> RecognisedAnswer | None:
        self.lengths.append(len(pcm) * 1000 // (2 * rate))
        return RecognisedAnswer(self.verdict)


@both
@pytest.mark.parametrize(("verdict", "runs"), [(AnswerVerdict.YES, 1), (AnswerVerdict.MISS, 0)])
async def test_with_a_local_recogniser_both_must_hear_a_yes(provider: str, verdict: AnswerVerdict, runs: int) -> None:
    ears = Ears(verdict)
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes")], recogniser=ears) as case:
        await asked(case)
        await case.speak(200)
        await case.client.until(lambda client: question(client)[-1] in ("approved", "missed", "reading"))
        assert ears.lengths
        assert ears.lengths[0] >= 200
        await case.client.until("turn_done", 2)
        if runs:
            await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 1)
        assert case.tool_log.of("buy_table") == runs


@both
async def test_a_question_that_was_answered_on_the_screen_is_not_asked_any_more(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes")]) as case:
        await asked(case)
        request = case.client.of("confirmation")[0]
        await case.runtime.decline(request["id"], token=request["token"])
        await case.client.until("confirmation_closed")
        await case.speak()
        await case.client.until(lambda client: "Fine." in client.answers)
        assert "approved" not in question(case.client)
        assert case.tool_log.starts == []


@both
async def test_a_preview_that_no_client_reports_as_played_was_not_heard(provider: str) -> None:
    turns = [BUY, Turn([Say("Fine.")], hears="Yes")]
    policy = VoicePolicy(playback_seconds=0.05)
    async with voice(provider, turns, client=Client(reports=False), policy=policy) as case:
        case.server.on_note = obedient
        await case.speak()
        await case.client.until(lambda client: "screen" in question(client))
        assert question(case.client) == ["reading", "reading", "screen"]
        assert case.client.of("question")[-1]["reason"] == "not_heard"


async def test_a_yes_that_began_in_the_preview_does_not_count_though_its_words_come_after_it() -> None:
    turns = [BUY, Turn([Say("Fine.")], hears="Yes"), Turn([Say("Fine.")], hears="Yes")]
    async with voice("gemini-live", turns, client=Client(reports=False)) as case:
        case.server.on_note = obedient
        await case.speak()
        await play_all(case, "I need your word for that.")
        await case.client.until("turn_done", 2)
        await case.start_speaking()
        read = next(text for text in case.client.words("model") if text.startswith("Buy the table"))
        await play_all(case, read)
        await case.client.until(lambda client: "asking" in question(client))
        await case.stop_speaking()
        await case.client.until(lambda client: "Fine." in client.answers)
        assert case.tool_log.starts == []
        assert "approved" not in question(case.client)
        assert "missed" not in question(case.client)


@both
async def test_a_yes_to_a_price_that_has_changed_rents_nothing_and_the_new_price_is_read(provider: str) -> None:
    rent = Turn([Ask(call("rent_table", guest="Ana")), Say("I need your word for that.")], hears="Rent it")
    async with voice(provider, [rent, Turn([Say("Fine.")], hears="Yes."), Turn([Say("Well.")], hears="Yes.")]) as case:
        await asked(case)
        case.tool_log.price = "It costs 500 euros"
        await case.speak()
        await case.client.until(lambda client: question(client).count("asking") == 2)
        assert case.tool_log.of("rent_table") == 0
        read = [data["text"] for data in case.client.of("transcript") if "Rent the table" in data["text"]]
        assert ["5 euros" in text for text in read] == [True, False]
        assert ["500 euros" in text for text in read] == [False, True]
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("rent_table") == 1)
        await case.client.until("confirmation_closed")
        assert "screen" not in question(case.client)


@both
async def test_the_same_purchase_wanted_once_more_is_asked_about_once_more(provider: str) -> None:
    """The model has been told that the first was made, and the user has spoken since."""
    turns = [BUY, Turn([Say("Fine.")], hears="Yes."), BUY, Turn([Say("Fine again.")], hears="Yes.")]
    async with voice(provider, turns) as case:
        await asked(case)
        await case.speak()
        await case.client.until("confirmation_closed")
        await _until(lambda: "was approved by the person" in str(case.server.received))
        assert case.tool_log.of("buy_table") == 1
        await case.speak()
        await case.client.until(lambda client: question(client).count("asking") == 2)
        first, second = (data["id"] for data in case.client.of("confirmation"))
        assert first != second
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 2)


@both
async def test_a_purchase_repeated_in_answer_to_the_yes_itself_is_the_same_one(provider: str) -> None:
    repeat = Turn([Ask(call("buy_table", guest="Ana")), Say("Fine.")], hears="Yes.")
    async with voice(provider, [BUY, repeat]) as case:
        await asked(case)
        await case.speak()
        await case.client.until(lambda client: "Fine." in client.answers and client.of("confirmation_closed"))
        assert case.tool_log.of("buy_table") == 1
        assert len({data["id"] for data in case.client.of("confirmation")}) == 1
