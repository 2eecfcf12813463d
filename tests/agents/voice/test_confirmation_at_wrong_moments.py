"""A yes at the wrong moment, or of the wrong utterance, from end to end with both providers: nothing of it buys a table."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.agents.voice.kit import Client, VoiceCase, obedient, voice
from tests.agents.voice.test_spoken_confirmation import BUY, activity, asked, piece, play_all, question
from tests.clients.live.kit import PROVIDERS

from handrail.agents.voice.host_port import Abilities
from handrail.agents.voice.state import turn_detection
from handrail.contract.model import UserMessage
from handrail.contract.store import HoldState, StoreUnavailable
from handrail.testing.servers.live import Say, Send, Turn, Words
from handrail.testing.servers.live.script import Pause, Step

both = pytest.mark.parametrize("provider", PROVIDERS)
END = {
    "gemini-live": '{"serverContent": {"turnComplete": true}}',
    "openai-realtime": '{"type": "response.done", "response": {"id": "", "status": "completed"}}',
}
"""The end of the model's turn, as the wire has it."""
READ = "Buy the table Ana Say yes or no."


async def asked_after_an_utterance_without_words(case: VoiceCase) -> None:
    """The person buys, says something else whose words do not come, hears the preview, and may answer."""
    case.server.on_note = obedient
    await case.speak()
    await case.client.until(lambda client: "I need your word for that." in client.words("model"))
    await case.speak()
    await play_all(case, "Hm.")
    await play_all(case, READ)
    await case.client.until(lambda client: "asking" in question(client))


def assert_nothing_was_bought(case: VoiceCase) -> None:
    assert case.tool_log.starts == []
    assert "approved" not in question(case.client)


async def test_late_words_of_an_earlier_utterance_do_not_answer_for_a_later_one() -> None:
    later = Turn([Words(2, "Yes."), Words(3, "No, wait."), Say("Well.")])
    async with voice("openai-realtime", [BUY, Turn([Say("Hm.")]), later], client=Client(reports=False)) as case:
        await asked_after_an_utterance_without_words(case)
        await case.speak()
        await case.client.until(lambda client: "missed" in question(client))
        assert_nothing_was_bought(case)
        said = [one.text for one in case.conversation.messages if isinstance(one, UserMessage)]
        assert said == ["Buy it", "Yes.", "No, wait."]


async def test_words_that_may_be_an_earlier_voices_are_a_miss_where_nobody_names_them() -> None:
    later = Turn([Words(0, "Yes."), Say("Well.")])
    async with voice("gemini-live", [BUY, Turn([Say("Hm.")]), later], client=Client(reports=False)) as case:
        await asked_after_an_utterance_without_words(case)
        await asyncio.sleep(1.6)  # a new voice begins after a pause
        await case.speak()
        await case.client.until(lambda client: question(client)[-1] in ("missed", "approved"))
        assert_nothing_was_bought(case)


COUGH = [activity("START"), activity("END")]
"""Somebody is heard after the preview, and no words are made of it."""
MENU = "Shall I read you the menu?"


async def answer_after_a_cough(case: VoiceCase, heard: str) -> None:
    """The preview is read, somebody coughs, and what the script has follows; until it is known what was heard then."""
    await asked(case)
    await case.speak()
    await case.client.until(lambda client: heard in client.words("user"))
    await case.client.until(lambda client: question(client)[2:3] in (["missed"], ["approved"]))


async def test_words_long_after_a_cough_are_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turn_detection.PAUSE_SECONDS == 1.5
    monkeypatch.setattr(turn_detection, "PAUSE_SECONDS", 0.2)
    async with voice("gemini-live", [BUY, Turn([*COUGH, Pause(0.5), piece("Yes."), Say("Fine.")])]) as case:
        await answer_after_a_cough(case, "Yes.")
        assert_nothing_was_bought(case)


async def test_a_yes_to_what_the_model_asked_after_a_cough_is_a_miss() -> None:
    async with voice("gemini-live", [BUY, Turn([*COUGH, Say(MENU), piece("Yes."), Say("Fine.")])]) as case:
        await answer_after_a_cough(case, "Yes.")
        assert_nothing_was_bought(case)


