"""Voice in the console, in a real browser with a microphone that plays a tone, against a server that says what it is told to."""

from array import array
from time import time
from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import LOOKS, Opened, opened
from tests.console.samples import MEETING, PREVIEW
from tests.console.scripted_voice import ScriptedVoiceServer, VoiceScript, tone
from tests.console.test_safety import EVIL, harmless

ASKS_FOR_THE_MICROPHONE = True
ALLOWED = {"permissions": ["microphone"]}


def talk(it: Opened, voice: VoiceScript) -> None:
    it.page.locator(".talk-button").click()
    voice.wait(lambda: voice.socket)
    in_state(it, "listening")


def in_state(it: Opened, state: str) -> None:
    it.page.locator(f"section.voice-bar[data-state={state}]").wait_for()


def is_off(it: Opened) -> None:
    it.page.locator("section.voice-bar").wait_for(state="hidden")


def ends(voice: VoiceScript) -> list[int]:
    """The items that were heard to their end."""
    return [report["item"] for report in voice.messages("played") if report.get("done")]


def loudest(frames: list[bytes]) -> int:
    return max(max(abs(sample) for sample in array("h", frame)) for frame in frames)


def test_the_microphone_is_sent_in_frames_and_its_level_shown_until_it_is_muted(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    voice.rates = [24_000, 16_000]
    with opened(browser, server.address, **ALLOWED) as it:
        talk(it, voice)
        voice.wait(lambda: voice.frames and loudest(voice.frames) > 5_000)
        it.page.wait_for_function("() => document.querySelector('.level-fill').getBoundingClientRect().width > 20")
        it.page.get_by_role("button", name="Mute", exact=True).click()
        in_state(it, "muted")
        voice.wait(lambda: loudest(voice.frames[-5:]) == 0)
        before = len(voice.frames)
        voice.wait(lambda: len(voice.frames) > before + 55)  # the device beeps once a second
        assert loudest(voice.frames[before:]) == 0, "what is sent of a muted microphone is silence"
        it.page.get_by_role("button", name="Unmute").click()
        voice.wait(lambda: loudest(voice.frames[-50:]) > 5_000)
    assert {len(frame) for frame in voice.frames} == {960}
    assert voice.hellos[0]["audio"] == {"rate": 24_000}
    assert voice.hellos[0]["abilities"] == {"sound": True, "recognises": False, "speaks": False}


def spoken_turn(voice: VoiceScript) -> None:
    """The person's words come after the answer has begun, as providers send them."""
    voice.say("state", state="hearing")
    voice.say("state", state="thinking")
    voice.say("turn", turn=1, inputId="voice:1")
    voice.say("transcript", who="model", item=1, inputId="voice:1", text="One moment.", whole="One moment.", final=True)
    voice.say("transcript", who="user", item=2, inputId="voice:1", text="What is Hand", final=False)
    voice.say("state", state="working")
    voice.say("tool_started", callId="c1", toolId="kb_search", args={"query": "Handrail"})
    voice.say("transcript", who="user", item=2, inputId="voice:1", text="rail?", whole="What is Handrail?", final=True)
    voice.say(
        "tool_finished", callId="c1", toolId="kb_search", ok=True, error=None, meta={"duration": 42.0}, citations=[]
    )
    voice.say("state", state="speaking")
    said = {"who": "model", "item": 3, "inputId": "voice:1"}
    voice.say("transcript", **said, text="It is a ", final=False)
    voice.say("transcript", **said, text="tool runtime.", whole="It is a tool runtime.", final=True)


def ended_turn(voice: VoiceScript) -> None:
    times = {"hearingMs": 210, "modelMs": 430, "toolsMs": 90, "speakingMs": 1_400}
    voice.say("turn_done", turn=1, inputId="voice:1", text="It is a tool runtime.", interrupted=False, latency=times)
    voice.say("state", state="listening")


def asked(voice: VoiceScript, channel: str = "any") -> None:
    request = {"id": "conf_1", "tool": "calendar_create_event", "args": MEETING, "preview": PREVIEW}
    expires = round((time() + 60) * 1000)
    voice.say("confirmation", **request, expires_at=expires, channel=channel, token="t-1")


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_a_spoken_turn_is_seen_in_its_order_with_its_card_its_times_and_its_question(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, name: str, viewport: dict[str, int], scheme: str
) -> None:
    with opened(browser, server.address, viewport=viewport, scheme=scheme, **ALLOWED) as it:
        page = it.page
        it.page.locator(".welcome").wait_for()
        it.shoot(f"voice-{name}-idle")
        talk(it, voice)
        spoken_turn(voice)
        in_state(it, "speaking")
        page.locator(".prose", has_text="tool runtime").wait_for()
        it.shoot(f"voice-{name}-speaking")
        assert obstacles(page) == []
        ended_turn(voice)
        page.locator(".latency").wait_for()
        log = page.locator(".log")
        assert [one.get_attribute("aria-label") for one in log.locator("article").all()] == ["You", "Answer"]
        assert log.locator(".bubble").inner_text() == "What is Handrail?"
        order = "[...document.querySelector('.parts').children].map((one) => one.className)"
        assert page.evaluate(order) == ["prose", "card", "prose"]
        assert log.locator(".card").get_attribute("data-state") == "done"
        times = page.locator(".latency").inner_text()
        for words in ("after 730 ms", "hearing 210 ms", "model 430 ms", "tools 90 ms", "speaking 1.4 s"):
            assert words in times
        widths = "[...document.querySelectorAll('.latency rect')].map((one) => Math.round(one.width.baseVal.value))"
        assert page.evaluate(widths) == [10, 20, 4, 66]
        it.shoot(f"voice-{name}-latency")
        asked(voice)
        voice.say("question", id="conf_1", state="asking", misses=0)
        page.get_by_text("Say yes or no, or decide here.").wait_for()
        assert obstacles(page) == []
        it.shoot(f"voice-{name}-confirmation")
        page.evaluate("import('/console/voice.js').then(({ voice }) => voice.mute())")
        page.get_by_text("You are muted. Unmute to say yes or no, or decide here.").wait_for()
        assert obstacles(page) == []
        it.shoot(f"voice-{name}-question-muted")


SHOWN = [
    ("listening", "Listening"),
    ("hearing", "Hearing you"),
    ("thinking", "Thinking"),
    ("working", "Working"),
    ("speaking", "Speaking"),
    ("reconnecting", "Reconnecting…"),
]


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_every_state_has_a_word_and_a_sign_and_keeps_nobody_out(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, name: str, viewport: dict[str, int], scheme: str
) -> None:
    def seen(state: str, words: str) -> None:
        in_state(it, state)
        it.page.locator(".voice-word", has_text=words).wait_for()
        assert it.page.locator(".voice-sign svg").count() == 1
        assert obstacles(it.page) == []
        it.shoot(f"voice-{name}-state-{state}")

    with opened(browser, server.address, viewport=viewport, scheme=scheme, **ALLOWED) as it:
        it.page.locator(".welcome").wait_for()
        voice.tickets_may_go_on.clear()
        it.page.locator(".talk-button").click()
        seen("connecting", "Connecting…")
        assert it.page.get_by_label("Your message").get_attribute("placeholder") == "Talk, or type here…"
        voice.tickets_may_go_on.set()
        voice.wait(lambda: voice.socket)
        in_state(it, "listening")
        for state, words in SHOWN:
            voice.say("state", state=state)
            seen(state, words)
        voice.say("state", state="working")
        voice.say("cue", kind="slow")
        seen("working", "Working: a moment longer")
        voice.say("state", state="listening")
        it.page.get_by_role("button", name="Mute", exact=True).click()
        seen("muted", "Muted")
        it.page.locator("[data-place=tools]").click()
        it.page.locator(".voice-mark", has_text="Voice: muted").wait_for()
        it.shoot(f"voice-{name}-other-view")
        it.page.locator("[data-place=chat]").click()
        it.page.get_by_role("button", name="End voice").first.click()
        seen("ending", "Ending…")
        acts = it.page.locator("section.voice-bar button:visible")
        assert [one.is_disabled() for one in acts.all()] == [True, True, True], "it was pressed already"


def test_the_dialog_says_what_became_of_an_answer_that_was_heard(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        talk(it, voice)
        voice.say("turn", turn=1, inputId="voice:1")
        voice.say("tool_started", callId="c1", toolId="calendar_create_event", args=MEETING)
        asked(voice)
        for reason, words in [
            ("not_heard", "It could not be read to you to its end. Please decide here."),
            ("not_known", "it is not known whether it could be recorded. You can still decide here."),
            ("not_started", "Your yes was heard, but nothing has run yet."),
            ("refused", "Your yes was heard, but it was refused: nothing was run."),
            ("decided", "It was decided on a screen before your answer."),
            ("replaced", "It was replaced before your answer, because the tool changed: nothing was run."),
            ("revised", "A newer request has replaced this one. It can still be decided here."),
            ("screen_only", "Please decide here: it cannot be approved by voice."),
            ("", "Please decide here: it cannot be approved by voice."),
        ]:
            voice.say("question", id="conf_1", state="asking", misses=0)
            it.page.locator(".spoken-question[data-state=asking]").wait_for()
            voice.say("question", id="conf_1", state="screen", misses=0, reason=reason)
            it.page.locator(".spoken-question[data-state=screen]", has_text=words).wait_for()
        # Buttons wait a moment after what is shown has changed: nobody has read it sooner.
        it.page.get_by_role("dialog").get_by_role("button", name="Decline", disabled=False).wait_for()


def test_the_dialog_follows_the_spoken_question_and_closes_when_it_is_answered(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        talk(it, voice)
        voice.say("turn", turn=1, inputId="voice:1")
        voice.say("tool_started", callId="c1", toolId="calendar_create_event", args=MEETING)
        asked(voice)
        for state, misses, words in [
            ("reading", 0, "It is being read to you. Listen to the end"),
            ("asking", 0, "Say yes or no, or decide here."),
            ("missed", 1, "That was not understood. Say only yes or no, or decide here."),
            ("reading", 1, "That was not understood. It is read to you once more"),
            ("missed", 2, "That was not understood."),
        ]:
            voice.say("question", id="conf_1", state=state, misses=misses)
            it.page.locator(f".spoken-question[data-state={state}]", has_text=words).wait_for()
        voice.say("question", id="conf_1", state="screen", misses=2, reason="not_understood")
        it.page.locator(".spoken-question[data-state=screen]", has_text="That was not understood twice.").wait_for()
        voice.say("question", id="conf_1", state="asking", misses=1)
        voice.say("state", state="hearing")
        it.page.locator(".spoken-question", has_text="Hearing you").wait_for()
        voice.say("question", id="conf_1", state="approved", misses=1)
        done = {
            "callId": "c1",
            "toolId": "calendar_create_event",
            "ok": True,
            "error": None,
            "meta": {},
            "citations": [],
        }
        voice.say("tool_finished", **done, confirmationId="conf_1", late=True)
        voice.say("confirmation_closed", id="conf_1", toolId="calendar_create_event", outcome="carried_out")
        it.page.get_by_role("dialog").wait_for(state="detached")
        it.page.get_by_text("Approved by voice.").first.wait_for()
        it.page.locator(".card[data-state=done]").wait_for()
        assert voice.messages("text") == []


def test_what_was_heard_is_reported_to_its_end_and_not_beyond_an_interruption(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    def reports(item: int) -> list[dict[str, Any]]:
        return [report for report in voice.messages("played") if report["item"] == item]

    with opened(browser, server.address, **ALLOWED) as it:
        talk(it, voice)
        voice.play(1, 500)
        voice.wait(lambda: 1 in ends(voice))
        heard = [report["ms"] for report in reports(1)]
        assert heard == sorted(heard)
        assert heard[-1] == 500
        assert len(heard) >= 4, "it is reported on the way too"
        for place in range(50):
            voice.sound(2, place * 100, tone(100))
        voice.wait(lambda: [report for report in reports(2) if report["ms"] > 100])
        voice.say("flush", item=2)
        voice.sound(2, 5_000, tone(100))  # under way when the interruption came
        voice.say("audio_end", item=2, ms=5_100)
        voice.play(3, 200)
        voice.wait(lambda: 3 in ends(voice))
        assert 100 < max(report["ms"] for report in reports(2)) < 5_000
        for place in range(50):
            voice.sound(4, place * 100, tone(100))
        voice.say("state", state="speaking")
        voice.wait(lambda: reports(4))
        it.page.get_by_role("button", name="Stop", exact=True).click()
        voice.wait_for("interrupt")
        seen = len(reports(4))
        voice.play(5, 200)
        voice.wait(lambda: 5 in ends(voice))
        assert len(reports(4)) <= seen + 2
    assert ends(voice) == [1, 3, 5]


def test_a_line_that_breaks_comes_back_where_it_was(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        talk(it, voice)
        voice.say("turn", turn=1, inputId="voice:1")
        voice.say("transcript", who="model", item=1, inputId="voice:1", text="One ", final=False)
        it.page.locator(".prose", has_text="One").wait_for()
        voice.play(1, 100)
        voice.wait(lambda: ends(voice) == [1])
        voice.say("question", id="conf_1", state="declined", misses=0)
        it.page.locator(".toast", has_text="Declined by voice").wait_for()
        voice.sockets_refused = 1
        voice.drop(1001, "The server restarts.")
        in_state(it, "reconnecting")
        voice.say("transcript", who="model", item=1, inputId="voice:1", text="two", final=False)
        voice.wait(lambda: len(voice.hellos) == 2)
        in_state(it, "listening")
        it.page.locator(".prose", has_text="One two").wait_for()
        assert it.page.locator(".prose").all_inner_texts() == ["One two"], "pieces stand once, whatever was sent again"
        voice.say("transcript", who="model", item=1, inputId="voice:1", text="", whole="One, two.", final=True)
        it.page.locator(".prose", has_text="One, two.").wait_for()
        assert it.page.locator(".by-model").count() == 1
        assert it.page.locator(".toast", has_text="Declined by voice").count() == 1
        heard = len(voice.frames)
        voice.wait(lambda: len(voice.frames) > heard)
        assert voice.hellos[1]["lastEvent"] == 4
        assert voice.hellos[1]["ticket"] == f"ticket-{voice.tickets}"
        # A server that has forgotten the conversation begins anew, and counts from one again.
        voice.resumes, voice.numbers, voice.log = False, 0, []
        server.script.messages = [{"role": "user", "text": "Before the restart", "turn": 1, "messageId": "voice:1"}]
        voice.drop(1001)
        it.page.locator(".bubble", has_text="Before the restart").wait_for()
        voice.wait(lambda: len(voice.hellos) == 3 and voice.socket)
        voice.say("turn", turn=2, inputId="voice:2")
        voice.say("transcript", who="model", item=1, inputId="voice:2", text="Again.", whole="Again.", final=True)
        it.page.locator(".prose", has_text="Again.").wait_for()
        voice.play(1, 100)
        voice.wait(lambda: ends(voice) == [1, 1])
        voice.socket.send({"type": "ping"})  # type: ignore[union-attr]
        voice.wait_for("pong")


@pytest.mark.parametrize(
    ("trouble", "sentence"),
    [
        ("no voice", "This server has no voice."),
        ("refused", "The voice connection was refused or cannot be reached."),
        ("no provider", "The model cannot be had."),
        ("taken over", "Voice continues in another tab or window."),
    ],
)
def test_whatever_fails_is_said_in_a_sentence_and_text_goes_on(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, trouble: str, sentence: str
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        if trouble == "no voice":
            voice.refusal = (404, sentence)
        voice.sockets_refused = 3 if trouble == "refused" else 0
        it.page.locator(".talk-button").click()
        if trouble == "no provider":
            voice.drop(4503, sentence)
        if trouble == "taken over":
            voice.drop(4409)
        it.page.locator(".toast", has_text=sentence).wait_for()
        is_off(it)
        it.page.fill("#message", "hello")
        it.page.press("#message", "Enter")
        it.page.locator(".by-model", has_text="Yes.").wait_for()
    assert voice.tickets <= (3 if trouble == "refused" else 1)
    assert server.script.said == ["hello"]


def test_a_server_that_says_one_may_come_back_is_asked_until_it_has_time(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        voice.busy = 3
        it.page.locator(".talk-button").click()
        in_state(it, "listening")
        assert it.page.locator(".toast").count() == 0
    assert len(voice.hellos) == 4


def test_a_session_that_another_process_is_busy_in_is_waited_for(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        voice.refusal = (409, "Another process of this server is busy in the session.")
        it.page.locator(".talk-button").click()
        in_state(it, "reconnecting")
        voice.refusal = None
        in_state(it, "listening")
        assert it.page.locator(".toast").count() == 0


def test_a_server_that_stops_when_voice_begins_is_not_the_end_of_it(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, **ALLOWED) as it:
        voice.sockets_refused = 1
        it.page.locator(".talk-button").click()
        in_state(it, "listening")
        assert it.page.locator(".toast").count() == 0
    assert voice.tickets == 2


def test_the_conversation_is_handed_to_voice_and_back_to_text(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    server.script.answers["talk to me"] = [
        ("message", {"type": "voice_session_start", "sessionId": "s-1", "pendingRequest": "the weather"}),
        ("done", {"text": "", "citations": []}),
    ]
    with opened(browser, server.address, **ALLOWED) as it:
        page = it.page
        page.fill("#message", "talk to me")
        page.press("#message", "Enter")
        page.locator(".notice", has_text="continue by voice").get_by_role("button", name="Talk").click()
        in_state(it, "listening")
        page.fill("#message", "typed while talking")
        page.press("#message", "Enter")
        typed = voice.wait_for("text")
        assert typed["text"] == "typed while talking"
        voice.say("turn", turn=2, inputId=typed["id"])
        words = {"inputId": typed["id"], "text": "", "final": True}
        voice.say("transcript", who="user", item=1, whole="typed while talking", **words)
        voice.say("transcript", who="model", item=2, whole="Goodbye!", **words)
        voice.say(
            "ended", reason="end_voice_session", closingMessage="Goodbye!", textResponse="Here it is.", resumable=False
        )
        voice.drop(1000)
        is_off(it)
        page.locator(".by-model", has_text="Here it is.").wait_for()
        assert page.get_by_text("Goodbye!").count() == 1, "what was spoken is not shown twice"
        assert page.get_by_text("typed while talking").count() == 1
        page.fill("#message", "back in text")
        page.press("#message", "Enter")
        page.locator(".by-model", has_text="Yes.").wait_for()
        assert server.script.said == ["talk to me", "back in text"]
        # The person may end it too.
        talk(it, voice)
        page.get_by_role("button", name="End voice").first.click()
        assert voice.wait_for("end")["reason"] == "user_requested"
        voice.say("ended", reason="user_requested", closingMessage=None, textResponse=None, resumable=False)
        is_off(it)


def test_what_is_said_and_told_in_voice_stays_text_and_fits_the_smallest_window(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, viewport={"width": 320, "height": 640}, scheme="dark", **ALLOWED) as it:
        talk(it, voice)
        voice.say("turn", turn=1, inputId="voice:1")
        for item, who in enumerate(("user", "model")):
            voice.say("transcript", who=who, item=item, inputId="voice:1", text=EVIL, whole=EVIL, final=True)
        voice.say("speak", id="s1", text=EVIL, kind="filler", item=0)
        voice.say("error", code="refused", message=EVIL)
        it.page.locator(".toast", has_text="<script>").wait_for()
        assert it.page.locator(".bubble").inner_text() == EVIL
        assert "<script>" in it.page.locator(".prose").inner_text()
        assert "<script>" in it.page.locator(".voice-word").inner_text()
        harmless(it)
        it.page.locator(".toast button").click()
        assert obstacles(it.page) == []
        it.shoot("voice-small-dark")


def test_after_a_reload_and_in_another_tab_one_can_go_on_talking(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    server.script.facts = {"voice": True}
    with opened(browser, server.address, **ALLOWED) as it:
        it.page.get_by_role("button", name="Continue talking").click()
        in_state(it, "listening")
        assert it.page.get_by_text("Voice is still on in this session.").is_hidden()
        for state, shown in [
            ("reconnecting", "connecting"),
            ("listening", "listening"),
            ("reconnecting", "reconnecting"),
        ]:
            voice.say("state", state=state)
            in_state(it, shown)
        # A tool's message is told on both lines; it is shown once.
        server.script.emit("message", {"type": "timeout", "farewellMessage": "Wait a little."})
        voice.say("message", message={"type": "timeout", "farewellMessage": "Wait a little."})
        server.script.emit("voice", {"on": True})
        it.page.get_by_text("Wait a little.").wait_for()
        voice.drop(4409)
        it.page.get_by_text("Voice is still on in this session.").wait_for()
        server.script.emit("voice", {"on": False})
        it.page.get_by_text("Voice is still on in this session.").wait_for(state="hidden")
        assert it.page.get_by_text("Wait a little.").count() == 1