async def test_a_yes_after_the_end_of_the_models_question_behind_a_cough_is_a_miss() -> None:
    async with voice("gemini-live", [BUY, Turn([*COUGH, Say(MENU)])], client=Client(reports=False)) as case:
        case.server.on_note = obedient
        await case.speak()
        await play_all(case, "I need your word for that.")
        await play_all(case, READ)
        await case.client.until(lambda client: "asking" in question(client))
        await case.speak()
        await case.client.until(lambda client: MENU in client.answers)
        await case.server.conversations[-1].tell_words(2, "Yes.")
        await case.client.until(lambda client: question(client)[2:3] in (["missed"], ["approved"]))
        assert_nothing_was_bought(case)


async def heard_without_words_while_the_model_asked(case: VoiceCase) -> None:
    """The preview is read, an utterance follows whose words do not come, and the model asks something of its own, to its end."""
    case.server.on_note = obedient
    await case.speak()
    await play_all(case, "I need your word for that.")
    await play_all(case, READ)
    await case.client.until(lambda client: "asking" in question(client))
    await case.speak()
    await play_all(case, MENU)


async def test_an_answer_whose_words_never_come_is_asked_for_again() -> None:
    async with voice("openai-realtime", [BUY, Turn([Say(MENU)])], client=Client(reports=False)) as case:
        await heard_without_words_while_the_model_asked(case)
        await case.client.until(lambda client: question(client) == ["reading", "asking", "reading"])
        assert_nothing_was_bought(case)


async def test_a_yes_to_what_the_model_asked_is_no_answer_though_words_before_it_are_awaited() -> None:
    turns = [BUY, Turn([Say(MENU)]), Turn([Say("Fine.")], hears="Yes.")]
    async with voice("openai-realtime", turns, client=Client(reports=False)) as case:
        await heard_without_words_while_the_model_asked(case)
        assert question(case.client) == ["reading", "asking"]
        await case.speak()
        await case.client.until(lambda client: "Yes." in client.words("user"))
        await case.client.until(lambda client: len(question(client)) > 2)
        assert question(case.client)[2] == "reading"
        assert_nothing_was_bought(case)


async def test_words_are_a_miss_where_another_voice_began_after_the_end_that_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_detection, "PAUSE_SECONDS", 60.0)  # of words; that of voices is as it is
    async with voice("gemini-live", [BUY, Turn([*COUGH, Pause(30.0)])]) as case:
        await asked(case)
        await case.speak()
        await case.client.until("turn", 2)
        await asyncio.sleep(1.6)
        await case.start_speaking()  # nobody tells that it begins
        await case.server.conversations[-1].tell_words(2, "Yes.", finished=True)
        await case.client.until(lambda client: question(client)[2:3] in (["missed"], ["approved"]))
        assert_nothing_was_bought(case)


async def test_a_full_stop_after_the_models_first_word_takes_nothing_from_a_yes() -> None:
    answer = Turn([activity("START"), piece("Yes"), activity("END"), Say("Fine."), piece(".")])
    async with voice("gemini-live", [BUY, answer]) as case:
        await asked(case)
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 1)


async def test_words_that_follow_within_a_second_belong_to_the_yes_before_them(
    words_settle_as_in_production: float,
) -> None:
    assert words_settle_as_in_production == 1.0
    steps = [activity("START"), piece("Yes"), activity("END"), Pause(0.6), piece(", but at eight."), Say("Fine.")]
    async with voice("gemini-live", [BUY, Turn(steps)]) as case:
        await answer_after_a_cough(case, "Yes, but at eight.")
        assert question(case.client)[2] == "missed"
        assert_nothing_was_bought(case)


async def test_words_that_come_twice_do_not_become_the_next_utterances() -> None:
    turns = [
        Turn([Words(1, "One."), Words(1, "One."), Say("First.")]),
        Turn([Say("Second."), Words(2, "Two.")]),
        Turn([Words(3, "Three."), Say("Third.")]),
    ]
    async with voice("openai-realtime", turns) as case:
        for answer in ("First.", "Second.", "Third."):
            await case.speak()
            await case.client.until(lambda client, answer=answer: answer in client.answers)  # type: ignore[misc]
        said = [one.text for one in case.conversation.messages if isinstance(one, UserMessage)]
        assert said == ["One.", "Two.", "Three."]


async def test_words_that_come_while_the_next_thing_is_being_said_stay_with_their_own() -> None:
    turns = [Turn([Say("First.")]), Turn([Words(1, "One."), Words(2, "Two."), Say("Second.")])]
    async with voice("openai-realtime", turns) as case:
        await case.speak()
        await case.client.until(lambda client: "First." in client.answers)
        await case.speak()
        await case.client.until(lambda client: "Second." in client.answers)
        said = [one.text for one in case.conversation.messages if isinstance(one, UserMessage)]
        assert said == ["One.", "Two."]


async def test_a_yes_that_the_person_goes_on_after_is_a_miss() -> None:
    async with voice("openai-realtime", [BUY, Turn([Say("Hm.")])]) as case:
        await asked(case)
        await case.speak()
        await case.client.until(lambda client: "Hm." in client.words("model"))
        await case.start_speaking()
        await case.client.until(lambda client: case.voice.reducer.detection.is_speaking)
        await case.server.conversations[-1].tell_words(2, "Yes.")
        await case.client.until(lambda client: "missed" in question(client))
        assert_nothing_was_bought(case)


@pytest.mark.parametrize("client_tells", [False, True])
@pytest.mark.parametrize("finished", [False, True])
async def test_a_yes_that_goes_on_after_the_models_first_word_is_a_miss(finished: bool, client_tells: bool) -> None:
    answer = Turn([Words(2, "Yes", finished=False), Say("Fine."), Words(2, ", but make it eight.", finished=finished)])
    async with voice("gemini-live", [BUY, answer]) as case:
        await asked(case)
        if client_tells:
            case.voice.speech("started")
        await case.speak()
        if client_tells:
            case.voice.speech("ended")
        await case.client.until(lambda client: "missed" in question(client))
        assert_nothing_was_bought(case)
        assert "Yes, but make it eight." in case.client.words("user")


async def test_a_yes_that_goes_on_after_the_models_whole_answer_is_a_miss() -> None:
    async with voice("gemini-live", [BUY, Turn([Say("Fine.")], hears="Yes")]) as case:
        await asked(case)
        await case.speak()
        await case.client.until(lambda client: "Fine." in client.answers)
        await case.server.conversations[-1].tell_words(2, ", but make it eight.")
        await case.client.until(lambda client: "missed" in question(client))
        assert_nothing_was_bought(case)


async def test_a_yes_whose_words_the_provider_calls_complete_counts_at_once() -> None:
    async with voice("gemini-live", [BUY, Turn([Words(2, "Yes."), Say("Fine.")])]) as case:
        await asked(case)
        await case.speak()
        await case.tool_log.until(lambda tool_log: tool_log.of("buy_table") == 1)


@both
async def test_a_yes_is_no_answer_where_something_else_was_said_right_behind_the_preview(provider: str) -> None:
    def chatty(note: str) -> Sequence[Step]:
        return [*obedient(note), Send(END[provider]), Say("Or shall I play music?")] if obedient(note) else []

    turns = [BUY, Turn([Say("Fine.")], hears="Yes")]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        case.server.on_note = chatty
        await case.speak()
        await play_all(case, "I need your word for that.")
        await case.client.until(lambda client: "Or shall I play music?" in client.words("model"))
        await play_all(case, READ)
        await play_all(case, "Or shall I play music?")
        await case.client.until(lambda client: question(client)[-2:] == ["reading", "reading"])
        await case.speak()
        await case.client.until(lambda client: "Fine." in client.answers)
        assert_nothing_was_bought(case)
        assert "asking" not in question(case.client)


@both
async def test_a_yes_in_the_same_moment_as_the_end_of_the_preview_is_no_answer(provider: str) -> None:
    turns = [BUY, Turn([Say("Fine.")], hears="Yes")]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        case.server.on_note = obedient
        await case.speak()
        await play_all(case, "I need your word for that.")
        await play_all(case, READ)
        await case.speak()
        await play_all(case, "Fine.")
        await case.client.until(lambda client: question(client).count("reading") == 2)
        assert_nothing_was_bought(case)


@both
@pytest.mark.parametrize("reads", [READ, "Buy the table Bob for nothing. Say yes or no."])
async def test_a_preview_in_which_another_client_took_over_was_not_heard(provider: str, reads: str) -> None:
    turns = [BUY, Turn([Say("Fine.")], hears="Yes")]
    async with voice(provider, turns, client=Client(reports=False)) as case:
        case.server.on_note = lambda note: [Say(reads)] if obedient(note) else []
        await case.speak()
        await play_all(case, "I need your word for that.")
        await case.client.until(lambda client: reads in client.words("model"))
        case.voice.adapt(Abilities(sound=False, recognises=True, speaks=True))
        await play_all(case, reads)
        await case.client.until(lambda client: question(client).count("reading") == 2)
        await case.speak()
        await case.client.until(lambda client: "Fine." in client.answers)
        assert_nothing_was_bought(case)
        assert "asking" not in question(case.client)


@both
@pytest.mark.parametrize("then", ["it continues", "a no"])
async def test_an_approved_call_whose_claim_nobody_heard_is_told_as_not_started(provider: str, then: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        await asked(case)
        core, claim, is_back = case.runtime, case.runtime.store.claim, asyncio.Event()

        async def unheard(one: Any) -> Any:
            result = await claim(one)
            if not is_back.is_set():
                raise StoreUnavailable("The store did not answer.")
            return result

        core.store.claim = unheard
        await case.speak()
        await case.client.until(lambda client: question(client)[-1] in ("screen", "approved"))
        await case.client.until("error")
        assert question(case.client) == ["reading", "asking", "screen"]
        assert [told["code"] for told in case.client.of("error")] == ["not_started"]
        assert "approved but has not started" in case.client.of("error")[0]["message"]
        assert_nothing_was_bought(case)
        if then == "a no":
            request = case.client.of("confirmation")[-1]
            with pytest.raises(StoreUnavailable):
                await core.decline(request["id"], token=request["token"])
        is_back.set()
        await case.client.until("confirmation_closed")  # the housekeeper continues with it
        outcome = "declined" if then == "a no" else "carried_out"
        assert [closed["outcome"] for closed in case.client.of("confirmation_closed")] == [outcome]
        assert case.tool_log.of("buy_table") == (then != "a no")
        assert "approved" not in question(case.client)


def not_heard_once(store: Any, landed: bool, change: str = "move_hold") -> None:
    """The next change of a request is not answered; whether it was made."""
    move = getattr(store, change)

    async def unheard(*args: Any, **options: Any) -> Any:
        setattr(store, change, move)
        if landed:
            await move(*args, **options)
        raise StoreUnavailable("The store did not answer.")

    setattr(store, change, unheard)


@both
@pytest.mark.parametrize("landed", [True, False])
async def test_an_approval_that_nobody_heard_is_told_as_one_that_may_still_be_carried_out(
    provider: str, landed: bool
) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        await asked(case)
        not_heard_once(case.runtime.store, landed)
        await case.speak()
        await case.client.until("error")
        assert question(case.client) == ["reading", "asking", "screen"]
        assert [told["code"] for told in case.client.of("error")] == ["not_known"]
        request = case.client.of("confirmation")[-1]
        if landed:
            await case.client.until("confirmation_closed")
        await case.runtime.approve(request["id"], token=request["token"])  # a second yes, on the screen
        await case.client.until("confirmation_closed")
        assert [closed["outcome"] for closed in case.client.of("confirmation_closed")] == ["carried_out"]
        assert case.tool_log.of("buy_table") == 1
        assert "approved" not in question(case.client)


@pytest.mark.parametrize("lost", ["hold_by_id", "move_hold"])
async def test_an_approval_that_cannot_be_looked_at_or_taken_back_may_still_be_carried_out(lost: str) -> None:
    async with voice("gemini-live", [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        await asked(case)
        store = case.runtime.store
        claim, real = store.claim, getattr(store, lost)

        async def away(*_: Any, **__: Any) -> Any:
            setattr(store, lost, away)
            raise StoreUnavailable("The store did not answer.")

        store.claim = away
        await case.speak()
        await case.client.until("error")
        assert question(case.client) == ["reading", "asking", "screen"]
        assert [told["code"] for told in case.client.of("error")] == ["not_known"]
        store.claim = claim
        setattr(store, lost, real)
        await case.client.until("confirmation_closed")
        assert case.tool_log.of("buy_table") == 1


@both
async def test_an_approval_whose_claim_was_not_made_leaves_the_request_open(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        await asked(case)
        claim = case.runtime.store.claim

        async def away(_: Any) -> Any:
            raise StoreUnavailable("The store did not answer.")

        case.runtime.store.claim = away
        await case.speak()
        await case.client.until("error")
        assert question(case.client) == ["reading", "asking", "screen"]
        assert [told["code"] for told in case.client.of("error")] == ["not_started"]
        assert "did not run" in case.client.of("error")[0]["message"]
        case.runtime.store.claim = claim
        request = case.client.of("confirmation")[-1]
        assert (await case.runtime.approve(request["id"], token=request["token"])).ok
        assert case.tool_log.of("buy_table") == 1


@both
async def test_a_no_on_the_screen_that_overtakes_a_spoken_yes_is_told_as_a_no(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        await asked(case)
        store, request = case.runtime.store, case.client.of("confirmation")[-1]
        move = store.move_hold

        async def overtaken(*args: Any, **options: Any) -> Any:
            store.move_hold = move
            await case.runtime.decline(request["id"], token=request["token"])
            await case.client.until("confirmation_closed")
            return await move(*args, **options)

        store.move_hold = overtaken
        await case.speak()
        await case.client.until(lambda client: len(question(client)) > 2)
        assert question(case.client) == ["reading", "asking", "declined"]
        assert_nothing_was_bought(case)


@both
async def test_an_approval_that_the_runtime_refuses_is_not_told_as_one(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="Yes.")]) as case:
        await asked(case)
        await case.runtime.store.switch("buy_table", "It is closed for today.")
        await case.speak()
        await case.client.until(lambda client: question(client)[-1] in ("screen", "approved"))
        assert question(case.client) == ["reading", "asking", "screen"]
        assert case.client.of("question")[-1]["reason"] == "refused"
        assert_nothing_was_bought(case)


@both
@pytest.mark.parametrize("landed", [True, False])
async def test_a_no_that_nobody_heard_is_not_told_as_declined(provider: str, landed: bool) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="No.")]) as case:
        await asked(case)
        not_heard_once(case.runtime.store, landed, "decline_hold")
        await case.speak()
        await case.client.until("error")
        assert question(case.client) == ["reading", "asking", "screen"]
        assert case.client.of("question")[-1]["reason"] == "not_known"
        assert [told["code"] for told in case.client.of("error")] == ["not_known"]
        assert "decline it on the screen as well" in case.client.of("error")[0]["message"]
        request = case.client.of("confirmation")[-1]
        await case.runtime.decline(request["id"], token=request["token"])
        await case.client.until("confirmation_closed")
        assert [closed["outcome"] for closed in case.client.of("confirmation_closed")] == ["declined"]
        assert_nothing_was_bought(case)


@both
async def test_a_yes_on_the_screen_that_overtakes_a_spoken_no_is_not_told_as_declined(provider: str) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="No.")]) as case:
        await asked(case)
        store, request = case.runtime.store, case.client.of("confirmation")[-1]
        decline = store.decline_hold

        async def overtaken(*args: Any, **options: Any) -> Any:
            store.decline_hold = decline
            assert (await case.runtime.approve(request["id"], token=request["token"])).ok
            return await decline(*args, **options)

        store.decline_hold = overtaken
        await case.speak()
        await case.client.until("confirmation_closed")
        await case.client.until(lambda client: len(question(client)) > 2)
        assert question(case.client) == ["reading", "asking", "screen"]
        assert case.client.of("question")[-1]["reason"] == "decided"
        assert [closed["outcome"] for closed in case.client.of("confirmation_closed")] == ["carried_out"]
        assert case.tool_log.of("buy_table") == 1


@both
@pytest.mark.parametrize(
    ("state", "told"), [(HoldState.EXPIRED, ("expired", None)), (HoldState.SUPERSEDED, ("screen", "replaced"))]
)
async def test_a_no_to_a_request_that_nobody_decided_is_not_told_as_decided(
    provider: str, state: HoldState, told: tuple[str, str | None]
) -> None:
    async with voice(provider, [BUY, Turn([Say("Fine.")], hears="No.")]) as case:
        await asked(case)
        store = case.runtime.store
        decline = store.decline_hold

        async def too_late(hold_id: str, *args: Any, **options: Any) -> Any:
            store.decline_hold = decline
            await store.move_hold(hold_id, state, expected=(HoldState.PENDING,))
            return await decline(hold_id, *args, **options)

        store.decline_hold = too_late
        await case.speak()
        await case.client.until(lambda client: len(question(client)) > 2)
        last = case.client.of("question")[-1]
        assert (last["state"], last.get("reason")) == told
        assert_nothing_was_bought(case)


async def test_a_no_that_came_too_late_for_what_cannot_be_looked_at_is_not_known() -> None:
    async with voice("gemini-live", [BUY, Turn([Say("Fine.")], hears="No.")]) as case:
        await asked(case)
        store = case.runtime.store
        decline = store.decline_hold

        async def away(_: str) -> Any:
            raise StoreUnavailable("The store did not answer.")

        async def too_late(hold_id: str, *args: Any, **options: Any) -> Any:
            await store.move_hold(hold_id, HoldState.EXPIRED, expected=(HoldState.PENDING,))
            store.hold_by_id = away
            return await decline(hold_id, *args, **options)

        store.decline_hold = too_late
        await case.speak()
        await case.client.until("error")
        assert case.client.of("question")[-1]["reason"] == "not_known"
        assert_nothing_was_bought(case)
